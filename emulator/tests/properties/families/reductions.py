"""Reductions, orders, softmax and normalizations."""

from __future__ import annotations

import math
from typing import Any

import torch

from families.draws import BF16, F32, Draws, family


@family("sum", "mean", "amax", "amin", "all", "any", "var", "std", "var_mean", "linalg_vector_norm", "norm",
        "prod")  # fmt: skip
def reduction(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(1, 4), d.floats()
    keep, dims = d.flag(), d.dims(shape)
    if name in ("var", "std", "var_mean"):
        shape = (*shape[:-1], max(shape[-1], 2))
        dims = sorted({*dims, len(shape) - 1})
    if name == "prod":
        return "aten::prod.dim_int", (1 + d.tensor(shape, F32, "unit") / 8, dims[0], keep), {"loose": 50}
    x = d.tensor(shape, torch.bool if name in ("all", "any") else dtype)
    loose = {"loose": 10}
    match name:
        case "sum":
            return d.pick(("aten::sum", (x,), loose), ("aten::sum.dim_IntList", (x, dims, keep), loose))
        case "mean":
            return d.pick(("aten::mean", (x,), loose), ("aten::mean.dim", (x, dims, keep), loose))
        case "all" | "any":
            return d.pick((f"aten::{name}", (x,)), (f"aten::{name}.dim", (x, dims[0], keep)))
        case "var" | "std" | "var_mean":
            return f"aten::{name}.correction", (x, dims), {"loose": 20, "keywords": (d.pick(0, 1), keep)}
        case "linalg_vector_norm":
            return "aten::linalg_vector_norm", (x, d.pick(2, 1), dims, keep), loose
        case "norm":
            return "aten::norm.ScalarOpt_dim", (x, d.pick(2, 1), dims, keep), loose
    return f"aten::{name}", (x, dims, keep)


@family("argmax", "argmin", "max", "min", "cumsum", "cumprod", "topk", "sort", "median", "kthvalue")
def ordered(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(1, 3), d.pick(F32, BF16)
    dim, keep = d.dim(shape), d.flag()
    if name == "cumsum":
        return "aten::cumsum", (d.tensor(shape, dtype), dim), {"loose": 10}
    if name == "cumprod":
        return "aten::cumprod", (1 + d.tensor(shape, F32, "unit") / 8, dim), {"loose": 50}
    if name in ("sort", "median", "kthvalue"):
        x = (d.values(shape, F32, "distinct") % 251).argsort(dim).to(dtype)
        match name:
            case "sort":
                return "aten::sort", (x, dim, d.flag())
            case "median":
                return "aten::median.dim", (x, dim, keep)
        return "aten::kthvalue", (x, d.number(1, shape[dim]), dim, keep)
    if name == "topk":
        x = (d.values(shape, F32, "distinct") % 251).argsort(dim).to(dtype)
        return "aten::topk", (x, d.number(1, shape[dim]), dim, d.flag(), True)
    x = d.tensor(shape, dtype, "ties")
    if name.startswith("arg"):
        return f"aten::{name}", (x, d.pick(dim, None), keep)
    return d.pick((f"aten::{name}", (x,)), (f"aten::{name}.dim", (x, dim, keep)))


@family("_softmax", "_log_softmax", "_safe_softmax")
def softmax(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(1, 4), d.pick(F32, BF16)
    x, dim = d.tensor(shape, dtype), d.dim(shape)
    return f"aten::{name}", (x, dim) if name == "_safe_softmax" else (x, dim, False), {"loose": 4}


@family("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_gradient(d: Draws, name: str) -> Any:
    shape = d.shape(1, 3)
    dim = d.dim(shape)
    forward = torch.softmax if name.startswith("_softmax") else torch.log_softmax
    return f"aten::{name}", (d.tensor(shape, F32), forward(d.tensor(shape, F32), dim), dim, F32), {"loose": 10}


def rms_reference(x: torch.Tensor, shape: list[int], weight: Any = None, eps: Any = None) -> Any:
    dims = list(range(x.dim() - len(shape), x.dim()))
    r = torch.rsqrt(x.float().square().mean(dims, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps))
    y = x.float() * r * (1 if weight is None else weight.float())
    return y.to(x.dtype), r


@family("native_layer_norm", "_fused_rms_norm", "native_layer_norm_backward", "_fused_rms_norm_backward")
def rows_norm(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(2, 4), d.pick(F32, BF16)
    shape = (*shape[:-1], max(shape[-1], 2))
    last = shape[d.pick(-1, -1, -2) if len(shape) > 2 else -1 :]
    x = d.tensor(shape, dtype)
    w = d.pick(None, d.values(last, dtype))
    if name == "_fused_rms_norm":
        return f"aten::{name}", (x, list(last), w, d.pick(None, 1e-5)), {"loose": 10}
    if name == "native_layer_norm":
        bias = d.pick(None, d.values(last, dtype))
        return f"aten::{name}", (x, list(last), w, bias, 1e-5), {"loose": 10}
    x, g = x.float(), d.tensor(shape, F32)
    w = None if w is None else w.float()
    if name == "native_layer_norm_backward":
        _, mean, r = torch.ops.aten.native_layer_norm(x, list(last), w, None, 1e-3)
        return f"aten::{name}", (g, x, list(last), mean, r, w, w, [True, w is not None, w is not None]), {"loose": 50}
    _, r = rms_reference(x, list(last), w, 1e-3)
    leaf = [t.clone().requires_grad_() for t in (x, *([] if w is None else [w]))]
    found = torch.autograd.grad(rms_reference(leaf[0], list(last), *leaf[1:], eps=1e-3)[0], leaf, g)
    found = found if w is not None else (*found, None)
    options = {"reference": lambda *a, **kw: found, "loose": 50}
    return f"aten::{name}", (g, x, list(last), r, w, [True, w is not None]), options


@family("native_group_norm")
def group_norm(d: Draws, name: str) -> Any:
    groups = d.pick(1, 2, 4)
    n, c, hw = d.number(1, 3), groups * d.pick(1, 3, 8), d.pick((5,), (4, 7), (1,), (9, 16))
    x = d.values((n, c, *hw), d.pick(F32, BF16))
    w, bias = d.pick(None, d.values((c,), x.dtype)), d.pick(None, d.values((c,), x.dtype))
    return f"aten::{name}", (x, w, bias, n, c, math.prod(hw), groups, 1e-3), {"loose": 20}


@family(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "native_batch_norm_backward",
)
def batch_norm(d: Draws, name: str) -> Any:
    shape = d.pick((3, 5), (2, 6, 9), (4, 130, 5, 7), (2, 3, 17, 16), (8, 1, 4, 4), (5, 33, 1, 3))
    x = d.values(shape, F32)
    if len(shape) == 4 and d.flag():
        x = x.to(memory_format=torch.channels_last)
    c = shape[1]
    w, bias = d.values((c,), F32), d.values((c,), F32)
    mean, var = d.values((c,), F32), d.values((c,), F32, "positive")
    training = d.flag()
    if name == "native_batch_norm_backward":
        _, m, r = torch.ops.aten.native_batch_norm(x, w, None, None, None, True, 0.1, 1e-3)
        return f"aten::{name}", (d.values(shape, F32), x, w, None, None, m, r, True, 1e-3, [True] * 3), {"loose": 50}
    if name == "_native_batch_norm_legit_no_training":
        return f"aten::{name}", (x, w, bias, mean, var, 0.1, 1e-3), {"loose": 20, "compared": (0,)}
    compared = {} if training else {"compared": (0,)}
    if name == "_native_batch_norm_legit_functional":
        return f"aten::{name}", (x, w, bias, mean, var, training, 0.1, 1e-3), {"loose": 20, **compared}
    if not training:
        return f"aten::{name}", (x, w, bias, mean, var, False, 0.1, 1e-3), {"loose": 20, **compared}
    if name == "_native_batch_norm_legit":
        return "aten::_native_batch_norm_legit.no_stats", (x, w, bias, True, 0.1, 1e-3), {"loose": 20}
    return f"aten::{name}", (x, w, bias, None, None, True, 0.1, 1e-3), {"loose": 20}
