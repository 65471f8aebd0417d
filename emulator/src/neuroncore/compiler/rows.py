"""Tiling rows kernels: which matrix shape, which tile size, how many slots, and the instructions of every tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING

from neuroncore.compiler.emit import StepEmitter
from neuroncore.compiler.fuse import Kernel, Layout, layout_of
from neuroncore.compiler.hbm import merged, pieces, row_loops
from neuroncore.compiler.ir import Map, Reduce, writes
from neuroncore.compiler.joint import Joint, join
from neuroncore.compiler.select import Argument, Key, Step, chip_dtype, select
from neuroncore.compiler.shapes import Shape, flatten, free_shape, has_row_values, region, row_shape
from neuroncore.compiler.views import View
from neuroncore.graph import DTYPE_BYTES
from neuroncore.isa import Access, Tile
from neuroncore.isa.verify import PSUM_ELEMENTS

if TYPE_CHECKING:
    from neuroncore.compiler.tile import Tiler

__all__ = ["tile_rows"]

_SLOTS = 6
#: Elements whose statistics one bn_stats takes.
_STATISTICS = 512
#: Columns from which on a row is worth its instructions.
_LONG = 512


def tile_rows(tiler: Tiler, kernel: Kernel) -> None:
    """Emit a rows kernel."""
    free = not any(isinstance(p, Reduce) for p in kernel.prims) and all(
        w.elements == kernel.rows * kernel.cols for p in kernel.prims for w in writes(p)
    )
    if not free:
        _Rows(tiler, kernel, row_shape(tiler, kernel)).run()
        return
    if has_row_values(tiler, kernel):
        _Rows(tiler, kernel, row_shape(tiler, kernel)).run()
        return
    shape = free_shape(tiler, kernel)
    elements = kernel.rows * kernel.cols
    if shape is None:  # no usable divisor: whole rows of a convenient width, and one short row for the rest
        width = min(2048, max(1, elements // 128))
        rest = elements % width
        flat = flatten(kernel)
        for start, count, columns in ((0, elements // width, width), (elements - rest, int(rest > 0), rest)):
            if count:
                part = region(flat, start, count, columns)
                _Rows(tiler, replace(part, rows=count, cols=columns), Shape(count, columns, min(columns, width))).run()
        return
    _Rows(tiler, replace(kernel, rows=shape.rows, cols=shape.cols), shape).run()


class _Rows(StepEmitter):
    def __init__(self, tiler: Tiler, kernel: Kernel, shape: Shape) -> None:
        near = _near(tiler, kernel, shape)
        super().__init__(tiler, select(tiler.kernels, kernel, packed=shape.packed > 1, near=near))
        self.kernel, self.shape, self.near = kernel, shape, near
        self.row_width = shape.packed
        self.height = min(shape.rows, tiler.target.partitions)
        self.chunks = -(-shape.cols // shape.width)
        self.row_tiles = -(-shape.rows // self.height)
        self.prefix = tiler.new_kernel()
        self.names: dict[Key, str] = {}
        self.iteration = self.row_tile = self.chunk = 0
        self.layouts: dict[Key, Layout] = {}
        for step in self.selection.steps:
            for key in step.inputs():
                if key[0] == "load":
                    view = key[1]
                    assert isinstance(view, View)
                    layout = self._layout(view, self.selection.by_row[key])
                    assert layout is not None
                    self.layouts[key] = layout
        self.persistent = self._persistent()
        self.joints: list[Joint] = []
        #: Value → number of its joint and of its part in it.
        self.joined: dict[Key, tuple[int, int]] = {}
        if self.chunks == 1 and self.shape.width == self.shape.cols:
            self._join()
        self.dead: set[Key] = set()
        self.slot_of, self.depth = self._slots()
        #: Iterations after which slots and engine choices repeat.
        self.cycle = self.depth * -(-4 // self.depth)

    def _join(self) -> None:
        """Find what is loaded and what is stored together."""
        buffers, target = self.tiler.kernels.buffers, self.tiler.target
        loads, stores = [], []
        # A reduction over each of several rows in a partition needs them as they are.
        reduced = {
            s.x for s in self.selection.steps if s.form == "moments" or (s.form == "reduce" and self.row_width > 1)
        }
        for key, layout in self.layouts.items():
            view = key[1]
            assert isinstance(view, View)
            if key in self.persistent or key in reduced:
                continue
            if not self.selection.by_row[key] and not buffers[view.buffer].made:
                loads.append((key, view.buffer, layout))
        for key, view in self.selection.stores:
            stored = self._layout(view, self.selection.by_row[key])
            if not self.selection.by_row[key] and stored is not None and key not in reduced:
                stores.append((key, view.buffer, stored))
        where = {key: buffer for key, buffer, _ in (*loads, *stores)}
        room = target.sbuf_usable_bytes_per_partition // 4
        for parts, whole in ((loads, False), (stores, True)):
            for joint, keys in join(target, parts, lambda k: DTYPE_BYTES[buffers[where[k]].dtype], whole=whole):
                size = joint.width * DTYPE_BYTES[self.selection.dtypes[keys[0]]]
                if size > room or any(key in self.joined for key in keys):
                    continue
                self.joined |= {key: (len(self.joints), number) for number, key in enumerate(keys)}
                self.joints.append(joint)
                room -= size

    def _slot_key(self, key: Key) -> Key:
        """What a value's slot belongs to: itself, or the rows it is a part of."""
        return ("joint", self.joined[key][0]) if key in self.joined else key

    def _layout(self, view: View, by_row: bool) -> Layout | None:
        """A view as this kernel's matrix; one value per row becomes `packed` values per bundle of rows."""
        rows, packed = self.shape.rows, self.shape.packed
        if not by_row:
            return layout_of(view, rows, self.shape.cols)
        total = rows * packed
        layout = layout_of(view, total, view.elements // total)
        if layout is None or packed == 1:
            return layout
        sizes, strides = zip(*layout.rows, strict=True) if layout.rows else ((), ())
        return layout_of(View(view.buffer, sizes, strides, view.offset), rows, packed)

    # -- slots ---------------------------------------------------------------------------------------------------------

    def _persistent(self) -> dict[Key, None]:
        """Values loaded or filled once for all tiles: weights by column, single values, constants."""
        limit = self.tiler.target.sbuf_usable_bytes_per_partition // 3
        used = 0
        chosen: dict[Key, None] = {}  # not a set: its order decides the order of the loads
        for key, layout in self.layouts.items():
            if not layout.by_column or (self.row_tiles == 1 and self.chunks == 1 and not layout.by_row):
                continue
            size = 4 * self.row_width if layout.by_row else self.shape.cols * DTYPE_BYTES[self.selection.dtypes[key]]
            if used + size <= limit:
                used += size
                chosen[key] = None
        made: dict[Key, int] = {}
        for step in self.selection.steps:
            made[step.out] = made.get(step.out, 0) + 1
        for step in self.selection.steps:
            if (
                step.form == "fill"
                and self.selection.by_row[step.out]
                and made[step.out] == 1
                and step.out[0] == "temp"
            ):
                chosen[step.out] = None
        return chosen

    def _bytes(self, key: Key) -> int:
        if key[0] == "joint":
            part = next(k for k, (number, _) in self.joined.items() if number == key[1])
            return self.joints[int(str(key[1]))].width * DTYPE_BYTES[self.selection.dtypes[part]]
        size = DTYPE_BYTES[self.selection.dtypes[key]]
        return size * self.row_width if self.selection.by_row[key] else size * self.shape.width

    def _slots(self) -> tuple[dict[Key, str], int]:
        """A slot name for every value, and how many copies of all slots fit."""
        steps = self.selection.steps
        keys = list(dict.fromkeys(k for s in steps for k in (*s.inputs(), *s.outputs()) if k not in self.persistent))
        constant = 0
        for key in self.persistent:
            wide = not self.selection.by_row[key]
            constant += DTYPE_BYTES[self.selection.dtypes[key]] * (self.shape.cols if wide else self.row_width)
        limit = self.tiler.target.sbuf_usable_bytes_per_partition - constant - 1024
        iterations = self.row_tiles * self.chunks
        read = {k for s in steps for k in s.inputs()} | {k for k, _ in self.selection.stores}
        self.dead = {s.out for s in steps if s.form == "activation" and s.total is not None and s.out not in read}
        keys = list(dict.fromkeys(self._slot_key(k) for k in keys if k not in self.dead))
        junk = self.shape.width * 2 if self.dead or any(s.form == "reduce" and s.fn == "add" for s in steps) else 0
        slots = {key: self._name(key) for key in keys}
        total = sum(_padded(self._bytes(k)) for k in keys)
        want = min(_SLOTS, iterations)
        depth = min(want, (limit - junk) // max(1, total))
        if depth < want:
            together = {k: slots[k] for k in keys if k[0] == "joint"}
            reused, total = self._reused([k for k in keys if k[0] != "joint"])
            reused |= together
            total += sum(_padded(self._bytes(k)) for k in together)
            deeper = min(want, (limit - junk) // max(1, total))
            if deeper > depth:
                slots, depth = reused, deeper
        return slots, max(1, depth)

    def _reused(self, keys: list[Key]) -> tuple[dict[Key, str], int]:
        """Slots shared by values that are not live together."""
        steps = self.selection.steps
        last = {k: n for n, s in enumerate(steps) for k in (*s.inputs(), *s.outputs())}
        stored = {k for k, _ in self.selection.stores}
        slots: dict[Key, str] = {}
        free: dict[int, list[str]] = {}
        total = 0
        for number, step in enumerate(steps):
            # An output may take the place of an input that dies here: instructions stream element by element.
            dying = [k for k in dict.fromkeys(step.inputs()) if last[k] == number and k in slots and k not in stored]
            if step.form in ("merge", "reduce"):
                dying_now, dying_later = [], dying
            else:
                dying_now, dying_later = dying, []
            for key in step.inputs():
                if key in keys and key not in slots:
                    total += self._take(key, slots, free)
            for key in dying_now:
                free.setdefault(_padded(self._bytes(key)), []).append(slots[key])
            for key in step.outputs():
                if key in keys and key not in slots:
                    total += self._take(key, slots, free)
            for key in dying_later:
                free.setdefault(_padded(self._bytes(key)), []).append(slots[key])
        return slots, total

    def _take(self, key: Key, slots: dict[Key, str], free: dict[int, list[str]]) -> int:
        size = _padded(self._bytes(key))
        if free.get(size):
            slots[key] = free[size].pop()
            return 0
        slots[key] = self._name(key)
        return size

    def _name(self, key: Key) -> str:
        if key not in self.names:
            kind = {"buffer": "v", "load": "x", "temp": "c", "joint": "j"}[str(key[0])]
            self.names[key] = f"{self.prefix}_{kind}{len(self.names)}"
        return self.names[key]

    def tile(self, key: Key) -> Tile:
        if key in self.dead:
            return self.junk(self.shape.width)
        size = DTYPE_BYTES[self.selection.dtypes[key]]
        dtype = self.selection.dtypes[key]
        if key in self.persistent:
            columns = self.row_width if self.selection.by_row[key] else self.shape.cols
            return self.tiler.sbuf(self._name(key), self.height, columns, dtype)
        columns = self.row_width if self.selection.by_row[key] else self.shape.width
        if key in self.joined:
            columns = self.joints[self.joined[key][0]].width
        number = (self.row_tile if self.selection.by_row[key] else self.iteration) % self.depth
        tile = self.tiler.sbuf(
            f"{self.slot_of[self._slot_key(key)]}_{number}", self.height, _padded(columns * size) // size, dtype
        )
        return tile if tile.dtype == dtype else replace(tile, dtype=dtype)

    def _part(self, key: Key, parts: int) -> Access:
        """A value that is part of joint rows."""
        joint, part = self.joined[key]
        offset, pattern = self.joints[joint].pattern(part)
        return self.tile(key).access((0, parts), pattern, offset=offset)

    def result(self, key: Key, parts: int, width: int) -> Access:
        return self._part(key, parts) if key in self.joined else super().result(key, parts, width)

    def in_psum(self, key: Key) -> bool:
        return key[0] == "load" and key[1] in self.near and key in self.persistent

    def full(self, value: Argument, parts: int, width: int) -> Access:
        if isinstance(value, tuple) and self.in_psum(value):
            return self._copy(value).access((0, parts), ((1, width),))
        if isinstance(value, tuple) and value in self.joined:
            return self._part(value, parts)
        if value in self.persistent and isinstance(value, tuple) and not self.selection.by_row[value]:
            return self.tile(value).access((0, parts), ((1, width),), offset=self.chunk * self.shape.width)
        return super().full(value, parts, width)

    def _copy(self, key: Key) -> Tile:
        """The copy in PSUM of a value per column."""
        return self.tiler.psum(f"{self._name(key)}_near", self.height, self.shape.cols, self.selection.dtypes[key])

    def _pieces(self) -> int:
        """Statistics of a chunk: one for every 512 elements."""
        return -(-self.shape.width // _STATISTICS)

    def moments(self, step: Step, parts: int, columns: int) -> None:
        assert isinstance(step.x, tuple) and step.total is not None
        data, emit = self.full(step.x, parts, columns), self.tiler.emit
        name = f"{self._name(step.out)}_stats_{self.row_tile % self.depth}"
        statistics = self.tiler.sbuf(name, self.height, 6 * self._pieces() * self.chunks, "fp32")
        for number, start in enumerate(range(0, columns, _STATISTICS)):
            count = min(_STATISTICS, columns - start)
            place = 6 * (self.chunk * self._pieces() + number)
            emit(
                "bn_stats", dst=statistics.access((0, parts), ((1, 6),), offset=place),
                data=_within(data, start, count), engine="Vector",
            )  # fmt: skip
        self._busy("Vector", columns)
        if self.chunk == self.chunks - 1:
            done = 6 * (self.chunk * self._pieces() + -(-columns // _STATISTICS))
            self._aggregate(step, statistics, parts, done)

    def _aggregate(self, step: Step, statistics: Tile, parts: int, count: int) -> None:
        """Mean and variance from the statistics of all pieces, each to its own value."""
        assert step.total is not None
        pair = self.tiler.sbuf(f"{self._name(step.out)}_pair_{self.row_tile % self.depth}", self.height, 2, "fp32")
        found = pair.access((0, parts), ((1, 2),))
        self.tiler.emit(
            "bn_aggr", dst=found, data=statistics.access((0, parts), ((1, count),)), engine="Vector"
        )  # fmt: skip
        for number, key in enumerate((step.out, step.total)):
            self.tiler.emit(
                "tensor_copy", dst=self.result(key, parts, 1), data=pair.access((0, parts), ((1, 1),), offset=number),
                engine="Vector",
            )  # fmt: skip

    def junk(self, columns: int) -> Tile:
        return self.tiler.sbuf(f"{self.prefix}_junk", self.height, self.shape.width, "bf16")

    def total(self, key: Key, parts: int) -> Access:
        if self.chunks == 1:
            return super().total(key, parts)
        tile = self.tiler.sbuf(f"{self._name(key)}_part_{self.row_tile % self.depth}", self.height, self.chunks, "fp32")
        return tile.access((0, parts), ((1, 1),), offset=self.chunk)

    # -- iterations ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        shape, tiler = self.shape, self.tiler
        before, main, after = self._parts()
        with tiler.iteration(prologue=True):
            for step in self.selection.steps:
                if step.form == "fill" and step.out in self.persistent:
                    self.step(step, self.height, 1)
            for key in self.persistent:
                if key[0] == "load":
                    self._load(key, 0, self.height, 0, self.row_width if self.selection.by_row[key] else shape.cols)
                if self.in_psum(key):
                    whole = self.tile(key).access((0, self.height), ((1, shape.cols),))
                    tiler.emit("tensor_copy", dst=self._copy(key).access(), data=whole, engine="Vector")
        for row_tile in self._row_tiles():
            self.row_tile = row_tile
            for chunk in self._chunks():
                self.chunk = chunk
                self.iteration = row_tile * self.chunks + chunk
                if self.iteration % self.cycle == 0:  # so that loops repeat: see `Tiler.rolled`
                    self.load_ns = dict.fromkeys(self.load_ns, 0.0)
                with tiler.iteration():
                    self._tile(before, main, after)

    def _tile(self, before: list[Step], main: list[Step], after: list[Step]) -> None:
        """One chunk of one tile of rows."""
        shape = self.shape
        row = self.row_tile * self.height
        parts = min(self.height, shape.rows - row)
        column = self.chunk * shape.width
        columns = min(shape.width, shape.cols - column)
        first, last = self.chunk == 0, self.chunk == self.chunks - 1
        steps = [*(before if first else ()), *main, *(after if last and self.chunks == 1 else ())]
        if self.chunks == 1:
            steps = [s for s in self.selection.steps if s.out not in self.persistent]
        self._loads(steps, row, parts, column, columns, first=first)
        for step in steps:
            self.step(step, parts, columns)
        self._stores(steps, row, parts, column, columns)
        if last and self.chunks > 1:
            self._combine(main, parts)
            self._loads(after, row, parts, column, 1, first=True)
            for step in after:
                self.step(step, parts, 1)
            combined = [s for s in main if s.form == "reduce" or s.total is not None]
            self._stores([*after, *combined], row, parts, column, 1, rows_only=True)

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _walked(self) -> list[Layout]:
        """The layouts every tile reads or writes anew."""
        stores = [self._layout(view, self.selection.by_row[key]) for key, view in self.selection.stores]
        loads = [layout for key, layout in self.layouts.items() if key not in self.persistent]
        return [*loads, *(layout for layout in stores if layout is not None)]

    def _row_tiles(self) -> Iterator[int]:
        """Numbers of the tiles of rows, those of loops that repeat left out."""
        counts = row_loops((layout.rows for layout in self._walked()), self.shape.rows, self.height)
        if counts is None:
            yield from range(self.row_tiles)
            return
        yield from self._nested(counts, 0)
        yield from range(prod(counts), self.row_tiles)

    def _nested(self, counts: tuple[int, ...], base: int) -> Iterator[int]:
        if not counts:
            yield base
            return
        inner = prod(counts[1:])
        period = self.cycle // gcd(self.cycle, inner * self.chunks)
        for number in self.tiler.rolled(counts[0], period):
            yield from self._nested(counts[1:], base + number * inner)

    def _chunks(self) -> Iterator[int]:
        """Numbers of the chunks of a tile; the first and the last do more than those between."""
        single = all(len(merged(layout.cols)) <= 1 or layout.by_row for layout in self._walked())
        if not single or self.chunks < 3:
            yield from range(self.chunks)
            return
        yield 0
        yield from (1 + number for number in self.tiler.rolled(self.chunks - 2, self.cycle))
        yield self.chunks - 1

    def _parts(self) -> tuple[list[Step], list[Step], list[Step]]:
        """Steps per row before the chunks, per chunk, and per row after them."""
        before, main, after = [], [], []
        reduced: set[Key] = set()
        for step in self.selection.steps:
            if step.out in self.persistent:
                continue
            if step.form == "moments":
                main.append(step)
                reduced.update(step.outputs())
            elif step.form == "reduce" or step.total is not None:
                main.append(step)
                reduced.update([step.total] if step.total is not None else [step.out])
            elif self.selection.by_row[step.out]:
                if any(k in reduced for k in step.inputs()):
                    after.append(step)
                    reduced.add(step.out)
                else:
                    before.append(step)
            else:
                main.append(step)
        return before, main, after

    def _combine(self, main: list[Step], parts: int) -> None:
        """Fold the partial results of the chunks."""
        for step in main:
            if step.form == "moments":
                continue  # its last chunk made them
            key = step.total if step.total is not None else step.out if step.form == "reduce" else None
            if key is None:
                continue
            tile = self.tiler.sbuf(
                f"{self._name(key)}_part_{self.row_tile % self.depth}", self.height, self.chunks, "fp32"
            )
            fn = "add" if step.total is not None else step.fn
            if step.negate:
                fn = {"max": "min", "min": "max", "add": "add"}[fn]
            with self.tiler.builder.op(step.op, step.source):
                self.tiler.emit(
                    "tensor_reduce",
                    dst=self.result(key, parts, 1),
                    data=tile.access((0, parts), ((1, self.chunks),)),
                    op=fn,
                    axes=1,
                )

    def _loads(self, steps: list[Step], row: int, parts: int, column: int, columns: int, *, first: bool) -> None:
        seen: set[Key] = set()
        for step in steps:
            for key in step.inputs():
                if key[0] != "load" or key in self.persistent or self._slot_key(key) in seen:
                    continue
                seen.add(self._slot_key(key))
                by_row = self.selection.by_row[key]
                if by_row and not first:
                    continue
                with self.tiler.builder.op(step.op, step.source):
                    self._load(key, row, parts, 0 if by_row else column, self.row_width if by_row else columns)

    def _load(self, key: Key, row: int, parts: int, column: int, columns: int) -> None:
        view = key[1]
        assert isinstance(view, View)
        tile, layout = self.tile(key), self.layouts[key]
        if key in self.joined:
            joint = self.joints[self.joined[key][0]]
            layout, columns = joint.layout, joint.width
        for piece in pieces(layout, row, parts, column, columns):
            to = tile.access((piece.row, piece.row + piece.rows), ((1, piece.columns),), offset=piece.column)
            self.tiler.fetch(view.buffer, to, piece)

    def _stores(
        self, steps: list[Step], row: int, parts: int, column: int, columns: int, *, rows_only: bool = False
    ) -> None:
        made = {k: s for s in steps for k in s.outputs()}
        done: set[Key] = set()
        for key, view in self.selection.stores:
            if self._slot_key(key) in done:
                continue
            done.add(self._slot_key(key))
            by_row = self.selection.by_row[key]
            if key not in made or (self.chunks > 1 and by_row != rows_only and (rows_only or self._is_partial(key))):
                continue
            width = self.row_width if by_row else columns
            layout = self._layout(view, by_row)
            assert layout is not None
            if key in self.joined:
                joint = self.joints[self.joined[key][0]]
                layout, width = joint.layout, joint.width
            tile, tensor = self.tile(key), self.tiler.tensor(view.buffer)
            with self.tiler.builder.op(made[key].op, made[key].source):
                for piece in pieces(layout, row, parts, 0 if by_row else column, width):
                    self.tiler.store(
                        tensor.access(piece.rows, piece.free, offset=piece.offset, partition_stride=piece.row_stride),
                        tile.access((piece.row, piece.row + piece.rows), ((1, piece.columns),), offset=piece.column),
                    )

    def _is_partial(self, key: Key) -> bool:
        """A reduction's result is complete only after the last chunk."""
        made = ("reduce", "moments")
        return any(key == s.total or (s.form in made and s.out == key) for s in self.selection.steps)


def _near(tiler: Tiler, kernel: Kernel, shape: Shape) -> frozenset[View]:
    """Values per column that Vector reads with other tiles: from PSUM such a pass takes half the time.

    (nki.isa tensor_tensor: 2N for two SBUF inputs, N where one is in PSUM.) As many as PSUM holds, whole banks each.
    """
    if shape.width != shape.cols or shape.packed > 1 or shape.rows < 4 * tiler.target.partitions:
        return frozenset()
    if shape.cols > PSUM_ELEMENTS:
        return frozenset()
    buffers, target = tiler.kernels.buffers, tiler.target
    left = target.psum_banks
    found = []
    for prim in kernel.prims:
        if not isinstance(prim, Map) or len(prim.ins) != 2 or prim.fn not in ("add", "subtract", "multiply"):
            continue
        for view in prim.ins:
            if not isinstance(view, View) or view in found or buffers[view.buffer].made:
                continue
            layout = layout_of(view, shape.rows, shape.cols)
            dtype = chip_dtype(buffers[view.buffer].dtype)
            if layout is None or not layout.by_column or layout.by_row or dtype not in ("fp32", "bf16", "fp16"):
                continue
            half = all(
                chip_dtype(buffers[v.buffer].dtype) in ("bf16", "fp16")
                for v in (*prim.ins, prim.out)
                if isinstance(v, View)
            )
            banks = -(-shape.cols * DTYPE_BYTES[dtype] // target.psum_bank_bytes)
            if not half and shape.cols >= _LONG and banks <= left:
                left -= banks
                found.append(view)
    return frozenset(found)


def _within(data: Access, start: int, count: int) -> Access:
    """`count` elements of a row from `start`; the row is contiguous in its tile."""
    stride = data.free[-1][0]
    return replace(data, free=((stride, count),), offset=data.offset + start * stride)


def _padded(size: int) -> int:
    """Tiles start at multiples of four bytes."""
    return -(-size // 4) * 4
