"""Ops that read or write by index in primitives: gathers and scatters by DMA, masks and ranges from affine indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from neuroncore.compiler.decompose import INTEGERS, axes_of, axis_last, tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.topk import LONGEST
from neuroncore.compiler.views import View, contiguous

#: Larger than any index along an axis, and exact in fp32.
_BEYOND = float(2**24)
#: Longest axis of a cumulative sum, which is a product with a triangle of ones.
_LONGEST_SUM = 8192
#: Most results of a topk: they are found eight at a time.
_MOST_CHOSEN = 1024


# -- gathers -------------------------------------------------------------------------------------------------


@lowering("embedding")
def _embedding(b: Builder, weight: Any, index: Any, padding_idx: int = -1, *_: Any) -> View:
    table, rows = tensor(b, weight), tensor(b, index)
    return _rows(b, table, rows, b.spec().dtype)


def _rows(b: Builder, table: View, index: View, dtype: str) -> View:
    """Rows of a two-dimensional table; a gather needs contiguous columns, and rows that lie apart."""
    if (table.shape[1] > 1 and table.strides[1] != 1) or (table.shape[0] > 1 and table.strides[0] < 1):
        table = b.copy(table)
    return b.gather(table, index, dtype)


def _select_rows(b: Builder, view: View, dim: int, index: View) -> View:
    """Indices along any axis: that axis first, the rest as a row."""
    dim %= len(view.shape)
    order = (dim, *(a for a in range(len(view.shape)) if a != dim))
    first = view.permute(order)
    table = b.reshape(first, (first.shape[0], prod(first.shape[1:])))
    found = b.reshape(_rows(b, table, index, b.dtype(view)), (*index.shape, *first.shape[1:]))
    count = len(index.shape)
    # The index's axes take the place of the axis they replace.
    back = [*range(count, count + dim), *range(count), *range(count + dim, len(found.shape))]
    return found.permute(tuple(back))


@lowering("index_select")
def _index_select(b: Builder, x: Any, dim: int, index: Any) -> View:
    view = tensor(b, x)
    if not view.shape:
        raise NotLowered("index_select of a scalar")
    return _select_rows(b, view, dim, b.reshape(tensor(b, index), (tensor(b, index).elements,)))


def _wrapped(b: Builder, index: View, size: int) -> View:
    """Negative indices count from the end."""
    if b.dtype(index) in ("bool", "uint8"):
        raise NotLowered("an index by a mask: how many elements depends on the data")
    negative = b.map("less", index, 0.0, dtype="uint8")
    return b.map("select", negative, b.map("add", index, float(size), dtype="int32"), index, dtype="int32")


def _flat_index(b: Builder, view: View, indices: Sequence[Any]) -> tuple[int, View]:
    """Leading position of a run of index tensors and the one index into the axes they name, as one."""
    places = [i for i, v in enumerate(indices) if v is not None]
    if not places or places != list(range(places[0], places[-1] + 1)):
        raise NotLowered("index tensors with whole axes between")
    flat: View | None = None
    for place in places:
        size = view.shape[place]
        one = _wrapped(b, tensor(b, indices[place]), size)
        flat = one if flat is None else b.map("add", b.map("multiply", flat, float(size), dtype="int32"), one,
                                              dtype="int32")  # fmt: skip
    assert flat is not None
    return places[0], flat


@lowering("index", "_unsafe_index")
def _index(b: Builder, x: Any, indices: Sequence[Any]) -> View:
    view = tensor(b, x)
    place, flat = _flat_index(b, view, indices)
    count = sum(v is not None for v in indices)
    merged = b.reshape(
        view, (*view.shape[:place], prod(view.shape[place : place + count]), *view.shape[place + count :])
    )
    return b.reshape(_select_rows(b, merged, place, flat), b.spec().shape)


def _places(b: Builder, shape: tuple[int, ...], dim: int, index: View) -> View:
    """Flat positions in a contiguous tensor of `shape` of what `index` names along `dim`."""
    dim %= len(shape)
    strides = contiguous(shape)
    rest = tuple(0 if a == dim else s for a, s in enumerate(strides))
    scaled = b.map("multiply", index, float(strides[dim] or 1), dtype="int32")
    flat = b.map("add", scaled, b.iota(index.shape, rest), dtype="int32")
    return b.reshape(flat, (index.elements,))


@lowering("gather")
def _gather(b: Builder, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> View:
    view, where = tensor(b, x), tensor(b, index)
    if not view.shape or not where.elements:
        raise NotLowered("gather of a scalar or of nothing")
    flat = _places(b, view.shape, dim, where)
    table = b.reshape(view, (view.elements, 1))
    return b.reshape(_rows(b, table, flat, b.dtype(view)), b.spec().shape)


# -- scatters ------------------------------------------------------------------------------------------------


def _table(b: Builder, view: View, shape: tuple[int, ...]) -> View:
    """A contiguous copy to scatter to."""
    out = b.copy(view)
    table = out.reshape(shape)
    assert table is not None
    return table


@lowering("embedding_dense_backward")
def _embedding_backward(
    b: Builder, grad: Any, indices: Any, count: int, padding_idx: int, scale_grad_by_freq: bool
) -> View:
    if scale_grad_by_freq:
        raise NotLowered("gradient scaled by how often an index occurs")
    g, index = tensor(b, grad), tensor(b, indices)
    width = g.shape[-1]
    rows, flat = b.reshape(g, (index.elements, width)), b.reshape(index, (index.elements,))
    if padding_idx >= 0:
        used = b.map("not_equal", flat, float(padding_idx), shape=flat.shape)
        rows = b.map("multiply", rows, used.unsqueeze(1), dtype=b.dtype(g))
    table = b.temp((count, width), b.spec().dtype)
    b.write("copy", (0.0,), table)
    if index.elements:
        b.scatter(table, flat, rows, add=True)
    return table


def _scatter_rows(b: Builder, x: Any, dim: int, index: Any, src: Any, *, add: bool, factor: float = 1.0) -> View:
    view, values = tensor(b, x), tensor(b, src)
    where = b.reshape(tensor(b, index), (tensor(b, index).elements,))
    if not view.shape:
        raise NotLowered("rows of a scalar")
    if b.dtype(view) in INTEGERS:
        raise NotLowered("scatter of integers")
    # The indexed axis first, the others as a row of it.
    dim %= len(view.shape)
    order = (dim, *(axis for axis in range(len(view.shape)) if axis != dim))
    back = tuple(order.index(axis) for axis in range(len(order)))
    view, values = view.permute(order), values.permute(order) if len(values.shape) == len(order) else values
    table = _table(b, view, (view.shape[0], prod(view.shape[1:])))
    values = values.expand((where.elements, *view.shape[1:]))
    if factor != 1.0:
        values = b.map("multiply", values, factor, dtype=b.dtype(view))
    b.scatter(table, where, b.reshape(values, (where.elements, table.shape[1])), add=add)
    return b.reshape(table, view.shape).permute(back)


@lowering("index_add")
def _index_add(b: Builder, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> View:
    return _scatter_rows(b, x, dim, index, source, add=True, factor=float(alpha))


@lowering("index_copy")
def _index_copy(b: Builder, x: Any, dim: int, index: Any, source: Any) -> View:
    return _scatter_rows(b, x, dim, index, source, add=False)


@lowering("index_put", "_index_put_impl", "_unsafe_index_put")
def _index_put(b: Builder, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, *_: Any) -> View:
    view, src = tensor(b, x), tensor(b, values)
    if b.dtype(view) in INTEGERS:
        raise NotLowered("scatter of integers")
    place, flat = _flat_index(b, view, indices)
    if place:
        raise NotLowered("rows along another axis than the first")
    count = sum(v is not None for v in indices)
    rest = view.shape[count:]
    table = _table(b, view, (prod(view.shape[:count]), prod(rest)))
    rows = src.expand((*flat.shape, *rest))
    rows = b.map("copy", rows, dtype=b.dtype(view)) if b.dtype(src) != b.dtype(view) else rows
    b.scatter(table, b.reshape(flat, (flat.elements,)), b.reshape(rows, (flat.elements, prod(rest))), add=accumulate)
    return b.reshape(table, b.spec().shape)


@lowering("scatter_add")
def _scatter_add(b: Builder, x: Any, dim: int, index: Any, src: Any) -> View:
    return _scatter_elements(b, x, dim, index, src, add=True)


@lowering("scatter")
def _scatter(b: Builder, x: Any, dim: int, index: Any, src: Any, *, reduce: str = "") -> View:
    if reduce:
        raise NotLowered(f"scatter that combines by {reduce}")
    return _scatter_elements(b, x, dim, index, src, add=False)


def _scatter_elements(b: Builder, x: Any, dim: int, index: Any, src: Any, *, add: bool) -> View:
    view, where, values = tensor(b, x), tensor(b, index), b.arg(src)
    if not view.shape or not where.elements or b.dtype(view) in INTEGERS:
        raise NotLowered("scatter of integers, to a scalar or of nothing")
    if isinstance(values, View):
        for axis, size in enumerate(where.shape):
            values = values.slice(axis, 0, size)
    flat = _places(b, view.shape, dim, where)
    table = _table(b, view, (view.elements, 1))
    rows = b.map("copy", values, dtype=b.dtype(view), shape=where.shape)
    b.scatter(table, flat, b.reshape(rows, (where.elements, 1)), add=add)
    return b.reshape(table, b.spec().shape)


# -- parts of tensors and their gradients --------------------------------------------------------------------


def _zeros(b: Builder) -> View:
    return b.map("copy", 0.0, dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("select_backward")
def _select_backward(b: Builder, grad: Any, sizes: Sequence[int], dim: int, index: int) -> View:
    out = _zeros(b)
    b.move(tensor(b, grad), out.select(dim, index))
    return out


@lowering("slice_backward")
def _slice_backward(
    b: Builder, grad: Any, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> View:  # fmt: skip
    out = _zeros(b)
    b.move(tensor(b, grad), out.slice(dim, start, end, step))
    return out


@lowering("one_hot")
def _one_hot(b: Builder, x: Any, classes: int = -1) -> View:
    spec = b.spec()
    places = b.iota(spec.shape, (*(0,) * (len(spec.shape) - 1), 1))
    return b.map("equal", tensor(b, x).unsqueeze(-1), places, dtype=spec.dtype)


@lowering("index_select_backward")
def _index_select_backward(b: Builder, grad: Any, sizes: Sequence[int], dim: int, index: Any) -> View:
    zeros = b.map("copy", 0.0, dtype=b.spec().dtype, shape=b.spec().shape)
    return _scatter_rows(b, zeros, dim, index, grad, add=True)


@lowering("value_selecting_reduction_backward")
def _selecting_backward(b: Builder, grad: Any, dim: int, indices: Any, sizes: Sequence[int], keepdim: bool) -> View:
    """The gradient where the value came from, zero elsewhere: a comparison with every place."""
    spec = b.spec()
    rank = len(spec.shape)
    dim %= max(1, rank)
    g, index = tensor(b, grad), tensor(b, indices)
    if not keepdim and rank:
        g, index = g.unsqueeze(dim), index.unsqueeze(dim)
    places = b.iota(spec.shape, tuple(int(axis == dim) for axis in range(rank)))
    chosen = b.map("equal", index, places, dtype="uint8", shape=spec.shape)
    return b.map("select", chosen, g, 0.0, dtype=spec.dtype, shape=spec.shape)


@lowering("triu", "tril")
def _triangle(b: Builder, x: Any, diagonal: int = 0) -> View:
    view = tensor(b, x)
    upper = b.node.target.replace("::", ".").startswith("aten.triu")
    # Column minus row, against the diagonal.
    ahead = b.iota(view.shape, (*(0,) * (len(view.shape) - 2), -1, 1))
    kept = b.map("greater_equal" if upper else "less_equal", ahead, float(diagonal), dtype="uint8")
    return b.map("select", kept, view, 0.0, dtype=b.spec().dtype)


@lowering("arange")
def _arange(b: Builder, *given: Any, dtype: Any = None, **named: Any) -> View:
    start, step = (0, 1)
    if len(given) > 1:
        start = given[0]
    if len(given) > 2:
        step = given[2]
    start, step = named.get("start", start), named.get("step", step)
    spec = b.spec()
    if all(isinstance(v, int) and abs(v) < 2**31 for v in (start, step)):
        return b.map("copy", b.iota(spec.shape, (step,), start), dtype=spec.dtype)
    scaled = b.map("multiply", b.iota(spec.shape, (1,)), float(step))
    return b.map("add", scaled, float(start), dtype=spec.dtype)


@lowering("eye")
def _eye(b: Builder, *_: Any, **__: Any) -> View:
    return b.map("equal", b.iota(b.spec().shape, (-1, 1)), 0.0, dtype=b.spec().dtype)


@lowering("flip")
def _flip(b: Builder, x: Any, dims: Sequence[int]) -> View:
    view = tensor(b, x)
    for dim in axes_of(view, tuple(dims)):
        # A gather in the opposite order: no access pattern of a tensor runs backwards.
        size = view.shape[dim]
        if size > 1:
            view = _select_rows(b, view, dim, b.map("copy", b.iota((size,), (-1,), size - 1), dtype="int32"))
    return b.map("copy", view, dtype=b.spec().dtype)


# -- order ---------------------------------------------------------------------------------------------------


def _extreme(b: Builder, x: View, dim: int, fn: str, *, keepdim: bool, value: str, index: str) -> tuple[View, View]:
    """The largest or smallest element along an axis and the first place where it is."""
    view, _ = axis_last(b, x, dim)
    if view.shape[-1] >= _BEYOND or b.dtype(x) in INTEGERS:
        raise NotLowered("index of an extreme of integers or of a very long axis")
    found = b.reduce(fn, view, (-1,), keepdim=True)
    equal = b.map("equal", view, found, dtype="uint8")
    column = b.iota(view.shape, (*(0,) * (len(view.shape) - 1), 1))
    places = b.map("select", equal, b.map("copy", column), _BEYOND)
    first = b.reduce("min", places, (-1,), keepdim=True)
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


@lowering("cumsum")
def _cumsum(b: Builder, x: Any, dim: int, *, dtype: Any = None) -> View:
    source = tensor(b, x)
    if not source.shape or not source.elements:
        return b.map("copy", source, dtype=b.spec().dtype)
    view, back = axis_last(b, source, dim)
    size = view.shape[-1]
    if size > _LONGEST_SUM:
        raise NotLowered(f"cumulative sum over more than {_LONGEST_SUM} elements")
    triangle = b.map("less_equal", b.iota((size, size), (1, -1)), 0.0)
    rows = b.map("copy", view, dtype="fp32") if b.dtype(view) != "fp32" else view
    rows = b.reshape(rows, (1, prod(view.shape[:-1]), size))
    total = b.reshape(b.contract(rows, triangle.unsqueeze(0), "fp32"), view.shape)
    return b.map("copy", total.permute(back), dtype=b.spec().dtype)
