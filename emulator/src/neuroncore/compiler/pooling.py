"""Pooling in primitives."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypedDict

from neuroncore.compiler.decompose import INTEGERS, tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View


@lowering("_adaptive_avg_pool2d", "adaptive_avg_pool2d")
def _adaptive_pool(b: Builder, x: Any, size: Sequence[int]) -> View:
    view, spec = tensor(b, x), b.spec()
    height, width = view.shape[-2:]
    rows, columns = spec.shape[-2:]
    if not rows or not columns or height % rows or width % columns:
        raise NotLowered("adaptive pooling into unequal windows")
    split = b.reshape(view, (*view.shape[:-2], rows, height // rows, columns, width // columns))
    rank = len(split.shape)
    count = height // rows * (width // columns)
    return b.reduce("add", split, (rank - 3, rank - 1), keepdim=False, dtype=spec.dtype, scale=1.0 / count)


@lowering("_adaptive_avg_pool2d_backward")
def _adaptive_pool_backward(b: Builder, grad: Any, x: Any) -> View:
    g, spec = tensor(b, grad), b.spec()
    rows, columns = g.shape[-2:]
    height, width = spec.shape[-2:]
    if not rows or not columns or height % rows or width % columns:
        raise NotLowered("adaptive pooling into unequal windows")
    tall, wide = height // rows, width // columns
    spread = g.unsqueeze(len(g.shape) - 1).unsqueeze(len(g.shape) + 1)
    shape = (*g.shape[:-2], rows, tall, columns, wide)
    return b.reshape(b.map("multiply", spread.expand(shape), 1.0 / (tall * wide), dtype=spec.dtype), spec.shape)


def _both(values: Sequence[int]) -> tuple[int, int]:
    return (values[0], values[1]) if len(values) > 1 else (values[0], values[0])


def _planes(b: Builder, view: View, dtype: str | None = None) -> View:
    """[..., height, width] as contiguous [planes, height, width]."""
    shape = (prod(view.shape[:-2]), *view.shape[-2:])
    flat = b.reshape(view, shape)
    kept = flat.strides[1:] == (shape[2], 1) and flat.strides[0] == shape[1] * shape[2]
    dense = kept or flat.dense or shape[0] * shape[1] * shape[2] == 1
    plain = flat if dense and dtype in (None, b.dtype(flat)) else None
    if plain is None:
        plain = b.dense(shape, dtype or b.dtype(flat))
        b.write("copy", (flat,), plain)
    return plain


class _Geometry(TypedDict):
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


def _geometry(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int] = (1,)
) -> _Geometry:
    return {
        "kernel": _both(kernel), "stride": _both(stride or kernel), "padding": _both(padding),
        "dilation": _both(dilation),
    }  # fmt: skip


def _check(b: Builder, view: View) -> None:
    if b.dtype(view) in INTEGERS:
        raise NotLowered("pooling of integers")
    if not view.elements:
        raise NotLowered("pooling of an empty tensor")


@lowering("max_pool2d_with_indices")
def _max_pool(
    b: Builder,
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> list[View]:
    view, spec = tensor(b, x), b.spec()
    _check(b, view)
    planes = _planes(b, view)
    shape = (planes.shape[0], *spec.shape[-2:])
    outs = (b.dense(shape, spec.dtype), b.dense(shape, b.spec(1).dtype))
    b.pool("max", (planes,), outs, **_geometry(kernel, stride, padding, dilation))
    return [b.reshape(out, spec.shape) for out in outs]


@lowering("max_pool2d_with_indices_backward")
def _max_pool_backward(
    b: Builder,
    grad: Any,
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Any,
) -> View:
    g, spec = tensor(b, grad), b.spec()
    _check(b, g)
    out = b.dense((prod(spec.shape[:-2]), *spec.shape[-2:]), spec.dtype)
    ins = (_planes(b, g), _planes(b, tensor(b, indices)))
    b.pool("max_gradient", ins, (out,), **_geometry(kernel, stride, padding, dilation))
    return b.reshape(out, spec.shape)


@lowering("avg_pool2d")
def _avg_pool(
    b: Builder,
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> View:
    view, spec = tensor(b, x), b.spec()
    _check(b, view)
    planes = _planes(b, view)
    out = b.dense((planes.shape[0], *spec.shape[-2:]), spec.dtype)
    geometry = _geometry(kernel, stride, padding)
    b.pool("average", (planes,), (out,), **geometry, divisor=divisor or 0, padded=count_include_pad)
    return b.reshape(out, spec.shape)


@lowering("avg_pool2d_backward")
def _avg_pool_backward(
    b: Builder,
    grad: Any,
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> View:
    g, spec = tensor(b, grad), b.spec()
    _check(b, g)
    out = b.dense((prod(spec.shape[:-2]), *spec.shape[-2:]), spec.dtype)
    geometry = _geometry(kernel, stride, padding)
    b.pool("average_gradient", (_planes(b, g),), (out,), **geometry, divisor=divisor or 0, padded=count_include_pad)
    return b.reshape(out, spec.shape)
