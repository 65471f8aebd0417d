"""Tiling recurrences along rows: Vector's tensor_tensor_scan, 128 rows at a time, long rows chunk by chunk.

A sum is `one * before + element`, a product `element * before + zero`; the other stream is one number read again and
again. A chunk starts from the last result of the one before, which stays fp32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuroncore.compiler.ir import Scan
from neuroncore.compiler.select import chip_dtype
from neuroncore.compiler.views import View
from neuroncore.isa import Access

if TYPE_CHECKING:
    from neuroncore.compiler.fuse import Kernel
    from neuroncore.compiler.tile import Tiler

__all__ = ["tile_scan"]

_SIDE = 128
#: Elements of a row in a tile.
_CHUNK = 4096
_SLOTS = 3


def tile_scan(tiler: Tiler, kernel: Kernel) -> None:
    """Emit a recurrence."""
    prim = kernel.prims[0]
    assert isinstance(prim, Scan)
    prefix = tiler.new_kernel()
    rows, cols = prim.src.shape
    width = min(cols, _CHUNK)
    buffers = tiler.kernels.buffers
    dtype, result = (chip_dtype(buffers[v.buffer].dtype) for v in (prim.src, prim.out))
    adds = prim.fn == "add"
    with tiler.builder.op(prim.op, prim.source):
        with tiler.iteration(prologue=True):
            unit = tiler.sbuf(f"{prefix}_unit", _SIDE, 1, "fp32")
            tiler.emit("memset", dst=unit.access(), value=1.0 if adds else 0.0, engine="Vector")
        step = 0
        for first in range(0, rows, _SIDE):
            parts = min(_SIDE, rows - first)
            initial: Access | float = 0.0 if adds else 1.0
            for start in range(0, cols, width):
                count = min(width, cols - start)
                with tiler.iteration():
                    data, total, out = (
                        tiler.sbuf(f"{prefix}_{name}_{step % _SLOTS}", _SIDE, width, kind)
                        for name, kind in (("x", dtype), ("sum", "fp32"), ("out", result))
                    )
                    loaded, summed = (t.access((0, parts), ((1, count),)) for t in (data, total))
                    tiler.load(loaded, _matrix(tiler, prim.src, first, parts, start, count))
                    again = unit.access((0, parts), ((0, count),))
                    one, other = (again, loaded) if adds else (loaded, again)
                    tiler.emit(
                        "tensor_tensor_scan", dst=summed, data0=one, data1=other, initial=initial, op0="multiply",
                        op1="add", engine="Vector",
                    )  # fmt: skip
                    stored = summed
                    if result != "fp32":
                        stored = out.access((0, parts), ((1, count),))
                        if result in ("bf16", "fp16"):
                            tiler.emit("activation", dst=stored, data=summed, op="copy")
                        else:
                            tiler.emit("tensor_copy", dst=stored, data=summed, engine="Vector")
                    tiler.store(_matrix(tiler, prim.out, first, parts, start, count), stored)
                    initial = total.access((0, parts), ((1, 1),), offset=count - 1)
                    step += 1


def _matrix(tiler: Tiler, view: View, first: int, parts: int, start: int, count: int) -> Access:
    """Rows and columns of a matrix in HBM."""
    row, column = view.strides
    return tiler.tensor(view.buffer).access(
        parts, ((column, count),), offset=view.offset + first * row + start * column, partition_stride=row
    )
