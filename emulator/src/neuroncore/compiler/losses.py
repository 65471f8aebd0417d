"""Losses and their gradients in primitives."""

from __future__ import annotations

from typing import Any

from neuroncore.compiler.decompose import divide, tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View

_NONE, _MEAN, _SUM = 0, 1, 2


def _weights(b: Builder, target: View, weight: Any, ignore: int) -> tuple[View, View]:
    """Class per row with ignored ones replaced by 0, int32, and the weight of the row (0 where ignored), fp32."""
    used = b.map("not_equal", target, float(ignore), dtype="uint8")
    safe = b.map("select", used, target, 0.0, dtype="int32")
    if weight is None:
        return safe, b.map("copy", used)
    table = b.reshape(tensor(b, weight), (tensor(b, weight).elements, 1))
    picked = b.reshape(b.gather(table, safe, b.dtype(table)), safe.shape)
    return safe, b.map("multiply", picked, used)


def _matrix(b: Builder, x: Any, target: Any) -> tuple[View, View]:
    view, classes = tensor(b, x), tensor(b, target)
    if len(view.shape) not in (1, 2) or not view.elements:
        raise NotLowered("loss over images, or of nothing")
    return b.reshape(view, (classes.elements, view.shape[-1])), b.reshape(classes, (classes.elements,))


@lowering("nll_loss_forward")
def _nll_loss(b: Builder, x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> list[View]:
    view, classes = _matrix(b, x, target)
    rows, width = view.shape
    safe, weights = _weights(b, classes, weight, ignore)
    place = b.map("add", safe, b.iota((rows,), (width,)), dtype="int32")
    # One element a row, by indexed DMA: the other log-probabilities are not read.
    table = b.reshape(view, (rows * width, 1))
    picked = b.reshape(b.gather(table, place, b.dtype(view)), (rows,))
    losses = b.map("multiply", b.map("multiply", picked, weights), -1.0)
    out, total_spec = b.node.outputs
    if reduction == _NONE:
        zero = b.map("copy", 0.0, dtype=total_spec.dtype, shape=total_spec.shape)
        return [b.map("copy", b.reshape(losses, out.shape), dtype=out.dtype), zero]
    total = b.reduce("add", weights, (0,), keepdim=False)
    loss = b.reduce("add", losses, (0,), keepdim=False)
    if reduction == _MEAN:
        loss = divide(b, loss, total, "fp32")
    return [b.map("copy", loss, dtype=out.dtype), b.map("copy", total, dtype=total_spec.dtype)]


@lowering("nll_loss_backward")
def _nll_loss_backward(
    b: Builder, grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore: int, total: Any
) -> View:
    view, classes = _matrix(b, x, target)
    rows, width = view.shape
    safe, weights = _weights(b, classes, weight, ignore)
    g = tensor(b, grad)
    slope = b.map("multiply", weights, b.reshape(g, (rows,)) if reduction == _NONE else b.reshape(g, (1,)))
    if reduction == _MEAN:
        slope = b.map("multiply", slope, b.map("reciprocal", b.reshape(tensor(b, total), (1,))))
    slope = b.map("multiply", slope, -1.0)
    chosen = b.map("equal", b.iota((rows, width), (0, 1)), safe.unsqueeze(1))
    return b.reshape(b.map("multiply", chosen, slope.unsqueeze(1), dtype=b.spec().dtype), b.spec().shape)


@lowering("mse_loss")
def _mse(b: Builder, x: Any, y: Any, reduction: int = _MEAN) -> View:
    square = b.map("square", b.map("subtract", tensor(b, x), tensor(b, y)))
    return _reduced(b, square, reduction)


def _reduced(b: Builder, losses: View, reduction: int) -> View:
    if reduction == _NONE:
        return b.map("copy", losses, dtype=b.spec().dtype)
    scale = 1.0 / max(1, losses.elements) if reduction == _MEAN else 1.0
    axes = tuple(range(len(losses.shape)))
    return b.reduce("add", losses, axes, keepdim=False, dtype=b.spec().dtype, scale=scale)


@lowering("mse_loss_backward")
def _mse_backward(b: Builder, grad: Any, x: Any, y: Any, reduction: int) -> View:
    left, right = tensor(b, x), tensor(b, y)
    factor = 2.0 / max(1, left.elements) if reduction == _MEAN else 2.0
    difference = b.map("multiply", b.map("subtract", left, right), factor)
    return b.map("multiply", difference, tensor(b, grad), dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("linear_backward")
def _linear_backward(b: Builder, x: Any, grad: Any, weight: Any, mask: Any) -> list[View]:
    view, g, w = tensor(b, x), tensor(b, grad), tensor(b, weight)
    rows = max(1, view.elements // max(1, view.shape[-1]))
    flat = b.reshape(view, (rows, view.shape[-1]))
    gradient = b.reshape(g, (rows, g.shape[-1]))
    results = []
    for number, spec in enumerate(b.node.outputs):
        if not mask[number] or not spec.elements:
            results.append(b.temp(spec.shape, spec.dtype))
        elif number == 0:
            product = b.contract(gradient.unsqueeze(0), w.unsqueeze(0), spec.dtype)
            results.append(b.reshape(product, spec.shape))
        elif number == 1:
            product = b.contract(gradient.permute((1, 0)).unsqueeze(0), flat.unsqueeze(0), spec.dtype)
            results.append(b.reshape(product, spec.shape))
        else:
            results.append(b.reduce("add", gradient, (0,), keepdim=False, dtype=spec.dtype))
    return results
