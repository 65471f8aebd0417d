"""Grouping primitives into kernels: one kernel reads each operand once and keeps everything between in SBUF.

A `rows` kernel sees all its values as R x C matrices: full values, one value per row (the result of a reduction over
the row), one
value per column (a weight), or a single one. Elementwise maps and reductions over rows of the same matrix join, as
long as what is
live at once fits a partition of SBUF. A `product` kernel is a matrix product with the maps that consume it tile by
tile. Results no other kernel reads never reach HBM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from neuroncore.compiler.ir import (
    Attend,
    AttendGradient,
    Buffer,
    Contract,
    Convolve,
    Estimate,
    Gather,
    Map,
    Module,
    Move,
    Pool,
    Prim,
    Reduce,
    Scan,
    Scatter,
    ScatterAdd,
    TopK,
    format_prim,
    reads,
    writes,
)
from neuroncore.compiler.views import View, collapse, contiguous
from neuroncore.graph import DTYPE_BYTES

#: Elements from which on a transposition goes through TensorE instead of a DMA of single elements.
_LARGE = 4096

__all__ = [
    "Kernel",
    "Kernels",
    "Layout",
    "drop_unused",
    "format_kernels",
    "fuse",
    "layout_of",
    "split_reductions",
    "tile_bytes",
    "turn_axes",
]


#: Primitives that are a kernel of their own, and the kernel's kind.
_KINDS: dict[type[Prim], str] = {
    Move: "move", Gather: "gather", Scatter: "scatter", ScatterAdd: "scatter", Convolve: "convolve", Attend: "attend",
    AttendGradient: "attend_gradient", TopK: "topk", Scan: "scan", Pool: "pool", Estimate: "estimate",
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """A view over an R x C matrix: (size, stride) lists of its row and column axes, outermost first, and an offset."""

    rows: tuple[tuple[int, int], ...]
    cols: tuple[tuple[int, int], ...]
    offset: int

    @property
    def by_row(self) -> bool:
        """One value per row: every column reads the same element."""
        return all(stride == 0 for _, stride in self.cols)

    @property
    def by_column(self) -> bool:
        """One value per column: every row reads the same elements."""
        return all(stride == 0 for _, stride in self.rows)


@dataclass(frozen=True)
class Kernel:
    """Primitives executed as one pass over tiles.

    `kind` is rows, product, fold, turn, move, gather, scatter, convolve, attend, attend_gradient, topk, scan,
    pool or estimate.
    """

    kind: str
    prims: tuple[Prim, ...]
    rows: int = 0
    cols: int = 0


@dataclass(frozen=True)
class Kernels:
    """A module whose primitives are grouped; `kept` are the buffers that must reach HBM."""

    name: str
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    kept: frozenset[int]


def tile_bytes(dtype: str) -> int:
    """Bytes of one element on chip: 64-bit types are computed in 32 bits."""
    return min(DTYPE_BYTES[dtype], 4)


def layout_of(view: View, rows: int, cols: int) -> Layout | None:
    """A view as an R x C matrix, or None when an axis straddles the border between rows and columns."""
    row_dims: list[tuple[int, int]] = []
    col_dims: list[tuple[int, int]] = []
    left = rows
    for size, stride in zip(view.shape, view.strides, strict=True):
        if size == 1:
            continue
        if left == 1:
            col_dims.append((size, stride))
        elif left % size == 0:
            row_dims.append((size, stride))
            left //= size
        elif size % left == 0:
            row_dims.append((left, stride * (size // left)))
            col_dims.append((size // left, stride))
            left = 1
        else:
            return None
    if left != 1 or prod(s for s, _ in col_dims) != cols:
        return None
    return Layout(_merge(row_dims), _merge(col_dims), view.offset)


def _merge(dims: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    sizes, (strides,) = collapse(tuple(s for s, _ in dims), (tuple(t for _, t in dims),))
    return tuple(zip(sizes, strides, strict=True))


def drop_unused(module: Module) -> Module:
    """Remove primitives whose results nobody reads."""
    needed = {i for i, b in enumerate(module.buffers) if b.kind != "temp"}
    kept: list[Prim] = []
    for prim in reversed(module.prims):
        if any(w.buffer in needed for w in writes(prim)):
            kept.append(prim)
            needed.update(v.buffer for v in reads(prim))
    return replace(module, prims=tuple(reversed(kept)))


def split_reductions(module: Module) -> Module:
    """A reduction to a few values is done in two: over all partitions first, then over their results."""
    buffers = list(module.buffers)
    prims: list[Prim] = []
    for prim in module.prims:
        if isinstance(prim, Reduce) and not _folds(prim):
            kept = len(prim.src.shape) - prim.axes
            rows, cols = prod(prim.src.shape[:kept]), prod(prim.src.shape[kept:])
            parts = _parts(rows, cols)
            first = prim.src.reshape((rows, parts, cols // parts)) if parts > 1 else None
            if first is not None:
                middle = View(len(buffers), (rows, parts), contiguous((rows, parts)))
                buffers.append(Buffer(f"t{len(buffers)}", "temp", "fp32", rows * parts))
                prims.append(replace(prim, src=first, axes=1, out=middle, scale=1.0))
                prims.append(replace(prim, src=replace(middle, shape=(*prim.src.shape[:kept], parts), strides=(
                    *contiguous((*prim.src.shape[:kept], parts)),)), axes=1))  # fmt: skip
                continue
        prims.append(prim)
    return replace(module, buffers=tuple(buffers), prims=tuple(prims))


def _parts(rows: int, cols: int) -> int:
    """Into how many pieces to cut a long row so that the pieces fill the partitions; 1 leaves it whole."""
    if rows > 16 or cols < 16_384 * (1 if rows == 1 else 4):
        return 1
    return max(d for d in range(1, 128 // rows + 1) if cols % d == 0)


# -- grouping ------------------------------------------------------------------------------------------------


@dataclass
class _Group:
    """A kernel under construction. `cols` is 0 while only the number of elements is fixed."""

    kind: str
    prims: list[Prim] = field(default_factory=list)
    elements: int = 0
    rows: int = 0
    cols: int = 0
    written: dict[int, bool] = field(default_factory=dict)  # buffer → one value per row
    parts: frozenset[int] = frozenset()  # buffers of the module that are written part by part

    def parted(self, buffer: int) -> bool:
        """Whether a buffer's writers each fill a part of it."""
        return buffer in self.parts


