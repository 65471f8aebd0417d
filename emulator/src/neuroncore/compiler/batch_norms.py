"""Batch normalization in primitives: a channel is a row, so that its statistics are one value per partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuroncore.compiler.decompose import tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View

#: Values of a channel that stay in SBUF between its statistics and their use.
_ON_CHIP = 8192


def _by_channel(view: View) -> View:
    """[n, c, ...] as [c, n, ...]."""
    return view.permute((1, 0, *range(2, len(view.shape))))


def _channels(b: Builder, value: Any, rank: int) -> View:
    """One value per channel, to broadcast over [c, n, ...]."""
    view = tensor(b, value)
    return b.reshape(view, (view.elements, *(1,) * (rank - 1)))


def _count(view: View) -> int:
    """Values per channel of [c, n, ...]."""
    return max(1, view.elements // max(1, view.shape[0]))


def _others(view: View) -> tuple[int, ...]:
    return tuple(range(1, len(view.shape)))


def _store(b: Builder, number: int, fn: str, *ins: Any) -> View:
    """The last map of a result, into its place."""
    out = b.temp(b.spec(number).shape, b.spec(number).dtype)
    b.write(fn, ins, _by_channel(out))
    return out


def _vector(b: Builder, number: int, value: View, scale: float = 1.0) -> View:
    """A value per channel as a result."""
    spec = b.spec(number)
    return b.map("multiply", b.reshape(value, spec.shape), scale, dtype=spec.dtype)


def _moments(b: Builder, view: View) -> tuple[View, View]:
    """Minus the mean and the variance of every channel."""
    mean, variance = b.moments(view, _others(view))
    return b.map("multiply", mean, -1.0), variance


def _scaled(b: Builder, view: View, minus: View, rstd: View, weight: Any, bias: Any, *, together: bool) -> View:
    """(x - mean) * rstd * weight + bias as one factor and one addend per channel.

    Together with the statistics a channel is a row; alone a row is a plane, of which there are more.
    """
    rank = len(view.shape)
    factor = rstd if weight is None else b.map("multiply", rstd, _channels(b, weight, rank))
    addend = b.map("multiply", minus, factor)
    if bias is not None:
        addend = b.map("add", addend, _channels(b, bias, rank))
    if together:
        return _store(b, 0, "add", b.map("multiply", view, factor), addend)
    planes, factor, addend = (_by_channel(one) for one in (view, factor, addend))
    return b.map("add", b.map("multiply", planes, factor), addend, dtype=b.spec().dtype)


def _running(b: Builder, old: Any, value: View, momentum: float, scale: float, dtype: str) -> View:
    """The exponential average after this batch."""
    kept = b.map("multiply", tensor(b, old), 1.0 - momentum)
    return b.map("add", kept, b.map("multiply", b.reshape(value, tensor(b, old).shape), momentum * scale), dtype=dtype)


@lowering("_native_batch_norm_legit")
def _legit(b: Builder, x: Any, weight: Any, bias: Any, *rest: Any) -> list[View]:
    """With running statistics, or (no_stats) without."""
    return _normalized(b, x, weight, bias, *(rest if len(rest) == 5 else (None, None, *rest)))


@lowering("native_batch_norm", "_native_batch_norm_legit_functional")
def _batch_norm(b: Builder, x: Any, weight: Any, bias: Any, *rest: Any) -> list[View]:
    return _normalized(b, x, weight, bias, *rest)


def _normalized(
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
    if not training and running_mean is None:
        raise NotLowered("batch normalization by running statistics that are not there")
    view = _by_channel(tensor(b, x))
    rank, count = len(view.shape), _count(view)
    if training:
        minus, variance = _moments(b, view)
    else:
        minus = b.map("multiply", _channels(b, running_mean, rank), -1.0)
        variance = _channels(b, running_var, rank)
    rstd = b.map("rsqrt", b.map("add", variance, float(eps)))
    results = [_scaled(b, view, minus, rstd, weight, bias, together=training and count <= _ON_CHIP)]
    functional = "functional" in b.node.target
    if training:
        results += [_vector(b, 1, minus, -1.0), _vector(b, 2, rstd)]
    else:
        results += [b.temp(spec.shape, spec.dtype) for spec in b.node.outputs[1:3]]
    averages = ((running_mean, minus, -1.0), (running_var, variance, count / max(1, count - 1)))
    for number, (running, value, scale) in enumerate(averages, 3):
        if running is None or not (training or functional):
            continue
        old = tensor(b, running)
        new = _running(b, running, value, momentum, scale, b.dtype(old)) if training else old
        if functional:
            results.append(b.reshape(new, b.spec(number).shape))
        else:
            b.mutate(running, new)
    return results


@lowering("_native_batch_norm_legit_no_training")
def _inference(
    b: Builder, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> list[View]:
    return _normalized(b, x, weight, bias, mean, variance, False, momentum, eps)[:3]


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
    g, view = _by_channel(tensor(b, grad)), _by_channel(tensor(b, x))
    rank = len(view.shape)
    if training:
        mean, rstd = _channels(b, save_mean, rank), _channels(b, save_invstd, rank)
    else:
        mean = _channels(b, running_mean, rank)
        rstd = b.map("rsqrt", b.map("add", _channels(b, running_var, rank), float(eps)))
    normal = b.map("multiply", b.map("subtract", view, mean), rstd)
    total = b.reduce("add", g, _others(g), keepdim=True)
    product = b.reduce("add", b.map("multiply", g, normal), _others(g), keepdim=True)
    factor = rstd if weight is None else b.map("multiply", rstd, _channels(b, weight, rank))
    apart = _count(view) > _ON_CHIP
    inner, x, middle, spread = ((_by_channel(v) if apart else v) for v in (g, view, mean, rstd))
    if training:
        scale = -1.0 / _count(view)
        shift, slope = (b.map("multiply", value, scale) for value in (total, product))
        shift, slope = ((_by_channel(v) if apart else v) for v in (shift, slope))
        normal = b.map("multiply", b.map("subtract", x, middle), spread)
        inner = b.map("add", b.map("add", inner, shift), b.map("multiply", normal, slope))
    if apart:
        results = [b.map("multiply", inner, _by_channel(factor), dtype=b.spec().dtype)]
    else:
        results = [_store(b, 0, "multiply", inner, factor)]
    for number, value, wanted in ((1, product, mask[1]), (2, total, mask[2])):
        spec = b.spec(number)
        results.append(_vector(b, number, value) if wanted and spec.elements else b.temp(spec.shape, spec.dtype))
    return results


# -- the synchronized form: statistics and their use apart ---------------------------------------------------


@lowering("batch_norm_stats")
def _stats(b: Builder, x: Any, eps: float) -> list[View]:
    minus, variance = _moments(b, _by_channel(tensor(b, x)))
    return [_vector(b, 0, minus, -1.0), _vector(b, 1, b.map("rsqrt", b.map("add", variance, float(eps))))]


@lowering("batch_norm_elemt")
def _elemt(b: Builder, x: Any, weight: Any, bias: Any, mean: Any, invstd: Any, eps: float) -> View:
    view = _by_channel(tensor(b, x))
    rank = len(view.shape)
    minus = b.map("multiply", _channels(b, mean, rank), -1.0)
    return _scaled(b, view, minus, _channels(b, invstd, rank), weight, bias, together=False)


@lowering("batch_norm_backward_reduce")
def _backward_reduce(
    b: Builder, grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, x_g: bool, weight_g: bool, bias_g: bool
) -> list[View]:
    g, view = _by_channel(tensor(b, grad)), _by_channel(tensor(b, x))
    rank = len(view.shape)
    total = b.reduce("add", g, _others(g), keepdim=True)
    centered = b.map("subtract", view, _channels(b, mean, rank))
    product = b.reduce("add", b.map("multiply", g, centered), _others(g), keepdim=True)
    of_weight = b.map("multiply", product, _channels(b, invstd, rank))
    values = ((total, x_g), (product, x_g), (of_weight, weight_g), (total, bias_g))
    return [
        _vector(b, number, value) if wanted and b.spec(number).elements else b.temp(b.spec(number).shape, "fp32")
        for number, (value, wanted) in enumerate(values)
    ]


@lowering("batch_norm_backward_elemt")
def _backward_elemt(
    b: Builder, grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, sum_dy: Any, sum_dy_xmu: Any, count: Any
) -> View:
    g, view = _by_channel(tensor(b, grad)), _by_channel(tensor(b, x))
    rank = len(view.shape)
    whole = tensor(b, count)
    number = b.map("reciprocal", b.reduce("add", whole, tuple(range(len(whole.shape))), keepdim=False))
    each = b.reshape(number, (1,) * rank).expand((view.shape[0], *(1,) * (rank - 1)))
    rstd = _channels(b, invstd, rank)
    factor = rstd if weight is None else b.map("multiply", rstd, _channels(b, weight, rank))
    along = b.map("multiply", b.map("multiply", _channels(b, sum_dy_xmu, rank), each), b.map("square", rstd))
    shifted = b.map("subtract", g, b.map("multiply", _channels(b, sum_dy, rank), each))
    centered = b.map("subtract", view, _channels(b, mean, rank))
    return _store(b, 0, "multiply", b.map("subtract", shifted, b.map("multiply", centered, along)), factor)
