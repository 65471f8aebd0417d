"""The NKI library's QKV projection for token generation (`nkilib/core/qkv/qkv_tkg`), one core of it.

The hidden state, the sum of three tensors if asked for, is normalized and lies as [128, T, H/128]; it is stationary,
in column tiles of the PE array, while the weight streams in blocks of 2048 rows of H by at most 4096 columns. Column
tiles are added to a zeroed result, two cores (H split) exchange and add, and the result is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroncore.targets import Target

from benchmarks.kernels.decode import exchange, load_hidden
from benchmarks.kernels.mlp_decode import column_tile
from benchmarks.kernels.writer import BANK, Writer, chunks

__all__ = ["QkvDecode", "time_ns"]

BLOCK_ROWS = 2048
BLOCK_COLUMNS = 4096


@dataclass(frozen=True)
class QkvDecode:
    """Parameters of the kernel."""

    cores: int
    tokens: int
    hidden: int
    columns: int
    norm: str
    fused_add: bool
    bias: bool
    quantized: bool


def time_ns(p: QkvDecode, target: Target) -> float:
    """Program time of one core."""
    w = Writer("qkv_decode", target)
    width = p.hidden // p.cores
    dtype = "fp8_e4m3" if p.quantized else "bf16"
    x = w.hbm("x", p.tokens, p.hidden, "bf16")
    weight = w.hbm("weight", p.hidden, p.columns, dtype)
    bias = w.hbm("bias", 1, p.columns, "bf16")
    out = w.hbm("out", p.tokens, p.columns, "bf16", "output")
    if p.fused_add:  # one DMA with three operands, HBM to HBM; here one transfer per operand
        total = w.hbm("sum", p.tokens, p.hidden, "bf16", "temporary")
        part = p.hidden if p.norm else width
        for _ in range(3):
            w.dma(total.rows(0, p.tokens, (0, part)), x.rows(0, p.tokens, (0, part)), "qAdd")
        x = total
    hidden = load_hidden(w, x, p.tokens, p.hidden, p.cores, p.norm)
    if p.quantized:
        narrow = w.sbuf(p.tokens * hidden.width, dtype)
        w.activate(hidden.tile, hidden.tile, "copy", scale=1.0)
        w.emit("tensor_scalar", dst=narrow, data=hidden.tile, op0="min", operand0=240.0, op1="max", operand1=-240.0)
    tile = column_tile(p.tokens, target)
    psum = w.banks()
    for first, columns in chunks(p.columns, BLOCK_COLUMNS):
        with w.scope():
            result = w.sbuf(columns, "bf16", p.tokens)
            received = w.sbuf(columns, "bf16", p.tokens)
            if p.bias:
                row = w.sbuf(columns, "bf16", 1)
                w.dma(row, bias.rows(0, 1, (first, first + columns)), "qBias")
            w.emit("memset", dst=result, value=0.0)
            size = 1 if p.quantized else 2
            blocks = -(-width // BLOCK_ROWS)
            ring = w.ring(min(blocks, max(1, w.free_bytes() // (16 * columns * size))), 16 * columns, dtype)
            pieces = chunks(columns, BANK)
            banks = [psum.take() for _ in pieces]
            factor = 128 // tile
            seen = [False] * factor
            for start, rows in chunks(width, BLOCK_ROWS):
                depth = rows // 128
                weights = ring.take()
                w.dma(
                    weights.access(None, ((columns, depth), (1, columns))),
                    weight.access(
                        128, ((p.columns, depth), (1, columns)), offset=start // 128 * p.columns + first,
                        partition_stride=width // 128 * p.columns,
                    ),
                    "qWeights",
                )  # fmt: skip
                tiled = tile if depth % factor == 0 else 128
                for k in range(depth):
                    at = k % factor if tiled == tile else 0
                    for j, (a, n) in enumerate(pieces):
                        into = banks[j].columns(0, n, (at * tile, at * tile + p.tokens))
                        piece = weights.columns(k * columns + a, k * columns + a + n)
                        w.matmul(into, hidden.column(start // 128 + k), piece, first=not seen[at], tile_columns=tiled)
                    seen[at] = True
            for j, (a, n) in enumerate(pieces):
                into = result.columns(a, a + n)
                for at in range(factor):
                    if seen[at]:
                        other = banks[j].columns(0, n, (at * tile, at * tile + p.tokens))
                        w.emit("tensor_tensor", dst=into, data1=into, data2=other, op="add")
            if p.quantized:
                w.emit("tensor_scalar", dst=result, data=result, op0="multiply", operand0=1.0)
            if p.cores == 2:
                exchange(w, result.access(), received.access())
                w.emit("tensor_tensor", dst=result, data1=result, data2=received, op="add")
            w.dma(out.rows(0, p.tokens, (first, first + columns)), result, "qOut", "Scalar")
    return w.time_ns()
