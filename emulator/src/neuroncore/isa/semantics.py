"""What each instruction computes: small functions over a `Context`, on float32 as the engines do.

The machine provides the context: it reads operands (cast to float32), and casts results when they are written.
Arithmetic happens in float32 on every engine; only bitwise operations, exact copies and GpSimd's int32 arithmetic see
integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["ALU", "BITWISE", "COMPARE", "FUNCTIONS", "FUNCTION_TABLES", "REDUCE", "Context"]

F32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]


class Context(Protocol):
    """The operands of one instruction, as the machine presents them."""

    engine: str

    def has(self, name: str) -> bool:
        """Whether the operand was given."""

    def attribute(self, name: str) -> Any:
        """A plain attribute."""

    def dtype(self, name: str) -> str:
        """The dtype of an access."""

    def f32(self, name: str) -> F32:
        """Operand as float32 [partitions, free elements]; a number becomes a 0-d array, a column [P, 1]."""

    def shaped(self, name: str) -> F32:
        """Operand as float32 in the shape of its access pattern."""

    def raw(self, name: str) -> Array:
        """Operand in storage format [partitions, free elements], no cast."""

    def write(self, name: str, values: npt.ArrayLike) -> None:
        """Store float32 values (any shape with as many elements), cast to the operand's dtype."""

    def write_raw(self, name: str, values: Array) -> None:
        """Store values already in the operand's storage format."""

    def random(self, count: int) -> npt.NDArray[np.uint32]:
        """The next `count` random words of the engine's generator."""

    def seed(self, number: int) -> None:
        """Start the engine's generator anew."""

    def hbm_rows(self, name: str, index: npt.NDArray[np.int64]) -> Array:
        """Rows `index` of an HBM operand in storage format [len(index), free elements]."""

    def write_hbm_rows(self, name: str, index: npt.NDArray[np.int64], values: Array) -> None:
        """Store rows `index` of an HBM operand."""


# Operators ------------------------------------------------------------------------------------------------------------


def _compare(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(a, b).astype(np.float32)


COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "equal": _compare(np.equal),
    "not_equal": _compare(np.not_equal),
    "greater": _compare(np.greater),
    "greater_equal": _compare(np.greater_equal),
    "less": _compare(np.less),
    "less_equal": _compare(np.less_equal),
}

#: Operators that work on integer bits, never through float32.
BITWISE: dict[str, Callable[[Any, Any], Any]] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}


def _truth(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(a != 0, b != 0).astype(np.float32)


#: Two-input operators of Vector, Scalar and GpSimd. There is no division: multiply by a reciprocal.
ALU: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "abs_max": lambda a, b: np.maximum(np.abs(a), np.abs(b)),
    "abs_min": lambda a, b: np.minimum(np.abs(a), np.abs(b)),
    "power": np.power,
    "mod": lambda a, b: a - b * np.floor(a / b),
    "logical_and": _truth(np.logical_and),
    "logical_or": _truth(np.logical_or),
    "logical_xor": _truth(np.logical_xor),
    **COMPARE,
    **BITWISE,
}

REDUCE: dict[str, Callable[..., Any]] = {
    "add": lambda a, axis: np.sum(a, axis=axis, dtype=np.float32),
    "multiply": lambda a, axis: np.prod(a, axis=axis, dtype=np.float32),
    "max": np.max,
    "min": np.min,
    "abs_max": lambda a, axis: np.max(np.abs(a), axis=axis),
}

# Activation functions -------------------------------------------------------------------------------------------------

_erf = np.frompyfunc(math.erf, 1, 1)


def _erf32(x: F32) -> F32:
    return np.asarray(_erf(x.astype(np.float64)), np.float64).astype(np.float32)


def _sigmoid(x: F32) -> F32:
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)


def _softplus(x: F32) -> F32:
    return np.logaddexp(x.astype(np.float64), 0.0).astype(np.float32)


def _gelu_tanh(x: F32) -> F32:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))), np.float32)


#: Functions of the activation instruction; `op` names.
FUNCTIONS: dict[str, Callable[[F32], F32]] = {
    "copy": lambda x: x,
    "identity": lambda x: x,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.asarray(1 / np.sqrt(x), np.float32),
    "reciprocal": lambda x: np.asarray(1 / x, np.float32),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "gelu": lambda x: np.asarray(0.5 * x * (1 + _erf32(x * np.float32(math.sqrt(0.5)))), np.float32),
    "gelu_apprx_tanh": _gelu_tanh,
    "softplus": _softplus,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "erf": _erf32,
    "sin": np.sin,
    "arctan": np.arctan,
}

