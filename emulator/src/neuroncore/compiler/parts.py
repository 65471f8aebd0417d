"""Maps over a concatenation become maps over its parts, so that the whole need not exist.

A rotary embedding concatenates two short halves, multiplies and adds: part by part all of it is one kernel, and the
concatenation never reaches HBM. Values that only meet such parts are computed part by part too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neuroncore.compiler.fuse import parted
from neuroncore.compiler.ir import Map, Module, Operand, Prim, reads, writes
from neuroncore.compiler.views import View, collapse

__all__ = ["split_parts"]

#: Parts of a concatenation up to which its readers are split.
_MOST_PARTS = 4


@dataclass(frozen=True)
class _Cut:
    """Parts along an axis of a value of a certain shape: (start, stop) each, in order and without gaps."""

    shape: tuple[int, ...]
    axis: int
    spans: tuple[tuple[int, int], ...]


def split_parts(module: Module) -> Module:
    """Split maps that read concatenations of short parts, and what only those read."""
    cuts = _concatenations(module)
    if not cuts:
        return module
    cuts |= _spread(module, cuts)
    prims: list[Prim] = []
    alike = _copies(module, cuts)
    for prim in module.prims:
        cut = cuts.get(prim.out.buffer) if isinstance(prim, Map) else None
        if not isinstance(prim, Map) or cut is None or prim.out.shape != cut.shape:
            prims.append(prim)  # a part of a concatenation among them
            continue
        for start, stop in cut.spans:
            ins = tuple(_sliced(view, cut.axis, start, stop, alike) for view in prim.ins)
            prims.append(replace(prim, ins=ins, out=prim.out.slice(cut.axis, start, stop)))
    return replace(module, prims=tuple(prims))


def _sliced(view: Operand, axis: int, start: int, stop: int, alike: dict[View, View]) -> Operand:
    if not isinstance(view, View):
        return view
    part = view.slice(axis, start, stop)
    return alike.get(_plain(part), part)


def _plain(view: View) -> View:
    """With no stride where there is one element."""
    return replace(view, strides=tuple(s if n != 1 else 0 for n, s in zip(view.shape, view.strides, strict=True)))


def _concatenations(module: Module) -> dict[int, _Cut]:
    """Buffers that maps fill along one axis."""
    found: dict[int, _Cut] = {}
    whole: dict[int, set[View]] = {}
    for prim in module.prims:
        for view in reads(prim):
            whole.setdefault(view.buffer, set()).add(view)
    writers: dict[int, list[View]] = {}
    for prim in module.prims:
        for view in writes(prim):
            writers.setdefault(view.buffer, []).append(view)
    for buffer in parted(module):
        views = writers[buffer]
        if len(views) > _MOST_PARTS:
            continue
        for seen in whole.get(buffer, ()):
            cut = _cut(seen, views)
            if cut is not None:
                found[buffer] = cut
                break
    return found


def _cut(seen: View, parts: Sequence[View]) -> _Cut | None:
    """How the parts lie in the whole: along one axis, side by side."""
    spans = []
    axes = set()
    for part in parts:
        if len(part.shape) != len(seen.shape):
            return None
        different = [a for a, (n, m) in enumerate(zip(part.shape, seen.shape, strict=True)) if n != m]
        if len(different) != 1 or not seen.strides[different[0]]:
            return None
        (axis,) = different
        start = (part.offset - seen.offset) // seen.strides[axis]
        stop = start + part.shape[axis]
        inside = start >= 0 and stop <= seen.shape[axis]
        if not inside or _axes(seen.slice(axis, start, stop)) != _axes(part):
            return None
        axes.add(axis)
        spans.append((start, stop))
    spans.sort()
    if len(axes) != 1 or len({stop - start for start, stop in spans}) != 1:
        return None
    return _Cut(seen.shape, axes.pop(), tuple(spans))


def _axes(view: View) -> tuple[object, object]:
    return view.offset, collapse(view.shape, (view.strides,))


def _spread(module: Module, cuts: dict[int, _Cut]) -> dict[int, _Cut]:
    """Further values to split: results of maps that read a split one, and temporaries that only such maps read."""
    found: dict[int, _Cut] = {}
    single = {b: p for p in module.prims for b in [w.buffer for w in writes(p)]}
    counts: dict[int, int] = {}
    for prim in module.prims:
        for view in writes(prim):
            counts[view.buffer] = counts.get(view.buffer, 0) + 1
    readers: dict[int, list[Prim]] = {}
    for prim in module.prims:
        for view in reads(prim):
            readers.setdefault(view.buffer, []).append(prim)
    changed = True
    while changed:
        changed = False
        for prim in module.prims:
            if not isinstance(prim, Map):
                continue
            out = prim.out.buffer
            if out not in found and out not in cuts and counts[out] == 1 and _straight(prim.out):
                for view in reads(prim):
                    cut = cuts.get(view.buffer) or found.get(view.buffer)
                    if cut is not None and cut.shape == prim.out.shape == view.shape and _straight(view):
                        found[out] = cut
                        changed = True
                        break
        for buffer, prim in single.items():
            if buffer in found or buffer in cuts or counts[buffer] != 1 or not isinstance(prim, Map):
                continue
            users = readers.get(buffer, [])
            wanted = {found.get(p.out.buffer) if isinstance(p, Map) else None for p in users}
            cut = wanted.pop() if len(wanted) == 1 else None
            same = all(v.shape == prim.out.shape for p in users for v in reads(p) if v.buffer == buffer)
            temporary = module.buffers[buffer].kind == "temp"
            if cut is not None and cut.shape == prim.out.shape and same and temporary and _straight(prim.out):
                found[buffer] = cut
                changed = True
    return found


def _straight(view: View) -> bool:
    """Whether every element is written once."""
    return all(stride or size == 1 for size, stride in zip(view.shape, view.strides, strict=True))


def _copies(module: Module, cuts: dict[int, _Cut]) -> dict[View, View]:
    """Parts that are mere copies, and of what: their readers look there, as long as nobody writes it."""
    written = {w.buffer for p in module.prims for w in writes(p)}
    found: dict[View, View] = {}
    for prim in module.prims:
        if not isinstance(prim, Map) or prim.fn != "copy" or prim.out.buffer not in cuts:
            continue
        source = prim.ins[0]
        if not isinstance(source, View) or prim.out.shape == cuts[prim.out.buffer].shape:
            continue
        same = module.buffers[source.buffer].dtype == module.buffers[prim.out.buffer].dtype
        kind = module.buffers[source.buffer].kind
        if same and (source.buffer not in written or (kind == "temp" and source.buffer not in cuts)):
            found[_plain(prim.out)] = source
    return found
