"""Tiling the k largest of a row: eight at a time by max8, their places by nc_find_index8, then nc_match_replace8.

A row longer than those instructions take is cut; the best of every part are candidates, and the best of those the
result. The place of a candidate is then looked up by comparing positions, one result at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuroncore.compiler.ir import TopK
from neuroncore.isa import Access, Tile

if TYPE_CHECKING:
    from neuroncore.compiler.fuse import Kernel
    from neuroncore.compiler.tile import Tiler

__all__ = ["LONGEST", "tile_topk"]

_SIDE = 128
_EIGHT = 8
#: Most elements the eight-largest instructions take.
_PART = 16_384
#: Smaller than every number, and no infinity.
_TAKEN = -3.4028234663852886e38
#: Longest row: places are exact in fp32 and candidates fit an instruction.
LONGEST = 2**22


def tile_topk(tiler: Tiler, kernel: Kernel) -> None:
    """Emit a search for the largest."""
    prim = kernel.prims[0]
    assert isinstance(prim, TopK)
    search = _Search(tiler, prim, tiler.new_kernel())
    with tiler.builder.op(prim.op, prim.source):
        for first in range(0, prim.src.shape[0], _SIDE):
            with tiler.iteration():
                search.rows(first, min(_SIDE, prim.src.shape[0] - first))


@dataclass
class _Search:
    tiler: Tiler
    prim: TopK
    prefix: str
    turn: int = 0
    loads: int = 0

    def rows(self, first: int, parts: int) -> None:
        """The largest of up to 128 rows."""
        prim, emit, k = self.prim, self.tiler.emit, self.prim.values.shape[1]
        self.turn += 1
        wide = -(-k // _EIGHT) * _EIGHT
        length = prim.src.shape[1]
        starts = range(0, length, _PART)
        values = self._tile("values", len(starts) * wide)
        places = self._tile("places", len(starts) * wide)
        for number, start in enumerate(starts):
            data = self._load(first, parts, start, min(_PART, length - start))
            self._largest(data, values, places, parts, number * wide, wide, start)
        if len(starts) > 1:
            values, places = self._best(values, places, parts, len(starts) * wide, k)
        if not prim.largest:
            found = values.access((0, parts), ((1, k),))
            emit("tensor_scalar", dst=found, data=found, op0="multiply", operand0=-1.0, engine="Vector")
        index = self.tiler.sbuf(f"{self.prefix}_index_{self.turn % 2}", _SIDE, k, "int32")
        emit(
            "tensor_copy",
            dst=index.access((0, parts), ((1, k),)),
            data=places.access((0, parts), ((1, k),)),
            engine="Vector",
        )
        for view, tile in ((prim.values, values), (prim.indices, index)):
            if view.buffer not in self.tiler.kernels.kept:
                continue  # nobody reads it
            to = self.tiler.tensor(view.buffer).access(
                parts, ((1, k),), offset=view.offset + first * k, partition_stride=k
            )
            self.tiler.store(to, tile.access((0, parts), ((1, k),)))

    def _tile(self, name: str, columns: int) -> Tile:
        return self.tiler.sbuf(f"{self.prefix}_{name}_{self.turn % 2}", _SIDE, columns, "fp32")

    def _load(self, first: int, parts: int, start: int, count: int) -> Access:
        """A part of the rows in fp32, with their sign turned where the smallest are wanted."""
        view = self.prim.src
        self.loads += 1
        columns = max(_EIGHT, min(_PART, view.shape[1]))
        tile = self.tiler.sbuf(f"{self.prefix}_data_{self.loads % 2}", _SIDE, columns, "fp32")
        row, column = view.strides
        source = self.tiler.tensor(view.buffer).access(
            parts, ((column, count),), offset=view.offset + first * row + start * column, partition_stride=row
        )
        if count < _EIGHT:
            self.tiler.emit("memset", dst=tile.access((0, parts)), value=_TAKEN, engine="Vector")
        loaded = tile.access((0, parts), ((1, count),))
        self.tiler.load(loaded, source)
        if not self.prim.largest:
            self.tiler.emit("tensor_scalar", dst=loaded, data=loaded, op0="multiply", operand0=-1.0, engine="Vector")
        return tile.access((0, parts), ((1, max(_EIGHT, count)),))

    def _largest(
        self, data: Access, values: Tile, places: Tile, parts: int, column: int, count: int, start: int
    ) -> None:
        """The `count` largest of data into columns of values, and where they are, plus `start`, into places."""
        emit = self.tiler.emit
        index = self.tiler.sbuf(f"{self.prefix}_found_{self.turn % 2}", _SIDE, _EIGHT, "uint32").access(
            (0, parts), ((1, _EIGHT),)
        )
        for done in range(0, count, _EIGHT):
            best, place = (t.access((0, parts), ((1, _EIGHT),), offset=column + done) for t in (values, places))
            emit("max8", dst=best, data=data)
            emit("nc_find_index8", dst=index, data=data, vals=best)
            emit("tensor_scalar", dst=place, data=index, op0="add", operand0=float(start), engine="Vector")
            if done + _EIGHT < count:
                emit("nc_match_replace8", dst=data, data=data, vals=best, imm=_TAKEN)

    def _best(self, values: Tile, places: Tile, parts: int, candidates: int, k: int) -> tuple[Tile, Tile]:
        """The largest candidates of all parts and their places in the row."""
        emit = self.tiler.emit
        wide = -(-k // _EIGHT) * _EIGHT
        best, position, found = self._tile("best", wide), self._tile("position", wide), self._tile("where", wide)
        data = values.access((0, parts), ((1, candidates),))
        self._largest(data, best, position, parts, 0, wide, 0)
        numbers = self.tiler.sbuf(f"{self.prefix}_numbers", _SIDE, candidates, "fp32").access(
            (0, parts), ((1, candidates),)
        )
        emit("iota", dst=numbers, pattern=((1, candidates),))
        chosen = self._tile("chosen", candidates).access((0, parts), ((1, candidates),))
        for result in range(k):
            emit(
                "scalar_tensor_tensor", dst=chosen, data=numbers, op0="equal",
                operand0=position.access((0, parts), ((1, 1),), offset=result), op1="multiply",
                operand1=places.access((0, parts), ((1, candidates),)),
            )  # fmt: skip
            emit("tensor_reduce", dst=found.access((0, parts), ((1, 1),), offset=result), data=chosen, op="add", axes=1)
        return best, found