#: The function table each activation needs; "" = built into the engine, never loaded. Public sources name the cost of
#: a switch but not which functions share a table: one table per function is our estimate. Reciprocal has none: the SiLU
#: and AdamW of NKIBench (split calibrate) alternate it with exp and sqrt every 512 columns, and their published times
#: and ScalarE active times leave no room for loads.
FUNCTION_TABLES = {
    name: "" if name in ("copy", "identity", "abs", "sign", "square", "relu", "reciprocal") else name
    for name in FUNCTIONS
}

# Instructions ---------------------------------------------------------------------------------------------------------


def _apply(c: Context, op: str, a: Any, b: Any, *, reverse: bool = False) -> Any:
    """`a op b` (or `b op a`) in float32."""
    result = ALU[op](b, a) if reverse else ALU[op](a, b)
    return np.asarray(result, np.float32)


def activation(c: Context) -> None:
    """Dst = op(data*scale + bias)."""
    x = c.f32("data")
    if c.has("scale"):
        x = x * c.f32("scale")
    if c.has("bias"):
        x = x + c.f32("bias")
    y = np.asarray(FUNCTIONS[c.attribute("op")](np.asarray(x, np.float32)), np.float32)
    c.write("dst", y)
    if c.attribute("reduce_op") and c.has("reduce_res"):
        c.write("reduce_res", np.sum(y, axis=1, keepdims=True, dtype=np.float32))


def exponential(c: Context) -> None:
    """Dst = exp(data - max_value)."""
    y = np.exp(c.f32("data") - c.f32("max_value"))
    c.write("dst", y)
    if c.attribute("reduce_op") and c.has("reduce_res"):
        c.write("reduce_res", np.sum(y, axis=1, keepdims=True, dtype=np.float32))


def _affine(c: Context, partitions: int) -> npt.NDArray[np.int64]:
    """Offset + p*channel_multiplier + sum of step*index, [partitions, free elements]."""
    pattern: tuple[tuple[int, int], ...] = c.attribute("pattern")
    value = np.zeros((1,), np.int64)
    for step, size in pattern:
        value = (value[:, None] + np.arange(size, dtype=np.int64) * step).reshape(-1)
    rows = np.arange(partitions, dtype=np.int64)[:, None] * int(c.attribute("channel_multiplier"))
    return int(c.attribute("offset")) + rows + value


def iota(c: Context) -> None:
    """Write the affine index itself."""
    partitions = c.raw("dst").shape[0]
    values = _affine(c, partitions)
    dtype = c.dtype("dst")
    if dtype in ("int32", "uint32"):
        c.write_raw("dst", values.astype(np.int32 if dtype == "int32" else np.uint32))
    else:
        c.write("dst", values.astype(np.float32))


def affine_select(c: Context) -> None:
    """Keep data where the affine index compares true with 0."""
    x = c.f32("data")
    keep = COMPARE[c.attribute("cmp_op")](_affine(c, x.shape[0]), 0) != 0
    c.write("dst", np.where(keep, x, np.float32(c.attribute("on_false_value"))))


def bn_stats(c: Context) -> None:
    """Count, mean and var*count of even and odd elements."""
    x = c.f32("data")
    columns: list[Any] = []
    for part in (x[:, 0::2], x[:, 1::2]):
        count = part.shape[1]
        mean = part.mean(axis=1) if count else np.zeros(x.shape[0], np.float32)
        spread = np.square(part - mean[:, None]).sum(axis=1)
        columns += [np.full(x.shape[0], count, np.float32), mean, spread]
    c.write("dst", np.stack(columns, axis=1))


def bn_aggr(c: Context) -> None:
    """Mean and variance from (count, mean, var*count) triples."""
    x = c.f32("data").reshape(c.raw("data").shape[0], -1, 3)
    count, mean, spread = x[:, :, 0], x[:, :, 1], x[:, :, 2]
    total = count.sum(axis=1)
    overall = (count * mean).sum(axis=1) / total
    variance = (spread + count * np.square(mean - overall[:, None])).sum(axis=1) / total
    c.write("dst", np.stack([overall, variance], axis=1))


def max8(c: Context) -> None:
    """The eight largest values."""
    c.write("dst", -np.sort(-c.f32("data"), axis=1)[:, :8])


