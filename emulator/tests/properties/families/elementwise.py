"""Arithmetic on elements, and its gradients."""

from __future__ import annotations

import math
from typing import Any

import torch

from families.draws import F32, FLOATS, Draws, family


@family("abs", "ceil", "cos", "erf", "exp", "floor", "frac", "hardsigmoid", "hardswish", "mish", "neg", "relu", "sgn",
        "sigmoid", "sign", "silu", "sin", "square", "tanh", "trunc", "isfinite", "isinf", "isnan", "isneginf",
        "signbit", "logical_not", "erfc", "atan", "arctan", "asinh", "expm1", "exp2", "round", "elu",
        "sinh", "cosh")  # fmt: skip
def unary(d: Draws, name: str) -> Any:
    x = d.tensor(d.shape(empty=True), d.floats(), d.pick("normal", "ties"))
    return f"aten::{name}", (x,), {"loose": 2}


@family("log", "reciprocal", "rsqrt", "sqrt", "log2", "log10", "log1p", "acosh")
def of_positive(d: Draws, name: str) -> Any:
    x = d.tensor(d.shape(empty=True), d.floats(), "positive")
    return f"aten::{name}", (x + 1 if name == "acosh" else x,), {"loose": 4}


@family("erfinv", "asin", "acos", "atanh", "tan")
def of_unit(d: Draws, name: str) -> Any:
    return f"aten::{name}", (d.tensor(d.shape(), F32, "unit"),), {"loose": 10}


@family("gelu", "leaky_relu", "hardtanh", "threshold", "softplus", "clamp", "clip", "clamp_min",
        "clamp_max")  # fmt: skip
def with_numbers(d: Draws, name: str) -> Any:
    numbers = {
        "gelu": lambda: (d.pick("none", "tanh"),), "leaky_relu": lambda: (d.pick(0.01, 0.5),),
        "hardtanh": lambda: (-0.5, 0.75), "threshold": lambda: (0.25, d.pick(0.0, -2.0)),
        "softplus": lambda: (d.pick(1.0, 2.0), 20.0), "clamp": lambda: d.pick((-0.5, None), (None, 0.5), (-0.25, 0.25)),
        "clip": lambda: d.pick((-0.5, None), (None, 0.5), (-0.25, 0.25)),
        "clamp_min": lambda: (0.25,), "clamp_max": lambda: (0.25,),
    }  # fmt: skip
    return f"aten::{name}", (d.tensor(d.shape(empty=True), d.floats()), *numbers[name]()), {"loose": 2}


@family("pow")
def power(d: Draws, name: str) -> Any:
    x = d.tensor(d.shape(), d.floats(), "positive")
    if d.flag():
        return "aten::pow.Tensor_Scalar", (x, d.pick(2, 3, 0.5, -1, -0.5, 0, 1, 1.7)), {"loose": 10}
    return "aten::pow.Tensor_Tensor", (x, d.other(tuple(x.shape), x.dtype)), {"loose": 20}


@family("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
        "logical_or", "logical_xor", "rsub")  # fmt: skip
def binary(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(empty=True), d.pick(*FLOATS, torch.int32)
    whole = dtype == torch.int32
    if whole and name == "div":
        dtype, whole = F32, False
    how = "positive" if name == "div" else d.pick("normal", "ties")
    x = d.tensor(shape, dtype, how)
    only_tensor = name in ("maximum", "minimum", "logical_and", "logical_or", "logical_xor")
    if not only_tensor and d.number(0, 3) == 0:
        number = d.pick(2, 3) if whole else d.pick(0.5, 2, -3.0)
        extra = (2,) if name in ("add", "sub", "rsub") and d.flag() else (1,) if name in ("add", "sub", "rsub") else ()
        return f"aten::{name}.Scalar", (x, number, *extra)
    y = d.other(shape, dtype, how)
    extra = (d.pick(1, 2),) if name in ("add", "sub", "rsub") else ()
    return f"aten::{name}" if only_tensor else f"aten::{name}.Tensor", (x, y, *extra)


@family("hypot", "atan2", "arctan2")
def of_two(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(), d.floats()
    return f"aten::{name}", (d.tensor(shape, dtype), d.other(shape, dtype)), {"loose": 4}


@family("remainder", "floor_divide", "true_divide", "fmod")
def division(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(), F32
    x, y = d.tensor(shape, dtype, "ties"), d.other(shape, dtype, "ties")
    y = torch.where(y == 0, 1.5, y)
    # Where x is a multiple of y the quotient's last bit decides; keep away from it.
    if name == "floor_divide":
        return "aten::floor_divide", (x + 0.125, y)
    return f"aten::{name}.Tensor", (x + 0.125 if name in ("remainder", "fmod") else x, y)


@family("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
def bits(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(), d.pick(torch.int32, torch.bool, torch.uint8)
    x = d.tensor(shape, dtype)
    return (
        ("aten::bitwise_not", (x,)) if name == "bitwise_not" else (f"aten::{name}.Tensor", (x, d.other(shape, dtype)))
    )


@family("lerp", "addcmul", "addcdiv", "where", "masked_fill")
def ternary(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(), d.floats()
    x, y = d.tensor(shape, dtype), d.other(shape, dtype)
    match name:
        case "lerp":
            return ("aten::lerp.Scalar", (x, d.tensor(shape, dtype), 0.3)) if d.flag() else (
                "aten::lerp.Tensor", (x, d.tensor(shape, dtype), d.other(shape, dtype)))  # fmt: skip
        case "where":
            return "aten::where.self", (d.other(shape, torch.bool), x, y)
        case "masked_fill":
            return "aten::masked_fill.Scalar", (x, d.other(shape, torch.bool), d.pick(0.0, -1.5, -math.inf))
    z = d.other(shape, dtype, "positive" if name == "addcdiv" else "normal")
    return f"aten::{name}", (x, y, z, d.pick(1, 0.5)), {"loose": 4}


@family(
    "gelu_backward", "sigmoid_backward", "silu_backward", "softplus_backward", "tanh_backward", "threshold_backward"
)
def gradients(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(empty=True), d.floats()
    g, x = (
        d.tensor(shape, dtype),
        d.tensor(shape, dtype, "unit" if name in ("sigmoid_backward", "tanh_backward") else "normal"),
    )
    extra = {"gelu_backward": (d.pick("none", "tanh"),), "softplus_backward": (2.0, 20.0), "threshold_backward": (0.0,)}
    return f"aten::{name}", (g, x, *extra.get(name, ())), {"loose": 4}
