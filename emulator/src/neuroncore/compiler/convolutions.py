"""Convolutions, batch normalization and pooling in primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from neuroncore.compiler.decompose import tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View

#: Groups of a convolution that become one product each; depthwise ones have more.
_MOST_GROUPS = 16


def _pair(values: Sequence[int]) -> tuple[int, int]:
    """Of one or two numbers, those of rows and columns."""
    return (values[0], values[1]) if len(values) == 2 else (1, values[0])


def _plane(view: View) -> View:
    """[n, c, width] as [n, c, 1, width]."""
    if len(view.shape) not in (3, 4):
        raise NotLowered(f"convolution over {len(view.shape) - 2} dimensions")
    return view.unsqueeze(2) if len(view.shape) == 3 else view


class _Geometry(TypedDict):
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


def _geometry(rank: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> _Geometry:
    """Two numbers each, whatever was given."""
    filled = [tuple(v) * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation)]
    s, p, d = (_pair(v) for v in filled)
    return {"stride": s, "padding": (0, p[1]) if rank == 1 else p, "dilation": d}


def _check(b: Builder, *views: View) -> None:
    if any(b.dtype(v) not in ("fp32", "bf16", "fp16") for v in views):
        raise NotLowered("convolution of " + ", ".join(b.dtype(v) for v in views))
    if len({b.dtype(v) for v in views}) > 1:
        raise NotLowered("convolution of different dtypes")
    if any(not v.elements for v in views):
        raise NotLowered("convolution of an empty tensor")


@lowering("convolution", "_convolution")
def _convolution(
    b: Builder,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: Any,
) -> View:
    src, w, spec = tensor(b, x), tensor(b, weight), b.spec()
    rank = len(src.shape) - 2
    src, w = _plane(src), _plane(w)
    _check(b, src, w)
    shape = spec.shape if rank == 2 else (*spec.shape[:2], 1, spec.shape[2])
    given = _geometry(rank, stride, padding, dilation)
    if transposed:
        return b.reshape(
            _backward_data(b, src, w, shape, groups, given, spec.dtype, None if bias is None else tensor(b, bias)),
            spec.shape,
        )
    column = None if bias is None else tensor(b, bias)
    if groups == 1:
        out = b.convolve("forward", src, w, shape, spec.dtype, bias=column, **given)
        return b.reshape(out, spec.shape)
    if groups > _MOST_GROUPS:
        raise NotLowered(f"convolution of {groups} groups")
    out = b.temp(shape, spec.dtype)
    ins, outs = src.shape[1] // groups, shape[1] // groups
    for group in range(groups):
        part = b.convolve(
            "forward", src.slice(1, group * ins, (group + 1) * ins), w.slice(0, group * outs, (group + 1) * outs),
            (shape[0], outs, *shape[2:]), spec.dtype,
            bias=None if column is None else column.slice(0, group * outs, (group + 1) * outs), **given,
        )  # fmt: skip
        b.move(part, out.slice(1, group * outs, (group + 1) * outs))
    return b.reshape(out, spec.shape)


def _backward_data(
    b: Builder,
    g: View,
    w: View,
    shape: tuple[int, ...],
    groups: int,
    given: _Geometry,
    dtype: str,
    bias: View | None = None,
) -> View:
    """The gradient of the input: the gradient of the output, spread by the stride, convolved with turned filters."""
    if groups != 1:
        raise NotLowered(f"gradient of a convolution of {groups} groups")
    stride, padding, dilation = given["stride"], given["padding"], given["dilation"]
    border = tuple(d * (k - 1) - p for d, k, p in zip(dilation, w.shape[2:], padding, strict=True))
    return b.convolve(
        "gradient", g, w, shape, dtype, stride=(1, 1), padding=(border[0], border[1]), dilation=dilation,
        spread=stride, bias=bias,
    )  # fmt: skip


@lowering("convolution_backward")
def _convolution_backward(
    b: Builder,
    grad: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> list[View]:
    if transposed or groups != 1:
        raise NotLowered("gradient of a transposed or grouped convolution")
    g, src, w = tensor(b, grad), tensor(b, x), tensor(b, weight)
    rank = len(src.shape) - 2
    g, src, w = _plane(g), _plane(src), _plane(w)
    _check(b, g, src, w)
    given = _geometry(rank, stride, padding, dilation)
    results = []
    for number, spec in enumerate(b.node.outputs):
        if not mask[number] or not spec.elements:
            results.append(b.temp(spec.shape, spec.dtype))
        elif number == 0:
            results.append(b.reshape(_backward_data(b, g, w, src.shape, 1, given, spec.dtype), spec.shape))
        elif number == 1:
            results.append(b.reshape(b.convolve("weight", src, g, w.shape, spec.dtype, **given), spec.shape))
        else:
            results.append(b.reduce("add", g, (0, 2, 3), keepdim=False, dtype=spec.dtype))
    return results
