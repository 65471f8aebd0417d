"""The NKI samples' normalizations: RMSNorm before the QKV projection, and before a quantization to 8 bits.

`projection` keeps the weights in SBUF, one load per 128 rows of them, and per 128 tokens squares with their sum on
ScalarE, rsqrt, scaling by 512 columns and four transposes to a PSUM bank, products of 512 columns; two buffers each.
`quantized` works on whole rows of 128 tokens, one after the other, no buffers in turn: squares with their sum on
ScalarE, gamma loaded again per tile and spread over the partitions by the PE array, rows scaled by 512 columns, the
absolute maximum, its reciprocal, and the scaled copy to 8 bits on VectorE.
"""

from __future__ import annotations

from neuroncore.targets import Target

from benchmarks.kernels.writer import BANK, Writer, chunks, steady_ns

__all__ = ["projection", "quantized"]


def projection(tokens: int, hidden: int, columns: int, dtype: str, target: Target) -> float:
    """Program time of RMSNorm(x) W, x of [tokens, hidden], one core."""
    deep = -(-hidden // 128)

    def play(tiles: int) -> float:
        w = Writer("rmsnorm_qkv", target)
        x, weight = w.hbm("x", 128 * tiles, hidden, dtype), w.hbm("w", hidden, columns, dtype)
        out = w.hbm("out", 128 * tiles, columns, dtype, "output")
        weights = [w.sbuf(columns, dtype) for _ in range(deep)]
        for i, part in enumerate(weights):
            w.dma(part, weight.rows(i * 128, 128), "qW")
        inputs, squares, left = (w.ring(2, hidden, kind) for kind in (dtype, "fp32", dtype))
        small, results = w.ring(4, 1, "fp32"), w.ring(2, columns, dtype)
        turn, psum = w.banks(0, 4, dtype), w.banks(4, 4)
        for t in range(tiles):
            tile, square, total, turned = inputs.take(), squares.take(), small.take(), left.take()
            w.dma(tile, x.rows(t * 128, 128), "qX")
            w.emit("activation_reduce", dst=square, data=tile, op="square", reduce_res=total)
            w.activate(total, total, "rsqrt", scale=1 / hidden)
            for start, size in chunks(hidden, BANK):
                piece = tile.columns(start, start + size)
                w.emit("tensor_scalar", dst=piece, data=piece, op0="multiply", operand0=total)
                bank = turn.take()
                for a in range(0, size, 128):
                    w.transpose(bank.columns(a, a + 128), tile.columns(start + a, start + a + 128))
                w.copy(turned.columns(start, start + size), bank.columns(0, size))
            result = results.take()
            for start, size in chunks(columns, BANK):
                sums = psum.take().columns(0, size)
                for i, part in enumerate(weights):
                    w.matmul(
                        sums, turned.columns(i * 128, i * 128 + 128), part.columns(start, start + size), first=i == 0
                    )
                w.copy(result.columns(start, start + size), sums, "Scalar")
            w.dma(out.rows(t * 128, 128), result, "qOut", "GpSimd")
        return w.time_ns()

    return steady_ns(play, -(-tokens // 128), first=4, second=8)


def quantized(tokens: int, hidden: int, target: Target, *, norm: bool, clipped: bool = False) -> float:
    """Program time of one core's `tokens` rows."""

    def play(rows: list[int]) -> float:
        w = Writer("rmsnorm_quant", target)
        x, out = w.hbm("x", 128, hidden, "bf16"), w.hbm("out", 128 * len(rows), hidden + 4, "fp8_e4m3", "output")
        gamma = w.hbm("gamma", 1, hidden, "bf16")
        tile, square = w.sbuf(hidden, "bf16"), w.sbuf(hidden, "bf16")
        spread, result = w.sbuf(hidden, "bf16", 1), w.sbuf(hidden, "fp8_e4m3")
        small = w.ring(6, 1, "fp32")
        ones, banks = w.sbuf(128, "bf16", 1), w.banks()
        for turn, count in enumerate(rows):
            part = (0, count)
            whole = tile.columns(0, hidden, part)
            scratch = square.columns(0, hidden, part)
            total, best, scale = (small.take().columns(0, 1, part) for _ in range(3))
            w.dma(whole, x.rows(0, count), "qX")
            if norm:
                w.emit("activation_reduce", dst=scratch, data=whole, op="square", reduce_res=total)
                w.activate(total, total, "rsqrt", scale=1 / hidden)
                w.dma(spread, gamma.rows(0, 1), "qGamma")
                for start, size in chunks(hidden, BANK):
                    bank, piece = banks.take().columns(0, size, part), tile.columns(start, start + size, part)
                    w.matmul(bank, ones.columns(0, count), spread.columns(start, start + size), first=True)
                    w.emit(
                        "scalar_tensor_tensor", dst=piece, data=piece, op0="multiply", operand0=total, op1="multiply",
                        operand1=bank,
                    )  # fmt: skip
            w.emit(
                "tensor_scalar_reduce", dst=scratch, data=whole, op0="abs_max", operand0=0.0, reduce_op="max",
                reduce_res=best,
            )  # fmt: skip
            if clipped:
                w.emit("tensor_scalar", dst=best, data=best, op0="min", operand0=1.0)
                w.emit("tensor_scalar", dst=whole, data=whole, op0="min", operand0=1.0, op1="max", operand1=-1.0)
            w.activate(best, best, "copy", scale=1 / 240)
            w.emit("tensor_scalar", dst=best, data=best, op0="max", operand0=1e-6)
            w.emit("reciprocal", dst=scale, data=best)
            done = result.columns(0, hidden, part)
            w.emit("tensor_scalar", dst=done, data=whole, op0="multiply", operand0=scale)
            w.dma(out.rows(turn * 128, count, (0, hidden)), done, "qOut")
            w.dma(out.rows(turn * 128, count, (hidden, hidden + 4)), result.columns(0, 4, part), "qScale")
        return w.time_ns()

    full, last = divmod(tokens, 128)
    tail = play([128, last]) - play([128]) if last and full else play([last]) if last else 0.0
    return (steady_ns(lambda n: play([128] * n), full) if full else 0.0) + tail
