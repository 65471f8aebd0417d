"""ATen ops that only look at their input another way: free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuroncore.compiler.decompose import tensor
from neuroncore.compiler.lowering import Builder, view_op
from neuroncore.compiler.views import View


@view_op("view", "_unsafe_view", "reshape", "_reshape_alias", "unflatten")
def _view(b: Builder, x: Any, shape: Any, *_: Any) -> View:
    return b.reshape(tensor(b, x), b.spec().shape)


@view_op("flatten")
def _flatten(b: Builder, x: Any, *_: Any) -> View:
    return b.reshape(tensor(b, x), b.spec().shape)


@view_op("expand", "broadcast_to", "expand_as")
def _expand(b: Builder, x: Any, *_: Any, implicit: bool = False) -> View:
    return tensor(b, x).expand(b.spec().shape)


@view_op("unsqueeze")
def _unsqueeze(b: Builder, x: Any, dim: int) -> View:
    return tensor(b, x).unsqueeze(dim)


@view_op("squeeze")
def _squeeze(b: Builder, x: Any, dim: Any = None) -> View:
    axes = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return tensor(b, x).squeeze(axes)


@view_op("permute")
def _permute(b: Builder, x: Any, dims: Sequence[int]) -> View:
    view = tensor(b, x)
    return view.permute(tuple(d % len(view.shape) for d in dims))


@view_op("transpose", "swapaxes")
def _transpose(b: Builder, x: Any, dim0: int, dim1: int) -> View:
    view = tensor(b, x)
    order = list(range(len(view.shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return view.permute(tuple(order))


@view_op("t", "numpy_T")
def _t(b: Builder, x: Any) -> View:
    view = tensor(b, x)
    return view.permute(tuple(reversed(range(len(view.shape)))))


@view_op("slice")
def _slice(b: Builder, x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> View:
    return tensor(b, x).slice(dim, 0 if start is None else start, 2**62 if end is None else end, step)


@view_op("narrow")
def _narrow(b: Builder, x: Any, dim: int, start: int, length: int) -> View:
    return tensor(b, x).slice(dim, start, start + length)


@view_op("select")
def _select(b: Builder, x: Any, dim: int, index: int) -> View:
    return tensor(b, x).select(dim, index)


@view_op("split", "split_with_sizes", "chunk", "tensor_split")
def _split(b: Builder, x: Any, sizes: Any, dim: int = 0) -> list[View]:
    view, pieces, start = tensor(b, x), [], 0
    for spec in b.node.outputs:
        length = spec.shape[dim]
        pieces.append(view.slice(dim, start, start + length))
        start += length
    return pieces


@view_op("diagonal")
def _diagonal(b: Builder, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
    return tensor(b, x).diagonal(offset, dim1, dim2)


@view_op("unbind")
def _unbind(b: Builder, x: Any, dim: int = 0) -> list[View]:
    view = tensor(b, x)
    return [view.select(dim, i) for i in range(view.shape[dim])]


@view_op("atleast_2d")
def _atleast_2d(b: Builder, x: Any) -> View:
    return b.reshape(tensor(b, x), b.spec().shape)


@view_op("detach", "alias", "lift_fresh", "view_as", "_conj", "resolve_conj", "resolve_neg")
def _alias(b: Builder, x: Any, *_: Any) -> View:
    return tensor(b, x)
