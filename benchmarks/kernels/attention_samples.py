"""Attention of the NKI samples (`nki_samples/reference`): Stable Diffusion's small head, flash attention both ways.

`small_head`: V, Q and K loaded whole (K transposed by the DMA engines), then per 128 queries and 128 keys a product,
its copy out of PSUM and its maximum; exp over the whole row with its sum (the kernel says that
the compiler merges them), a copy to bf16, transposes on the PE array, the
product with V transposed to [width, queries]. `allocated` does the same with buffers placed by hand: 512 keys per
product, the maximum taken while scaling out of PSUM, four transposes to a bank. `forward` and `backward` are flash
attention in key tiles of 2048 and 512. Copies of scores out of PSUM go to ScalarE, which has least to do, all other
copies to VectorE; the affine_select of a causal mask to GpSimd.
"""

from __future__ import annotations

from neuroncore.isa import Access, Tile
from neuroncore.targets import Target

from benchmarks.kernels.writer import BANK, Writer, chunks, steady_ns

__all__ = ["allocated", "backward", "forward", "small_head"]

LARGE = 2048
LEAST = -9984.0


def _operands(w: Writer, length: int, width: int, dtype: str) -> tuple[list[Access], list[Access], list[Access]]:
    """Q and K as [width, 128] tiles, V as [128, width] tiles, in SBUF as bf16; loaded once."""
    k_hbm, v_hbm = (w.hbm(name, length, width, dtype) for name in "kv")
    turned = w.hbm("q", width, length, dtype)
    tiles = range(length // 128)
    raw = w.ring(4, 128, dtype)
    found: tuple[list[Access], list[Access], list[Access]] = ([], [], [])
    narrow = dtype not in ("bf16", "fp16")
    for i in tiles:
        value, query, key = w.sbuf(width, "bf16"), w.sbuf(128, "bf16", width), w.sbuf(128, "bf16", width)
        for source, tile, queue in ((v_hbm.rows(i * 128, 128), value, "qV"), (None, query, "qQ")):
            part = source or turned.rows(0, width, (i * 128, i * 128 + 128))
            rows, columns = (128, width) if source else (width, 128)
            piece = raw.take().columns(0, columns, (0, rows)) if narrow else tile.columns(0, columns, (0, rows))
            w.dma(piece, part, queue)
            if tile is query:
                w.emit("tensor_scalar", dst=tile, data=piece, op0="multiply", operand0=0.125)
            elif narrow:
                w.copy(tile, piece)
        if narrow or w.target.neuroncore_version < 3:
            # No DMA transposition of this kind: on the PE array through the same buffers.
            piece = raw.take().columns(0, width)
            w.dma(piece, k_hbm.rows(i * 128, 128), "qK")
            bank = w.b.psum(f"turn{i}", 128, BANK, "fp32", i % 2 * 2048).columns(0, 128, (0, width))
            w.transpose(bank, piece)
            w.copy(key, bank)
        else:
            w.emit("dma_transpose", dst=key, src=k_hbm.rows(i * 128, 128), queue="qK", engine="Sync")
        found[0].append(query.access())
        found[1].append(key.access())
        found[2].append(value.access())
    return found


def small_head(length: int, width: int, dtype: str, target: Target) -> float:
    """Program time for one head; the result of 128 queries is stored transposed, element by element."""

    def play(count: int) -> float:
        w = Writer("small_head", target)
        queries, keys, values = _operands(w, length, width, dtype)
        out = w.hbm("out", width, length, dtype, "output")
        scores, weights = w.ring(1, length, dtype), w.ring(1, length, dtype)
        narrow, turned = w.ring(1, length, "bf16"), w.ring(1, length, "bf16")
        best, small = w.ring(2, len(keys), dtype), w.ring(6, 1, dtype)
        results, divisor = w.ring(2, 128, dtype, width), w.ring(1, width, dtype)
        banks, turns, sums = w.banks(0, 3), w.banks(3, 3), w.banks(6, 2)
        for q in range(count):
            row, most = scores.take(), best.take()
            for i, key in enumerate(keys):
                bank = banks.take().columns(0, 128)
                w.matmul(bank, queries[q % len(queries)], key, first=True)
                part = row.columns(i * 128, i * 128 + 128)
                w.copy(part, bank, "Scalar")
                w.emit("tensor_reduce", dst=most.columns(i, i + 1), data=part, op="max", negate=True)
            bias, total = small.take(), small.take()
            w.emit("tensor_reduce", dst=bias, data=most, op="min")
            weight, half = weights.take(), narrow.take()
            w.emit("activation_reduce", dst=weight, data=row, op="exp", bias=bias, reduce_res=total)
            w.copy(half, weight)
            w.emit("reciprocal", dst=total, data=total)
            spread = divisor.take()
            w.emit("tensor_scalar", dst=spread, data=spread, op0="multiply", operand0=total)
            turn = turned.take()
            for i in range(len(keys)):
                bank = turns.take().columns(0, 128)
                w.transpose(bank, half.columns(i * 128, i * 128 + 128))
                w.copy(turn.columns(i * 128, i * 128 + 128), bank)
            bank = sums.take().columns(0, 128, (0, width))
            for i, value in enumerate(values):
                w.matmul(bank, value, turn.columns(i * 128, i * 128 + 128), first=i == 0)
            result = results.take()
            w.copy(result, bank)
            scale = turns.take().columns(0, 128, (0, width))
            w.transpose(scale, spread.access())
            w.emit("tensor_tensor", dst=result, data1=result, data2=scale, op="multiply")
            at = q * 128 % length
            w.dma(out.rows(0, width, (at, at + 128)), result, "qOut", "GpSimd")
        return w.time_ns()

    return steady_ns(play, length // 128)


def allocated(length: int, width: int, dtype: str, target: Target) -> float:
    """Program time for one head."""

    def play(count: int) -> float:
        w = Writer("allocated", target)
        queries, keys, values = _operands(w, length, width, dtype)
        out = w.hbm("out", length, width, dtype, "output")
        scores, weights, turned = w.ring(2, length, "fp32"), w.ring(2, length, "bf16"), w.ring(2, length, "bf16")
        best, small, totals = w.ring(2, len(keys), "fp32"), w.ring(8, 1, "fp32"), w.ring(2, 4, "fp32")
        results = w.ring(2, width, dtype)
        banks, turns, sums = w.banks(0, 4), w.banks(4, 2, "fp32"), w.banks(6, 2)
        for q in range(count):
            row, most = scores.take(), best.take()
            for j, (start, size) in enumerate(chunks(length, BANK)):
                bank = banks.take()
                for a in range(0, size, 128):
                    w.matmul(bank.columns(a, a + 128), queries[q % len(queries)], keys[(start + a) // 128], first=True)
                w.emit(
                    "tensor_scalar_reduce", dst=row.columns(start, start + size), data=bank.columns(0, size),
                    op0="multiply", operand0=1.0, reduce_op="max", reduce_res=most.columns(j, j + 1),
                )  # fmt: skip
            bias = small.take()
            w.emit("tensor_reduce", dst=bias, data=most.columns(0, -(-length // BANK)), op="max", negate=True)
            weight, turn, parts = weights.take(), turned.take(), totals.take()
            for j, (start, size) in enumerate(chunks(length, 1024)):
                w.emit(
                    "activation_reduce", dst=weight.columns(start, start + size), data=row.columns(start, start + size),
                    op="exp", bias=bias, reduce_res=parts.columns(j % 4, j % 4 + 1),
                )  # fmt: skip
            for start, size in chunks(length, BANK):
                bank = turns.take()
                for a in range(0, size, 128):
                    w.transpose(bank.columns(a, a + 128), weight.columns(start + a, start + a + 128))
                w.copy(turn.columns(start, start + size), bank.columns(0, size))
            total = small.take()
            w.emit("tensor_reduce", dst=total, data=parts, op="add")
            w.emit("reciprocal", dst=total, data=total)
            summed = sums.take().columns(0, width)
            for i, value in enumerate(values):
                w.matmul(summed, turn.columns(i * 128, i * 128 + 128), value, first=i == 0)
            result = results.take()
            w.activate(result, summed, "copy", scale=total)
            w.dma(out.rows(q * 128 % length, 128), result, "qOut", "GpSimd")
        return w.time_ns()

    return steady_ns(play, length // 128)


def _blocks(length: int, tile: int, *, causal: bool, keys: int) -> float:
    """Pairs of 128 queries and `tile` keys that are computed; a query sees the keys up to its own place."""
    queries = length // 128
    if not causal:
        return queries * (keys / tile)
    return float(sum(-(-min((q + 1) * 128, keys) // tile) for q in range(queries)))


def forward(
    length: int, width: int, dtype: str, target: Target, *, causal: bool = True, keys: int | None = None
) -> float:
    """Program time for one head: per 128 queries and 2048 keys scores, maximum, exp, transposes, product, rescaling."""
    total = keys or length
    large = min(LARGE, total)

    def play(count: int) -> float:
        w = Writer("flash_forward", target)
        k, v = w.hbm("k", width, large, dtype), w.hbm("v", large, width, dtype)
        keys = w.sbuf(large, "bf16", width)
        values = [w.sbuf(width, "bf16") for _ in range(large // 128)]
        w.dma(keys, k.rows(0, width), "qK")
        for i, value in enumerate(values):
            w.dma(value, v.rows(i * 128, 128), "qV")
        q_hbm, out = w.hbm("q", width, 128, dtype), w.hbm("out", 1024, width, dtype, "output")
        queries, results = w.ring(2, 128, "bf16", width), w.ring(2, width, "fp32")
        scores, weights, turned = w.ring(2, large, "fp32"), w.ring(2, large, "bf16"), w.ring(2, large, "bf16")
        best, small, parts = w.ring(2, 4, "fp32"), w.ring(16, 1, "fp32"), w.ring(2, 2, "fp32")
        banks, turns, sums = w.banks(0, 4), w.banks(4, 2), w.banks(6, 2)
        for step in range(count):
            query, row, most = queries.take(), scores.take(), best.take()
            w.dma(query, q_hbm.rows(0, width), "qQ")
            for j, (start, size) in enumerate(chunks(large, BANK)):
                score = banks.take().columns(0, size)
                w.matmul(score, query.access(), keys.columns(start, start + size), first=True)
                part = row.columns(start, start + size)
                w.copy(part, score, "Scalar")
                if causal:
                    w.emit("affine_select", dst=part, data=part, pattern=((-1, size),), on_false_value=LEAST)
                w.emit("tensor_reduce", dst=most.columns(j, j + 1), data=part, op="max")
            maximum, alpha, total = small.take(), small.take(), small.take()
            w.emit("tensor_reduce", dst=maximum, data=most, op="max")
            w.activate(alpha, maximum, "exp", scale=-1.0)
            result = results.take()
            w.emit("tensor_scalar", dst=result, data=result, op0="multiply", operand0=alpha)
            weight, turn, sum_parts = weights.take(), turned.take(), parts.take()
            for j, (start, size) in enumerate(chunks(large, max(BANK, large // 2))):
                w.emit(
                    "activation_reduce", dst=weight.columns(start, start + size), data=row.columns(start, start + size),
                    op="exp", bias=maximum, reduce_res=sum_parts.columns(j, j + 1),
                )  # fmt: skip
            w.emit("tensor_reduce", dst=total, data=sum_parts, op="add")
            for start, size in chunks(large, BANK):
                bank = turns.take()
                for a in range(0, size, 128):
                    w.transpose(bank.columns(a, a + 128), weight.columns(start + a, start + a + 128))
                w.copy(turn.columns(start, start + size), bank.columns(0, size))
            summed = sums.take().columns(0, width)
            for i, value in enumerate(values):
                w.matmul(summed, turn.columns(i * 128, i * 128 + 128), value.access(), first=i == 0)
            w.emit("tensor_tensor", dst=result, data1=result, data2=summed, op="add")
            w.activate(alpha, maximum, "exp", scale=-1.0)
            w.activate(total, total, "log")
            w.emit("tensor_tensor", dst=total, data1=total, data2=maximum, op="add")
            w.dma(out.rows(step % 8 * 128, 128), result, "qOut", "GpSimd")
        return w.time_ns()

    return steady_ns(play, max(1, round(_blocks(length, large, causal=causal, keys=total))))


def backward(
    length: int, width: int, dtype: str, target: Target, *, causal: bool = True, keys: int | None = None
) -> float:
    """Program time for one head: per 128 queries and 512 keys scores and exp again, then dV, dS, dK and dQ.

    The scores of the next 128 queries are computed beside the gradients of these, as the compiler pipelines the loop.
    """
    total = keys or length
    tile = BANK if total >= BANK else 128

    def play(count: int) -> float:
        w = Writer("flash_backward", target)
        q_hbm, d_hbm = w.hbm("q", width, 128, dtype), w.hbm("dy", width, 128, dtype)
        keys, values = w.sbuf(tile, "bf16", width), w.sbuf(tile, "bf16", width)
        rows_first = [w.sbuf(width, "bf16") for _ in range(tile // 128)]
        queries, gradients = w.ring(3, 128, "bf16", width), w.ring(3, 128, "bf16", width)
        row, weight, dy, dx = (w.ring(3, tile, "bf16") for _ in range(4))
        turned, query_rows, gradient_rows = w.ring(2, tile, "bf16"), w.ring(2, width, "bf16"), w.ring(2, width, "bf16")
        reduced, bias = w.ring(2, 128, "fp32", width), w.sbuf(1, "fp32")
        dk, dv = w.banks(0, 1).take(), w.banks(1, 1).take()
        banks, turns, sums = w.banks(2, 3), w.banks(5, 2), w.banks(7, 1)

        def scores() -> tuple[Tile, Tile, Tile, Tile]:
            """First half: Q, dy, the probabilities and their gradient dP."""
            query, gradient = queries.take(), gradients.take()
            w.dma(gradient, d_hbm.rows(0, width), "qDy")
            w.dma(query, q_hbm.rows(0, width), "qQ")
            w.emit("tensor_scalar", dst=query, data=query, op0="multiply", operand0=0.125)
            bank, score, probabilities = banks.take().columns(0, tile), row.take(), weight.take()
            w.matmul(bank, query.access(), keys.access(), first=True)
            w.copy(score, bank, "Scalar")
            if causal:
                w.emit("affine_select", dst=score, data=score, pattern=((-1, tile),), on_false_value=LEAST)
            w.activate(probabilities, score, "exp", bias=bias)
            bank, change = banks.take().columns(0, tile), dy.take()
            w.matmul(bank, gradient.access(), values.access(), first=True)
            w.copy(change, bank, "Scalar")
            return query, gradient, probabilities, change

        def gradients_of(n: int, query: Tile, gradient: Tile, probabilities: Tile, change: Tile) -> None:
            """Second half: dV, dS, dK and dQ."""
            turn, side = turns.take().columns(0, width), gradient_rows.take()
            w.transpose(turn, gradient.access())
            w.copy(side, turn)
            w.matmul(dv.columns(0, tile, (0, width)), side.access(), probabilities.access(), first=n == 0)
            scaled = dx.take()
            w.emit(
                "scalar_tensor_tensor", dst=scaled, data=change, operand0=bias, operand1=probabilities,
                op0="subtract", op1="multiply",
            )  # fmt: skip
            turn, side = turns.take().columns(0, width), query_rows.take()
            w.transpose(turn, query.access())
            w.copy(side, turn)
            w.matmul(dk.columns(0, tile, (0, width)), side.access(), scaled.access(), first=n == 0)
            turns_of, side = turns.take(), turned.take()
            for a in range(0, tile, 128):
                w.transpose(turns_of.columns(a, a + 128), scaled.columns(a, a + 128))
            w.copy(side, turns_of.columns(0, tile))
            total = sums.take().columns(0, 128, (0, width))
            for i, part in enumerate(rows_first):
                w.matmul(total, part.access(), side.columns(i * 128, i * 128 + 128), first=i == 0)
            result = reduced.take()
            w.emit(
                "scalar_tensor_tensor", dst=result, data=total, operand0=0.125, operand1=result, op0="multiply",
                op1="add",
            )  # fmt: skip

        ahead = scores()
        for n in range(count):
            current, ahead = ahead, scores() if n + 1 < count else ahead
            gradients_of(n, *current)
        return w.time_ns()

    return steady_ns(play, max(1, round(_blocks(length, tile, causal=causal, keys=total))), first=4, second=8)
