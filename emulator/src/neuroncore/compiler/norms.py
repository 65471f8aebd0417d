"""Softmax and normalizations of rows in primitives: reductions and maps with fp32 intermediates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from neuroncore.compiler.decompose import axis_last, exponentials, tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View


@lowering("_softmax", "softmax")
def _softmax(b: Builder, x: Any, dim: int, *_: Any, dtype: Any = None) -> View:
    view = tensor(b, x)
    if not view.shape:
        raise NotLowered("softmax of a scalar")
    view, back = axis_last(b, view, dim)
    powers, total = exponentials(b, view, -1)[1:]
    return b.map("multiply", powers, b.map("reciprocal", total), dtype=b.spec().dtype).permute(back)


@lowering("_log_softmax", "log_softmax")
def _log_softmax(b: Builder, x: Any, dim: int, *_: Any, dtype: Any = None) -> View:
    view = tensor(b, x)
    if not view.shape:
        raise NotLowered("log_softmax of a scalar")
    view, back = axis_last(b, view, dim)
    largest = b.reduce("max", view, (-1,), keepdim=True)
    total = b.reduce("add", b.map("exp", b.map("subtract", view, largest)), (-1,), keepdim=True)
    # The row's maximum first, as torch does: of the sum of both a large maximum would round the logarithm away.
    shifted = b.map("subtract", view, largest)
    return b.map("subtract", shifted, b.map("log", total), dtype=b.spec().dtype).permute(back)


@lowering("_softmax_backward_data")
def _softmax_backward(b: Builder, grad: Any, output: Any, dim: int, *_: Any) -> View:
    g, back = axis_last(b, tensor(b, grad), dim)
    y = axis_last(b, tensor(b, output), dim)[0]
    total = b.reduce("add", b.map("multiply", g, y), (-1,), keepdim=True)
    return b.map("multiply", b.map("subtract", g, total), y, dtype=b.spec().dtype).permute(back)


@lowering("_log_softmax_backward_data")
def _log_softmax_backward(b: Builder, grad: Any, output: Any, dim: int, *_: Any) -> View:
    g, back = axis_last(b, tensor(b, grad), dim)
    y = axis_last(b, tensor(b, output), dim)[0]
    total = b.reduce("add", g, (-1,), keepdim=True)
    return b.map("subtract", g, b.map("multiply", b.map("exp", y), total), dtype=b.spec().dtype).permute(back)


def _norm_axes(view: View, normalized: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(len(view.shape) - len(normalized), len(view.shape)))


@lowering("_fused_rms_norm", "rms_norm")
def _rms_norm(b: Builder, x: Any, normalized: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    view = tensor(b, x)
    axes = _norm_axes(view, normalized)
    # Without eps torch takes the spacing of the dtype it accumulates in.
    epsilon = (2.0**-52 if b.dtype(view) == "fp64" else 2.0**-23) if eps is None else eps
    count = prod(view.shape[a] for a in axes)
    mean = b.reduce("add", b.map("square", view), axes, keepdim=True, scale=1.0 / max(count, 1))
    rstd = b.map("rsqrt", b.map("add", mean, float(epsilon)))
    y = b.map("multiply", view, rstd, dtype="fp32" if weight is not None else b.spec().dtype)
    if weight is not None:
        y = b.map("multiply", y, b.arg(weight), dtype=b.spec().dtype)
    if len(b.node.outputs) == 1:
        return y
    return y, b.map("copy", rstd, dtype=b.spec(1).dtype)


@lowering("_fused_rms_norm_backward")
def _rms_norm_backward(
    b: Builder, grad: Any, x: Any, normalized: Sequence[int], rstd: Any, weight: Any, mask: Sequence[bool]
) -> Any:
    g, view, r = tensor(b, grad), tensor(b, x), tensor(b, rstd)
    axes = _norm_axes(view, normalized)
    count = prod(view.shape[a] for a in axes)
    normal = b.map("multiply", view, r)
    scaled = b.map("multiply", g, b.arg(weight)) if weight is not None else g
    mean = b.reduce("add", b.map("multiply", scaled, normal), axes, keepdim=True, scale=1.0 / count)
    inner = b.map("subtract", scaled, b.map("multiply", normal, mean))
    results = [b.map("multiply", inner, r, dtype=b.spec().dtype)]
    if len(b.node.outputs) > 1 and weight is not None and mask[1]:
        rows = tuple(range(len(view.shape) - len(normalized)))
        product = b.map("multiply", g, normal)
        results.append(b.reduce("add", product, rows, keepdim=False, dtype=b.spec(1).dtype))
    elif len(b.node.outputs) > 1:
        results.append(b.temp(b.spec(1).shape, b.spec(1).dtype))
    return results


@lowering("native_layer_norm")
def _layer_norm(b: Builder, x: Any, normalized: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    view = tensor(b, x)
    mean, variance = b.moments(view, _norm_axes(view, normalized))
    rstd = b.map("rsqrt", b.map("add", variance, float(eps)))
    # x * rstd - mean * rstd: one pass with a factor and an addend per row.
    shift = b.map("multiply", b.map("multiply", mean, rstd), -1.0)
    last = b.spec().dtype
    scaled = b.map("multiply", view, rstd)
    y = b.map("add", scaled, shift, dtype="fp32" if weight is not None or bias is not None else last)
    if weight is not None:
        y = b.map("multiply", y, b.arg(weight), dtype="fp32" if bias is not None else last)
    if bias is not None:
        y = b.map("add", y, b.arg(bias), dtype=last)
    return (
        y,
        b.map("copy", b.reshape(mean, b.spec(1).shape), dtype=b.spec(1).dtype),
        b.map("copy", b.reshape(rstd, b.spec(2).shape), dtype=b.spec(2).dtype),
    )


@lowering("native_group_norm")
def _group_norm(
    b: Builder, x: Any, weight: Any, bias: Any, n: int, channels: int, plane: int, groups: int, eps: float
) -> Any:
    """A group of channels is a row; then every plane has a factor and an addend."""
    view = tensor(b, x)
    rows = b.reshape(view, (n, groups, channels // groups * plane))
    mean, variance = b.moments(rows, (2,))
    rstd = b.map("rsqrt", b.map("add", variance, float(eps)))
    shape = (n, groups, channels // groups)
    factor, centre = (v.expand((n, groups, channels // groups)) for v in (rstd, mean))
    if weight is not None:
        factor = b.map("multiply", factor, b.reshape(tensor(b, weight), shape[1:]), shape=shape)
    shift = b.map("multiply", b.map("multiply", centre, factor), -1.0)
    if bias is not None:
        shift = b.map("add", shift, b.reshape(tensor(b, bias), shape[1:]), shape=shape)
    planes = b.reshape(view, (n * channels, plane))
    factor, shift = (b.reshape(v, (n * channels, 1)) for v in (factor, shift))
    y = b.map("add", b.map("multiply", planes, factor), shift, dtype=b.spec().dtype)
    return (
        b.reshape(y, b.spec().shape),
        b.map("copy", b.reshape(mean, b.spec(1).shape), dtype=b.spec(1).dtype),
        b.map("copy", b.reshape(rstd, b.spec(2).shape), dtype=b.spec(2).dtype),
    )


@lowering("native_layer_norm_backward")
def _layer_norm_backward(
    b: Builder,
    grad: Any,
    x: Any,
    normalized: Sequence[int],
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    mask: Sequence[bool],
) -> Any:
    g, view, m, r = tensor(b, grad), tensor(b, x), tensor(b, mean), tensor(b, rstd)
    axes = _norm_axes(view, normalized)
    count = prod(view.shape[a] for a in axes)
    normal = b.map("multiply", b.map("subtract", view, m), r)
    scaled = b.map("multiply", g, b.arg(weight)) if weight is not None else g
    first = b.reduce("add", scaled, axes, keepdim=True, scale=1.0 / count)
    second = b.reduce("add", b.map("multiply", scaled, normal), axes, keepdim=True, scale=1.0 / count)
    inner = b.map("subtract", b.map("subtract", scaled, first), b.map("multiply", normal, second))
    rows = tuple(range(len(view.shape) - len(normalized)))
    results = [b.map("multiply", inner, r, dtype=b.spec().dtype)]
    for output, wanted in ((1, mask[1] and weight is not None), (2, mask[2] and bias is not None)):
        spec = b.spec(output)
        if not wanted:
            results.append(b.temp(spec.shape, spec.dtype))
            continue
        term = b.map("multiply", g, normal) if output == 1 else g
        results.append(b.reduce("add", term, rows, keepdim=False, dtype=spec.dtype))
    return results
