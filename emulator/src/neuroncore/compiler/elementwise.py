"""Elementwise ATen ops in primitives, and the gradients of activations.

Division is reciprocal and multiply (reference/hw/compile_rules.md section 2).
"""

from __future__ import annotations

from math import pi
from typing import Any

from neuroncore.compiler.decompose import INTEGERS, divide, tensor
from neuroncore.compiler.ir import Operand
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View

#: Below it only minus infinity.
_LOWEST = -3.4028234663852886e38
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


#: ATen name → primitive function of one operand.
_UNARY = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "tanh": "tanh", "silu": "silu",
    "relu": "relu", "abs": "abs", "reciprocal": "reciprocal", "erf": "erf", "sign": "sign", "sgn": "sign",
    "square": "square", "mish": "mish",
}  # fmt: skip


def _unary(name: str) -> Any:
    def lower(b: Builder, x: Any) -> View:
        return b.map(name, tensor(b, x), dtype=b.spec().dtype)

    return lower


for _aten, _fn in _UNARY.items():
    lowering(_aten)(_unary(_fn))


@lowering("softplus")
def _softplus(b: Builder, x: Any, beta: float = 1.0, threshold: float = 20.0) -> View:
    """Beyond the threshold torch returns x itself, which the logarithm equals there to the last bit."""
    if threshold < 15:  # there the two would differ
        raise NotLowered(f"softplus that is linear from {threshold} on")
    view, dtype = tensor(b, x), b.spec().dtype
    if beta == 1.0:
        return b.map("softplus", view, dtype=dtype)
    return b.map("multiply", b.map("softplus", b.map("multiply", view, float(beta))), 1.0 / beta, dtype=dtype)


@lowering("sin", "cos")
def _sin(b: Builder, x: Any) -> View:
    """ScalarE's sine takes -pi .. pi: the argument, shifted by a quarter for a cosine, modulo a turn."""
    shift = pi if b.node.target.replace("::", ".").startswith("aten.sin") else 1.5 * pi
    turned = b.map("mod", b.map("add", tensor(b, x), shift), 2.0 * pi)
    return b.map("sin", b.map("subtract", turned, pi), dtype=b.spec().dtype)


@lowering("floor", "ceil", "trunc", "frac")
def _rounded(b: Builder, x: Any) -> View:
    """Through the remainder of a division by one, which is never negative."""
    view, dtype = tensor(b, x), b.spec().dtype
    name = b.node.target.replace("::", ".").removeprefix("aten.").split(".")[0].rstrip("_")
    if name == "floor":
        return b.map("subtract", view, b.map("mod", view, 1.0), dtype=dtype)
    if name == "ceil":
        minus = b.map("multiply", view, -1.0)
        return b.map("subtract", b.map("mod", minus, 1.0), minus, dtype=dtype)
    return _toward_zero(b, view, dtype, part=name == "frac")


def _toward_zero(b: Builder, view: View, dtype: str, *, part: bool = False) -> View:
    """Rounded toward zero, or what that takes away."""
    size = b.map("abs", view)
    rest = b.map("mod", size, 1.0)
    return b.map("multiply", b.map("sign", view), rest if part else b.map("subtract", size, rest), dtype=dtype)


#: Narrow integer → (bits kept, sign bit): torch keeps the low bits of a wide integer, the engines saturate.
_WRAPS = {"uint8": (0xFF, 0), "int8": (0xFF, 0x80), "int16": (0xFFFF, 0x8000)}


def converted(b: Builder, value: Any, dtype: str, shape: tuple[int, ...] | None = None) -> View:
    """A copy in another dtype. torch cuts fractions off, where the engines round to nearest."""
    new: Any = value
    if isinstance(value, View) and dtype in INTEGERS and dtype != "bool":
        if b.dtype(value) not in INTEGERS:
            new = _toward_zero(b, value, dtype)
        elif dtype in _WRAPS and b.dtype(value) in ("int32", "int64"):
            mask, sign = _WRAPS[dtype]
            new = b.map("bitwise_and", value, float(mask), dtype="int32")
            if sign:
                new = b.map("bitwise_xor", new, float(sign), dtype="int32")
                new = b.map("subtract", new, float(sign), dtype="int32")
    if new is not value and b.dtype(new) == dtype and shape in (None, new.shape):
        return new
    return b.map("copy", new, dtype=dtype, shape=shape)