def _occurrences(c: Context) -> npt.NDArray[np.int64]:
    """Where each of eight values occurs, [partitions, 8]: equal values take successive places; -1 for none."""
    x, vals = c.f32("data"), c.f32("vals")
    found = np.full(vals.shape, -1, np.int64)
    for row in range(x.shape[0]):
        taken: dict[float, int] = {}
        for k, value in enumerate(vals[row]):
            places = np.flatnonzero(x[row] == value)
            number = taken.get(float(value), 0)
            taken[float(value)] = number + 1
            if number < len(places):
                found[row, k] = places[number]
    return found


def nc_find_index8(c: Context) -> None:
    """Indices of eight values."""
    bits = np.uint32 if c.dtype("dst") == "uint32" else np.uint16
    c.write_raw("dst", _occurrences(c).astype(bits))


def nc_match_replace8(c: Context) -> None:
    """Replace eight values."""
    y = c.f32("data").copy()
    for row, places in enumerate(_occurrences(c)):
        y[row, places[places >= 0]] = np.float32(c.attribute("imm"))
    c.write("dst", y)


def rng(c: Context) -> None:
    """Random bits."""
    like = c.raw("dst")
    c.write_raw("dst", c.random(like.size).astype(like.dtype).reshape(like.shape))


def memset(c: Context) -> None:
    """Fill."""
    shape = c.raw("dst").shape
    value = c.attribute("value")
    if c.dtype("dst") in ("int32", "uint32") and float(value).is_integer():
        bits = np.dtype(np.int32 if c.dtype("dst") == "int32" else np.uint32)
        limits = np.iinfo(bits)
        c.write_raw("dst", np.full(shape, min(max(int(value), limits.min), limits.max), bits))
    else:
        c.write("dst", np.full(shape, value, np.float32))


def nc_matmul(c: Context) -> None:
    """stationary.T @ moving in fp32."""
    product = c.f32("stationary").T @ c.f32("moving")
    c.write("dst", c.f32("dst") + product if c.attribute("accumulate") else product)


def nc_transpose(c: Context) -> None:
    """Dst = data.T, bit exact when the dtypes are equal."""
    if c.dtype("dst") == c.dtype("data"):
        c.write_raw("dst", c.raw("data").T)
    else:
        c.write("dst", c.f32("data").T)


def range_select(c: Context) -> None:
    """Keep elements whose index lies between two bounds."""
    x = c.f32("on_true_tile")
    index = np.float32(c.attribute("range_start")) + np.arange(x.shape[1], dtype=np.float32)
    inside = COMPARE[c.attribute("comp_op0")](index, c.f32("bound0")) * COMPARE[c.attribute("comp_op1")](
        index, c.f32("bound1")
    )
    y = np.where(inside != 0, x, np.finfo(np.float32).min)
    c.write("dst", y)
    if c.attribute("reduce_op") and c.has("reduce_res"):
        c.write("reduce_res", y.max(axis=1, keepdims=True))


def select_reduce(c: Context) -> None:
    """Dst = on_true where predicate else on_false."""
    predicate = c.raw("predicate") != 0
    if c.attribute("reverse_pred"):
        predicate = ~predicate
    y = np.where(predicate, c.f32("on_true"), c.f32("on_false"))
    c.write("dst", y)
    if c.attribute("reduce_op") and c.has("reduce_res"):
        c.write("reduce_res", y.max(axis=1, keepdims=True))


def reciprocal(c: Context) -> None:
    """Dst = 1 / data."""
    c.write("dst", 1 / c.f32("data"))


def scalar_tensor_tensor(c: Context) -> None:
    """Dst = (data op0 operand0) op1 operand1."""
    first = _apply(c, c.attribute("op0"), c.f32("data"), c.f32("operand0"), reverse=c.attribute("reverse0"))
    c.write("dst", _apply(c, c.attribute("op1"), first, c.f32("operand1"), reverse=c.attribute("reverse1")))


def tensor_copy(c: Context) -> None:
    """Dst = data, bit exact when the dtypes are equal (ScalarE goes through fp32)."""
    if c.dtype("dst") == c.dtype("data") and c.engine != "Scalar":
        c.write_raw("dst", c.raw("data"))
    else:
        c.write("dst", c.f32("data"))


