"""Tiling transpositions: long rows in, TensorE turns 128 x 128 blocks, long rows out.

Reading a column of a row-major matrix by DMA costs a descriptor per element; turning on chip keeps both transfers at
full speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuroncore.compiler.fuse import Kernel, turn_axes
from neuroncore.compiler.ir import Map
from neuroncore.compiler.views import View

if TYPE_CHECKING:
    from neuroncore.compiler.tile import Tiler

__all__ = ["tile_turn"]

_SIDE = 128
#: Rows and columns turned together: 1024 elements of 2 bytes make transfers of 2 KiB per partition.
_BLOCK = 1024
_GROUP = 4  # transposes that share a PSUM bank and one eviction


def tile_turn(tiler: Tiler, kernel: Kernel) -> None:
    """Emit a transposing copy."""
    prim = kernel.prims[0]
    assert isinstance(prim, Map)
    source = prim.ins[0]
    assert isinstance(source, View)
    axes = turn_axes(source, prim.out)
    assert axes is not None
    sizes, src, dst, along, across = axes
    _Turn(tiler, prim, source, tiler.new_kernel()).run(sizes, src, dst, along, across)


class _Turn:
    def __init__(self, tiler: Tiler, prim: Map, source: View, prefix: str) -> None:
        self.tiler, self.prim, self.source, self.prefix = tiler, prim, source, prefix
        self.dtype = tiler.kernels.buffers[source.buffer].dtype
        self.count = self.banks = 0

    def run(self, sizes: tuple[int, ...], src: tuple[int, ...], dst: tuple[int, ...], along: int, across: int) -> None:
        others = [i for i in range(len(sizes)) if i not in (along, across)]
        places = [(self.source.offset, self.prim.out.offset)]
        for axis in others:
            places = [(s + n * src[axis], d + n * dst[axis]) for s, d in places for n in range(sizes[axis])]
        with self.tiler.builder.op(self.prim.op, self.prim.source):
            for base_src, base_dst in places:
                for row in range(0, sizes[across], _BLOCK):
                    for column in range(0, sizes[along], _BLOCK):
                        self._block(
                            base_src + row * src[across] + column, base_dst + row + column * dst[along],
                            src[across], dst[along],
                            min(_BLOCK, sizes[across] - row), min(_BLOCK, sizes[along] - column),
                        )  # fmt: skip

    def _block(self, src: int, dst: int, src_stride: int, dst_stride: int, rows: int, cols: int) -> None:
        """Turn rows x cols: element (r, c) lies at src + r*src_stride + c and goes to dst + c*dst_stride + r."""
        tiler, slot = self.tiler, self.count % 2
        self.count += 1
        source, target = tiler.tensor(self.source.buffer), tiler.tensor(self.prim.out.buffer)
        with tiler.iteration():
            loaded = []
            for number, first in enumerate(range(0, rows, _SIDE)):
                parts = min(_SIDE, rows - first)
                tile = tiler.sbuf(f"{self.prefix}_x{number}_{slot}", _SIDE, min(_BLOCK, _round(cols)), self.dtype)
                tiler.load(
                    tile.access((0, parts), ((1, cols),)),
                    source.access(parts, ((1, cols),), offset=src + first * src_stride, partition_stride=src_stride),
                )
                loaded.append((tile, first, parts))
            for number, column in enumerate(range(0, cols, _SIDE)):
                width = min(_SIDE, cols - column)
                turned = tiler.sbuf(f"{self.prefix}_y{number}_{slot}", _SIDE, min(_BLOCK, _round(rows)), self.dtype)
                for group in range(0, len(loaded), _GROUP):
                    bank = tiler.psum(f"{self.prefix}_turn_{self.banks % 4}", _SIDE, _GROUP * _SIDE, self.dtype)
                    self.banks += 1
                    chosen = loaded[group : group + _GROUP]
                    for i, (tile, _, parts) in enumerate(chosen):
                        tiler.emit(
                            "nc_transpose", dst=bank.access((0, width), ((1, parts),), offset=i * _SIDE),
                            data=tile.access((0, parts), ((1, width),), offset=column), engine="Tensor",
                        )  # fmt: skip
                    length = sum(parts for _, _, parts in chosen)
                    to = turned.access((0, width), ((1, length),), offset=chosen[0][1])
                    out = bank.access((0, width), ((1, length),))
                    if self.banks % 2 or self.dtype not in ("bf16", "fp16", "fp32"):
                        tiler.emit("tensor_copy", dst=to, data=out, engine="Vector")
                    else:
                        tiler.emit("activation", dst=to, data=out, op="copy")
                tiler.store(
                    target.access(width, ((1, rows),), offset=dst + column * dst_stride, partition_stride=dst_stride),
                    turned.access((0, width), ((1, rows),)),
                )


def _round(size: int) -> int:
    return -(-size // _SIDE) * _SIDE
