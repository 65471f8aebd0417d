"""Creation, copies, concatenations and repetitions in primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuroncore.compiler.decompose import tensor
from neuroncore.compiler.elementwise import converted
from neuroncore.compiler.lowering import Builder, lowering
from neuroncore.compiler.views import View, collapse
from neuroncore.graph import DTYPE_BYTES


@lowering("full", "full_like", "new_full", "scalar_tensor")
def _full(b: Builder, *args: Any, dtype: Any = None) -> View:
    value = args[-1]
    return b.map("copy", b.arg(value), dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("zeros", "zeros_like", "new_zeros", "zero")
def _zeros(b: Builder, *_: Any, dtype: Any = None) -> View:
    return b.map("copy", 0.0, dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("ones", "ones_like", "new_ones")
def _ones(b: Builder, *_: Any, dtype: Any = None) -> View:
    return b.map("copy", 1.0, dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
def _empty(b: Builder, *_: Any, dtype: Any = None) -> View:
    return b.temp(b.spec().shape, b.spec().dtype)


@lowering("fill")
def _fill(b: Builder, x: Any, value: Any) -> View:
    return b.map("copy", b.arg(value), dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("copy")
def _copy(b: Builder, x: Any, source: Any) -> View:
    return converted(b, b.arg(source), b.spec().dtype, b.spec().shape)


@lowering("_to_copy", "clone", "contiguous", "to", "convert_element_type")
def _to_copy(b: Builder, x: Any, *_: Any, dtype: Any = None) -> View:
    return converted(b, tensor(b, x), b.spec().dtype)


@lowering("repeat", "tile")
def _repeat(b: Builder, x: Any, repeats: Sequence[int]) -> View:
    view, shape = tensor(b, x), b.spec().shape
    old = (1,) * (len(shape) - len(view.shape)) + view.shape
    out = b.temp(shape, b.spec().dtype)
    source, target = view.expand(old), out
    pairs, sizes = [], []
    for axis, (n, total) in enumerate(zip(old, shape, strict=True)):
        pairs += [(0, target.strides[axis] * n), (source.strides[axis], target.strides[axis])]
        sizes += [total // n if n else 0, n]
    b.move(
        View(source.buffer, tuple(sizes), tuple(s for s, _ in pairs), source.offset),
        View(out.buffer, tuple(sizes), tuple(t for _, t in pairs), out.offset),
    )
    return out


@lowering("cat", "concat")
def _cat(b: Builder, tensors: Sequence[Any], dim: int = 0) -> View:
    out, start = b.temp(b.spec().shape, b.spec().dtype), 0
    for value in tensors:
        view = tensor(b, value)
        if not view.elements:
            continue  # legacy: an empty tensor of any rank is skipped
        length = view.shape[dim]
        _place(b, view, out.slice(dim, start, start + length))
        start += length
    return out


#: Bytes of a run from which on a transfer moves it at full rate.
_LONG_RUN = 512


def _place(b: Builder, source: View, part: View) -> None:
    """Fill a part of a result: by DMA alone if its runs are long, else through SBUF, where parts form long rows."""
    source = source.expand(part.shape)
    sizes, (src, dst) = collapse(part.shape, (source.strides, part.strides))
    run = sizes[-1] if sizes and src[-1] == dst[-1] == 1 else 1
    if run * DTYPE_BYTES[b.dtype(part)] >= _LONG_RUN or (len(sizes) <= 1 and run > 1):
        b.move(source, part)
    else:
        b.write("copy", (source,), part)


@lowering("vstack")
def _vstack(b: Builder, tensors: Sequence[Any]) -> View:
    out, start = b.temp(b.spec().shape, b.spec().dtype), 0
    for value in tensors:
        view = tensor(b, value)
        view = view if len(view.shape) > 1 else b.reshape(view, (1, view.elements))
        b.move(view, out.slice(0, start, start + view.shape[0]))
        start += view.shape[0]
    return out


@lowering("stack")
def _stack(b: Builder, tensors: Sequence[Any], dim: int = 0) -> View:
    out = b.temp(b.spec().shape, b.spec().dtype)
    for index, value in enumerate(tensors):
        _place(b, tensor(b, value), out.select(dim, index))
    return out


@lowering("slice_scatter")
def _slice_scatter(
    b: Builder, x: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> View:
    out = b.map("copy", tensor(b, x), dtype=b.spec().dtype)
    b.move(tensor(b, src), out.slice(dim, 0 if start is None else start, 2**62 if end is None else end, step))
    return out


@lowering("select_scatter")
def _select_scatter(b: Builder, x: Any, src: Any, dim: int, index: int) -> View:
    out = b.map("copy", tensor(b, x), dtype=b.spec().dtype)
    b.move(tensor(b, src), out.select(dim, index))
    return out


@lowering("diagonal_scatter")
def _diagonal_scatter(b: Builder, x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
    out = b.map("copy", tensor(b, x), dtype=b.spec().dtype)
    b.write("copy", (tensor(b, src),), out.diagonal(offset, dim1, dim2))
    return out
