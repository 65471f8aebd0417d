"""Order and recurrences in primitives: extremes and their places, topk, sort, ranks, cumulative sums and products."""

from __future__ import annotations

from math import prod
from typing import Any

from neuroncore.compiler.decompose import INTEGERS, axes_of, axis_last, tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.topk import LONGEST
from neuroncore.compiler.views import View

#: Integers that fp32 does not hold exactly.
_WIDE = frozenset({"int32", "int64", "uint32"})
#: Most results of a topk: they are found eight at a time.
_MOST_CHOSEN = 4096


def _extreme(b: Builder, x: View, dim: int, fn: str, *, keepdim: bool, value: str, index: str) -> tuple[View, View]:
    """The largest or smallest element along an axis and the first place where it is."""
    view, _ = axis_last(b, x, dim)
    if view.shape[-1] > LONGEST or b.dtype(x) in _WIDE:
        raise NotLowered("index of an extreme of wide integers or of a very long axis")
    if b.dtype(x) in INTEGERS:
        view = b.map("copy", view)
    rows = b.reshape(view, (view.elements // view.shape[-1], view.shape[-1]))
    found, first = b.topk(rows, 1, largest=fn == "max")
    shape = tuple(1 if a == dim % len(x.shape) else n for a, n in enumerate(x.shape))
    if not keepdim:
        shape = tuple(n for a, n in enumerate(x.shape) if a != dim % len(x.shape))
    return (
        b.map("copy", b.reshape(found, shape), dtype=value),
        b.map("copy", b.reshape(first, shape), dtype=index),
    )


@lowering("argmax", "argmin")
def _argmax(b: Builder, x: Any, dim: int | None = None, keepdim: bool = False) -> View:
    view = tensor(b, x)
    fn = "max" if b.node.target.replace("::", ".").startswith("aten.argmax") else "min"
    if dim is None:
        view, dim, keepdim = b.reshape(view, (view.elements,)), 0, False
    found = _extreme(b, view, dim, fn, keepdim=keepdim, value=b.dtype(view), index=b.spec().dtype)[1]
    return b.reshape(found, b.spec().shape)


@lowering("max", "min")
def _max(b: Builder, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    view = tensor(b, x)
    fn = "max" if b.node.target.replace("::", ".").startswith("aten.max") else "min"
    if len(b.node.outputs) == 2:
        return _extreme(b, view, dim, fn, keepdim=keepdim, value=b.spec(0).dtype, index=b.spec(1).dtype)
    if dim is not None:
        return b.map(fn, view, tensor(b, dim), dtype=b.spec().dtype)
    return b.reduce(fn, view, axes_of(view, None), keepdim=False, dtype=b.spec().dtype)


@lowering("topk")
def _topk(b: Builder, x: Any, k: int, dim: int = -1, largest: bool = True, *_: Any) -> list[View]:
    view = tensor(b, x)
    if b.dtype(view) in INTEGERS:
        raise NotLowered("largest integers: engines compare in fp32")
    if not view.shape or k <= 0:
        raise NotLowered("topk of a scalar or of nothing")
    view, back = axis_last(b, view, dim)
    if view.shape[-1] > LONGEST or k > _MOST_CHOSEN:
        raise NotLowered(f"topk of {k} among {view.shape[-1]}")
    lead = view.shape[:-1]
    rows = b.reshape(view, (prod(lead), view.shape[-1]))
    found = b.topk(rows, k, largest=largest)
    return [b.reshape(one, (*lead, k)).permute(back) for one in found]


def _sorted(b: Builder, x: Any, dim: int, *, descending: bool) -> tuple[list[View], tuple[int, ...]]:
    """Values and places in order along an axis, that axis last, and the order of axes that undoes it."""
    view = tensor(b, x)
    if not view.shape or not view.elements:
        raise NotLowered("sorting a scalar or nothing")
    if b.dtype(view) in INTEGERS:
        raise NotLowered("sorting integers: engines compare in fp32")
    view, back = axis_last(b, view, dim)
    size = view.shape[-1]
    if size > _MOST_CHOSEN:
        raise NotLowered(f"sorting {size} elements: eight are found at a time")
    rows = b.reshape(view, (view.elements // size, size))
    return [b.reshape(one, view.shape) for one in b.topk(rows, size, largest=descending)], back


@lowering("sort")
def _sort(b: Builder, x: Any, *given: Any, **named: Any) -> list[View]:
    """(dim, descending), or (stable, dim, descending): equal elements keep their order here in any case."""
    if b.node.target.endswith("stable"):
        given = given[1:]
    dim = given[0] if given else named.get("dim", -1)
    descending = given[1] if len(given) > 1 else named.get("descending", False)
    found, back = _sorted(b, x, dim, descending=bool(descending))
    return [one.permute(back) for one in found]


@lowering("median", "kthvalue")
def _ranked(b: Builder, x: Any, *given: Any) -> Any:
    """The k-th smallest; a median is the lower of the two in the middle."""
    view = tensor(b, x)
    if "median" in b.node.target:
        if len(b.node.outputs) == 1:
            found, _ = _sorted(b, b.reshape(view, (view.elements,)), 0, descending=False)
            return b.map("copy", found[0].select(0, (view.elements - 1) // 2), dtype=b.spec().dtype)
        dim, keepdim = given[0], len(given) > 1 and given[1]
        place = (view.shape[dim] - 1) // 2
    else:
        place, dim, keepdim = given[0] - 1, given[1] if len(given) > 1 else -1, len(given) > 2 and given[2]
    found, back = _sorted(b, x, dim, descending=False)
    chosen = [one.slice(-1, place, place + 1).permute(back) for one in found]
    return [one if keepdim else one.squeeze((dim % len(view.shape),)) for one in chosen]


# -- recurrences along an axis -------------------------------------------------------------------------------


def _scanned(b: Builder, x: Any, dim: int, fn: str) -> View:
    source = tensor(b, x)
    if not source.shape or not source.elements:
        return b.map("copy", source, dtype=b.spec().dtype)
    view, back = axis_last(b, source, dim)
    size = view.shape[-1]
    rows = b.reshape(view, (view.elements // size, size))
    return b.map("copy", b.reshape(b.scan(fn, rows, b.spec().dtype), view.shape).permute(back), dtype=b.spec().dtype)


@lowering("cumsum")
def _cumsum(b: Builder, x: Any, dim: int, *, dtype: Any = None) -> View:
    return _scanned(b, x, dim, "add")


@lowering("cumprod")
def _cumprod(b: Builder, x: Any, dim: int, *, dtype: Any = None) -> View:
    return _scanned(b, x, dim, "multiply")
