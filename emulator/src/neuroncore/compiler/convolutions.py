"""Convolutions, batch normalization and pooling in primitives."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypedDict

from neuroncore.compiler.decompose import INTEGERS, tensor
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


# -- batch normalization -------------------------------------------------------------------------------------


def _channels(b: Builder, value: Any, rank: int) -> View:
    """One value per channel, to broadcast over [n, c, ...]."""
    return b.reshape(tensor(b, value), (1, tensor(b, value).elements, *(1,) * (rank - 2)))


@lowering("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional")
def _batch_norm(
    b: Builder,
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> list[View]:
    if "functional" in b.node.target or "no_stats" in b.node.target:
        raise NotLowered("this form of batch normalization")
    view = tensor(b, x)
    rank, count = len(view.shape), view.elements // max(1, view.shape[1])
    axes = (0, *range(2, rank))
    if training:
        minus = b.reduce("add", view, axes, keepdim=True, scale=-1.0 / max(1, count))
        centered = b.map("add", view, minus)
        variance = b.reduce("add", b.map("square", centered), axes, keepdim=True, scale=1.0 / max(1, count))
    else:
        minus = b.map("multiply", _channels(b, running_mean, rank), -1.0)
        centered = b.map("add", view, minus)
        variance = _channels(b, running_var, rank)
    rstd = b.map("rsqrt", b.map("add", variance, float(eps)))
    factor = rstd if weight is None else b.map("multiply", rstd, _channels(b, weight, rank))
    addend = b.map("multiply", minus, factor)
    if bias is not None:
        addend = b.map("add", addend, _channels(b, bias, rank))
    y = b.map("add", b.map("multiply", view, factor), addend, dtype=b.spec().dtype)
    if not training:
        return [y, *(b.temp(spec.shape, spec.dtype) for spec in b.node.outputs[1:])]
    for running, scale, value in (
        (running_mean, -momentum, minus),
        (running_var, momentum * count / max(1, count - 1), variance),
    ):
        if running is not None:
            old = tensor(b, running)
            kept = b.map("multiply", old, 1.0 - momentum)
            new = b.map("multiply", b.reshape(value, old.shape), float(scale))
            b.mutate(running, b.map("add", kept, new, dtype=b.dtype(old)))
    mean, spread = b.node.outputs[1:3]
    return [
        y,
        b.map("multiply", b.reshape(minus, mean.shape), -1.0, dtype=mean.dtype),
        b.map("copy", b.reshape(rstd, spread.shape), dtype=spread.dtype),
    ]


@lowering("native_batch_norm_backward")
def _batch_norm_backward(
    b: Builder,
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> list[View]:
    g, view = tensor(b, grad), tensor(b, x)
    rank, count = len(view.shape), view.elements // max(1, view.shape[1])
    axes = (0, *range(2, rank))
    if training:
        mean, rstd = _channels(b, save_mean, rank), _channels(b, save_invstd, rank)
    else:
        mean = _channels(b, running_mean, rank)
        rstd = b.map("rsqrt", b.map("add", _channels(b, running_var, rank), float(eps)))
    normal = b.map("multiply", b.map("subtract", view, mean), rstd)
    total = b.reduce("add", g, axes, keepdim=True)
    product = b.reduce("add", b.map("multiply", g, normal), axes, keepdim=True)
    factor = rstd if weight is None else b.map("multiply", rstd, _channels(b, weight, rank))
    inner = g
    if training:
        scale = -1.0 / max(1, count)
        normal = b.map("multiply", b.map("subtract", view, mean), rstd)
        along = b.map("multiply", normal, b.map("multiply", product, scale))
        inner = b.map("add", b.map("add", g, b.map("multiply", total, scale)), along)
    results = [b.map("multiply", inner, factor, dtype=b.spec().dtype)]
    for spec, value, wanted in ((b.spec(1), product, mask[1]), (b.spec(2), total, mask[2])):
        if wanted and spec.elements:
            results.append(b.map("copy", b.reshape(value, spec.shape), dtype=spec.dtype))
        else:
            results.append(b.temp(spec.shape, spec.dtype))
    return results


# -- pooling -------------------------------------------------------------------------------------------------


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


def _windows(
    b: Builder, view: View, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], out: Sequence[int], value: float,
) -> list[tuple[int, int, View]]:  # fmt: skip
    """For every place in the window: its row and column and a view of the padded input there."""
    (kh, kw), (ph, pw), (dh, dw) = _both(kernel), _both(padding), _both(dilation)
    sh, sw = _both(stride or kernel)
    height, width = view.shape[-2:]
    tall = max(height + ph, (out[0] - 1) * sh + (kh - 1) * dh + 1)
    wide = max(width + pw, (out[1] - 1) * sw + (kw - 1) * dw + 1)
    if ph or pw or tall > height or wide > width:
        padded = b.map("copy", value, dtype=b.dtype(view), shape=(*view.shape[:-2], tall + ph, wide + pw))
        b.move(view, padded.slice(-2, ph, ph + height).slice(-1, pw, pw + width))
        view = padded
    places = []
    for i in range(kh):
        for j in range(kw):
            rows = view.slice(-2, i * dh, i * dh + (out[0] - 1) * sh + 1, sh)
            places.append((i * dh - ph, j * dw - pw, rows.slice(-1, j * dw, j * dw + (out[1] - 1) * sw + 1, sw)))
    return places


def _both(values: Sequence[int]) -> tuple[int, int]:
    return (values[0], values[1]) if len(values) > 1 else (values[0], values[0])


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
    if b.dtype(view) in INTEGERS:
        raise NotLowered("pooling of integers")
    out = spec.shape[-2:]
    sh, sw = _both(stride or kernel)
    best: View | None = None
    index: View | None = None
    zeros = (0,) * (len(spec.shape) - 2)
    width = view.shape[-1]
    places = _windows(b, view, kernel, stride, padding, dilation, out, -3.0e38)
    # Where each window begins, made first: it decides that a partition takes a plane, and is made once for all.
    first = b.map("copy", b.iota(spec.shape, (*zeros, sh * width, sw)))
    for row, column, place in places:
        here = float(row * width + column)
        if best is None or index is None:
            best, index = b.map("copy", place, dtype=b.dtype(view)), b.map("copy", here, shape=spec.shape)
            continue
        larger = b.map("greater", place, best, dtype="uint8")
        index = b.map("select", larger, here, index)
        best = b.map("max", best, place, dtype=b.dtype(view))
    assert best is not None and index is not None
    return [b.map("copy", best, dtype=spec.dtype), b.map("add", first, index, dtype=b.spec(1).dtype)]


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
    g, index, spec = tensor(b, grad), tensor(b, indices), b.spec()
    planes, size = prod(spec.shape[:-2]), prod(spec.shape[-2:])
    count = prod(g.shape[-2:])
    flat = b.map("add", b.reshape(index, (planes, count)), b.iota((planes, count), (size, 0)), dtype="int32")
    table = b.temp((planes * size, 1), "fp32")
    b.write("copy", (0.0,), table)
    values = b.copy(b.reshape(g, (planes * count, 1)), "fp32")
    b.scatter(table, b.reshape(flat, (planes * count,)), values, add=True)
    return b.map("copy", b.reshape(table, spec.shape), dtype=spec.dtype)


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
    if ceil_mode or (not count_include_pad and any(padding)):
        raise NotLowered("average pooling whose windows have different sizes")
    view, spec = tensor(b, x), b.spec()
    places = _windows(b, view, kernel, stride, padding, (1,), spec.shape[-2:], 0.0)
    total = b.map("copy", places[0][2])
    for _, _, place in places[1:]:
        total = b.map("add", total, place)
    return b.map("multiply", total, 1.0 / (divisor or len(places)), dtype=spec.dtype)