def parted(module: Module) -> frozenset[int]:
    """Buffers that several maps fill, each a part of its own and none reading it."""
    writers: dict[int, list[Prim]] = {}
    for prim in module.prims:
        for view in writes(prim):
            writers.setdefault(view.buffer, []).append(prim)
    return frozenset(
        buffer
        for buffer, prims in writers.items()
        if len(prims) > 1
        and all(isinstance(p, Map) and all(v.buffer != buffer for v in reads(p)) for p in prims)
        and sum(w.elements for p in prims for w in writes(p)) == module.buffers[buffer].elements
    )


def fuse(module: Module, sbuf_bytes: int) -> Kernels:
    """Group the primitives of a module.

    Args:
        module: what to group.
        sbuf_bytes: bytes of one SBUF partition that tiles may use.
    """
    groups: list[_Group] = []
    parts = parted(module)
    last_write: dict[int, int] = {}
    last_read: dict[int, int] = {}
    for prim in module.prims:
        earliest = max(
            [last_write.get(v.buffer, -1) for v in reads(prim)]
            + [
                max(last_write.get(w.buffer, -1), last_read.get(w.buffer, -1))
                for w in writes(prim)
                if w.buffer not in parts
            ]
            + [-1]
        )
        chosen = next(
            (
                i
                for i in range(max(earliest, 0), len(groups))
                if _try_join(
                    module,
                    groups[i],
                    prim,
                    sbuf_bytes,
                    i > earliest and not (i == len(groups) - 1 and _made(module, prim)),
                )
            ),
            None,
        )
        if chosen is None:
            chosen = len(groups)
            groups.append(replace(_start(module, prim), parts=parts))
        for view in reads(prim):
            last_read[view.buffer] = max(chosen, last_read.get(view.buffer, -1))
        for view in writes(prim):
            last_write[view.buffer] = max(chosen, last_write.get(view.buffer, -1))
    kernels = [_finish(g) for g in groups]
    kernels = [k for kernel in kernels for k in _simplify(module, kernel)]
    kept = {i for i, b in enumerate(module.buffers) if b.kind != "temp"}
    made = {w.buffer for p in module.prims for w in writes(p)}
    kept.update(v.buffer for p in module.prims for v in reads(p) if v.buffer not in made)  # what was never filled
    for number, kernel in enumerate(kernels):
        for other in kernels[:number] + kernels[number + 1 :]:
            kept.update(
                {v.buffer for p in kernel.prims for v in reads(p)} & {w.buffer for p in other.prims for w in writes(p)}
            )
    return Kernels(module.name, module.buffers, tuple(kernels), frozenset(kept))


