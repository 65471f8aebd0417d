"""Sums, extremes, variances and norms over axes in primitives."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from neuroncore.compiler.decompose import INTEGERS, axes_of, tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View

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
