"""Tiling pooling: a plane to a partition, every place of the window a strided access to it.

Planes are loaded as they lie in HBM. A place of the window meets the windows for which it is inside the plane, so
padding costs nothing; planes too large for SBUF are cut into bands of windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from neuroncore.compiler.ir import Pool
from neuroncore.compiler.select import chip_dtype
from neuroncore.graph import DTYPE_BYTES
from neuroncore.isa import Access, Tile

if TYPE_CHECKING:
    from neuroncore.compiler.fuse import Kernel
    from neuroncore.compiler.tile import Tiler

__all__ = ["tile_pool"]

_SIDE = 128
_LOWEST = -3.4028234663852886e38


def tile_pool(tiler: Tiler, kernel: Kernel) -> None:
    """Emit pooling."""
    prim = kernel.prims[0]
    assert isinstance(prim, Pool)
    with tiler.builder.op(prim.op, prim.source):
        (_Gradient if "gradient" in prim.form else _Forward)(tiler, prim).run()


class _Pooling:
    """A band is a range of windows down a plane and the rows of the plane they touch."""

    def __init__(self, tiler: Tiler, prim: Pool) -> None:
        self.tiler, self.prim = tiler, prim
        self.prefix = tiler.new_kernel()
        (self.height, self.width), (self.down, self.across) = prim.plane, prim.windows
        self.planes = prim.ins[0].shape[0]
        self.slot = 0
        #: Rows of the plane and windows down of the largest band: what its tiles must hold.
        self.most_rows, self.most_windows = self.height, self.down

    def run(self) -> None:
        """All planes, band by band."""
        for plane in range(0, self.planes, _SIDE):
            for band in self.bands():
                with self.tiler.iteration():
                    self.band(plane, min(_SIDE, self.planes - plane), *band)
                self.slot = 1 - self.slot

    def bands(self) -> Iterator[tuple[int, int]]:
        """Cut what is written into bands."""
        raise NotImplementedError

    def band(self, plane: int, parts: int, first: int, count: int) -> None:
        """Do a band of `parts` planes."""
        raise NotImplementedError

    def room(self, per_row: int, fixed: int) -> int:
        """Rows of a band, when each takes `per_row` bytes in both slots."""
        from neuroncore.compiler.tile import NotTiled

        free = self.tiler.target.sbuf_usable_bytes_per_partition // 2 - fixed - 1024
        if free < per_row:
            raise NotTiled("a row of the pooled plane does not fit SBUF")
        return free // per_row

    def tile(self, name: str, dtype: str, *, plane: bool = False) -> Tile:
        """A tile of the current band, for its windows or its rows of the plane."""
        columns = self.most_rows * self.width if plane else self.most_windows * self.across
        size = DTYPE_BYTES[dtype]
        padded = -(-columns * size // 4) * 4 // size
        return self.tiler.sbuf(f"{self.prefix}_{name}_{self.slot}", _SIDE, padded, dtype)

    def hbm(self, view: int, plane: int, parts: int, row: int, rows: int, *, out: bool = False) -> Access:
        """Rows of planes of an operand."""
        given = (self.prim.outs if out else self.prim.ins)[view]
        width, size = given.shape[2], given.shape[1] * given.shape[2]
        return self.tiler.tensor(given.buffer).access(
            parts, ((1, rows * width),), offset=given.offset + plane * size + row * width, partition_stride=size
        )

    def dtype(self, view: int, *, out: bool = False) -> str:
        """Dtype on chip of an operand."""
        given = (self.prim.outs if out else self.prim.ins)[view]
        return chip_dtype(self.tiler.kernels.buffers[given.buffer].dtype)

    def places(self, first: int, count: int, row: int, rows: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """For every place of the window that meets rows [row, row+rows) from windows [first, first+count).

        Its offset in the plane relative to the window's corner, and (window row, window column, rows, columns, plane
        row, plane column) of the rectangle it covers.
        """
        prim = self.prim
        for i in range(prim.kernel[0]):
            for j in range(prim.kernel[1]):
                y, x = i * prim.dilation[0] - prim.padding[0], j * prim.dilation[1] - prim.padding[1]
                top, bottom = _inside(y, prim.stride[0], row, row + rows, first, first + count)
                left, right = _inside(x, prim.stride[1], 0, self.width, 0, self.across)
                if top < bottom and left < right:
                    where = (top * prim.stride[0] + y, left * prim.stride[1] + x)
                    yield y * self.width + x, (top, left, bottom - top, right - left, *where)

    def windows(self, tile: Tile, parts: int, first: int, rectangle: tuple[int, ...]) -> Access:
        """A rectangle of a tile that holds windows from row `first`."""
        top, left, rows, columns = rectangle[:4]
        offset = (top - first) * self.across + left
        return tile.access((0, parts), _free(self.across, rows, 1, columns), offset=offset)

    def in_plane(self, tile: Tile, parts: int, row: int, rectangle: tuple[int, ...]) -> Access:
        """The elements a place has in a rectangle of windows, of a tile that holds rows of planes from `row`."""
        _, _, rows, columns, y, x = rectangle
        free = _free(self.prim.stride[0] * self.width, rows, self.prim.stride[1], columns)
        return tile.access((0, parts), free, offset=(y - row) * self.width + x)

    def divided(self, tile: Tile, parts: int, first: int, count: int, dst: Tile) -> None:
        """Dst = tile over the number of elements of each window."""
        for value, rectangle in self._divisors(first, count):
            self.tiler.emit(
                "tensor_scalar", dst=self.windows(dst, parts, first, rectangle),
                data=self.windows(tile, parts, first, rectangle), op0="multiply", operand0=1.0 / value,
                engine="Vector",
            )  # fmt: skip

    def _divisors(self, first: int, count: int) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
        if self.prim.divisor:
            yield self.prim.divisor, (first, 0, count, self.across)
            return
        for top, rows, tall in _runs([self._elements(0, y) for y in range(first, first + count)]):
            for left, columns, wide in _runs([self._elements(1, x) for x in range(self.across)]):
                yield tall * wide, (first + top, left, rows, columns)

    def _elements(self, axis: int, window: int) -> int:
        """How many elements of a window count along an axis."""
        prim = self.prim
        size, pad = prim.plane[axis], prim.padding[axis]
        start = window * prim.stride[axis] - pad
        if prim.padded:
            return min(start + prim.kernel[axis], size + pad) - start
        return max(1, min(start + prim.kernel[axis], size) - max(start, 0))


class _Forward(_Pooling):
    def bands(self) -> Iterator[tuple[int, int]]:
        """Bands of windows."""
        prim = self.prim
        reach = (prim.kernel[0] - 1) * prim.dilation[0] + 1
        size = DTYPE_BYTES[self.dtype(0)]
        per_window = 4 + 4 + 4 + 4 + 1 if prim.form == "max" else 4 + 4
        rows = self.room(prim.stride[0] * self.width * size + per_window * self.across, reach * self.width * size)
        self.most_windows = min(rows, self.down)
        self.most_rows = min(self.height, (self.most_windows - 1) * prim.stride[0] + reach)
        for first in range(0, self.down, rows):
            yield first, min(rows, self.down - first)

    def band(self, plane: int, parts: int, first: int, count: int) -> None:
        """Some windows of up to 128 planes."""
        prim = self.prim
        reach = (count - 1) * prim.stride[0] + (prim.kernel[0] - 1) * prim.dilation[0] + 1
        row = min(max(0, first * prim.stride[0] - prim.padding[0]), self.height - 1)
        rows = max(1, min(self.height, first * prim.stride[0] - prim.padding[0] + reach) - row)
        band = self.tile("x", self.dtype(0), plane=True)
        self.tiler.load(band.access((0, parts), ((1, rows * self.width),)), self.hbm(0, plane, parts, row, rows))
        whole = ((1, count * self.across),)
        result = self.tile("result", self.dtype(0, out=True))
        if prim.form == "max":
            self._largest(band, result, parts, (first, count, row, rows))
            index = self._index(band, parts, (first, count)) if self._wants_index() else None
            if index is not None:
                self.tiler.store(self.hbm(1, plane, parts, first, count, out=True), index.access((0, parts), whole))
        else:
            total = self.tile("total", "fp32")
            self.tiler.emit("memset", dst=total.access((0, parts), whole), value=0.0, engine="GpSimd")
            for _, rectangle in self.places(first, count, row, rows):
                to = self.windows(total, parts, first, rectangle)
                data = self.in_plane(band, parts, row, rectangle)
                self.tiler.emit("tensor_tensor", dst=to, data1=to, data2=data, op="add", engine="Vector")
            self.divided(total, parts, first, count, result)
        self.tiler.store(self.hbm(0, plane, parts, first, count, out=True), result.access((0, parts), whole))

    def _wants_index(self) -> bool:
        return self.prim.outs[1].buffer in self.tiler.kernels.kept

    def _largest(self, band: Tile, result: Tile, parts: int, part: tuple[int, int, int, int]) -> None:
        """The largest of every window and, if wanted, which place it has."""
        first, count, row, rows = part
        emit, whole = self.tiler.emit, ((1, count * self.across),)
        emit("memset", dst=result.access((0, parts), whole), value=_LOWEST, engine="GpSimd")
        if self._wants_index():
            number = self.tile("number", "fp32")
            larger = self.tile("larger", "uint8")
            emit("memset", dst=number.access((0, parts), whole), value=0.0, engine="GpSimd")
        for offset, rectangle in self.places(first, count, row, rows):
            best = self.windows(result, parts, first, rectangle)
            data = self.in_plane(band, parts, row, rectangle)
            if self._wants_index():
                mask, where = (self.windows(t, parts, first, rectangle) for t in (larger, number))
                emit("tensor_tensor", dst=mask, data1=data, data2=best, op="greater", engine="Vector")
                emit(
                    "select_reduce", dst=where, predicate=mask, on_true=where, on_false=float(offset),
                    reverse_pred=True,
                )  # fmt: skip
            emit("tensor_tensor", dst=best, data1=best, data2=data, op="max", engine="Vector")

    def _index(self, band: Tile, parts: int, part: tuple[int, int]) -> Tile:
        """Where in the plane: the window's corner plus the place."""
        first, count = part
        index, whole = self.tile("index", "int32"), ((1, count * self.across),)
        corner = self.tile("corner", "int32")
        stride = self.prim.stride
        pattern = ((stride[0] * self.width, count), (stride[1], self.across))
        at = corner.access((0, parts), whole)
        self.tiler.emit("iota", dst=at, pattern=pattern, offset=first * stride[0] * self.width)
        number = self.tile("number", "fp32").access((0, parts), whole)
        to = index.access((0, parts), whole)
        self.tiler.emit("tensor_tensor", dst=to, data1=at, data2=number, op="add", engine="Vector")
        return index


