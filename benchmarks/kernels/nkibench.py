"""NKIBench's baseline kernels (AccelOpt, `NKIBench/kernels`), fp32, one core.

Elementwise ones work on [128, 1024] tiles loaded in one DMA per operand and computed 512 columns at a time; the
compiler keeps loads a few tiles ahead, here by buffers taken in turn. Which engine an operation is on follows from the
engines' active times that were published with the entries for SiLU, AdamW and the batched product (`calibrate`): they
fit a whole number of passes of each engine. GpSimd is idle there, so results are stored by the engine that makes them.
"""

from __future__ import annotations

from collections.abc import Callable

from neuroncore.isa import Access
from neuroncore.targets import Target

from benchmarks.kernels.writer import BANK, Writer, chunks, steady_ns

__all__ = [
    "adamw", "batched_matmul", "batched_softmax", "grouped_attention", "lora", "matmul", "normalized_matmul",
    "rope", "silu", "swiglu",
]  # fmt: skip

COLUMNS = 1024
AHEAD = 3


def _elementwise(
    target: Target, tiles: int, operands: int, body: Callable[[Writer, list[Access], Access], None], *, columns: int,
    step: int = BANK,
) -> float:  # fmt: skip
    """Time of `tiles` tiles of [128, columns]: load the operands, `body` on each `step` columns, store the result."""

    def play(count: int) -> float:
        w = Writer("elementwise", target)
        sources = [w.hbm("x", 128, columns * count, "fp32") for _ in range(operands)]
        out = w.hbm("y", 128, columns * count, "fp32", "output")
        rings = [w.ring(AHEAD, columns, "fp32") for _ in sources]
        results = w.ring(AHEAD, columns, "fp32")
        scratch = _Scratch(w, step)
        for i in range(count):
            loaded = [ring.take() for ring in rings]
            for k, tile in enumerate(loaded):
                part = sources[k].rows(0, 128, (i * columns, (i + 1) * columns))
                w.dma(tile, part, f"qIn{k}")
            result = results.take()
            for start, size in chunks(columns, step):
                scratch.reset(size)
                views = [tile.columns(start, start + size) for tile in loaded]
                w.scratch = scratch  # type: ignore[attr-defined]
                body(w, views, result.columns(start, start + size))
            w.dma(out.rows(0, 128, (i * columns, (i + 1) * columns)), result, "qOut", "Vector")
        return w.time_ns()

    return steady_ns(play, tiles, first=8, second=16)


class _Scratch:
    """Temporaries of one step, two generations of them."""

    def __init__(self, w: Writer, columns: int) -> None:
        self._rings = [w.ring(2, columns, "fp32") for _ in range(6)]
        self._next = 0
        self._size = columns

    def reset(self, size: int) -> None:
        """A new step of `size` columns."""
        self._next, self._size = 0, size

    def take(self) -> Access:
        """The next temporary."""
        self._next += 1
        return self._rings[(self._next - 1) % len(self._rings)].take().columns(0, self._size)


