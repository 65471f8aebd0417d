"""Ops that read or write by index in primitives: gathers and scatters by DMA, masks and ranges from affine indices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from neuroncore.compiler.constants import Run, constant, runs
from neuroncore.compiler.decompose import INTEGERS, axes_of, tensor
from neuroncore.compiler.ir import Operand
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View, contiguous

#: Integers that fp32 does not hold exactly.
_WIDE = frozenset({"int32", "int64", "uint32"})
#: Most results of a topk: they are found eight at a time.
_MOST_CHOSEN = 4096


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


def _index_first(b: Builder, view: View, indices: Sequence[Any]) -> tuple[View, list[int]]:
    """The tensor with its indexed axes together, and where they went; as torch does, in front if others are between."""
    places = [i for i, v in enumerate(indices) if v is not None]
    if not places:
        raise NotLowered("an index of nothing")
    if places == list(range(places[0], places[-1] + 1)):
        return view, places
    order = (*places, *(a for a in range(len(view.shape)) if a not in places))
    return view.permute(order), list(range(len(places)))


def _flat_index(b: Builder, view: View, places: Sequence[int], indices: Sequence[Any]) -> View:
    """The one index into the axes `places`, as one axis, that several index tensors are."""
    flat: View | None = None
    for place, index in zip(places, indices, strict=True):
        size = view.shape[place]
        one = _wrapped(b, tensor(b, index), size)
        flat = one if flat is None else b.map("add", b.map("multiply", flat, float(size), dtype="int32"), one,
                                              dtype="int32")  # fmt: skip
    assert flat is not None
    return flat


def _known(b: Builder, view: View, indices: Sequence[Any]) -> list[tuple[int, list[Run]]] | None:
    """For every indexed axis the runs of an index that depends on no input, where each has an axis of its own."""
    given = [(place, constant(b.graph, v)) for place, v in enumerate(indices) if v is not None]
    if not given or any(array is None or not array.size for _, array in given):
        return None
    places = [place for place, _ in given]
    if places != list(range(places[0], places[-1] + 1)):
        return None
    rank = max(array.ndim for _, array in given if array is not None)
    if rank != len(given):
        return None
    found = []
    for number, (place, array) in enumerate(given):
        assert array is not None
        shape = (1,) * (rank - array.ndim) + array.shape
        if any(n != 1 for axis, n in enumerate(shape) if axis != number):
            return None
        size = view.shape[place]
        flat = np.where(array.reshape(-1) < 0, array.reshape(-1) + size, array.reshape(-1))
        pieces = runs(flat)
        if pieces is None or flat.min() < 0 or flat.max() >= size:
            return None
        found.append((place, pieces))
    return found


def _part(view: View, axis: int, start: int, step: int, count: int) -> View:
    """`count` elements along an axis; a step of zero repeats one."""
    if step == 0:
        one = view.slice(axis, start, start + 1)
        return one.expand(tuple(count if a == axis else n for a, n in enumerate(one.shape)))
    return view.slice(axis, start, start + step * (count - 1) + 1, step)


def _taken(b: Builder, view: View, known: list[tuple[int, list[Run]]]) -> View:
    """Elements by known indices along some axes: a copy for every combination of their runs."""
    out = b.temp(b.spec().shape, b.spec().dtype)
    for pieces in product(*(pieces for _, pieces in known)):
        source, part = view, out
        for (axis, _), piece in zip(known, pieces, strict=True):
            source = _part(source, axis, piece.source, piece.stride, piece.count)
            part = _part(part, axis, piece.first, piece.step, piece.count)
        b.write("copy", (source,), part)
    return out


def _returned(b: Builder, g: View, axis: int, pieces: list[Run], size: int) -> View:
    """The gradient of `_taken`: every element the sum of what was read from it."""
    shape = tuple(size if a == axis else n for a, n in enumerate(g.shape))
    out = b.dense(shape, "fp32")
    b.write("copy", (0.0,), out)
    for piece in pieces:
        part = _part(g, axis, piece.first, piece.step, piece.count)
        stride, count = piece.stride, piece.count
        if not stride:
            part, stride, count = b.reduce("add", part, (axis,), keepdim=True), 1, 1
        place = _part(out, axis, piece.source, stride, count)
        b.write("add", (place, part), place)
    return out


@lowering("index", "_unsafe_index")
def _index(b: Builder, x: Any, indices: Sequence[Any]) -> View:
    view = tensor(b, x)
    known = _known(b, view, indices)
    if known is not None:
        return _taken(b, view, known)
    view, places = _index_first(b, view, indices)
    flat = _flat_index(b, view, places, [v for v in indices if v is not None])
    first, count = places[0], len(places)
    merged = b.reshape(
        view, (*view.shape[:first], prod(view.shape[first : first + count]), *view.shape[first + count :])
    )
    return b.reshape(_select_rows(b, merged, first, flat), b.spec().shape)


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
    if _by_row(view, dim, where) and view.shape[-1] * where.shape[-1] <= _COMPARED and b.dtype(view) not in _WIDE:
        return _gather_by_row(b, view, where)
    flat = _places(b, view.shape, dim, where)
    table = b.reshape(view, (view.elements, 1))
    return b.reshape(_rows(b, table, flat, b.dtype(view)), b.spec().shape)


def _gather_by_row(b: Builder, view: View, where: View) -> View:
    """The one element of a row that stands where the index says: the sum of all, the others hidden."""
    places = b.iota(view.shape, (*(0,) * (len(view.shape) - 1), 1))
    out = b.temp(b.spec().shape, b.spec().dtype)
    for number in range(where.shape[-1]):
        here = b.map("equal", places, where.slice(-1, number, number + 1), dtype="uint8")
        found = b.reduce("add", b.map("select", here, view, 0.0, shape=view.shape), (-1,), keepdim=True)
        b.write("copy", (found,), out.slice(-1, number, number + 1))
    return out


# -- scatters ------------------------------------------------------------------------------------------------


def _table(b: Builder, view: View, shape: tuple[int, ...], *, add: bool) -> View:
    """A contiguous copy to scatter to; 64-bit integers in 32 bits, as an indexed copy does not convert."""
    dtype = b.dtype(view)
    if add and dtype in INTEGERS:
        raise NotLowered("integers added up by index")
    out = b.copy(view, "int32" if dtype == "int64" else None)
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


def _typed(b: Builder, view: View) -> View:
    """In the dtype of the result."""
    return view if b.dtype(view) == b.spec().dtype else b.map("copy", view, dtype=b.spec().dtype)


def _scatter_rows(b: Builder, x: Any, dim: int, index: Any, src: Any, *, add: bool, factor: float = 1.0) -> View:
    view, values = tensor(b, x), tensor(b, src)
    where = b.reshape(tensor(b, index), (tensor(b, index).elements,))
    if not view.shape:
        raise NotLowered("rows of a scalar")
    # The indexed axis first, the others as a row of it.
    dim %= len(view.shape)
    order = (dim, *(axis for axis in range(len(view.shape)) if axis != dim))
    back = tuple(order.index(axis) for axis in range(len(order)))
    view, values = view.permute(order), values.permute(order) if len(values.shape) == len(order) else values
    table = _table(b, view, (view.shape[0], prod(view.shape[1:])), add=add)
    if b.dtype(values) != b.dtype(table):
        values = b.map("copy", values, dtype=b.dtype(table))
    values = values.expand((where.elements, *view.shape[1:]))
    if factor != 1.0:
        values = b.map("multiply", values, factor, dtype=b.dtype(table))
    b.scatter(table, where, b.reshape(values, (where.elements, table.shape[1])), add=add)
    return _typed(b, b.reshape(table, view.shape).permute(back))


@lowering("index_add")
def _index_add(b: Builder, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> View:
    return _scatter_rows(b, x, dim, index, source, add=True, factor=float(alpha))


@lowering("index_copy")
def _index_copy(b: Builder, x: Any, dim: int, index: Any, source: Any) -> View:
    return _scatter_rows(b, x, dim, index, source, add=False)


@lowering("index_put", "_index_put_impl", "_unsafe_index_put")
def _index_put(b: Builder, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, *_: Any) -> View:
    view, src = tensor(b, x), tensor(b, values)
    known = _known(b, view, indices) if accumulate else None
    if known is not None:
        size = {axis: sum(piece.count for piece in pieces) for axis, pieces in known}
        g = src.expand(tuple(size.get(axis, n) for axis, n in enumerate(view.shape)))
        for axis, pieces in reversed(known):
            g = _returned(b, g, axis, pieces, view.shape[axis])
        return b.map("add", view, g, dtype=b.spec().dtype)
    moved, places = _index_first(b, view, indices)
    rank, first, count = len(view.shape), places[0], len(places)
    given = [i for i, v in enumerate(indices) if v is not None]
    lead = [a for a in range(rank) if a not in given]
    # The table: indexed axes in front, then the others.
    order = (*given, *lead)
    flat = _flat_index(b, view, given, [v for v in indices if v is not None])
    rest = tuple(view.shape[a] for a in lead)
    table = _table(b, view.permute(order), (prod(view.shape[a] for a in given), prod(rest)), add=accumulate)
    # Values have the index's axes where the indexed ones are, in front when others lie between those.
    before, wide = moved.shape[:first], len(flat.shape)
    rows = src.expand((*before, *flat.shape, *moved.shape[first + count :]))
    rows = rows.permute((
        *range(first, first + wide), *range(first), *range(first + wide, len(rows.shape)),
    ))  # fmt: skip
    rows = b.map("copy", rows, dtype=b.dtype(table)) if b.dtype(src) != b.dtype(table) else rows
    b.scatter(table, b.reshape(flat, (flat.elements,)), b.reshape(rows, (flat.elements, prod(rest))), add=accumulate)
    shaped = b.reshape(table, tuple(view.shape[a] for a in order))
    return _typed(b, shaped.permute(tuple(order.index(a) for a in range(rank))))


@lowering("scatter_add")
def _scatter_add(b: Builder, x: Any, dim: int, index: Any, src: Any) -> View:
    return _scatter_elements(b, x, dim, index, src, add=True)


@lowering("scatter")
def _scatter(b: Builder, x: Any, dim: int, index: Any, src: Any, *, reduce: str = "") -> View:
    if reduce:
        raise NotLowered(f"scatter that combines by {reduce}")
    return _scatter_elements(b, x, dim, index, src, add=False)


#: Places of a row up to which a row's own scatter or gather compares every place with every index.
_COMPARED = 512
#: Indices of a row up to which it does.
_FEW = 64


def _by_row(view: View, dim: int, index: View) -> bool:
    """Whether elements move within short rows, by few indices each: comparing all beats a transfer per element."""
    rank = len(view.shape)
    same = rank == len(index.shape) and view.shape[:-1] == index.shape[:-1]
    return same and rank > 1 and dim % rank == rank - 1 and index.shape[-1] <= _FEW and view.shape[-1] <= _COMPARED


def _scatter_elements(b: Builder, x: Any, dim: int, index: Any, src: Any, *, add: bool) -> View:
    view, where, values = tensor(b, x), tensor(b, index), b.arg(src)
    if not view.shape or not where.elements:
        raise NotLowered("scatter to a scalar or of nothing")
    if isinstance(values, View):
        for axis, size in enumerate(where.shape):
            values = values.slice(axis, 0, size)
    if _by_row(view, dim, where) and b.dtype(view) not in _WIDE:
        return _scatter_by_row(b, view, where, values, add=add)
    flat = _places(b, view.shape, dim, where)
    table = _table(b, view, (view.elements, 1), add=add)
    rows = b.map("copy", values, dtype=b.dtype(table), shape=where.shape)
    b.scatter(table, flat, b.reshape(rows, (where.elements, 1)), add=add)
    return _typed(b, b.reshape(table, b.spec().shape))


def _scatter_by_row(b: Builder, view: View, where: View, values: Operand, *, add: bool) -> View:
    """Index after index, every place of a row is compared with it."""
    places = b.iota(view.shape, (*(0,) * (len(view.shape) - 1), 1))
    result: View = view
    for number in range(where.shape[-1]):
        value = values.slice(-1, number, number + 1) if isinstance(values, View) else values
        here = b.map("equal", places, where.slice(-1, number, number + 1), dtype="uint8")
        new = b.map("add", result, value) if add else value
        dtype = b.spec().dtype if number == where.shape[-1] - 1 else "fp32"
        result = b.map("select", here, new, result, dtype=dtype, shape=view.shape)
    return result


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
