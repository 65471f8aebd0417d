"""ATen ops written in primitives. One small function per op family; the file is the list of what can be lowered.

Rules (reference/hw/compile_rules.md section 2): division is reciprocal and multiply; softmax and norms are reductions
and maps with
fp32 intermediates; a matrix product contracts views, whatever their strides. Intermediates inside one ATen op are
fp32, results have the dtype the graph says, so that every op rounds where PyTorch rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, prod
from typing import Any

from neuroncore.compiler.ir import Module, Operand
from neuroncore.compiler.lowering import Builder, NotLowered, broadcast, lowering, view_op
from neuroncore.compiler.views import View, collapse
from neuroncore.errors import UnsupportedOpError
from neuroncore.graph import DTYPE_BYTES, Graph, TensorSpec

__all__ = [
    "INTEGERS",
    "axes_of",
    "axis_last",
    "decompose",
    "divide",
    "exponentials",
    "matrix_product",
    "norm",
    "tensor",
]

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

INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool"})


def decompose(graph: Graph) -> Module:
    """The whole graph in primitives.

    Raises:
        UnsupportedOpError: complex tensors, negative strides, in-place writes through overlapping views.
    """
    return Builder(graph).run()


# -- views: free ---------------------------------------------------------------------------------------------


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


# -- elementwise ---------------------------------------------------------------------------------------------

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


def _converted(b: Builder, value: Any, dtype: str, shape: tuple[int, ...] | None = None) -> View:
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


#: Narrow integer → (bits kept, sign bit): torch keeps the low bits of a wide integer, the engines saturate.
_WRAPS = {"uint8": (0xFF, 0), "int8": (0xFF, 0x80), "int16": (0xFFFF, 0x8000)}


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


def divide(b: Builder, x: Operand, y: Operand, dtype: str) -> View:
    """A quotient: there is no divide instruction, so a reciprocal and a product."""
    if isinstance(y, float):
        if y == 0.0:
            raise NotLowered("division by the constant zero")
        return b.map("multiply", x, 1.0 / y, dtype=dtype)
    inverse = b.map("reciprocal", y)
    return b.map("multiply", x, inverse, dtype=dtype) if x != 1.0 else b.map("copy", inverse, dtype=dtype)


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


# -- creation and copies -------------------------------------------------------------------------------------


@lowering("full", "full_like", "new_full", "scalar_tensor")
def _full(b: Builder, *args: Any, dtype: Any = None) -> View:
    value = args[-1]
    return b.map("copy", b.arg(value), dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("zeros", "zeros_like", "new_zeros", "zero")
def _zeros(b: Builder, *_: Any, dtype: Any = None) -> View:
    return b.map("copy", 0.0, dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("ones", "ones_like", "new_ones")
def _ones(b: Builder, *_: Any, dtype: Any = None) -> View:
    return b.map("copy", 1.0, dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
def _empty(b: Builder, *_: Any, dtype: Any = None) -> View:
    return b.temp(b.spec().shape, b.spec().dtype)


@lowering("fill")
def _fill(b: Builder, x: Any, value: Any) -> View:
    return b.map("copy", b.arg(value), dtype=b.spec().dtype, shape=b.spec().shape)


@lowering("copy")
def _copy(b: Builder, x: Any, source: Any) -> View:
    return _converted(b, b.arg(source), b.spec().dtype, b.spec().shape)


@lowering("_to_copy", "clone", "contiguous", "to", "convert_element_type")
def _to_copy(b: Builder, x: Any, *_: Any, dtype: Any = None) -> View:
    return _converted(b, tensor(b, x), b.spec().dtype)


@lowering("repeat", "tile")
def _repeat(b: Builder, x: Any, repeats: Sequence[int]) -> View:
    view, shape = tensor(b, x), b.spec().shape
    old = (1,) * (len(shape) - len(view.shape)) + view.shape
    out = b.temp(shape, b.spec().dtype)
    source, target = view.expand(old), out
    pairs, sizes = [], []
    for axis, (n, total) in enumerate(zip(old, shape, strict=True)):
        pairs += [(0, target.strides[axis] * n), (source.strides[axis], target.strides[axis])]
        sizes += [total // n if n else 0, n]
    b.move(
        View(source.buffer, tuple(sizes), tuple(s for s, _ in pairs), source.offset),
        View(out.buffer, tuple(sizes), tuple(t for _, t in pairs), out.offset),
    )
    return out


@lowering("cat", "concat")
def _cat(b: Builder, tensors: Sequence[Any], dim: int = 0) -> View:
    out, start = b.temp(b.spec().shape, b.spec().dtype), 0
    for value in tensors:
        view = tensor(b, value)
        if not view.elements:
            continue  # legacy: an empty tensor of any rank is skipped
        length = view.shape[dim]
        _place(b, view, out.slice(dim, start, start + length))
        start += length
    return out


#: Bytes of a run from which on a transfer moves it at full rate.
_LONG_RUN = 512


def _place(b: Builder, source: View, part: View) -> None:
    """Fill a part of a result: by DMA alone if its runs are long, else through SBUF, where parts form long rows."""
    source = source.expand(part.shape)
    sizes, (src, dst) = collapse(part.shape, (source.strides, part.strides))
    run = sizes[-1] if sizes and src[-1] == dst[-1] == 1 else 1
    if run * DTYPE_BYTES[b.dtype(part)] >= _LONG_RUN or (len(sizes) <= 1 and run > 1):
        b.move(source, part)
    else:
        b.write("copy", (source,), part)


@lowering("vstack")
def _vstack(b: Builder, tensors: Sequence[Any]) -> View:
    out, start = b.temp(b.spec().shape, b.spec().dtype), 0
    for value in tensors:
        view = tensor(b, value)
        view = view if len(view.shape) > 1 else b.reshape(view, (1, view.elements))
        b.move(view, out.slice(0, start, start + view.shape[0]))
        start += view.shape[0]
    return out


@lowering("stack")
def _stack(b: Builder, tensors: Sequence[Any], dim: int = 0) -> View:
    out = b.temp(b.spec().shape, b.spec().dtype)
    for index, value in enumerate(tensors):
        _place(b, tensor(b, value), out.select(dim, index))
    return out


@lowering("slice_scatter")
def _slice_scatter(
    b: Builder, x: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> View:
    out = b.map("copy", tensor(b, x), dtype=b.spec().dtype)
    b.move(tensor(b, src), out.slice(dim, 0 if start is None else start, 2**62 if end is None else end, step))
    return out


@lowering("select_scatter")
def _select_scatter(b: Builder, x: Any, src: Any, dim: int, index: int) -> View:
    out = b.map("copy", tensor(b, x), dtype=b.spec().dtype)
    b.move(tensor(b, src), out.select(dim, index))
    return out


@lowering("diagonal_scatter")
def _diagonal_scatter(b: Builder, x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
    out = b.map("copy", tensor(b, x), dtype=b.spec().dtype)
    b.write("copy", (tensor(b, src),), out.diagonal(offset, dim1, dim2))
    return out


# -- reductions ----------------------------------------------------------------------------------------------


def axes_of(view: View, dim: Any) -> tuple[int, ...]:
    """The axes a `dim` argument names: all for None."""
    rank = len(view.shape)
    if dim is None or dim == ():
        return tuple(range(rank))
    return tuple(d % rank for d in ((dim,) if isinstance(dim, int) else dim)) if rank else ()


#: Largest value of the dtypes whose sums may stay within what fp32 holds exactly.
_LARGEST = {"bool": 1, "uint8": 255, "int8": 128, "int16": 2**15, "uint16": 2**16}


def _integer_sum(b: Builder, view: View, axes: tuple[int, ...]) -> View:
    """A sum of 32 bits: engines reduce in fp32, but GpSimd adds integers, halves of a row at a time."""
    kept = tuple(a for a in range(len(view.shape)) if a not in axes)
    ordered = view.permute((*kept, *axes))
    rows, count = prod(view.shape[a] for a in kept), prod(view.shape[a] for a in axes)
    total = b.reshape(b.map("copy", ordered, dtype="int32"), (rows, count))
    while count > 1:
        half = count // 2
        pair = b.map("add", total.slice(1, 0, half), total.slice(1, half, 2 * half), dtype="int32")
        if count % 2:
            first = b.map("add", pair.slice(1, 0, 1), total.slice(1, count - 1, count), dtype="int32")
            if half > 1:
                joined = b.dense((rows, half), "int32")
                b.move(first, joined.slice(1, 0, 1))
                b.move(pair.slice(1, 1, half), joined.slice(1, 1, half))
                pair = joined
            else:
                pair = first
        total, count = pair, half
    return b.reshape(b.map("copy", total, dtype=b.spec().dtype), b.spec().shape)


def _reduction(fn: str, *, mean: bool = False) -> Any:
    def lower(b: Builder, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> View:
        view = tensor(b, x)
        axes = axes_of(view, dim)
        count = prod(view.shape[a] for a in axes)
        if fn == "add" and b.spec().dtype in INTEGERS and count * _LARGEST.get(b.dtype(view), 2**31) >= 2**24:
            return _integer_sum(b, view, axes)
        scale = 1.0 if not mean else 1.0 / count if count else float("nan")
        return b.reduce(fn, view, axes, keepdim=keepdim, dtype=b.spec().dtype, scale=scale)

    return lower


lowering("sum")(_reduction("add"))
lowering("mean")(_reduction("add", mean=True))
lowering("amax")(_reduction("max"))
lowering("amin")(_reduction("min"))


@lowering("any", "all")
def _any(b: Builder, x: Any, dim: Any = None, keepdim: bool = False) -> View:
    view = b.map("not_equal", tensor(b, x), 0.0, dtype="uint8")
    fn = "max" if b.node.target.replace("::", ".").startswith("aten.any") else "min"
    return b.reduce(fn, view, axes_of(view, dim), keepdim=keepdim, dtype="bool")


@lowering("var", "var_mean", "std")
def _var(
    b: Builder, x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None
) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    view = tensor(b, x)
    axes = axes_of(view, dim)
    count = prod(view.shape[a] for a in axes)
    divisor = count - (int(unbiased) if correction is None else correction)
    if divisor <= 0:
        raise NotLowered("variance of too few elements")
    minus = b.reduce("add", view, axes, keepdim=True, scale=-1.0 / count)
    centered = b.map("add", view, minus)
    name = b.node.target.replace("::", ".").removeprefix("aten.")
    dtype = b.spec().dtype
    variance = b.reduce("add", b.map("square", centered), axes, keepdim=keepdim, dtype=dtype, scale=1.0 / divisor)
    if name.startswith("std"):
        return b.map("sqrt", variance, dtype=dtype)
    if not name.startswith("var_mean"):
        return variance
    shape = b.spec(1).shape
    return variance, b.map("multiply", b.reshape(minus, shape), -1.0, dtype=b.spec(1).dtype)


@lowering("dist")
def _dist(b: Builder, x: Any, y: Any, order: Any = 2) -> View:
    difference = b.map("subtract", tensor(b, x), tensor(b, y))
    return norm(b, difference, order, axes_of(difference, None), keepdim=False, dtype=b.spec().dtype)


@lowering("linalg_vector_norm", "norm")
def _norm(b: Builder, x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> View:
    view = tensor(b, x)
    return norm(b, view, order, axes_of(view, dim), keepdim=keepdim, dtype=b.spec().dtype)


def norm(b: Builder, view: View, order: Any, axes: Sequence[int], *, keepdim: bool, dtype: str) -> View:
    """The norm of order 1, 2 or infinity along axes."""
    if order not in (1, 2, float("inf")):
        raise NotLowered(f"norm of order {order}")
    sizes = b.map("square" if order == 2 else "abs", view)
    total = b.reduce("max" if order == float("inf") else "add", sizes, axes, keepdim=keepdim)
    return b.map("sqrt" if order == 2 else "copy", total, dtype=dtype)


# -- softmax, norms ------------------------------------------------------------------------------------------


def exponentials(b: Builder, view: View, axis: int) -> tuple[View, View, View]:
    """(x - max, exp of it, sum of the exponentials with the axis kept), fp32."""
    largest = b.reduce("max", view, (axis,), keepdim=True)
    shifted = b.map("subtract", view, largest)
    powers = b.map("exp", shifted)
    return shifted, powers, b.reduce("add", powers, (axis,), keepdim=True)


def axis_last(b: Builder, view: View, axis: int) -> tuple[View, tuple[int, ...]]:
    """The view with `axis` last, copied when that is not how it lies in memory, and the order that undoes it."""
    rank = len(view.shape)
    axis %= rank
    order = (*(a for a in range(rank) if a != axis), axis)
    moved = view.permute(order)
    if axis != rank - 1:
        moved = b.copy(moved)
    return moved, tuple(order.index(a) for a in range(rank))


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


# -- matrix products -----------------------------------------------------------------------------------------


def matrix_product(b: Builder, x: View, y: View, dtype: str) -> View:
    """Two- or three-dimensional product; the result has the rank of the operands."""
    if any(b.dtype(v) in INTEGERS for v in (x, y)):
        raise NotLowered("integer matrix product")
    if x.shape[-1] != y.shape[-2] or x.shape[:-2] != y.shape[:-2]:
        at = f" at {b.node.source}" if b.node.source else ""
        raise UnsupportedOpError(
            f"{b.node.target}{at}: {list(x.shape)} times {list(y.shape)}: the inner sizes and the batches must be equal"
        )
    if len(x.shape) == 2:
        return b.contract(x.unsqueeze(0), y.unsqueeze(0), dtype).squeeze((0,))
    return b.contract(x, y, dtype)


@lowering("mm", "bmm")
def _mm(b: Builder, x: Any, y: Any) -> View:
    return matrix_product(b, tensor(b, x), tensor(b, y), b.spec().dtype)


def _affine(b: Builder, bias: Any, x: View, y: View, beta: Any, alpha: Any) -> View:
    dtype = b.spec().dtype
    plain = bias is None or beta == 0
    product = matrix_product(b, x, y, dtype if plain and alpha == 1 else "fp32")
    if alpha != 1:
        product = b.map("multiply", product, float(alpha), dtype=dtype if plain else "fp32")
    if plain:
        return product
    addend = b.arg(bias)
    if beta != 1:
        addend = b.map("multiply", addend, float(beta))
    return b.map("add", product, addend, dtype=dtype)


@lowering("addmm", "baddbmm")
def _addmm(b: Builder, bias: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1) -> View:
    return _affine(b, bias, tensor(b, x), tensor(b, y), beta, alpha)


@lowering("mv")
def _mv(b: Builder, x: Any, y: Any) -> View:
    return matrix_product(b, tensor(b, x), tensor(b, y).unsqueeze(1), b.spec().dtype).squeeze((1,))


@lowering("addmv")
def _addmv(b: Builder, bias: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1) -> View:
    column = tensor(b, bias).unsqueeze(-1)
    product = matrix_product(b, tensor(b, x), tensor(b, y).unsqueeze(1), "fp32")
    scaled = b.map("multiply", product, float(alpha)) if alpha != 1 else product
    addend = b.map("multiply", column, float(beta)) if beta != 1 else column
    return b.map("add", scaled, addend, dtype=b.spec().dtype).squeeze((1,))


@lowering("dot", "vdot")
def _dot(b: Builder, x: Any, y: Any) -> View:
    product = b.map("multiply", tensor(b, x), tensor(b, y))
    return b.reduce("add", product, (0,), keepdim=False, dtype=b.spec().dtype)


@lowering("linear")
def _linear(b: Builder, x: Any, weight: Any, bias: Any = None) -> View:
    view, w = tensor(b, x), tensor(b, weight)
    rows = b.reshape(view, (prod(view.shape[:-1]), view.shape[-1]))
    flat = TensorSpec((rows.shape[0], w.shape[0]), b.spec().dtype)
    product = matrix_product(b, rows, w.permute((1, 0)), "fp32" if bias is not None else flat.dtype)
    if bias is not None:
        product = b.map("add", product, b.arg(bias), dtype=flat.dtype)
    return b.reshape(product, b.spec().shape)


@lowering("matmul")
def _matmul(b: Builder, x: Any, y: Any) -> View:
    left, right, dtype = tensor(b, x), tensor(b, y), b.spec().dtype
    if not left.shape or not right.shape:
        raise NotLowered("matmul of a scalar")
    if len(left.shape) == 1 and len(right.shape) == 1:
        return b.reduce("add", b.map("multiply", left, right), (0,), keepdim=False, dtype=dtype)
    left = left.unsqueeze(0) if len(left.shape) == 1 else left
    right = right.unsqueeze(1) if len(right.shape) == 1 else right
    if len(right.shape) == 2:
        rows = b.reshape(left, (prod(left.shape[:-1]), left.shape[-1]))
        return b.reshape(matrix_product(b, rows, right, dtype), b.spec().shape)
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    a = b.reshape(left.expand((*batch, *left.shape[-2:])), (prod(batch), *left.shape[-2:]))
    c = b.reshape(right.expand((*batch, *right.shape[-2:])), (prod(batch), *right.shape[-2:]))
    return b.reshape(matrix_product(b, a, c, dtype), b.spec().shape)


def tensor(b: Builder, value: Any) -> View:
    """An argument that must be a tensor."""
    operand = b.arg(value)
    if isinstance(operand, float):
        raise NotLowered("a number where a tensor is expected")
    return operand