def silu(m: int, n: int, target: Target, *, wide: bool = False) -> float:
    """X * 1 / (1 + exp(-x)); exp and reciprocal on ScalarE, negation, addition and product on VectorE.

    The version that AccelOpt found uses the sigmoid of ScalarE and whole rows.
    """

    def naive(w: Writer, x: list[Access], y: Access) -> None:
        a = w.scratch.take()  # type: ignore[attr-defined]
        w.emit("tensor_scalar", dst=a, data=x[0], op0="multiply", operand0=-1.0)
        w.activate(a, a, "exp")
        w.emit("tensor_scalar", dst=a, data=a, op0="add", operand0=1.0)
        w.activate(a, a, "reciprocal")
        w.emit("tensor_tensor", dst=y, data1=x[0], data2=a, op="multiply")

    def fused(w: Writer, x: list[Access], y: Access) -> None:
        a = w.scratch.take()  # type: ignore[attr-defined]
        w.activate(a, x[0], "sigmoid")
        w.emit("tensor_tensor", dst=y, data1=x[0], data2=a, op="multiply")

    pieces = -(-n // (2 * COLUMNS if wide else COLUMNS))
    columns, tiles = -(-n // pieces), -(-m // 128) * pieces
    return _elementwise(target, tiles, 1, fused if wide else naive, columns=columns, step=columns if wide else BANK)


def adamw(m: int, n: int, target: Target) -> float:
    """theta, m, v and g to a new theta: what has two tensors is VectorE's, what scales or maps one ScalarE's."""

    def body(w: Writer, x: list[Access], y: Access) -> None:
        theta, first, second, grad = x
        take = w.scratch.take  # type: ignore[attr-defined]

        def scale(source: Access, function: str = "copy") -> Access:
            result: Access = take()
            w.activate(result, source, function, scale=0.5)
            return result

        def combine(a: Access, b: Access, op: str, into: Access | None = None) -> Access:
            result: Access = take() if into is None else into
            w.emit("tensor_tensor", dst=result, data1=a, data2=b, op=op)
            return result

        decayed = combine(theta, scale(theta), "subtract")
        moment = combine(scale(first), scale(grad), "add")
        moment = scale(moment)
        variance = combine(scale(second), scale(grad, "square"), "add")
        root: Access = take()
        w.activate(root, variance, "sqrt", scale=1000.0)
        root = scale(root)
        inverse: Access = take()
        w.activate(inverse, root, "reciprocal")
        combine(decayed, combine(moment, inverse, "multiply"), "subtract", y)

    pieces = -(-n // COLUMNS)
    return _elementwise(target, -(-m // 128) * pieces, 4, body, columns=-(-n // pieces))


def rope(width: int, length: int, target: Target) -> float:
    """X [width, length]: halves of the partitions rotated; 512 columns per tile, half the partitions per product."""
    half = width // 2

    def play(count: int) -> float:
        w = Writer("rope", target)
        x = w.hbm("x", width, count * BANK, "fp32")
        factors = [w.hbm("f", half, count * BANK, "fp32") for _ in range(2)]
        out = w.hbm("y", width, count * BANK, "fp32", "output")
        tiles, results = w.ring(AHEAD, BANK, "fp32", width), w.ring(AHEAD, BANK, "fp32", width)
        cosines = [w.ring(AHEAD, BANK, "fp32", half) for _ in range(2)]
        scratch = [w.ring(2, BANK, "fp32", half) for _ in range(5)]
        for i in range(count):
            span = (i * BANK, (i + 1) * BANK)
            tile = tiles.take()
            w.dma(tile, x.rows(0, width, span), "qX")
            cos, sin = (ring.take() for ring in cosines)
            w.dma(cos, factors[0].rows(0, half, span), "qCos")
            w.dma(sin, factors[1].rows(0, half, span), "qSin")
            even, odd = tile.columns(0, BANK, (0, half)), scratch[0].take().access()
            w.copy(odd, tile.columns(0, BANK, (half, width)))
            products = []
            for a, b, ring in ((even, cos, 1), (odd, cos, 2), (even, sin, 3), (odd, sin, 4)):
                product = scratch[ring].take()
                w.emit("tensor_tensor", dst=product, data1=a, data2=b, op="multiply")
                products.append(product)
            result = results.take()
            for part, (p, q), op in (((0, half), (0, 3), "subtract"), ((half, width), (1, 2), "add")):
                w.emit("tensor_tensor", dst=result.columns(0, BANK, part), data1=products[p], data2=products[q], op=op)
            w.dma(out.rows(0, width, span), result, "qOut", "GpSimd")
        return w.time_ns()

    return steady_ns(play, -(-length // BANK), first=8, second=16)


def matmul(m: int, k: int, n: int, target: Target, *, rows_first: bool = True) -> float:
    """Blocks of 1024 result columns keep their K x 1024 operand in SBUF; the other is transposed on the PE array.

    What does not fit beside it is loaded again for every 128 rows: a compiler that runs out of SBUF moves the loads
    into the inner loop. With the stationary operand given transposed (`rows_first` False) blocks of 1024 by 1024 keep
    both.
    """
    deep = -(-k // 128)
    resident = deep * COLUMNS * 4
    need = resident + (2 * k * 4 if rows_first else resident) + 3 * COLUMNS * 4
    keep = need <= target.sbuf_usable_bytes_per_partition

    def play(blocks: int, rows: int) -> float:
        w = Writer("matmul", target)
        x, y = w.hbm("x", m, k, "fp32"), w.hbm("y", k, n, "fp32")
        out = w.hbm("out", m, n, "fp32", "output")
        right = w.ring(deep if keep else min(deep, 16), COLUMNS, "fp32")
        chunk = w.ring(2, COLUMNS, "fp32")
        left = w.ring(1 if keep else 2, deep * 128, "fp32")
        results = w.ring(2, COLUMNS, "fp32")
        turn, psum = w.banks(0, 4), w.banks(4, 4)
        for block in range(blocks):
            tiles = []
            if keep:
                for i in range(deep):
                    tiles.append(right.take())
                    w.dma(tiles[i], y.rows(i * 128, 128, (0, COLUMNS)), "qY")
            for row in range(rows):
                stationary = left.take()
                if rows_first:
                    for start, size in chunks(deep * 128, COLUMNS):
                        part = chunk.take()
                        w.dma(part.columns(0, size), x.rows(row % 32 * 128, 128, (0, size)), "qX")
                        for a in range(0, size, 128):
                            turned = turn.take().columns(0, 128)
                            w.transpose(turned, part.columns(a, a + 128))
                            w.activate(stationary.columns(start + a, start + a + 128), turned, "copy")
                else:
                    for i in range(deep):
                        w.dma(stationary.columns(i * 128, i * 128 + 128), x.rows(0, 128, (0, 128)), "qX")
                banks = [psum.take() for _ in range(2)]
                result = results.take()
                if not keep:
                    for i in range(deep):
                        tile = right.take()
                        w.dma(tile, y.rows(i * 128, 128, (0, COLUMNS)), "qY")
                        for j, bank in enumerate(banks):
                            w.matmul(
                                bank.access(), stationary.columns(i * 128, i * 128 + 128),
                                tile.columns(j * BANK, j * BANK + BANK), first=i == 0,
                            )  # fmt: skip
                for j, bank in enumerate(banks):
                    if keep:
                        for i, tile in enumerate(tiles):
                            w.matmul(
                                bank.access(), stationary.columns(i * 128, i * 128 + 128),
                                tile.columns(j * BANK, j * BANK + BANK), first=i == 0,
                            )  # fmt: skip
                    w.activate(result.columns(j * BANK, j * BANK + BANK), bank, "copy")
                w.dma(
                    out.rows(row % 32 * 128, 128, (block % 2 * COLUMNS, block % 2 * COLUMNS + COLUMNS)),
                    result,
                    "qOut",
                    "GpSimd",
                )
        return w.time_ns()

    rows, blocks = -(-m // 128), -(-n // COLUMNS)

    def block(count: int) -> float:
        return play(1, count)

    one = steady_ns(block, rows, first=2, second=4)
    if blocks == 1:
        return one
    again = play(2, 2) - play(1, 2) - (play(1, 4) - play(1, 2))  # what starting another block costs beyond its rows
    pace = (play(1, 4) - play(1, 2)) / 2
    return one + (blocks - 1) * (again + rows * pace)


def batched_matmul(batch: int, m: int, k: int, n: int, target: Target) -> float:
    """[m, k] @ [k, n], k <= 128: results of 1024 columns evicted by ScalarE, which triggers their store.

    1024 rows are transposed on the PE array once and used for all columns.
    """

    def play(count: int) -> float:
        w = Writer("batched_matmul", target)
        x, y = w.hbm("x", m, k, "fp32"), w.hbm("y", k, n, "fp32")
        out = w.hbm("out", COLUMNS, 2 * COLUMNS, "fp32", "output")
        right, loaded = w.ring(2, COLUMNS, "fp32", k), w.ring(4, k, "fp32")
        left, results = w.ring(2, COLUMNS, "fp32", k), w.ring(3, COLUMNS, "fp32")
        turn, psum = w.banks(0, 4), w.banks(4, 4)
        stationary = left.take()
        for step in range(count):
            tile = right.take()
            w.dma(tile, y.rows(0, k, (0, COLUMNS)), "qY")
            if step % blocks == 0:
                stationary = left.take()
                for a in range(0, COLUMNS, 128):
                    part = loaded.take()
                    w.dma(part, x.rows(0, 128), "qX")
                    turned = turn.take().columns(0, 128, (0, k))
                    w.transpose(turned, part.access())
                    w.activate(stationary.columns(a, a + 128), turned, "copy")
            for a in range(0, COLUMNS, 128):
                result = results.take()
                for j in range(0, COLUMNS, BANK):
                    bank = psum.take()
                    w.matmul(bank.access(), stationary.columns(a, a + 128), tile.columns(j, j + BANK), first=True)
                    w.activate(result.columns(j, j + BANK), bank, "copy")
                w.dma(out.rows(a, 128, (step % 2 * COLUMNS, step % 2 * COLUMNS + COLUMNS)), result, "qOut", "Scalar")
        return w.time_ns()

    blocks = max(1, -(-n // COLUMNS))
    return steady_ns(play, batch * -(-m // COLUMNS) * blocks, first=blocks, second=2 * blocks)


def normalized_matmul(m: int, k: int, n: int, target: Target, *, add: bool, after: bool = False) -> float:
    """RMSNorm fused with a product, 128 rows at a time, every weight tile [128, 512] loaded when it is needed.

    `after` normalizes the product plus a residual instead of the operand. The compiler keeps a weight that fits.
    """
    deep, wide = -(-k // 128), -(-n // BANK)
    keep = deep * n * 4 <= target.sbuf_usable_bytes_per_partition // 2
    width = n if after else k

    def play(rows: int) -> float:
        w = Writer("normalized_matmul", target)
        x, z = w.hbm("x", m, k, "fp32"), w.hbm("z", m, width, "fp32")
        weight, out = w.hbm("w", k, n, "fp32"), w.hbm("out", m, n, "fp32", "output")
        weights = w.ring(deep * wide if keep else 8, BANK, "fp32")
        inputs, added = w.ring(2, k, "fp32"), w.ring(2, width, "fp32")
        scratch, left = w.ring(1, width, "fp32"), w.ring(2, k, "fp32")
        results, column = w.ring(2, n if after else BANK, "fp32"), w.ring(8, 1, "fp32")
        turn, psum = w.banks(0, 4), w.banks(4, 4)
        gamma = w.sbuf(width, "fp32")
        kept: dict[tuple[int, int], Access] = {}

        def normalize(tile: Access) -> None:
            squares, total = scratch.take(), column.take()
            w.activate(squares, tile, "square")
            w.emit("tensor_reduce", dst=total, data=squares, op="add")
            w.emit("tensor_scalar", dst=total, data=total, op0="multiply", operand0=1.0, op1="add", operand1=1.0)
            w.activate(total, total, "rsqrt")
            w.emit("tensor_scalar", dst=tile, data=tile, op0="multiply", operand0=total)
            if add or after:
                w.emit("tensor_tensor", dst=tile, data1=tile, data2=gamma, op="multiply")

        for row in range(rows):
            tile, other = inputs.take(), added.take()
            w.dma(tile, x.rows(row * 128 % m, 128), "qX")
            if add or after:
                w.dma(other, z.rows(row * 128 % m, 128), "qZ")
            if not after:
                if add:
                    w.emit("tensor_tensor", dst=tile, data1=tile, data2=other, op="add")
                normalize(tile.access())
            stationary = left.take()
            for i in range(deep):
                turned = turn.take().columns(0, 128)
                w.transpose(turned, tile.columns(i * 128, i * 128 + 128))
                w.activate(stationary.columns(i * 128, i * 128 + 128), turned, "copy")
            result = results.take()
            for j in range(wide):
                bank = psum.take()
                for i in range(deep):
                    if (i, j) not in kept or not keep:
                        part = weights.take()
                        w.dma(part, weight.rows(i * 128, 128, (j * BANK, j * BANK + BANK)), "qW")
                        kept[i, j] = part.access()
                    w.matmul(bank.access(), stationary.columns(i * 128, i * 128 + 128), kept[i, j], first=i == 0)
                if after:
                    w.copy(result.columns(j * BANK, j * BANK + BANK), bank)
                else:
                    piece = result if j == 0 else results.take()
                    w.copy(piece, bank)
                    w.dma(out.rows(row * 128 % m, 128, (j * BANK, j * BANK + BANK)), piece, "qOut", "GpSimd")
            if after:
                w.emit("tensor_tensor", dst=result, data1=result, data2=other, op="add")
                normalize(result.access())
                w.dma(out.rows(row * 128 % m, 128), result, "qOut", "GpSimd")
        return w.time_ns()

    return steady_ns(play, -(-m // 128), first=4, second=8)


def batched_softmax(batch: int, m: int, k: int, n: int, target: Target) -> float:
    """softmax([m, k] @ [k, n]), k <= 128: a row's maximum, exponentials, sum and scaling 512 columns at a time.

    The baseline computes all scores of a batch item first; those that exceed the SBUF go to HBM and come back. ScalarE
    copies out of PSUM and takes exponentials, VectorE the rest.
    """
    wide = -(-n // BANK)
    resident = target.sbuf_usable_bytes_per_partition / (-(-m // 128) * n * 4)
    spilled = max(0, round(n * (1 - resident)))

    def play(rows: int) -> float:
        w = Writer("batched_softmax", target)
        x, y = w.hbm("x", m, k, "fp32"), w.hbm("y", k, n, "fp32")
        out = w.hbm("out", m, n, "fp32", "output")
        right, loaded, left = w.sbuf(n, "fp32", k), w.ring(2, k, "fp32"), w.ring(2, 128, "fp32", k)
        w.dma(right, y.rows(0, k), "qY")
        spill = [w.hbm("spill", 128, n, "fp32", "temporary") for _ in range(2)]
        fits = w.free_bytes() // (4 * n) >= 6
        scores, again = w.ring(2, n, "fp32"), w.ring(2, n, "fp32")
        weights = w.ring(1, n, "fp32") if fits else None
        results, small = w.ring(2, COLUMNS, "fp32"), w.ring(8, 1, "fp32")
        parts = [w.ring(2, wide, "fp32") for _ in range(2)]
        turn, psum = w.banks(0, 2), w.banks(2, 6)
        for row in range(rows):
            tile, stationary = loaded.take(), left.take()
            w.dma(tile, x.rows(row * 128 % m, 128), "qX")
            bank = turn.take().columns(0, 128, (0, k))
            w.transpose(bank, tile.access())
            w.activate(stationary, bank, "copy")
            score, (most, sums) = scores.take(), [ring.take() for ring in parts]
            for j, (start, size) in enumerate(chunks(n, BANK)):
                bank, part = psum.take().columns(0, size), score.columns(start, start + size)
                w.matmul(bank, stationary.access(), right.columns(start, start + size), first=True)
                w.activate(part, bank, "copy")
                w.emit("tensor_reduce", dst=most.columns(j, j + 1), data=part, op="max")
            bias, total = small.take(), small.take()
            w.emit("tensor_reduce", dst=bias, data=most, op="max", negate=True)
            if spilled:
                w.dma(spill[0].rows(0, 128, (0, spilled)), score.columns(0, spilled), "qSpill", "GpSimd")
                score = again.take()
                w.dma(score.columns(0, spilled), spill[1].rows(0, 128, (0, spilled)), "qReload")
            weight = weights.take() if weights else score
            for j, (start, size) in enumerate(chunks(n, BANK)):
                part = weight.columns(start, start + size)
                w.activate(part, score.columns(start, start + size), "exp", bias=bias)
                w.emit("tensor_reduce", dst=sums.columns(j, j + 1), data=part, op="add")
            w.emit("tensor_reduce", dst=total, data=sums, op="add")
            w.emit("reciprocal", dst=total, data=total)
            for start, size in chunks(n, COLUMNS):
                result = results.take()
                for a, step in chunks(size, BANK):
                    w.emit(
                        "tensor_scalar", dst=result.columns(a, a + step),
                        data=weight.columns(start + a, start + a + step), op0="multiply", operand0=total,
                    )  # fmt: skip
                w.dma(out.rows(row * 128 % m, 128, (start, start + size)), result.columns(0, size), "qOut", "GpSimd")
        return w.time_ns()

    return steady_ns(play, batch * -(-m // 128), first=4, second=8)


def grouped_attention(length: int, heads: int, width: int, target: Target) -> float:
    """Attention in fp32, `heads` heads of `length` queries: as `batched_softmax`, then transposes and V.

    A copy out of PSUM that also scales is VectorE's, as is every copy of a transposed tile.
    """
    wide = -(-length // BANK)

    def play(rows: int) -> float:
        w = Writer("grouped_attention", target)
        out = w.hbm("out", length, width, "fp32", "output")
        keys, queries = w.sbuf(length, "fp32", width), w.ring(2, 128, "fp32", width)
        values = w.sbuf(length // 128 * width, "fp32")
        score, weights = w.ring(2, length, "fp32"), w.ring(1, length, "fp32")
        turned, results = w.ring(4, 128, "fp32"), w.ring(2, width, "fp32")
        parts, small = [w.ring(2, wide, "fp32") for _ in range(2)], w.ring(8, 1, "fp32")
        psum, turn, sums_of = w.banks(0, 4), w.banks(4, 2), w.banks(6, 2)
        q_hbm = w.hbm("q", width, 128, "fp32")
        for row in range(rows):
            query, scores = queries.take(), score.take()
            w.dma(query, q_hbm.rows(0, width), "qQ")
            most, sums = (ring.take() for ring in parts)
            for j, (start, size) in enumerate(chunks(length, BANK)):
                bank, part = psum.take().columns(0, size), scores.columns(start, start + size)
                w.matmul(bank, query.access(), keys.columns(start, start + size), first=True)
                w.emit("tensor_scalar", dst=part, data=bank, op0="multiply", operand0=0.1)
                w.emit("tensor_reduce", dst=most.columns(j, j + 1), data=part, op="max")
            bias, total = small.take(), small.take()
            w.emit("tensor_reduce", dst=bias, data=most, op="max", negate=True)
            weight = weights.take()
            for j, (start, size) in enumerate(chunks(length, BANK)):
                part = weight.columns(start, start + size)
                w.activate(part, scores.columns(start, start + size), "exp", bias=bias)
                w.emit("tensor_reduce", dst=sums.columns(j, j + 1), data=part, op="add")
            w.emit("tensor_reduce", dst=total, data=sums, op="add")
            w.emit("reciprocal", dst=total, data=total)
            bank = sums_of.take().columns(0, width)
            for start, size in chunks(length, BANK):
                part = weight.columns(start, start + size)
                w.emit("tensor_scalar", dst=part, data=part, op0="multiply", operand0=total)
                for a in range(start, start + size, 128):
                    turning, side = turn.take().columns(0, 128), turned.take()
                    w.transpose(turning, weight.columns(a, a + 128))
                    w.copy(side, turning)
                    value = values.columns(a // 128 * width, a // 128 * width + width)
                    w.matmul(bank, side.access(), value, first=a == 0)
            result = results.take()
            w.copy(result, bank)
            w.dma(out.rows(row * 128 % length, 128), result, "qOut", "GpSimd")
        return w.time_ns()

    return steady_ns(play, heads * length // 128)


def lora(m: int, k: int, n: int, rank: int, target: Target) -> float:
    """X W + X A B: A X first, then W by blocks of 1024 columns, X transposed again for each, the result transposed."""
    base = matmul(m, k, n, target)
    low = matmul(m, k, max(BANK, rank), target) * (rank / max(BANK, rank))

    def extra(tiles: int) -> float:
        """Per [128, 512] of the result: the product with B, its copy, their sum, four transposes and their stores."""
        w = Writer("lora", target)
        out = w.hbm("out", BANK, 8 * 128, "fp32", "output")
        up, reduced = w.sbuf(128, "fp32", min(rank, 128)), w.sbuf(BANK, "fp32", min(rank, 128))
        added, results, pieces = w.ring(2, BANK, "fp32"), w.ring(2, BANK, "fp32"), w.ring(4, 128, "fp32")
        psum, turn = w.banks(0, 4), w.banks(4, 4)
        for tile in range(tiles):
            place = tile % 8 * 128
            bank, one, result = psum.take().columns(0, BANK), added.take(), results.take()
            w.matmul(bank, up.access(), reduced.access(), first=True)
            w.activate(one, bank, "copy")
            w.emit("tensor_tensor", dst=result, data1=result, data2=one, op="add")
            for a in range(0, BANK, 128):
                turning, piece = turn.take().columns(0, 128), pieces.take()
                w.transpose(turning, result.columns(a, a + 128))
                w.activate(piece, turning, "copy")
                w.dma(out.rows(a, 128, (place, place + 128)), piece, "qOut", "GpSimd")
        return w.time_ns()

    tiles = -(-n // 128) * -(-m // BANK)
    more = steady_ns(extra, tiles, first=8, second=16)
    # The extra work fills what the PE array leaves of the other engines; its matmuls are the PE array's own time.
    return max(base + low, more)


def swiglu(m: int, k: int, n: int, target: Target) -> float:
    """(silu(X G) * (X U)) D: gate kept in SBUF, product spilled to HBM and loaded again for the last product."""
    # ScalarE and VectorE take the function and the product while the PE array multiplies for the up projection.
    up = max(matmul(m, k, n, target), silu(m, n, target))
    return matmul(m, k, n, target) + up + matmul(m, n, k, target, rows_first=False)