def _made(module: Module, prim: Prim) -> bool:
    """Whether a primitive reads only what is made on chip: it joins the kernel before it, whose result it will meet."""
    views = list(reads(prim))
    return bool(views) and all(module.buffers[v.buffer].kind == "iota" for v in views)


def _start(module: Module, prim: Prim) -> _Group:
    if isinstance(prim, Map):
        group = _Group("rows", [prim], prim.out.elements)
        _choose_split(group, prim)
        group.written[prim.out.buffer] = False
        return group
    if isinstance(prim, Reduce):
        rows = prod(prim.src.shape[: len(prim.src.shape) - prim.axes])
        cols = prod(prim.src.shape[len(prim.src.shape) - prim.axes :])
        kind = "fold" if _folds(prim) else "rows"
        return _Group(kind, [prim], rows * cols, rows, cols, {prim.out.buffer: True})
    if isinstance(prim, Contract):
        batch, m, n = prim.out.shape
        return _Group("product", [prim], batch * m * n, batch * m, n, {prim.out.buffer: False})
    return _Group(_KINDS[type(prim)], [prim])


def _choose_split(group: _Group, prim: Map) -> None:
    """A map with broadcast operands fixes the matrix: as few column axes as make all by row, by column or full."""
    shape = prim.out.shape
    views = [v for v in prim.ins if isinstance(v, View)]
    sizes, strides = collapse(shape, tuple(v.strides for v in (*views, prim.out)))
    if len(sizes) <= 1:
        return  # dense or a single value: any split will do
    for cut in range(len(sizes) - 1, 0, -1):
        ok = all(
            all(s == 0 for s in stride[:cut]) or all(s == 0 for s in stride[cut:]) or all(stride) for stride in strides
        )
        if ok and not all(all(stride) for stride in strides):
            group.rows, group.cols = prod(sizes[:cut]), prod(sizes[cut:])
            return
    group.rows, group.cols = prod(sizes[:-1]), sizes[-1]


def _folds(prim: Reduce) -> bool:
    """A sum over leading axes: columns contiguous, rows summed by a product with ones."""
    if prim.fn != "add":
        return False
    kept = len(prim.src.shape) - prim.axes
    layout = layout_of(prim.src, prod(prim.src.shape[:kept]), prod(prim.src.shape[kept:]))
    if layout is None or not layout.rows or not layout.cols:
        return False
    return layout.rows[-1][1] == 1 and layout.cols[-1][1] > 1