@lowering("remainder")
def _remainder(b: Builder, x: Any, y: Any) -> View:
    return b.map("mod", b.arg(x), b.arg(y), dtype=b.spec().dtype)


@lowering("leaky_relu")
def _leaky_relu(b: Builder, x: Any, slope: float = 0.01) -> View:
    view = tensor(b, x)
    negative = b.map("multiply", b.map("min", view, 0.0), float(slope))
    return b.map("add", b.map("max", view, 0.0), negative, dtype=b.spec().dtype)


@lowering("hardsigmoid", "hardswish")
def _hard(b: Builder, x: Any) -> View:
    view, dtype = tensor(b, x), b.spec().dtype
    ramp = b.map("min", b.map("max", b.map("add", b.map("multiply", view, 1.0 / 6.0), 0.5), 0.0), 1.0)
    if "hardswish" in b.node.target:
        return b.map("multiply", view, ramp, dtype=dtype)
    return b.map("copy", ramp, dtype=dtype)


@lowering("isfinite", "isinf")
def _isfinite(b: Builder, x: Any) -> View:
    view = tensor(b, x)
    zero = b.map("subtract", view, view)
    if "isfinite" in b.node.target:
        return b.map("equal", zero, 0.0, dtype="bool")
    defined = b.map("equal", view, view, dtype="uint8")
    return b.map("multiply", defined, b.map("not_equal", zero, 0.0, dtype="uint8"), dtype="bool")


@lowering("isneginf")
def _isneginf(b: Builder, x: Any) -> View:
    return b.map("less", tensor(b, x), _LOWEST, dtype="bool")


@lowering("signbit")
def _signbit(b: Builder, x: Any) -> View:
    """Below zero, or a zero whose reciprocal is."""
    view = tensor(b, x)
    below = b.map("less", view, 0.0, dtype="uint8")
    if b.dtype(view) in INTEGERS:
        return b.map("copy", below, dtype="bool")
    return b.map("logical_or", below, b.map("less", b.map("reciprocal", view), 0.0, dtype="uint8"), dtype="bool")


@lowering("erfinv")
def _erfinv(b: Builder, x: Any) -> View:
    """Two polynomials in w = -log(1 - x*x), for w below and above 5 (Giles 2010, single precision)."""
    view = tensor(b, x)
    w = b.map("multiply", b.map("log", b.map("subtract", 1.0, b.map("square", view))), -1.0)
    results = []
    for argument, coefficients in (
        (b.map("subtract", w, 2.5), _ERFINV_CENTRE),
        (b.map("subtract", b.map("sqrt", b.map("max", w, 0.0)), 3.0), _ERFINV_TAIL),
    ):
        total: Operand = coefficients[0]
        for coefficient in coefficients[1:]:
            total = b.map("add", b.map("multiply", total, argument), coefficient)
        results.append(total)
    far = b.map("greater_equal", w, 5.0, dtype="uint8")
    return b.map("multiply", view, b.map("select", far, results[1], results[0]), dtype=b.spec().dtype)


@lowering("neg")
def _neg(b: Builder, x: Any) -> View:
    return b.map("multiply", tensor(b, x), -1.0, dtype=b.spec().dtype)


@lowering("gelu")
def _gelu(b: Builder, x: Any, approximate: str = "none") -> View:
    return b.map("gelu" if approximate == "none" else "gelu_apprx_tanh", tensor(b, x), dtype=b.spec().dtype)


@lowering("add", "sub", "rsub")
def _add(b: Builder, x: Any, y: Any, alpha: Any = 1) -> View:
    name = b.node.target.replace("::", ".").removeprefix("aten.")
    left, right = b.arg(x), b.arg(y)
    if name.startswith("rsub"):
        left, right = right, left
        if alpha != 1:
            right = b.map("multiply", right, float(alpha))
    elif alpha != 1:
        right = right * float(alpha) if isinstance(right, float) else b.map("multiply", right, float(alpha))
    return b.map("add" if name.startswith("add") else "subtract", left, right, dtype=b.spec().dtype)


@lowering("mul")
def _mul(b: Builder, x: Any, y: Any) -> View:
    return b.map("multiply", b.arg(x), b.arg(y), dtype=b.spec().dtype)


