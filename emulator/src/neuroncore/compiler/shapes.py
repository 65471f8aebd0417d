"""How a rows kernel sees its values: which matrix, how wide its tiles, how many rows share a partition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from neuroncore.compiler.fuse import Kernel, Layout, layout_of, tile_bytes
from neuroncore.compiler.hbm import pieces
from neuroncore.compiler.ir import Map, Reduce, reads, writes
from neuroncore.compiler.joint import Joint, join
from neuroncore.compiler.views import View, collapse
from neuroncore.graph import DTYPE_BYTES
from neuroncore.isa.costs import GPSIMD_START_CYCLES

if TYPE_CHECKING:
    from neuroncore.compiler.tile import Tiler
    from neuroncore.targets import Target

__all__ = ["Shape", "crosses", "flatten", "free_shape", "has_row_values", "region", "row_shape", "transfer_ns"]

#: Bytes per partition a transfer should move: beyond this a row costs its bytes, not its descriptor
#: (reference/hw/compile_rules.md section 5); larger tiles only delay the first computation.
_ROW_BYTES = 8192
#: Columns from which on a row is worth its instructions.
_LONG = 512


@dataclass(frozen=True)
class Shape:
    """Matrix shape chosen for a kernel: `rows` x `cols`, tiles of at most 128 x `width`.

    `packed` rows share a partition: `rows` then counts such bundles and `cols` their elements.
    """

    rows: int
    cols: int
    width: int
    packed: int = 1


def row_shape(tiler: Tiler, kernel: Kernel) -> Shape:
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


def has_row_values(tiler: Tiler, kernel: Kernel) -> bool:
    """Whether long rows, enough to fill the partitions, each have a value of their own: it is loaded once per row."""
    if kernel.rows < tiler.target.partitions or kernel.cols < _LONG:
        return False
    layouts = [layout_of(v, kernel.rows, kernel.cols) for p in kernel.prims for v in (*reads(p), *writes(p))]
    if any(layout is None for layout in layouts):
        return False
    return any(layout.by_row and not layout.by_column for layout in layouts if layout is not None)


def free_shape(tiler: Tiler, kernel: Kernel) -> Shape | None:
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


def flatten(kernel: Kernel) -> Kernel:
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


def region(kernel: Kernel, start: int, rows: int, cols: int) -> Kernel:
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
