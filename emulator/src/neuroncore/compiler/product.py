"""Tiling matrix products: a block of columns of B stays in SBUF, rows of A stream past it, PSUM accumulates over K.

TensorE contracts over the partitions, so both operands need K there. An operand whose K axis is contiguous in HBM is
loaded
along it (long rows, full DMA speed) and turned by TensorE 128 x 128 at a time; one whose other axis is contiguous is
loaded as it is (reference/hw/compile_rules.md section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from neuroncore.compiler.emit import StepEmitter
from neuroncore.compiler.fuse import Kernel, Layout, layout_of
from neuroncore.compiler.hbm import merged, pieces
from neuroncore.compiler.ir import Contract
from neuroncore.compiler.select import Argument, Key, Selection, Step, chip_dtype, select
from neuroncore.compiler.views import View
from neuroncore.graph import DTYPE_BYTES
from neuroncore.isa import Access, Tile

if TYPE_CHECKING:
    from neuroncore.compiler.tile import Tiler

__all__ = ["tile_product"]

_MOVING = 512
_STATIONARY = 128
_PARTITIONS = 128
#: Columns of an accumulator: three PSUM banks, so that two accumulators leave two banks for transposes.
_ACCUMULATOR = 1536
#: Columns of A loaded by one transfer.
_CHUNK = 2048
_STAGES = 4  # loads in flight of what is to be turned
_GROUP = 4  # transposes that share a PSUM bank and one eviction


def tile_product(tiler: Tiler, kernel: Kernel) -> None:
    """Emit a product kernel, batch by batch."""
    contract = kernel.prims[0]
    assert isinstance(contract, Contract)
    _Product(tiler, kernel, contract).run()


@dataclass(frozen=True)
class _Operand:
    """A matrix with K as its columns (`turned`: must be transposed) or as its rows."""

    view: View
    turned: bool

    def layout(self, batch: int) -> Layout:
        """[other, K] when turned, else [K, other]."""
        view = self.view
        for size in reversed(view.shape[:-2]):  # the last batch axis first: it varies fastest
            batch, index = divmod(batch, size)
            view = view.select(len(view.shape) - 3, index)
        layout = layout_of(view, view.shape[0], view.shape[1])
        assert layout is not None
        return layout


#: Where the transpose of K tile number k goes: tile and first column.
Place = Callable[[int], tuple[Tile, int]]


class _Product(StepEmitter):
    def __init__(self, tiler: Tiler, kernel: Kernel, contract: Contract) -> None:
        selection = select(tiler.kernels, kernel)
        key: Key = ("buffer", contract.out.buffer)
        if contract.out.buffer in tiler.kernels.kept:
            selection = _with_result(
                selection, key, contract, chip_dtype(tiler.kernels.buffers[contract.out.buffer].dtype)
            )
        super().__init__(tiler, selection)
        self.contract, self.kernel, self.accumulator = contract, kernel, key
        self.m, self.k = contract.a.shape[-2:]
        self.n = contract.b.shape[-1]
        self.dtype = chip_dtype(tiler.kernels.buffers[contract.a.buffer].dtype)
        self.size = DTYPE_BYTES[self.dtype]
        self.a = _operand(contract.a)
        self.b = _operand(_swapped(contract.b))
        self.k_tiles = -(-self.k // _PARTITIONS)
        self.prefix = tiler.new_kernel()
        self.names: dict[Key, str] = {}
        self.width, self.rows_at_once, self.slots = self._sizes()
        # Not a set: its order decides the order of the loads.
        loads = dict.fromkeys(k for s in selection.steps for k in s.inputs() if k[0] == "load")
        self.persistent = {k: None for k in loads if self._layout(k).by_column}
        #: Tiles of A that one load serves, loads and tiles of a block, blocks of a batch.
        self.tiles_per_load = self.rows_at_once // _STATIONARY
        self.loads = -(-self.m // self.rows_at_once)
        self.tiles = -(-self.m // _STATIONARY)
        self.blocks = -(-self.n // self.width)
        # Slots and engine choices are functions of these counters: see `Tiler.rolled`.
        self.iteration = self.block = self.turns = self.staged = 0
        self.turn_bank = 0
        #: Tiles after which they repeat: two accumulators, two transposed tiles, four stages.
        self.cycle = _STAGES if self.a.turned and self.loads_per_turn % 2 else 2
        self.column_start = 0
        self.first = self.parts = self.columns = 0

    def _sizes(self) -> tuple[int, int, int]:
        """Columns of B kept in SBUF, rows of A per load (several tiles when A comes with K as rows), slots of B."""
        limit = self.tiler.target.sbuf_usable_bytes_per_partition
        epilogue = len({k for s in self.selection.steps for k in (*s.inputs(), *s.outputs())})
        rows = _STATIONARY if self.a.turned else min(-(-self.m // _STATIONARY) * _STATIONARY, 4 * _STATIONARY)
        while rows > _STATIONARY and 2 * self.k_tiles * rows * self.size > limit // 3:
            rows -= _STATIONARY
        stationary = 2 * self.k_tiles * rows * self.size
        staging = _STAGES * min(_CHUNK, self.k) * self.size * (int(self.a.turned) + int(self.b.turned))
        free = limit - stationary - staging - 4096
        width = min(_ACCUMULATOR, -(-self.n // _STATIONARY) * _STATIONARY)
        while width > _STATIONARY and self.k_tiles * width * self.size + 3 * epilogue * width * 4 > free:
            width -= _STATIONARY
        if self.k_tiles * width * self.size + 3 * epilogue * width * 4 > free:
            from neuroncore.compiler.tile import NotTiled

            raise NotTiled(f"a product whose {epilogue} fused values and {self.k} terms do not fit SBUF")
        if width >= _MOVING:
            width = width // _MOVING * _MOVING
        both = 2 * self.k_tiles * width * self.size + 3 * epilogue * width * 4 <= free
        return width, rows, 2 if both and self.n > width else 1

    # -- tiles ---------------------------------------------------------------------------------------------------------

    def _layout(self, key: Key) -> Layout:
        view = key[1]
        assert isinstance(view, View)
        layout = layout_of(view, self.kernel.rows, self.kernel.cols)
        assert layout is not None
        return layout

    def _name(self, key: Key) -> str:
        if key not in self.names:
            self.names[key] = f"{self.prefix}_{'x' if key[0] == 'load' else 'v'}{len(self.names)}"
        return self.names[key]

    def tile(self, key: Key) -> Tile:
        if key == self.accumulator:
            return self.tiler.psum(f"{self.prefix}_acc_{self.iteration % 2}", _PARTITIONS, self.width)
        if key == _RESULT:
            return self.tiler.sbuf(
                f"{self.prefix}_out_{self.iteration % 2}", _PARTITIONS, self.width, self.selection.dtypes[key]
            )
        columns = 1 if self.selection.by_row[key] else self.width
        dtype = self.selection.dtypes[key]
        if key in self.persistent and not self.selection.by_row[key]:
            return self.tiler.sbuf(f"{self._name(key)}_{self.block % 2}", _PARTITIONS, columns, dtype)
        return self.tiler.sbuf(f"{self._name(key)}_{self.iteration % 2}", _PARTITIONS, columns, dtype)

    def in_psum(self, key: Key) -> bool:
        return key == self.accumulator

    def full(self, value: Argument, parts: int, width: int) -> Access:
        return super().full(value, parts, width)

    def junk(self, columns: int) -> Tile:
        raise AssertionError("a product has no reductions")

    # -- loops ---------------------------------------------------------------------------------------------------------

    @property
    def loads_per_turn(self) -> int:
        """Loads, and so stages, of a tile that is turned."""
        return -(-self.k // _CHUNK)

    def run(self) -> None:
        """All matrix products of the batch."""
        for batch in self._batches():
            for number in self._blocks():
                self.block = batch * self.blocks + number
                self.column_start = number * self.width
                self.columns = min(self.width, self.n - self.column_start)
                if self.slots == 1:
                    self.tiler.drain()  # the last tile's products still read B
                with self.tiler.iteration():
                    self.tiler.stage = 0
                    self._restart(self.block)
                    self._load_b(batch)
                    self._load_columns()
                if self.a.turned:
                    self._turned_tiles(batch)
                else:
                    self._loaded_tiles(batch)
        self.tiler.stage = -1

    def _loaded_tiles(self, batch: int) -> None:
        """The tiles of a block, A with K as its rows: a load serves several tiles."""
        for load in self._loads():
            self.staged = self.block * self.loads + load
            start = load * self.rows_at_once
            rows = min(self.rows_at_once, self.m - start)
            for first in range(start, start + rows, _STATIONARY):
                self._restart(self._begin(first // _STATIONARY))
                with self.tiler.iteration():
                    self.tiler.stage = 0
                    if first == start:
                        self._load_a(batch, start, rows)
                    self._load_values(batch)
                    self.tiler.stage = 1
                    with self._op():
                        for k in range(0, self.k_tiles, _GROUP):
                            self._matmuls(k, first - start)
                    self._finish(batch)

    def _turned_tiles(self, batch: int) -> None:
        """The tiles of a block, A with K as its columns: a tile is turned between the products of the one before.

        TensorE fills the time in which a PSUM bank of transposes is evicted with products, and the other way round.
        """
        for number in self._loads(1):
            with self.tiler.iteration():
                self.tiler.stage = 0
                stages: list[tuple[Tile, int]] = []
                if number < self.tiles:
                    self._restart(self._begin(number))
                    stages = self._load_rows(self.a.layout(batch), number * _STATIONARY, self.parts, "a")
                if number > 0:
                    self._begin(number - 1)
                    self._load_values(batch)
                self.tiler.stage = 1
                with self._op():
                    for k in range(0, self.k_tiles, _GROUP):
                        if number < self.tiles:
                            self._begin(number)
                            self._turn_group(stages, k, self.parts, self._stationary)
                        if number > 0:
                            self._begin(number - 1)
                            self._matmuls(k, 0)
                if number > 0:
                    self._finish(batch)

    def _op(self) -> AbstractContextManager[None]:
        return self.tiler.builder.op(self.contract.op, self.contract.source)

    def _begin(self, tile: int) -> int:
        """Make `tile` of the block the current one; returns its number in the kernel."""
        self.first = tile * _STATIONARY
        self.parts = min(_STATIONARY, self.m - self.first)
        self.iteration = self.block * self.tiles + tile
        return self.iteration

    def _restart(self, count: int) -> None:
        """Counters as functions of the tile or block alone."""
        self.turns = count * self.loads_per_turn
        self.turn_bank = count * -(-self.k_tiles // _GROUP) % 2
        self.load_ns = dict.fromkeys(self.load_ns, 0.0)
        self.load_ns["Vector"] = float(count % 2)  # the other engine first, where one is as good

    def _walked(self) -> list[Layout]:
        """Layouts over the rows of the result, all batches."""
        keys = [k for s in self.selection.steps for k in s.inputs() if k[0] == "load" and k not in self.persistent]
        stores = (layout_of(view, self.kernel.rows, self.kernel.cols) for _, view in self.selection.stores)
        return [*map(self._layout, keys), *(layout for layout in stores if layout is not None)]

    def _batches(self) -> Iterator[int]:
        count = self.contract.out.shape[0]
        # One stride from batch to batch, for operands and results.
        axes = [merged(tuple(zip(o.view.shape[:-2], o.view.strides[:-2], strict=True))) for o in (self.a, self.b)]
        outer = [merged(layout.rows) for layout in self._walked()]
        alike = all(len(dims) <= 1 or (len(dims) == 2 and dims[-1][0] == self.m) for dims in outer)
        if count == 1 or not alike or any(len(a) > 1 for a in axes):
            yield from range(count)
            return
        yield from self.tiler.rolled(count, self.cycle)

    def _blocks(self) -> Iterator[int]:
        whole = self.n // self.width
        columns = [*self._walked(), *(self._layout(key) for key in self.persistent)]
        b = self.b.layout(0)
        alike = all(len(merged(layout.cols)) <= 1 or layout.by_row for layout in columns)
        if not alike or len(merged(b.rows if self.b.turned else b.cols)) > 1:
            yield from range(self.blocks)
            return
        yield from self.tiler.rolled(whole, self.cycle)
        yield from range(whole, self.blocks)

    def _loads(self, behind: int = 0) -> Iterator[int]:
        """Numbers of the loads of A.

        Args:
            behind: 1 adds the number after the last, and no loop begins with the first.
        """
        whole = self.m // self.rows_at_once
        a = self.a.layout(0)
        along = a.rows if self.a.turned else a.cols
        outer = [merged(layout.rows) for layout in self._walked()]
        alike = all(len(dims) <= 1 or dims[-1][0] % self.m == 0 for dims in outer)
        if not alike or len(merged(along)) > 1 or not whole:
            yield from range(self.loads + behind)
            return
        yield from range(behind)
        yield from (behind + number for number in self.tiler.rolled(whole - behind, self.cycle))
        yield from range(whole, self.loads + behind)

    # -- one tile ------------------------------------------------------------------------------------------------------

    def _load_a(self, batch: int, start: int, rows: int) -> None:
        layout, buffer = self.a.layout(batch), self.contract.a.buffer
        with self._op():
            for k in range(self.k_tiles):
                tile, place = self._stationary(k)
                self._dma(tile, layout, k * _PARTITIONS, self._depth(k), start, rows, buffer, place)

    def _finish(self, batch: int) -> None:
        """What follows the products of a tile."""
        for step in self.selection.steps:
            self.step(step, self.parts, self.columns)
        self._stores(batch * self.m + self.first)

    def _matmuls(self, first: int, offset: int) -> None:
        """The products of K tiles `first` .. `first` + _GROUP; A's tile begins `offset` columns into its load."""
        last = min(first + _GROUP, self.k_tiles)
        whole = min(last, self.k // _PARTITIONS)
        for column in range(0, self.columns, _MOVING):
            width = min(_MOVING, self.columns - column)
            begin = first
            if first == 0 and whole > 0:
                self._matmul(0, column, width, offset)
                begin = 1
            for k in self.tiler.repeated(max(0, whole - begin)):
                self._matmul(begin + k, column, width, offset)
            if whole < last:
                self._matmul(whole, column, width, offset)

    def _matmul(self, k: int, column: int, width: int, offset: int) -> None:
        kp = self._depth(k)
        stationary, start = self._stationary(k)
        moving, place = self._moving(k, column)
        self.tiler.emit(
            "nc_matmul",
            dst=self.tile(self.accumulator).access((0, self.parts), ((1, width),), offset=column),
            stationary=stationary.access((0, kp), ((1, self.parts),), offset=start + offset),
            moving=moving.access((0, kp), ((1, width),), offset=place),
            accumulate=k > 0,
        )

    def _depth(self, k: int) -> int:
        return min(_PARTITIONS, self.k - k * _PARTITIONS)

    def _stationary(self, k: int) -> tuple[Tile, int]:
        """Where K tile number k of A is: tile and first column."""
        # With K as columns of A every tile is turned anew; with K as rows one load serves several tiles.
        slot = (self.iteration if self.a.turned else self.staged) % 2
        width = self.rows_at_once
        return self.tiler.sbuf(f"{self.prefix}_at_{slot}", _PARTITIONS, self.k_tiles * width, self.dtype), k * width

    def _moving(self, k: int, column: int = 0) -> tuple[Tile, int]:
        """Where column `column` of K tile number k of B is."""
        slot = self.block % self.slots
        tile = self.tiler.sbuf(f"{self.prefix}_b_{slot}", _PARTITIONS, self.k_tiles * self.width, self.dtype)
        return tile, k * self.width + column

    def _load_b(self, batch: int) -> None:
        layout, contract = self.b.layout(batch), self.contract
        with self.tiler.builder.op(contract.op, contract.source):
            if not self.b.turned:
                for k in range(self.k_tiles):
                    tile, place = self._moving(k)
                    self._dma(
                        tile,
                        layout,
                        k * _PARTITIONS,
                        self._depth(k),
                        self.column_start,
                        self.columns,
                        contract.b.buffer,
                        place,
                    )
                return
            for column in range(0, self.columns, _PARTITIONS):
                parts = min(_PARTITIONS, self.columns - column)

                self._turn(layout, self.column_start + column, parts, partial(self._moving, column=column), "b")

    def _turn(self, layout: Layout, row: int, parts: int, place: Place, name: str) -> None:
        """Load rows [row, row+parts) of a matrix [other, K] and put their transposes where `place(k)` says."""
        stages = self._load_rows(layout, row, parts, name)
        for k in range(0, self.k_tiles, _GROUP):
            self._turn_group(stages, k, parts, place)

    def _load_rows(self, layout: Layout, row: int, parts: int, name: str) -> list[tuple[Tile, int]]:
        """Load rows of a matrix [other, K]; returns (tile, its first K) by chunk."""
        buffer = (self.contract.a if name == "a" else self.contract.b).buffer
        stages = []
        with self._op():
            for start in range(0, self.k, _CHUNK):
                count = min(_CHUNK, self.k - start)
                self.turns += 1
                tile = self.tiler.sbuf(
                    f"{self.prefix}_{name}s_{self.turns % _STAGES}", _PARTITIONS, min(_CHUNK, self.k), self.dtype
                )
                self._dma(tile, layout, row, parts, start, count, buffer)
                stages.append((tile, start))
        return stages

    def _turn_group(self, stages: list[tuple[Tile, int]], first: int, parts: int, place: Place) -> None:
        """Turn K tiles `first` .. `first` + _GROUP, which share a PSUM bank."""
        tiler = self.tiler
        stage, start = stages[first * _PARTITIONS // _CHUNK]
        tiles = range(first, min(first + _GROUP, self.k_tiles))
        bank = tiler.psum(f"{self.prefix}_turn_{self.bank()}", _PARTITIONS, _GROUP * _STATIONARY, self.dtype)
        for i, k in enumerate(tiles):
            kp = self._depth(k)
            tiler.emit(
                "nc_transpose",
                dst=bank.access((0, kp), ((1, parts),), offset=i * _STATIONARY),
                data=stage.access((0, parts), ((1, kp),), offset=k * _PARTITIONS - start),
                engine="Tensor",
            )
        whole = [k for k in tiles if self._depth(k) == _PARTITIONS]
        if whole:  # at equal distances: one eviction for all
            destination, column = place(whole[0])
            step = place(whole[-1])[1] - column
            step = step // (len(whole) - 1) if len(whole) > 1 else parts
            self._evict(
                destination.access(None, _squeezed(((step, len(whole)), (1, parts))), offset=column),
                bank.access(None, _squeezed(((_STATIONARY, len(whole)), (1, parts)))),
                len(whole) * parts,
            )
        if len(whole) < len(tiles):
            kp = self._depth(tiles[-1])
            destination, column = place(tiles[-1])
            self._evict(
                destination.access((0, kp), ((1, parts),), offset=column),
                bank.access((0, kp), ((1, parts),), offset=len(whole) * _STATIONARY),
                parts,
            )

    def bank(self) -> int:
        """The next of the two PSUM banks for transposes."""
        self.turn_bank = 1 - self.turn_bank
        return self.turn_bank

    def _evict(self, dst: Access, data: Access, width: int) -> None:
        """PSUM to SBUF, on Vector or Scalar, whichever has less to do."""
        step = Step("copy", self.accumulator, self.accumulator)
        engine = self._engine(step, width)
        if engine == "Vector":
            self.tiler.emit("tensor_copy", dst=dst, data=data, engine="Vector")
        else:
            self.tiler.emit("activation", dst=dst, data=data, op="copy")

    # -- operands of the maps behind the product -----------------------------------------------------------------------

    def _load_columns(self) -> None:
        for key in self.persistent:
            view = key[1]
            assert isinstance(view, View)
            if not self.selection.by_row[key]:
                self._dma(
                    self.tile(key),
                    self._layout(key),
                    0,
                    min(self.m, _PARTITIONS),
                    self.column_start,
                    self.columns,
                    view.buffer,
                )

    def _load_values(self, batch: int) -> None:
        row = batch * self.m + self.first
        keys = dict.fromkeys(k for s in self.selection.steps for k in s.inputs() if k[0] == "load")
        for key in keys:
            view = key[1]
            assert isinstance(view, View)
            if self.selection.by_row[key]:
                self._dma(self.tile(key), self._layout(key), row, self.parts, 0, 1, view.buffer)
            elif key not in self.persistent:
                self._dma(
                    self.tile(key), self._layout(key), row, self.parts, self.column_start, self.columns, view.buffer
                )

    def _dma(
        self, tile: Tile, layout: Layout, row: int, rows: int, column: int, columns: int, buffer: int, place: int = 0
    ) -> None:
        """Load a block of a matrix to the tile's columns from `place` on."""
        for piece in pieces(layout, row, rows, column, columns):
            to = tile.access((piece.row, piece.row + piece.rows), ((1, piece.columns),), offset=place + piece.column)
            self.tiler.fetch(buffer, to, piece)

    def _stores(self, row: int) -> None:
        for key, view in self.selection.stores:
            layout = layout_of(view, self.kernel.rows, self.kernel.cols)
            assert layout is not None
            tile, tensor = self.tile(key), self.tiler.tensor(view.buffer)
            with self.tiler.builder.op(self.contract.op, self.contract.source):
                for piece in pieces(layout, row, self.parts, self.column_start, self.columns):
                    self.tiler.store(
                        tensor.access(piece.rows, piece.free, offset=piece.offset, partition_stride=piece.row_stride),
                        tile.access((piece.row, piece.row + piece.rows), ((1, piece.columns),), offset=piece.column),
                    )


def _squeezed(pattern: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Two dimensions as one where they lie next to each other."""
    (outer, count), (stride, size) = pattern
    return ((stride, count * size),) if count == 1 or outer == stride * size else pattern


_RESULT: Key = ("temp", "result")


def _with_result(selection: Selection, key: Key, contract: Contract, dtype: str) -> Selection:
    """The product itself is stored too: a step that evicts it from PSUM."""
    step = Step("copy", _RESULT, key, op=contract.op, source=contract.source)
    stores = tuple((_RESULT if k == key else k, v) for k, v in selection.stores)
    return Selection(
        (step, *selection.steps), {**selection.dtypes, _RESULT: dtype}, {**selection.by_row, _RESULT: False}, stores
    )


def _operand(view: View) -> _Operand:
    """An operand given as [batch..., other, K]: turned when K is its contiguous axis."""
    other, k = view.strides[-2:]
    turned = (k == 1 and (other != 1 or view.shape[-2] == 1)) or (k != 1 and other != 1 and 0 < k < max(other, 1))
    if view.shape[-1] == 1 and other == 1:
        turned = False
    return _Operand(view if turned else _swapped(view), turned)


def _swapped(view: View) -> View:
    """The last two axes exchanged."""
    rank = len(view.shape)
    return view.permute((*range(rank - 2), rank - 1, rank - 2))
