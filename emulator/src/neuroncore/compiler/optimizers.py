"""Ops on lists of tensors, and fused optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from neuroncore.compiler.decompose import divide, tensor
from neuroncore.compiler.ir import Operand
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.reductions import norm
from neuroncore.compiler.views import View


def _each(tensors: Sequence[Any], value: Any) -> list[Any]:
    """One further argument per tensor."""
    return list(value) if isinstance(value, tuple | list) else [value] * len(tensors)


def _unary(fn: str) -> Callable[..., list[View]]:
    def lower(b: Builder, tensors: Sequence[Any]) -> list[View]:
        views = [tensor(b, t) for t in tensors]
        return [b.map(fn, view, dtype=b.dtype(view)) for view in views]

    return lower


for _name in ("sqrt", "rsqrt", "reciprocal", "exp", "log", "abs", "sign", "sigmoid", "tanh"):
    lowering(f"_foreach_{_name}")(_unary(_name))


@lowering("_foreach_neg")
def _negatives(b: Builder, tensors: Sequence[Any]) -> list[View]:
    views = [tensor(b, t) for t in tensors]
    return [b.map("multiply", view, -1.0, dtype=b.dtype(view)) for view in views]


@lowering("_foreach_zero")
def _zeros(b: Builder, tensors: Sequence[Any]) -> list[View]:
    views = [tensor(b, t) for t in tensors]
    return [b.map("copy", 0.0, dtype=b.dtype(view), shape=view.shape) for view in views]


@lowering("_foreach_copy")
def _copies(b: Builder, tensors: Sequence[Any], sources: Sequence[Any], *_: Any) -> list[View]:
    views = [tensor(b, t) for t in tensors]
    pairs = zip(views, sources, strict=True)
    return [b.map("copy", tensor(b, source), dtype=b.dtype(view), shape=view.shape) for view, source in pairs]


def _binary(fn: str) -> Callable[..., list[View]]:
    def lower(b: Builder, tensors: Sequence[Any], other: Any, alpha: Any = 1) -> list[View]:
        results = []
        for x, y in zip(tensors, _each(tensors, other), strict=True):
            left, right = tensor(b, x), b.arg(y)
            if alpha != 1:
                right = right * float(alpha) if isinstance(right, float) else b.map("multiply", right, float(alpha))
            dtype = b.dtype(left)
            results.append(divide(b, left, right, dtype) if fn == "div" else b.map(fn, left, right, dtype=dtype))
        return results

    return lower


for _name, _fn in {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "div", "maximum": "max", "minimum": "min",
    "clamp_min": "max", "clamp_max": "min",
}.items():  # fmt: skip
    lowering(f"_foreach_{_name}")(_binary(_fn))


@lowering("_foreach_addcmul", "_foreach_addcdiv")
def _addc(
    b: Builder, tensors: Sequence[Any], first: Sequence[Any], second: Sequence[Any], value: Any = 1
) -> list[View]:
    divides = "addcdiv" in b.node.target
    results = []
    for x, y, z, factor in zip(tensors, first, second, _factors(b, tensors, value), strict=True):
        view, left, right = tensor(b, x), b.arg(y), b.arg(z)
        term = divide(b, left, right, "fp32") if divides else b.map("multiply", left, right)
        if factor != 1.0:
            term = b.map("multiply", term, factor)
        results.append(b.map("add", view, term, dtype=b.dtype(view)))
    return results


def _factors(b: Builder, tensors: Sequence[Any], value: Any) -> list[Operand]:
    """A number, a number each, or a tensor of numbers."""
    factors = [b.arg(v) for v in _each(tensors, value)]
    if isinstance(value, tuple | list) or all(isinstance(f, float) for f in factors):
        return factors
    whole = factors[0]
    assert isinstance(whole, View)
    return [whole.select(0, i) for i in range(len(tensors))] if whole.shape else factors


@lowering("_foreach_lerp")
def _lerp(b: Builder, tensors: Sequence[Any], ends: Sequence[Any], weight: Any) -> list[View]:
    results = []
    for x, y, w in zip(tensors, ends, _each(tensors, weight), strict=True):
        view = tensor(b, x)
        difference = b.map("subtract", b.arg(y), view)
        results.append(b.map("add", view, b.map("multiply", difference, b.arg(w)), dtype=b.dtype(view)))
    return results


@lowering("_foreach_pow")
def _powers(b: Builder, tensors: Sequence[Any], exponent: Any) -> list[View]:
    if not isinstance(tensors, tuple | list):  # one base, a list of exponents
        views = [tensor(b, t) for t in exponent]
        return [b.map("power", b.arg(tensors), view, dtype=b.dtype(view)) for view in views]
    views = [tensor(b, t) for t in tensors]
    pairs = zip(views, _each(tensors, exponent), strict=True)
    return [b.map("power", view, b.arg(e), dtype=b.dtype(view)) for view, e in pairs]


@lowering("_foreach_norm")
def _norms(b: Builder, tensors: Sequence[Any], order: Any = 2, dtype: Any = None) -> list[View]:
    views = [tensor(b, x) for x in tensors]
    return [
        norm(b, view, order, range(len(view.shape)), keepdim=False, dtype=b.spec(number).dtype)
        for number, view in enumerate(views)
    ]


@lowering("_fused_adamw", "_fused_adam")
def _fused_adam(
    b: Builder,
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    averages: Sequence[Any],
    squares: Sequence[Any],
    largest: Sequence[Any],
    steps: Sequence[Any],
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> list[View]:
    """Results: parameters, gradients, both averages, largest squares, as the op writes them."""
    if grad_scale is not None or found_inf is not None:
        raise NotLowered("scaled gradients")
    decoupled = "adamw" in b.node.target
    rate = b.arg(lr)
    new: list[list[View]] = [[], [], [], [], []]
    most = largest if amsgrad else [None] * len(parameters)
    for p, g, m, v, w, s in zip(parameters, gradients, averages, squares, most, steps, strict=True):
        parameter, gradient, average, square = (tensor(b, t) for t in (p, g, m, v))
        step = tensor(b, s)
        kept = gradient
        slope: View = b.map("multiply", gradient, -1.0) if maximize else gradient
        if weight_decay and not decoupled:
            slope = b.map("add", slope, b.map("multiply", parameter, float(weight_decay)))
        # Values per tensor, not per element: 1 - beta^step and what follows from it.
        first = b.map("subtract", 1.0, b.map("power", float(beta1), step))
        second = b.map("subtract", 1.0, b.map("power", float(beta2), step))
        size = b.map("multiply", b.map("multiply", b.map("reciprocal", first), rate), -1.0)
        root = b.map("rsqrt", second)
        shape = parameter.shape
        value: View = parameter
        if weight_decay and decoupled:
            decay = 1.0 - rate * weight_decay if isinstance(rate, float) else None
            if decay is None:
                raise NotLowered("weight decay by a learning rate on the device")
            value = b.map("multiply", parameter, decay)
        m_new = b.map("add", average, b.map("multiply", b.map("subtract", slope, average), 1.0 - beta1))
        v_new = b.map("add", b.map("multiply", square, float(beta2)),
                      b.map("multiply", b.map("square", slope), 1.0 - beta2))  # fmt: skip
        seen = v_new if w is None else b.map("max", tensor(b, w), v_new, dtype=b.dtype(tensor(b, w)))
        below = b.map("add", b.map("multiply", b.map("sqrt", seen), _spread(root, shape)), float(eps))
        change = b.map("multiply", b.map("reciprocal", below), m_new)
        step_size = b.map("multiply", change, _spread(size, shape))
        new[0].append(b.map("add", value, step_size, dtype=b.dtype(parameter)))
        new[1].append(kept)
        new[2].append(b.map("copy", m_new, dtype=b.dtype(average)))
        new[3].append(b.map("copy", v_new, dtype=b.dtype(square)))
        if w is not None:
            new[4].append(seen)
    return [view for views in new for view in views]


def _spread(value: View, shape: tuple[int, ...]) -> View:
    """A single value for all of a tensor."""
    assert prod(value.shape) == 1
    return View(value.buffer, shape, (0,) * len(shape), value.offset)