class _Gradient(_Pooling):
    def bands(self) -> Iterator[tuple[int, int]]:
        """Bands of rows of the plane."""
        prim = self.prim
        reach = (prim.kernel[0] - 1) * prim.dilation[0] // prim.stride[0] + 2
        per_window = (4 + 4 + 4 + 4 + 4) * self.across
        fixed = reach * per_window
        rows = self.room(self.width * 8 + -(-per_window // prim.stride[0]), fixed)
        self.most_rows = min(rows, self.height)
        self.most_windows = min(self.down, (self.most_rows - 1) // prim.stride[0] + reach)
        for first in range(0, self.height, rows):
            yield first, min(rows, self.height - first)

    def band(self, plane: int, parts: int, first: int, count: int) -> None:
        """Some rows of up to 128 planes."""
        prim, emit = self.prim, self.tiler.emit
        reach = (prim.kernel[0] - 1) * prim.dilation[0]
        top = max(0, -(-(first + prim.padding[0] - reach) // prim.stride[0]))
        bottom = min(self.down, (first + count - 1 + prim.padding[0]) // prim.stride[0] + 1)
        total = self.tile("total", "fp32", plane=True)
        emit("memset", dst=total.access((0, parts), ((1, count * self.width),)), value=0.0, engine="GpSimd")
        if top < bottom:
            self._spread(total, plane, parts, (first, count, top, bottom - top))
        result = self.tile("result", self.dtype(0, out=True), plane=True)
        to = result.access((0, parts), ((1, count * self.width),))
        emit("activation", dst=to, data=total.access((0, parts), ((1, count * self.width),)), op="copy")
        self.tiler.store(self.hbm(0, plane, parts, first, count, out=True), to)

    def _spread(self, total: Tile, plane: int, parts: int, part: tuple[int, int, int, int]) -> None:
        """Add the gradients of some windows to the rows they touch."""
        first, count, top, rows = part
        emit, whole = self.tiler.emit, ((1, rows * self.across),)
        grad = self.tile("g", self.dtype(0))
        self.tiler.load(grad.access((0, parts), whole), self.hbm(0, plane, parts, top, rows))
        each = self.tile("each", "fp32")
        if self.prim.form == "max_gradient":
            place = self._place(plane, parts, top, rows)
        else:
            self.divided(grad, parts, top, rows, each)
        for offset, rectangle in self.places(top, rows, first, count):
            value = self.windows(each, parts, top, rectangle)
            if self.prim.form == "max_gradient":
                emit(
                    "scalar_tensor_tensor", dst=value, data=self.windows(place, parts, top, rectangle), op0="equal",
                    operand0=float(offset), op1="multiply", operand1=self.windows(grad, parts, top, rectangle),
                )  # fmt: skip
            to = self.in_plane(total, parts, first, rectangle)
            emit("tensor_tensor", dst=to, data1=to, data2=value, op="add", engine="Vector")

    def _place(self, plane: int, parts: int, top: int, rows: int) -> Tile:
        """Which place of its window each largest element has, relative to the window's corner."""
        whole = ((1, rows * self.across),)
        index, corner = (self.tile(name, "int32") for name in ("index", "corner"))
        self.tiler.load(index.access((0, parts), whole), self.hbm(1, plane, parts, top, rows))
        stride = self.prim.stride
        pattern = ((stride[0] * self.width, rows), (stride[1], self.across))
        self.tiler.emit(
            "iota", dst=corner.access((0, parts), whole), pattern=pattern, offset=top * stride[0] * self.width
        )
        place = self.tile("place", "fp32")
        self.tiler.emit(
            "tensor_tensor", dst=place.access((0, parts), whole), data1=index.access((0, parts), whole),
            data2=corner.access((0, parts), whole), op="subtract", engine="Vector",
        )  # fmt: skip
        return place


def _inside(offset: int, stride: int, start: int, stop: int, first: int, last: int) -> tuple[int, int]:
    """The windows in [first, last) whose position window*stride + offset lies in [start, stop)."""
    return max(first, -(-(start - offset) // stride)), min(last, (stop - 1 - offset) // stride + 1)


def _free(outer: int, rows: int, inner: int, columns: int) -> tuple[tuple[int, int], ...]:
    """Rows of columns as an access pattern."""
    if rows == 1 or outer == inner * columns:
        return ((inner, rows * columns),)
    return ((outer, rows), (inner, columns))


def _runs(values: list[int]) -> Iterator[tuple[int, int, int]]:
    """(first, count, value) of neighbours that are equal."""
    start = 0
    for number in range(1, len(values) + 1):
        if number == len(values) or values[number] != values[start]:
            yield start, number - start, values[start]
            start = number