def tensor_copy_predicated(c: Context) -> None:
    """Dst = data where predicate is not zero."""
    predicate = c.raw("predicate") != 0
    if c.attribute("reverse_pred"):
        predicate = ~predicate
    c.write_raw("dst", np.where(predicate, c.raw("data"), c.raw("dst")))


def tensor_reduce(c: Context) -> None:
    """Reduce the last `axes` free dimensions."""
    x = c.shaped("data")
    axes = tuple(range(x.ndim - c.attribute("axes"), x.ndim))
    y = REDUCE[c.attribute("op")](x, axis=axes)
    c.write("dst", -y if c.attribute("negate") else y)


def tensor_partition_reduce(c: Context) -> None:
    """Reduce over the partitions."""
    c.write("dst", REDUCE[c.attribute("op")](c.f32("data"), axis=0))


def tensor_scalar(c: Context) -> None:
    """Dst = (data op0 operand0) op1 operand1."""
    op0, op1 = c.attribute("op0"), c.attribute("op1")
    if op0 in BITWISE:
        x = c.raw("data")
        for op, name, reverse in ((op0, "operand0", "reverse0"), (op1, "operand1", "reverse1")):
            if op is not None:
                operand = np.asarray(c.f32(name)).astype(np.int64).astype(x.dtype)
                x = BITWISE[op](operand, x) if c.attribute(reverse) else BITWISE[op](x, operand)
        c.write_raw("dst", x)
        return
    y = _apply(c, op0, c.f32("data"), c.f32("operand0"), reverse=c.attribute("reverse0"))
    if op1 is not None:
        y = _apply(c, op1, y, c.f32("operand1"), reverse=c.attribute("reverse1"))
    c.write("dst", y)


def tensor_scalar_reduce(c: Context) -> None:
    """Dst = data op0 operand0, reduced into reduce_res."""
    y = _apply(c, c.attribute("op0"), c.f32("data"), c.f32("operand0"), reverse=c.attribute("reverse0"))
    c.write("dst", y)
    c.write("reduce_res", REDUCE[c.attribute("reduce_op")](y, axis=1))


def tensor_tensor(c: Context) -> None:
    """Dst = data1 op data2; GpSimd's int32 arithmetic is exact."""
    op = c.attribute("op")
    integers = {c.dtype(n) for n in ("dst", "data1", "data2")} <= {"int32", "uint32"}
    exact = c.engine == "GpSimd" and integers and op in ("add", "subtract", "multiply", "max", "min")
    if op in BITWISE or exact:
        a, b = c.raw("data1"), c.raw("data2")
        c.write_raw("dst", (BITWISE | ALU)[op](a, b.astype(a.dtype)))
    else:
        c.write("dst", _apply(c, op, c.f32("data1"), c.f32("data2")))


def tensor_tensor_scan(c: Context) -> None:
    """Recurrence along the free dimension."""
    a, b = c.f32("data0"), c.f32("data1")
    op0, op1 = ALU[c.attribute("op0")], ALU[c.attribute("op1")]
    state = np.broadcast_to(np.asarray(c.f32("initial"), np.float32).reshape(-1), (a.shape[0],))
    result = np.empty_like(a)
    for i in range(a.shape[1]):
        state = np.asarray(op1(op0(a[:, i], state), b[:, i]), np.float32)
        result[:, i] = state
    c.write("dst", result)


def dma_copy(c: Context) -> None:
    """Dst = src, cast in flight, rows optionally indexed."""
    if c.has("index"):
        index = c.raw("index").reshape(-1).astype(np.int64)
        if c.attribute("index_side") == "src":
            c.write_raw("dst", c.hbm_rows("src", index))
        else:
            c.write_hbm_rows("dst", index, c.raw("src"))
    elif c.dtype("dst") == c.dtype("src"):
        c.write_raw("dst", c.raw("src"))
    elif {c.dtype("dst"), c.dtype("src")} <= _WHOLE:
        # Between integers of 32 and 64 bits the low words move, nothing is rounded.
        c.write_raw("dst", c.raw("src").astype(np.int64 if c.dtype("dst") == "int64" else np.int32))
    else:
        c.write("dst", c.f32("src"))


_WHOLE = {"int32", "int64"}


def dma_transpose(c: Context) -> None:
    """Dst = src.T, each of `blocks` parts of the columns for itself."""
    src = c.raw("src")
    parts = np.split(src, int(c.attribute("blocks")), axis=1)
    c.write_raw("dst", np.concatenate([part.T for part in parts], axis=1))
