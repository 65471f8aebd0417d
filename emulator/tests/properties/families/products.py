"""Matrix products, convolutions, attention and pooling."""

from __future__ import annotations

from typing import Any

import torch

from families.draws import BF16, F32, Draws, family


@family("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "vdot", "matmul", "linear", "linear_backward")
def product(d: Draws, name: str) -> Any:
    sizes = (1, 2, 3, 16, 64, 127, 128, 130, 257)
    m, k, n, b = d.pick(*sizes), d.pick(*sizes), d.pick(*sizes, 513), d.number(1, 3)
    dtype = d.floats()
    loose = {"loose": 5}
    x, y = d.tensor((m, k), dtype), d.tensor((k, n), dtype)
    match name:
        case "mm" | "matmul":
            return f"aten::{name}", (x, y), loose
        case "bmm":
            return "aten::bmm", (d.tensor((b, m, k), dtype), d.tensor((b, k, n), dtype)), loose
        case "addmm":
            return "aten::addmm", (d.other((m, n), dtype), x, y, d.pick(1, 0.5), d.pick(1, 2)), loose
        case "baddbmm":
            args = d.other((b, m, n), dtype), d.tensor((b, m, k), dtype), d.tensor((b, k, n), dtype)
            return "aten::baddbmm", (*args, 1, d.pick(1, 0.5)), loose
        case "mv":
            return "aten::mv", (x, d.tensor((k,), dtype)), loose
        case "addmv":
            return "aten::addmv", (d.tensor((m,), dtype), x, d.tensor((k,), dtype)), loose
        case "dot" | "vdot":
            return f"aten::{name}", (d.tensor((k,), dtype), d.tensor((k,), dtype)), loose
        case "linear":
            return (
                "aten::linear",
                (d.tensor((b, m, k), dtype), d.tensor((n, k), dtype), d.pick(None, d.values((n,), dtype))),
                loose,
            )
    g = d.tensor((b, m, n), F32)

    def reference(x: Any, g: Any, w: Any, _: Any) -> Any:
        flat = g.reshape(-1, n)
        return g @ w, flat.T @ x.reshape(-1, k), flat.sum(0)

    args = d.tensor((b, m, k), F32), g, d.tensor((n, k), F32), [True] * 3
    return "aten::linear_backward", args, {"loose": 10, "reference": reference}


@family("convolution", "_convolution", "convolution_backward")
def convolution(d: Draws, name: str) -> Any:
    backward = name == "convolution_backward"
    dims, groups = d.pick(1, 2, 2), d.pick(1, 1, 1, 2) if backward else d.pick(1, 1, 2, 4)
    cin, cout = groups * d.pick(1, 2, 3, 17), groups * d.pick(1, 2, 5)
    dtype = F32 if backward else d.pick(F32, BF16)
    sizes = tuple(d.pick(7, 8, 11, 14) for _ in range(dims))
    kernel = tuple(d.pick(1, 2, 3) for _ in range(dims))
    stride, padding = [d.number(1, 2) for _ in range(dims)], [d.number(0, 1) for _ in range(dims)]
    dilation, transposed = [d.number(1, 2) for _ in range(dims)], d.number(0, 7 if backward else 3) == 0
    extra = [d.number(0, s - 1) for s in stride] if transposed else [0] * dims
    x = d.values((d.number(1, 3), cin, *sizes), dtype)
    if dims == 2 and d.flag():
        x = x.to(memory_format=torch.channels_last)
    w = d.values((cin, cout // groups, *kernel) if transposed else (cout, cin // groups, *kernel), dtype)
    bias = d.pick(None, d.values((cout,), dtype))
    rest = (stride, padding, dilation, transposed, extra, groups)
    if backward:
        y = torch.ops.aten.convolution(x, w, None, *rest)
        return f"aten::{name}", (d.values(tuple(y.shape), F32), x, w, [cout], *rest, [True] * 3), {"loose": 20}
    more = (False, False, False, False) if name == "_convolution" else ()
    return f"aten::{name}", (x, w, bias, *rest, *more), {"loose": 10}


def attend(
    q: Any, k: Any, v: Any, bias: Any = None, dropout: Any = 0.0, causal: Any = False, debug: Any = False, **more: Any
) -> Any:
    factor = more.get("scale") or q.shape[-1] ** -0.5
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = (q.float() @ k.float().transpose(-1, -2)) * factor
    if bias is not None:
        scores = scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return (torch.softmax(scores, -1).to(q.dtype).float() @ v.float()).to(q.dtype), torch.logsumexp(scores, -1)


@family("_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_fused_attention_overrideable_backward")
def attention(d: Draws, name: str) -> Any:
    b, shared = d.number(1, 2), d.pick(1, 1, 2)
    heads, lengths = d.number(1, 2), (d.pick(1, 5, 64, 130, 300), d.pick(1, 5, 64, 130, 300))
    width, out_width = d.pick(8, 16, 64, 130), d.pick(8, 64)
    dtype = d.pick(F32, BF16)
    causal = lengths[0] <= lengths[1] and d.flag()
    q = d.values((b, heads * shared, lengths[0], width), dtype)
    k = d.values((b, heads, lengths[1], width), dtype)
    v = d.values((b, heads, lengths[1], out_width), dtype)
    bias = None
    if not causal and d.number(0, 3) == 0:
        bias = d.values((b, 1, *lengths), F32)
        if d.flag():
            bias = bias > -1
            bias[..., 0] = True
        elif dtype != F32:
            bias = bias.to(dtype)
    if not name.endswith("backward"):
        y = attend(q, k, v, bias, causal=causal)
        made = (*y, None, None, lengths[0], lengths[1], None, None, None)
        options = {"reference": lambda *a, **kw: made, "compared": (0, 1), "loose": 10}
        return f"aten::{name}", (q, k, v, bias, 0.0, causal, False), options
    out, rows = attend(q, k, v, bias, causal=causal)
    g = d.values(tuple(out.shape), dtype)
    leaf = [t.float().requires_grad_() for t in (q, k, v)]
    found = [t.to(dtype) for t in torch.autograd.grad(attend(*leaf, bias, causal=causal)[0], leaf, g.float())]
    args = (g, q, k, v, bias, [True, True, True, False], out, rows, None, None, *lengths, 0.0, causal, None, None)
    return f"aten::{name}", args, {"reference": lambda *a, **kw: (*found, None), "compared": (0, 1, 2), "loose": 10}


@family("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
        "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward")  # fmt: skip
def pooling(d: Draws, name: str) -> Any:
    shape = (d.number(1, 3), d.pick(1, 3, 130), d.pick(5, 7, 12, 19), d.pick(5, 8, 14, 33))
    dtype = d.pick(F32, BF16) if not name.endswith("backward") else F32
    x = d.values(shape, dtype)
    if d.flag():
        x = x.to(memory_format=torch.channels_last)
    aten = torch.ops.aten
    if "adaptive" in name:
        size = [d.pick(*(n for n in range(1, length + 1) if length % n == 0)) for length in shape[2:]]
        if name.endswith("backward"):
            return f"aten::{name}", (d.values((*shape[:2], *size), F32), x), {"loose": 5}
        return f"aten::{name}", (x, size), {"loose": 5}
    kernel = [d.number(1, 5), d.number(1, 5)]
    stride, padding, ceil = [d.number(1, 3), d.number(1, 3)], [d.number(0, n // 2) for n in kernel], d.flag()
    if name.startswith("max"):
        dilation = [1, 1] if max(kernel) > 3 else [d.number(1, 2), d.number(1, 2)]
        window = (kernel, stride, padding, dilation, ceil)
        if not name.endswith("backward"):
            return f"aten::{name}", (x, *window)
        y, index = aten.max_pool2d_with_indices(x, *window)
        return f"aten::{name}", (d.values(tuple(y.shape), F32), x, *window, index), {"loose": 5}
    window = (kernel, stride, padding, ceil, d.flag(), d.pick(None, 5))
    if not name.endswith("backward"):
        return f"aten::{name}", (x, *window), {"loose": 5}
    return f"aten::{name}", (d.values(tuple(aten.avg_pool2d(x, *window).shape), F32), x, *window), {"loose": 5}
