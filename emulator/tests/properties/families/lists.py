"""Losses, dropout's gradient, and the optimizers' operations on lists of tensors."""

from __future__ import annotations

from typing import Any

import torch

from families.draws import BF16, F32, Draws, family

UNARY = ("abs", "exp", "log", "neg", "reciprocal", "rsqrt", "sigmoid", "sign", "sqrt", "tanh")
OTHERS = ("addcdiv", "addcmul", "clamp_max", "clamp_min", "copy", "lerp", "norm", "zero")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow")


def lists(d: Draws, count: int, how: str = "normal") -> list[list[torch.Tensor]]:
    shapes = [d.shape(0, 2) for _ in range(d.number(1, 4))]
    dtype = d.pick(F32, BF16)
    return [[d.values(s, dtype, how) for s in shapes] for _ in range(count)]


@family(*(f"_foreach_{name}" for name in (*UNARY, *BINARY, *OTHERS)))
def foreach(d: Draws, name: str) -> Any:
    kind = name.removeprefix("_foreach_")
    how = "positive" if kind in ("log", "reciprocal", "rsqrt", "sqrt", "div", "pow", "addcdiv") else "normal"
    x, y, z = lists(d, 3, how)
    numbers = [d.pick(0.5, 2.0, -1.5) for _ in x]
    if kind in UNARY:
        return f"aten::{name}", (x,), {"loose": 4}
    if kind in ("addcdiv", "addcmul"):
        return d.pick(
            (f"aten::{name}.Scalar", (x, y, z, 0.5), {"loose": 20}),
            (f"aten::{name}.ScalarList", (x, y, z, numbers), {"loose": 20}),
        )
    match kind:
        case "clamp_max" | "clamp_min":
            return f"aten::{name}.Scalar", (x, 0.25)
        case "copy":
            return f"aten::{name}", (x, y, False)
        case "lerp":
            return *d.pick((f"aten::{name}.Scalar", (x, y, 0.3)), (f"aten::{name}.List", (x, y, z))), {"loose": 4}
        case "norm":
            return f"aten::{name}.Scalar", (x, d.pick(1, 2)), {"loose": 20}
        case "zero":
            return f"aten::{name}", (x,)
    if kind in ("add", "sub"):
        return d.pick(
            (f"aten::{name}.List", (x, y, d.pick(1, 2))),
            (f"aten::{name}.Scalar", (x, 0.5)),
            (f"aten::{name}.ScalarList", (x, numbers)),
        )
    if kind == "pow":
        return f"aten::{name}.Scalar", (x, d.pick(2, 0.5)), {"loose": 20}
    forms = ("List", (x, y)), ("Scalar", (x, 0.5)), ("ScalarList", (x, numbers))
    overload, args = d.pick(*forms)
    return f"aten::{name}.{overload}", args, {"loose": 4}


@family("_fused_adam", "_fused_adamw")
def adam(d: Draws, name: str) -> Any:
    shapes = [d.shape(0, 2) for _ in range(d.number(1, 3))]
    p, g, m, v = ([d.values(s, F32, how) for s in shapes] for how in ("normal", "normal", "normal", "positive"))
    largest = [t.abs() + 0.5 for t in v] if d.flag() else []
    steps = [torch.tensor(float(d.pick(1, 3, 100))) for _ in shapes]
    options = (0.01, 0.9, 0.99, d.pick(0.0, 0.1), 1e-8, bool(largest), d.flag(), None, None)

    def step(p: Any, g: Any, m: Any, v: Any, largest: Any, steps: Any, **kwargs: Any) -> Any:
        tensors = [[t.clone() for t in ts] for ts in (p, g, m, v, largest)]
        getattr(torch.ops.aten, f"{name}_").default(*tensors, steps, **kwargs)
        return tensors

    return f"aten::{name}", (p, g, m, v, largest, steps, *options), {"reference": step, "loose": 10}


@family("nll_loss_forward", "nll_loss_backward", "mse_loss", "mse_loss_backward", "native_dropout_backward", "dist")
def losses(d: Draws, name: str) -> Any:
    shape, reduction = d.shape(1, 3), d.number(0, 2)
    match name:
        case "mse_loss":
            return "aten::mse_loss", (d.tensor(shape, F32), d.tensor(shape, F32), reduction), {"loose": 10}
        case "mse_loss_backward":
            g = d.tensor(shape if reduction == 0 else (), F32)
            return f"aten::{name}", (g, d.tensor(shape, F32), d.tensor(shape, F32), reduction), {"loose": 10}
        case "native_dropout_backward":
            return f"aten::{name}", (d.tensor(shape, F32), d.tensor(shape, torch.bool), 1.25)
        case "dist":
            return "aten::dist", (d.tensor(shape, F32), d.tensor(shape, F32), d.pick(1, 2)), {"loose": 20}
    rows, classes = d.pick(1, 7, 128, 300), d.pick(2, 10, 33, 257)
    x = torch.log_softmax(d.values((rows, classes), F32), -1)
    target = d.index((rows,), classes)
    target[1::7] = -100
    weight = d.pick(None, d.values((classes,), F32, "positive"))
    if name == "nll_loss_forward":
        return f"aten::{name}", (x, target, weight, reduction, -100), {"loose": 20}
    y, total = torch.ops.aten.nll_loss_forward(x, target, weight, reduction, -100)
    return f"aten::{name}", (d.values(tuple(y.shape), F32), x, target, weight, reduction, -100, total), {"loose": 20}