@lowering("div", "true_divide")
def _div(b: Builder, x: Any, y: Any, rounding_mode: str | None = None) -> View:
    if rounding_mode is not None:
        from neuroncore.compiler.functions import divided

        return divided(b, b.arg(x), b.arg(y), rounding_mode)
    return divide(b, b.arg(x), b.arg(y), b.spec().dtype)


def _binary(fn: str) -> Any:
    def lower(b: Builder, x: Any, y: Any) -> View:
        return b.map(fn, b.arg(x), b.arg(y), dtype=b.spec().dtype)

    return lower


#: ATen name → primitive function of two operands.
_BINARY = {
    "maximum": "max", "minimum": "min", "eq": "equal", "ne": "not_equal", "ge": "greater_equal", "gt": "greater",
    "le": "less_equal", "lt": "less",
}  # fmt: skip
for _aten, _fn in _BINARY.items():
    lowering(_aten)(_binary(_fn))


@lowering("logical_and", "logical_or", "logical_xor")
def _logical(b: Builder, x: Any, y: Any) -> View:
    fn = b.node.target.replace("::", ".").removeprefix("aten.").split(".")[0].rstrip("_")
    return b.map(fn, b.arg(x), b.arg(y), dtype=b.spec().dtype)


@lowering("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(b: Builder, x: Any, y: Any) -> View:
    fn = b.node.target.replace("::", ".").removeprefix("aten.bitwise_").split(".")[0].rstrip("_")
    dtype = b.spec().dtype
    return b.map(f"logical_{fn}" if dtype == "bool" else f"bitwise_{fn}", b.arg(x), b.arg(y), dtype=dtype)


@lowering("logical_not", "bitwise_not")
def _not(b: Builder, x: Any) -> View:
    view = tensor(b, x)
    if b.node.target.replace("::", ".").startswith("aten.bitwise") and b.dtype(view) != "bool":
        ones = 255.0 if b.dtype(view) == "uint8" else -1.0
        return b.map("bitwise_xor", view, ones, dtype=b.spec().dtype)
    return b.map("equal", view, 0.0, dtype="bool")


@lowering("pow")
def _pow(b: Builder, x: Any, y: Any) -> View:
    base, exponent, dtype = b.arg(x), b.arg(y), b.spec().dtype
    if isinstance(base, View) and isinstance(exponent, float):
        simple = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal", 1.0: "copy"}
        if exponent in simple:
            return b.map(simple[exponent], base, dtype=dtype)
        if exponent == 3.0:
            return b.map("multiply", b.map("square", base), base, dtype=dtype)
        if exponent == -2.0:
            return b.map("square", b.map("reciprocal", base), dtype=dtype)
        if exponent == 4.0:
            return b.map("square", b.map("square", base), dtype=dtype)
        if exponent == 0.0:
            return b.map("copy", 1.0, dtype=dtype, shape=base.shape)
    return b.map("power", base, exponent, dtype=dtype)


@lowering("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
def _clamp(b: Builder, x: Any, low: Any = None, high: Any = None, **bounds: Any) -> View:
    name = b.node.target.replace("::", ".").removeprefix("aten.")
    low, high = bounds.get("min", low), bounds.get("max", high)
    if name.startswith("clamp_max"):
        low, high = None, high if high is not None else low
    result: Operand = b.arg(x)
    for fn, bound in (("max", low), ("min", high)):
        if bound is not None:
            result = b.map(fn, result, b.arg(bound), dtype=b.spec().dtype)
    return (
        result if isinstance(result, View) and _bounds_given(low, high) else b.map("copy", result, dtype=b.spec().dtype)
    )


def _bounds_given(low: Any, high: Any) -> bool:
    """True when a clamp has at least one bound."""
    return low is not None or high is not None


@lowering("threshold")
def _threshold(b: Builder, x: Any, threshold: float, value: float) -> View:
    view = tensor(b, x)
    mask = b.map("greater", view, float(threshold), dtype="uint8")
    return b.map("select", mask, view, float(value), dtype=b.spec().dtype)


@lowering("where")
def _where(b: Builder, condition: Any, x: Any, y: Any) -> View:
    return b.map("select", tensor(b, condition), b.arg(x), b.arg(y), dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("masked_fill")
def _masked_fill(b: Builder, x: Any, mask: Any, value: Any) -> View:
    return b.map("select", tensor(b, mask), b.arg(value), b.arg(x), dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("addcmul")
def _addcmul(b: Builder, x: Any, y: Any, z: Any, value: Any = 1) -> View:
    product = b.map("multiply", b.arg(y), b.arg(z))
    if value != 1:
        product = b.map("multiply", product, float(value))
    return b.map("add", b.arg(x), product, dtype=b.spec().dtype)


@lowering("addcdiv")
def _addcdiv(b: Builder, x: Any, y: Any, z: Any, value: Any = 1) -> View:
    quotient = divide(b, b.arg(y), b.arg(z), "fp32")
    if value != 1:
        quotient = b.map("multiply", quotient, float(value))
    return b.map("add", b.arg(x), quotient, dtype=b.spec().dtype)


@lowering("lerp")
def _lerp(b: Builder, x: Any, y: Any, weight: Any) -> View:
    difference = b.map("subtract", b.arg(y), b.arg(x))
    return b.map("add", b.arg(x), b.map("multiply", difference, b.arg(weight)), dtype=b.spec().dtype)


@lowering("isnan")
def _isnan(b: Builder, x: Any) -> View:
    return b.map("not_equal", tensor(b, x), tensor(b, x), dtype="bool")


# -- gradients of activations --------------------------------------------------------------------------------


@lowering("sigmoid_backward")
def _sigmoid_backward(b: Builder, grad: Any, output: Any) -> View:
    y = tensor(b, output)
    slope = b.map("multiply", b.map("subtract", 1.0, y), y)
    return b.map("multiply", tensor(b, grad), slope, dtype=b.spec().dtype)


@lowering("tanh_backward")
def _tanh_backward(b: Builder, grad: Any, output: Any) -> View:
    slope = b.map("subtract", 1.0, b.map("square", tensor(b, output)))
    return b.map("multiply", tensor(b, grad), slope, dtype=b.spec().dtype)


@lowering("threshold_backward")
def _threshold_backward(b: Builder, grad: Any, x: Any, threshold: Any) -> View:
    mask = b.map("greater", tensor(b, x), float(threshold), dtype="uint8")
    return b.map("select", mask, tensor(b, grad), 0.0, dtype=b.spec().dtype)


@lowering("softplus_backward")
def _softplus_backward(b: Builder, grad: Any, x: Any, beta: Any = 1, threshold: Any = 20) -> View:
    scaled = b.map("multiply", tensor(b, x), float(beta))
    slope = b.map("sigmoid", scaled)
    beyond = b.map("greater", scaled, float(threshold), dtype="uint8")
    return b.map("multiply", tensor(b, grad), b.map("select", beyond, 1.0, slope), dtype=b.spec().dtype)


@lowering("silu_backward")
def _silu_backward(b: Builder, grad: Any, x: Any) -> View:
    view = tensor(b, x)
    s = b.map("sigmoid", view)
    inner = b.map("add", b.map("multiply", view, b.map("subtract", 1.0, s)), 1.0)
    return b.map("multiply", tensor(b, grad), b.map("multiply", s, inner), dtype=b.spec().dtype)


@lowering("gelu_backward")
def _gelu_backward(b: Builder, grad: Any, x: Any, approximate: str = "none") -> View:
    view = tensor(b, x)
    if approximate == "none":
        cdf = b.map("add", b.map("multiply", b.map("erf", b.map("multiply", view, 0.5**0.5)), 0.5), 0.5)
        bell = b.map("exp", b.map("multiply", b.map("square", view), -0.5))
        slope = b.map("add", cdf, b.map("multiply", b.map("multiply", view, bell), 0.3989422804014327))
    else:
        beta, kappa = 0.7978845608028654, 0.044715
        square = b.map("square", view)
        inner = b.map("multiply", view, b.map("add", b.map("multiply", square, beta * kappa), beta))
        t = b.map("tanh", inner)
        left = b.map("add", b.map("multiply", t, 0.5), 0.5)
        dinner = b.map("add", b.map("multiply", square, 3.0 * beta * kappa), beta)
        sech = b.map("subtract", 1.0, b.map("square", t))
        slope = b.map("add", left, b.map("multiply", b.map("multiply", b.map("multiply", view, 0.5), sech), dinner))
    return b.map("multiply", tensor(b, grad), slope, dtype=b.spec().dtype)
