"""Tiling rows kernels: which matrix shape, which tile size, how many slots, and the instructions of every tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING

from neuroncore.compiler.fuse import Kernel, Layout, layout_of, tile_bytes
from neuroncore.compiler.hbm import merged, pieces, row_loops
from neuroncore.compiler.ir import Map, Reduce, reads, writes
from neuroncore.compiler.joint import Joint, join
from neuroncore.compiler.select import Argument, Key, Selection, Step, chip_dtype, select
from neuroncore.compiler.views import View, collapse
from neuroncore.graph import DTYPE_BYTES
from neuroncore.isa import FUNCTION_TABLES, Access, Tile
from neuroncore.isa.costs import GPSIMD_START_CYCLES

if TYPE_CHECKING:
    from neuroncore.compiler.tile import Tiler
    from neuroncore.targets import Target

__all__ = ["StepEmitter", "tile_rows"]

#: Bytes per partition a transfer should move: beyond this a row costs its bytes, not its descriptor
#: (reference/hw/compile_rules.md section 5); larger tiles only delay the first computation.
_ROW_BYTES = 8192
_SLOTS = 6
#: Elements whose statistics one bn_stats takes.
_STATISTICS = 512
#: Columns from which on a row is worth its instructions.
_LONG = 512
_INTEGERS = frozenset({"int32", "uint32"})


@dataclass(frozen=True)
class Shape:
    """Matrix shape chosen for a kernel: `rows` x `cols`, tiles of at most 128 x `width`.

    `packed` rows share a partition: `rows` then counts such bundles and `cols` their elements.
    """

    rows: int
    cols: int
    width: int
    packed: int = 1


def tile_rows(tiler: Tiler, kernel: Kernel) -> None:
    """Emit a rows kernel."""
    free = not any(isinstance(p, Reduce) for p in kernel.prims) and all(
        w.elements == kernel.rows * kernel.cols for p in kernel.prims for w in writes(p)
    )
    if not free:
        _Rows(tiler, kernel, _row_shape(tiler, kernel)).run()
        return
    if _has_row_values(tiler, kernel):
        _Rows(tiler, kernel, _row_shape(tiler, kernel)).run()
        return
    shape = _free_shape(tiler, kernel)
    elements = kernel.rows * kernel.cols
    if shape is None:  # no usable divisor: whole rows of a convenient width, and one short row for the rest
        width = min(2048, max(1, elements // 128))
        rest = elements % width
        flat = _flatten(kernel)
        for start, count, columns in ((0, elements // width, width), (elements - rest, int(rest > 0), rest)):
            if count:
                part = _region(flat, start, count, columns)
                _Rows(tiler, replace(part, rows=count, cols=columns), Shape(count, columns, min(columns, width))).run()
        return
    _Rows(tiler, replace(kernel, rows=shape.rows, cols=shape.cols), shape).run()


# -- shapes --------------------------------------------------------------------------------------------------


def _row_shape(tiler: Tiler, kernel: Kernel) -> Shape:
    """Rows are given by a reduction; a row is cut into chunks only when nothing full depends on its result."""
    target, buffers = tiler.target, tiler.kernels.buffers
    widest = max(tile_bytes(buffers[v.buffer].dtype) for p in kernel.prims for v in (*reads(p), *writes(p)))
    values = len({v for p in kernel.prims for v in reads(p)} | {w for p in kernel.prims for w in writes(p)})
    limit = target.sbuf_usable_bytes_per_partition
    packed = _packing(tiler, kernel, values * widest)
    if packed > 1:
        return Shape(kernel.rows // packed, kernel.cols * packed, kernel.cols * packed, packed)
    width = kernel.cols
    if not crosses(kernel):
        chunk = max(512, min(4 * _ROW_BYTES // widest, limit // (2 * max(1, values) * widest)))
        if width > chunk:
            parts = -(-width // chunk)
            width = -(-width // parts)
    return Shape(kernel.rows, kernel.cols, width)


def _packing(tiler: Tiler, kernel: Kernel, bytes_per_element: int) -> int:
    """How many short rows to put into one partition, so that instructions are worth their overhead."""
    partitions = tiler.target.partitions
    if kernel.cols < 2 or kernel.cols > 256 or kernel.rows < 4 * partitions:
        return 1
    room = tiler.target.sbuf_usable_bytes_per_partition // (3 * bytes_per_element * kernel.cols)
    most = min(2048 // kernel.cols, kernel.rows // partitions, room)
    views = [v for p in kernel.prims for v in (*reads(p), *writes(p))]
    for packed in range(most, 1, -1):
        if kernel.rows % packed:
            continue
        rows = kernel.rows // packed
        if all(layout_of(v, rows, v.elements // rows) is not None for v in views):
            return packed
    return 1


def crosses(kernel: Kernel) -> bool:
    """Whether a full value depends on a reduction of the same kernel."""
    reduced: set[int] = set()
    for prim in kernel.prims:
        out = next(writes(prim))
        depends = any(v.buffer in reduced for v in reads(prim))
        if depends and isinstance(prim, Map) and out.elements == kernel.rows * kernel.cols and kernel.cols > 1:
            return True
        if isinstance(prim, Reduce) or depends:
            reduced.add(out.buffer)
    return False


def _has_row_values(tiler: Tiler, kernel: Kernel) -> bool:
    """Whether long rows, enough to fill the partitions, each have a value of their own: it is loaded once per row."""
    if kernel.rows < tiler.target.partitions or kernel.cols < _LONG:
        return False
    layouts = [layout_of(v, kernel.rows, kernel.cols) for p in kernel.prims for v in (*reads(p), *writes(p))]
    if any(layout is None for layout in layouts):
        return False
    return any(layout.by_row and not layout.by_column for layout in layouts if layout is not None)


def _free_shape(tiler: Tiler, kernel: Kernel) -> Shape | None:
    """The cheapest way to see an elementwise kernel as a matrix, by the DMA and engine costs of the target."""
    views = [v for p in kernel.prims for v in (*reads(p), *writes(p))]
    own = {w.buffer for p in kernel.prims for w in writes(p)}
    outside = [v for v in dict.fromkeys(views) if v.buffer not in own or v.buffer in tiler.kernels.kept]
    outside = [v for v in outside if not tiler.kernels.buffers[v.buffer].made]
    elements = kernel.rows * kernel.cols
    widest = max(tile_bytes(tiler.kernels.buffers[v.buffer].dtype) for v in views)
    values = len(dict.fromkeys(views))
    cap = max(1, min(16384 // widest, tiler.target.sbuf_usable_bytes_per_partition // (3 * values * widest)))
    best: tuple[float, int] | None = None
    for cols in _divisors(elements):
        if cols > cap:
            continue
        layouts = [layout_of(v, elements // cols, cols) for v in views]
        if any(layout is None for layout in layouts):
            continue
        cost = _cost(tiler, outside, kernel, elements // cols, cols)
        cost = max(cost, _made_ns(tiler, views, elements // cols, cols))
        if best is None or cost < best[0]:
            best = (cost, cols)
    if best is None:
        return None
    cols = best[1]
    if elements // cols > 128 * 32 and cols < 256 and _flat(views):
        return None  # only tiny divisors: too many tiles
    return Shape(elements // cols, cols, cols)


def _flat(views: list[View]) -> bool:
    return all(len(collapse(v.shape, (v.strides,))[0]) <= 1 for v in views)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _cost(tiler: Tiler, outside: list[View], kernel: Kernel, rows: int, cols: int) -> float:
    """Nanoseconds at a given matrix shape: the busiest of DMA and engines, plus one tile to fill the pipeline."""
    target = tiler.target
    height = min(rows, target.partitions)
    tiles = -(-rows // target.partitions)
    own = {w.buffer for p in kernel.prims for w in writes(p)}
    queues = {True: 0.0, False: 0.0}
    moved = 0
    once = 0.0
    layouts: list[tuple[View, Layout]] = []
    for view in outside:
        layout = layout_of(view, rows, cols)
        assert layout is not None
        layouts.append((view, layout))
    for stored in (False, True):
        parts = [(v, v.buffer, layout) for v, layout in layouts if (v.buffer in own) == stored]
        for joint, views in _joined(tiler, parts, whole=stored):
            layouts = [(v, layout) for v, layout in layouts if v not in views] + [(views[0], joint.layout)]
    for view, layout in layouts:
        columns = prod(n for n, _ in layout.cols)
        dtype = tiler.kernels.buffers[view.buffer].dtype
        alone = transfer_ns(target, layout, height, columns, dtype)
        transfers = sum(1 for _ in pieces(layout, 0, height, 0, 1 if layout.by_row else columns))
        interval = target.dma_queue_interval_ns if tiles > 1 or transfers > 1 else 0.0
        spent = max(alone, transfers * interval)
        if layout.by_column:
            once += spent
            continue
        queues[view.buffer in own] += spent
        moved += height * (1 if layout.by_row else columns) * DTYPE_BYTES[dtype]
    transfer = max(*queues.values(), moved / target.dma_bytes_per_second * 1e9)
    compute = len(kernel.prims) * max(64, cols) / target.vector_clock_hz * 1e9
    return tiles * max(transfer, compute) + sum(queues.values()) + once + compute


def _made_ns(tiler: Tiler, views: list[View], rows: int, cols: int) -> float:
    """Time of GpSimd to make indices, a start-up for every piece that one affine pattern describes."""
    target, total = tiler.target, 0.0
    height = min(rows, target.partitions)
    for view in dict.fromkeys(views):
        layout = layout_of(view, rows, cols)
        if tiler.kernels.buffers[view.buffer].kind != "iota" or layout is None:
            continue
        cycles = sum(GPSIMD_START_CYCLES + piece.columns for piece in pieces(layout, 0, height, 0, cols))
        total += -(-rows // height) * cycles / target.gpsimd_clock_hz * 1e9
    return total


def _joined(
    tiler: Tiler, parts: list[tuple[View, int, Layout]], *, whole: bool
) -> list[tuple[Joint, tuple[View, ...]]]:
    buffers = tiler.kernels.buffers
    return join(tiler.target, parts, lambda view: DTYPE_BYTES[buffers[view.buffer].dtype], whole=whole)


def transfer_ns(target: Target, layout: Layout, height: int, cols: int, dtype: str) -> float:
    """Time all DMA engines together need for one tile of an operand, latencies excluded."""
    size = DTYPE_BYTES[dtype]
    if layout.by_row:
        run, count = size, 1
    else:
        inner, stride = layout.cols[-1] if layout.cols else (1, 1)
        run = max(1, min(inner, cols)) * size if stride == 1 else size
        count = max(1, cols * size // run)
    engines = max(1, min(target.dma_engines, -(-height // target.dma_rows_per_engine_group)))
    per_row = max(target.dma_row_min_ns, run / target.dma_engine_bytes_per_second * 1e9)
    return -(-height // engines) * count * per_row


def _flatten(kernel: Kernel) -> Kernel:
    """Every view as one axis."""

    def flat(view: View) -> View:
        sizes, (strides,) = collapse(view.shape, (view.strides,))
        if len(sizes) > 1:
            raise AssertionError("only flat views are cut into regions")
        return replace(view, shape=(view.elements,), strides=strides or (0,))

    prims = []
    for prim in kernel.prims:
        assert isinstance(prim, Map)
        ins = tuple(flat(v) if isinstance(v, View) else v for v in prim.ins)
        prims.append(replace(prim, ins=ins, out=flat(prim.out)))
    return replace(kernel, prims=tuple(prims))


def _region(kernel: Kernel, start: int, rows: int, cols: int) -> Kernel:
    """`rows` x `cols` elements of a flat kernel, from element `start`."""

    def cut(view: View) -> View:
        stride = view.strides[0]
        return replace(view, shape=(rows, cols), strides=(cols * stride, stride), offset=view.offset + start * stride)

    prims = []
    for prim in kernel.prims:
        assert isinstance(prim, Map)
        prims.append(
            replace(prim, ins=tuple(cut(v) if isinstance(v, View) else v for v in prim.ins), out=cut(prim.out))
        )
    return replace(kernel, prims=tuple(prims))


# -- tiles ---------------------------------------------------------------------------------------------------


class StepEmitter:
    """Turns steps into instructions on the tiles of one iteration; shared by rows and product kernels."""

    def __init__(self, tiler: Tiler, selection: Selection) -> None:
        self.tiler, self.selection = tiler, selection
        self.row_width = 1  # values per partition of what is one value per row
        self.load_ns = {"Vector": 0.0, "Scalar": 0.0, "GpSimd": 0.0}
        tables = {FUNCTION_TABLES.get(s.fn, "") for s in selection.steps if s.form == "activation"}
        self.tables = {t for t in tables if t}

    def tile(self, key: Key) -> Tile:
        """The tile a value occupies in the current iteration."""
        raise NotImplementedError

    def in_psum(self, key: Key) -> bool:
        """Whether a value is in PSUM, out of GpSimd's reach."""
        return False

    def full(self, value: Argument, parts: int, width: int) -> Access:
        """A value as [parts, width]; one value per row is repeated."""
        assert isinstance(value, tuple)
        repeat = self.selection.by_row[value]
        if repeat and self.row_width > 1:
            again = width // self.row_width
            pattern = ((1, width),) if again == 1 else ((1, self.row_width), (0, again))
            return self.tile(value).access((0, parts), pattern)
        return self.tile(value).access((0, parts), ((0 if repeat and width > 1 else 1, width),))

    def column(self, value: Argument, parts: int) -> Access | float:
        """A number or one value per row."""
        if not isinstance(value, tuple):
            return value
        return self.tile(value).access((0, parts), ((1, 1),))

    def result(self, key: Key, parts: int, width: int) -> Access:
        """Where a step writes."""
        return self.tile(key).access((0, parts), ((1, width),))

    def step(self, step: Step, parts: int, columns: int) -> None:
        """Emit one step for a tile of `parts` rows and `columns` columns."""
        by_row = self.selection.by_row[step.out]
        width = self.row_width if by_row else columns
        emit = self.tiler.emit
        with self.tiler.builder.op(step.op, step.source):
            if step.form == "reduce":
                self._reduce(step, parts, columns)
                return
            if step.form == "moments":
                self.moments(step, parts, columns)
                return
            dst = self.result(step.out, parts, width)
            if step.form == "fill":
                value = step.x
                if self.selection.dtypes[step.out] in _INTEGERS and isinstance(value, float) and value.is_integer():
                    value = int(value)  # a float would be rounded to fp32's 24 bits
                emit("memset", dst=dst, value=value, engine="Vector")
            elif step.form == "copy":
                engine = self._engine(step, width)
                if engine == "Vector":
                    emit("tensor_copy", dst=dst, data=self.full(step.x, parts, width), engine="Vector")
                else:
                    emit("activation", dst=dst, data=self.full(step.x, parts, width), op="copy")
            elif step.form == "activation":
                self._activation(step, dst, parts, width)
            elif step.form == "scalar":
                self._scalar(step, dst, parts, width)
            elif step.form == "pair":
                emit(
                    "scalar_tensor_tensor", dst=dst, data=self.full(step.x, parts, width), op0=step.fn,
                    operand0=self.column(step.a if step.a is not None else 0.0, parts), reverse0=step.reverse,
                    op1=step.fn1, operand1=self.full(step.b if step.b is not None else 0.0, parts, width),
                    reverse1=step.reverse1,
                )  # fmt: skip
                self._busy("Vector", 2 * width)
            elif step.form == "tensor":
                assert step.a is not None
                integers = self.selection.dtypes[step.out] in _INTEGERS and step.fn in (
                    "add",
                    "subtract",
                    "multiply",
                    "max",
                    "min",
                )
                engine = "GpSimd" if integers or step.fn == "power" else self._pair_engine(step, width)
                emit(
                    "tensor_tensor", dst=dst, data1=self.full(step.x, parts, width),
                    data2=self.full(step.a, parts, width),
                    op=step.fn, engine=engine,
                )  # fmt: skip
            elif step.form == "choose":
                assert step.a is not None and step.b is not None
                emit(
                    "select_reduce", dst=dst, predicate=self.full(step.x, parts, width),
                    on_true=self.full(step.a, parts, width),
                    on_false=self.column(step.b, parts), reverse_pred=step.reverse,
                )  # fmt: skip
                self._busy("Vector", 2 * width)
            elif step.form == "merge":
                assert step.a is not None
                emit(
                    "tensor_copy_predicated", dst=dst, data=self.full(step.a, parts, width),
                    predicate=self.full(step.x, parts, width),
                )  # fmt: skip
                self._busy("Vector", 2 * width)
            else:
                raise AssertionError(step.form)

    def _activation(self, step: Step, dst: Access, parts: int, width: int) -> None:
        emit = self.tiler.emit
        data = self.full(step.x, parts, width)
        plain = step.a is None and step.b is None and step.total is None
        if plain and step.fn == "reciprocal" and (self.tables - {"reciprocal"}) and 7 * width < 3000:
            emit("reciprocal", dst=dst, data=data)  # cheaper than two table switches
            self._busy("Vector", 8 * width)
            return
        if plain and step.fn == "square" and self._engine(step, width) == "Vector":
            emit("tensor_tensor", dst=dst, data1=data, data2=data, op="multiply", engine="Vector")
            return
        if plain and step.fn == "relu" and self._engine(step, width) == "Vector":
            emit("tensor_scalar", dst=dst, data=data, op0="max", operand0=0.0, engine="Vector")
            return
        extra: dict[str, object] = {}
        if step.a is not None:
            extra["scale"] = self.column(step.a, parts)
        if step.b is not None:
            extra["bias"] = self.column(step.b, parts)
        if step.total is not None:
            extra["reduce_res"] = self.total(step.total, parts)
            extra["reduce_op"] = "add"
        emit("activation", dst=dst, data=data, op=step.fn, **extra)
        if not plain or step.fn not in ("square", "relu"):
            self._busy("Scalar", width)

    def _scalar(self, step: Step, dst: Access, parts: int, width: int) -> None:
        assert step.a is not None
        extra: dict[str, object] = {}
        if step.fn1:
            assert step.b is not None
            extra = {"op1": step.fn1, "operand1": self.column(step.b, parts), "reverse1": step.reverse1}
        engine = "Vector"
        if (step.fn, step.fn1) in (("multiply", ""), ("multiply", "add"), ("add", "")) and width > 1:
            engine = self._engine(step, width)
        else:
            self._busy("Vector", width)
        self.tiler.emit(
            "tensor_scalar", dst=dst, data=self.full(step.x, parts, width), op0=step.fn,
            operand0=self.column(step.a, parts), reverse0=step.reverse, engine=engine, **extra,
        )  # fmt: skip

    def _reduce(self, step: Step, parts: int, columns: int) -> None:
        dst = self.total(step.out, parts)
        data = self.full(step.x, parts, columns)
        if self.row_width > 1:
            length = columns // self.row_width
            repeated = isinstance(step.x, tuple) and self.selection.by_row[step.x]  # one value stands for its row
            free = ((1, self.row_width), (0, length)) if repeated else ((length, self.row_width), (1, length))
            data = replace(data, free=free)
            self.tiler.emit("tensor_reduce", dst=dst, data=data, op=step.fn, axes=1, negate=step.negate)
            self._busy("Vector", columns)
            return
        if step.fn == "add" and not step.negate and self._engine(step, columns) == "Scalar":
            # ScalarE sums what it copies; the copy goes to a tile nobody reads.
            junk = self.junk(columns)
            self.tiler.emit(
                "activation",
                dst=junk.access((0, parts), ((1, columns),)),
                data=data,
                op="copy",
                reduce_res=dst,
                reduce_op="add",
            )
            return
        self.tiler.emit("tensor_reduce", dst=dst, data=data, op=step.fn, axes=len(data.free), negate=step.negate)
        if step.fn != "add" or step.negate:
            self._busy("Vector", columns)

    def moments(self, step: Step, parts: int, columns: int) -> None:
        """Mean and variance of a tile's rows; only rows kernels have them."""
        raise NotImplementedError

    def total(self, key: Key, parts: int) -> Access:
        """Where a reduction puts its result."""
        return self.result(key, parts, self.row_width)

    def junk(self, columns: int) -> Tile:
        """A tile whose contents nobody reads."""
        raise NotImplementedError

    # -- engine choice -------------------------------------------------------------------------------------------------

    def _half(self, step: Step) -> bool:
        keys = [*step.inputs(), step.out]
        return all(self.selection.dtypes[k] in ("bf16", "fp16") for k in keys)

    def _pair_engine(self, step: Step, width: int) -> str:
        """Vector, or GpSimd where a kernel has so much work on two tiles that Vector alone would be the bottleneck."""
        heavy = sum(s.form in ("tensor", "pair", "choose", "merge") and not self._half(s) for s in self.selection.steps)
        single = self._half(step) or any(self.in_psum(key) for key in step.inputs())
        cycles = {"Vector": (1 if single else 2) * width, "GpSimd": 150 + 2 * width}
        engine = "Vector"
        reachable = not any(self.in_psum(key) for key in step.inputs())
        if heavy > 1 and width >= 512 and reachable and not self._half(step):
            clock = self.tiler.target.clock_hz
            engine = min(cycles, key=lambda e: (self.load_ns[e] + cycles[e] / clock(e) * 1e9, e == "GpSimd"))
        self._busy(engine, cycles[engine])
        return engine

    def _busy(self, engine: str, cycles: float) -> None:
        self.load_ns[engine] += max(64.0, cycles) / self.tiler.target.clock_hz(engine) * 1e9

    def _engine(self, step: Step, width: int) -> str:
        """Vector or Scalar, whichever would be finished first; short work counts its latency."""
        target = self.tiler.target
        two = 2.0 if step.form == "activation" and step.fn == "square" and not self._half(step) else 1.0
        fast = 4.0 if target.neuroncore_version >= 3 and self._half(step) and step.form in ("copy", "scalar") else 1.0
        if step.form == "activation" and step.fn == "relu" and self._half(step) and target.neuroncore_version >= 3:
            fast = 4.0
        costs = {
            "Vector": (max(64.0, width * two / fast) + target.vector_latency_cycles) / target.vector_clock_hz * 1e9,
            "Scalar": (max(64.0, width) + target.scalar_latency_cycles) / target.scalar_clock_hz * 1e9,
        }
        if target.neuroncore_version < 3 and step.form == "scalar":
            del costs["Scalar"]
        if step.form == "copy" and self.selection.dtypes[step.out] in _INTEGERS:
            del costs["Scalar"]  # ScalarE goes through fp32
        engine = min(costs, key=lambda e: (self.load_ns[e] + costs[e], e == "Scalar"))
        cycles = width * two / fast if engine == "Vector" else width
        self._busy(engine, cycles)
        return engine


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
