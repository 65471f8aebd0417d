"""Elementwise functions in primitives that the engines lack: from those they have, accurate where torch is."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import Any

from neuroncore.compiler.decompose import INTEGERS, divide, tensor
from neuroncore.compiler.ir import Map, Operand, writes
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View

#: From here on fp32 has no fractions; adding it to a smaller number rounds that to an integer, ties to even.
_WHOLE = float(2**23)
#: Below it exp(x) - 1 would cancel.
_SMALL = 0.7


def _log1p(b: Builder, x: Operand) -> View:
    """log(u) * x / (u - 1) with u = 1 + x rounded, which undoes the rounding (Kahan); of an exponential a softplus."""
    maker = next((p for p in reversed(b.prims) for w in writes(p) if isinstance(x, View) and w == x), None)
    if isinstance(maker, Map) and maker.fn == "exp":
        return b.map("softplus", maker.ins[0])
    u = b.map("add", x, 1.0)
    step = b.map("subtract", u, 1.0)
    ratio = b.map("multiply", b.map("multiply", b.map("log", u), x), b.map("reciprocal", step))
    return b.map("select", b.map("equal", step, 0.0, dtype="uint8"), x, ratio)


def _expm1(b: Builder, x: Operand) -> View:
    """exp(x) - 1, near zero by the hyperbolic tangent of half of it."""
    half = b.map("tanh", b.map("multiply", x, 0.5))
    near = b.map("multiply", b.map("multiply", half, 2.0), b.map("reciprocal", b.map("subtract", 1.0, half)))
    small = b.map("less", b.map("abs", x), _SMALL, dtype="uint8")
    return b.map("select", small, near, b.map("subtract", b.map("exp", x), 1.0))


def rounded(b: Builder, x: Operand) -> View:
    """The nearest integer, ties to even."""
    size = b.map("abs", x)
    whole = b.map("subtract", b.map("add", size, _WHOLE), _WHOLE)
    chosen = b.map("select", b.map("less", size, _WHOLE, dtype="uint8"), whole, size)
    return b.map("multiply", b.map("sign", x), chosen)


def _arctan(b: Builder, x: Operand) -> View:
    """ScalarE's takes -pi/2 .. pi/2: of larger arguments the complement of the inverse's."""
    size = b.map("abs", x)
    large = b.map("greater", size, 1.0, dtype="uint8")
    angle = b.map("arctan", b.map("select", large, b.map("reciprocal", b.map("max", size, 1.0)), size))
    return b.map("multiply", b.map("sign", x), b.map("select", large, b.map("subtract", pi / 2, angle), angle))


def _quotient(b: Builder, x: Operand, y: Operand) -> View:
    return divide(b, x, y, "fp32")


def _sinh(b: Builder, x: Operand) -> View:
    e = _expm1(b, x)
    return b.map("multiply", b.map("add", e, _quotient(b, e, b.map("add", e, 1.0))), 0.5)


def _asin(b: Builder, x: Operand) -> View:
    return _arctan(b, _quotient(b, x, b.map("sqrt", b.map("subtract", 1.0, b.map("square", x)))))


def _asinh(b: Builder, x: Operand) -> View:
    size = b.map("abs", x)
    square = b.map("square", size)
    root = b.map("sqrt", b.map("add", square, 1.0))
    # log(s + sqrt(s*s + 1)) without its cancellation near zero.
    inside = b.map("add", size, _quotient(b, square, b.map("add", root, 1.0)))
    return b.map("multiply", b.map("sign", x), _log1p(b, inside))


def _tan(b: Builder, x: Operand) -> View:
    """Sine over cosine, each with its argument brought to -pi .. pi."""
    sine, cosine = (
        b.map("sin", b.map("subtract", b.map("mod", b.map("add", x, shift), 2.0 * pi), pi)) for shift in (pi, 1.5 * pi)
    )
    return _quotient(b, sine, cosine)


#: ATen name → function of the builder and the operand, fp32.
_FUNCTIONS: dict[str, Callable[[Builder, View], View]] = {
    "log1p": _log1p, "expm1": _expm1, "round": rounded, "atan": _arctan, "arctan": _arctan, "sinh": _sinh,
    "asin": _asin, "asinh": _asinh, "tan": _tan,
    "exp2": lambda b, x: b.map("exp", b.map("multiply", x, log(2.0))),
    "log2": lambda b, x: b.map("multiply", b.map("log", x), 1.0 / log(2.0)),
    "log10": lambda b, x: b.map("multiply", b.map("log", x), 1.0 / log(10.0)),
    "erfc": lambda b, x: b.map("subtract", 1.0, b.map("erf", x)),
    "acos": lambda b, x: b.map("subtract", pi / 2, _asin(b, x)),
    "cosh": lambda b, x: b.map(
        "multiply", b.map("add", b.map("exp", x), b.map("exp", b.map("multiply", x, -1.0))), 0.5
    ),
    "acosh": lambda b, x: b.map(
        "log", b.map("add", x, b.map("sqrt", b.map("subtract", b.map("square", x), 1.0)))
    ),
    "atanh": lambda b, x: b.map(
        "multiply", b.map("subtract", _log1p(b, x), _log1p(b, b.map("multiply", x, -1.0))), 0.5
    ),
}  # fmt: skip


def _of_one(name: str) -> Any:
    def lower(b: Builder, x: Any, decimals: int = 0) -> View:
        if decimals:
            raise NotLowered("rounding to decimals")
        return b.map("copy", _FUNCTIONS[name](b, tensor(b, x)), dtype=b.spec().dtype)

    return lower


for _name in _FUNCTIONS:
    lowering(_name)(_of_one(_name))


@lowering("atan2", "arctan2")
def _atan2(b: Builder, y: Any, x: Any) -> View:
    """The angle of a point: of its ratio, half a turn on where x is negative."""
    top, bottom = b.arg(y), b.arg(x)
    angle = _arctan(b, _quotient(b, top, bottom))
    turn = b.map("select", b.map("less", top, 0.0, dtype="uint8"), -pi, pi, shape=angle.shape)
    behind = b.map("less", bottom, 0.0, dtype="uint8")
    return b.map("select", behind, b.map("add", angle, turn), angle, dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("hypot")
def _hypot(b: Builder, x: Any, y: Any) -> View:
    total = b.map("add", b.map("square", tensor(b, x)), b.map("square", tensor(b, y)))
    return b.map("sqrt", total, dtype=b.spec().dtype)


@lowering("elu")
def _elu(b: Builder, x: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> View:
    view = tensor(b, x)
    below = b.map("multiply", _expm1(b, b.map("multiply", view, float(input_scale))), float(alpha) * float(scale))
    above = b.map("greater", view, 0.0, dtype="uint8")
    return b.map("select", above, b.map("multiply", view, float(scale)), below, dtype=b.spec().dtype)


@lowering("fmod")
def _fmod(b: Builder, x: Any, y: Any) -> View:
    """The remainder with the sign of the dividend."""
    left, right = b.arg(x), b.arg(y)
    size = abs(right) if isinstance(right, float) else b.map("abs", right)
    rest = b.map("mod", b.map("abs", left), size)
    return b.map("multiply", b.map("sign", left), rest, dtype=b.spec().dtype)


def divided(b: Builder, x: Operand, y: Operand, mode: str) -> View:
    """A quotient rounded down ("floor") or towards zero ("trunc")."""
    if mode == "floor":
        whole = _quotient(b, b.map("subtract", x, b.map("mod", x, y)), y)
    else:
        size = abs(y) if isinstance(y, float) else b.map("abs", y)
        top = b.map("abs", x)
        whole = _quotient(b, b.map("subtract", top, b.map("mod", top, size)), size)
        signs = b.map("sign", x)
        other: Operand = (1.0 if y > 0 else -1.0) if isinstance(y, float) else b.map("sign", y)
        whole = b.map("multiply", whole, b.map("multiply", signs, other))
    # The product with a reciprocal may miss the integer it stands for by a unit in the last place.
    return b.map("copy", rounded(b, whole), dtype=b.spec().dtype)


@lowering("floor_divide")
def _floor_divide(b: Builder, x: Any, y: Any) -> View:
    return divided(b, b.arg(x), b.arg(y), "floor")


@lowering("prod")
def _prod(b: Builder, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> View:
    view = tensor(b, x)
    if b.spec().dtype in INTEGERS:
        raise NotLowered("product of integers")
    axes = tuple(range(len(view.shape))) if dim is None else (dim % max(1, len(view.shape)),)
    return b.reduce("multiply", view, axes, keepdim=keepdim, dtype=b.spec().dtype)