def _try_join(module: Module, group: _Group, prim: Prim, sbuf_bytes: int, independent: bool) -> bool:
    if group.kind not in ("rows", "product") or not isinstance(prim, Map | Reduce):
        return False
    if group.kind == "product" and (isinstance(prim, Reduce) or independent):
        return False
    same = any(group.parted(w.buffer) and w.buffer in group.written for w in writes(prim))
    if independent and not same and not ({v for p in group.prims for v in reads(p)} & set(reads(prim))):
        return False
    if isinstance(prim, Reduce):
        if _folds(prim):
            return False
        kept = len(prim.src.shape) - prim.axes
        rows, cols = prod(prim.src.shape[:kept]), prod(prim.src.shape[kept:])
        if rows * cols != group.elements or (group.cols and (group.rows, group.cols) != (rows, cols)):
            return False
        full, row_result = True, True
    else:
        rows, cols = group.rows, group.cols
        full = prim.out.elements == group.elements
        row_result = bool(cols) and not full and prim.out.elements == rows
        if not full and not row_result:
            return False
        if full and not cols:
            candidate = _Group("rows", [prim], prim.out.elements)
            _choose_split(candidate, prim)
            rows, cols = candidate.rows, candidate.cols
    trial = replace(group, prims=[*group.prims, prim], rows=rows, cols=cols, written=dict(group.written))
    trial.written[next(writes(prim)).buffer] = row_result
    if not _aligned(group, trial, prim, row_result=row_result):
        return False
    if trial.cols and not _splits(trial):
        return False
    if trial.kind == "rows" and trial.cols and _crosses(trial) and _live_bytes(module, trial) > sbuf_bytes:
        return False
    group.prims, group.rows, group.cols, group.written = trial.prims, trial.rows, trial.cols, trial.written
    return True


def _aligned(group: _Group, trial: _Group, prim: Prim, *, row_result: bool) -> bool:
    """Whether what the kernel produced is read where it was produced, and nothing is overwritten early."""
    in_rows = row_result and isinstance(prim, Map)
    for view in reads(prim):
        if view.buffer not in group.written:
            continue
        by_row = group.written[view.buffer]
        if by_row and in_rows:
            good = _is_dense(view)
        elif by_row:
            good = bool(trial.cols) and _repeats_rows(view, trial.rows, trial.cols)
        else:
            good = not in_rows and _is_dense_like(view, group)
        if not good:
            return False
    out = next(writes(prim))
    for earlier in group.prims:
        for view in reads(earlier):
            if view.buffer == out.buffer and _axes(view) != _axes(out):
                return False
        if any(w.buffer == out.buffer for w in writes(earlier)) and not trial.parted(out.buffer):
            return False
    return True


def _axes(view: View) -> tuple[object, object]:
    return view.offset, collapse(view.shape, (view.strides,))


def _is_dense(view: View) -> bool:
    return view.dense


def _is_dense_like(view: View, group: _Group) -> bool:
    """Same order of elements as the primitive that wrote the buffer."""
    return any(out.buffer == view.buffer and _axes(out) == _axes(view) for p in group.prims for out in writes(p))


def _repeats_rows(view: View, rows: int, cols: int) -> bool:
    layout = layout_of(view, rows, cols)
    if layout is None or not layout.by_row or layout.offset:
        return False
    return layout.rows == (((rows, 1),) if rows != 1 else ())


def _splits(group: _Group) -> bool:
    """Whether every view of the kernel can be seen as rows x columns."""
    for prim in group.prims:
        if isinstance(prim, Contract):
            continue
        in_rows = isinstance(prim, Map) and prim.out.elements == group.rows and group.cols != 1
        for view in reads(prim):
            if layout_of(view, group.rows, 1 if in_rows else group.cols) is None:
                return False
        out = next(writes(prim))
        if layout_of(out, group.rows, out.elements // group.rows if group.rows else 1) is None:
            return False
    return True


def _crosses(group: _Group) -> bool:
    """Whether a full value depends on a reduction of the same kernel: then the whole row must stay in SBUF."""
    reduced: set[int] = set()
    for prim in group.prims:
        out = next(writes(prim)).buffer
        depends = any(v.buffer in reduced for v in reads(prim))
        if depends and isinstance(prim, Map) and prim.out.elements == group.elements and group.cols > 1:
            return True
        if isinstance(prim, Reduce) or depends:
            reduced.add(out)
    return False


def _live_bytes(module: Module, group: _Group) -> int:
    """Bytes per partition that are live at once when whole rows stay in SBUF."""
    first: dict[View | int, int] = {}
    last: dict[View | int, int] = {}
    size: dict[View | int, int] = {}
    constant = 0
    for number, prim in enumerate(group.prims):
        for view in reads(prim):
            key: View | int = view.buffer if view.buffer in group.written else view
            width = tile_bytes(module.buffers[view.buffer].dtype)
            if isinstance(key, View):
                layout = layout_of(view, group.rows, group.cols)
                if layout is None or layout.by_row:
                    continue
                if layout.by_column:
                    constant += width * group.cols if key not in size else 0
                    size[key] = 0
                    continue
                size[key] = width * group.cols
            first.setdefault(key, number)
            last[key] = number
        out = next(writes(prim))
        if isinstance(prim, Map) and prim.out.elements == group.elements:
            size[out.buffer] = tile_bytes(module.buffers[out.buffer].dtype) * group.cols
            first[out.buffer] = number
            last[out.buffer] = number
    peak = 0
    for number in range(len(group.prims)):
        peak = max(peak, sum(size.get(k, 0) for k in first if first[k] <= number <= last[k]))
    return peak + constant


def _finish(group: _Group) -> Kernel:
    rows, cols = group.rows, group.cols
    if group.kind == "rows" and not cols:
        rows, cols = 1, group.elements
    return Kernel(group.kind, tuple(group.prims), rows, cols)


def _simplify(module: Module, kernel: Kernel) -> list[Kernel]:
    """A lone copy whose innermost runs match is a DMA; a lone reduction with few long rows is split in two."""
    prim = kernel.prims[0]
    if kernel.kind != "rows" or len(kernel.prims) != 1:
        return [kernel]
    if isinstance(prim, Map) and prim.fn == "copy" and isinstance(prim.ins[0], View) and prim.out.elements:
        source = prim.ins[0]
        if module.buffers[source.buffer].made:
            return [kernel]
        _, (src, dst) = collapse(prim.out.shape, (source.strides, prim.out.strides))
        dtype = module.buffers[source.buffer].dtype
        same = dtype == module.buffers[prim.out.buffer].dtype
        if same and (not src or (src[-1] == 1 and dst[-1] == 1) or DTYPE_BYTES[dtype] == 8):
            return [Kernel("move", (Move(source, prim.out, prim.op, prim.source),))]
        if same and prim.out.elements >= _LARGE and turn_axes(source, prim.out) is not None:
            return [Kernel("turn", kernel.prims)]
    return [kernel]


def turn_axes(source: View, out: View) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int] | None:
    """Sizes, source and result strides, and the axes contiguous in the source and in the result of a transposition."""
    sizes, (src, dst) = collapse(out.shape, (source.strides, out.strides))
    along = [i for i, s in enumerate(src) if s == 1 and sizes[i] >= 8]
    across = [i for i, s in enumerate(dst) if s == 1 and sizes[i] >= 8]
    if not along or not across or along[0] == across[0] or src[across[0]] == 0:
        return None
    return sizes, src, dst, along[0], across[0]


def format_kernels(kernels: Kernels) -> str:
    """Kernels as text; the form golden files keep."""
    lines = [f"kernels of {kernels.name}"]
    for number, buffer in enumerate(kernels.buffers):
        place = buffer.kind if number in kernels.kept else "sbuf"
        lines.append(f"  %{number} = {place} {buffer.name}: {buffer.dtype}[{buffer.elements}]")
    for number, kernel in enumerate(kernels.kernels):
        size = f" {kernel.rows} x {kernel.cols}" if kernel.cols else ""
        lines.append(f"  kernel {number}: {kernel.kind}{size}")
        lines += [f"    {format_prim(prim)}" for prim in kernel.prims]
    return "\n".join(lines) + "\n"
