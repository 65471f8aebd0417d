"""How far single ops at realistic sizes are from their roofline, worst first.

Each op compiled for trn2 as torch.compile would (bf16 unless told). `times` is its simulated engine and DMA time over
the larger of (its inputs read once and its results written once) / HBM bandwidth and the FLOPs of its matrix products /
their dtype's peak. `bound by` is the busiest unit of the compiled program and what part of the time it is busy: a
program that is slow because its unit is busy needs fewer passes, one that is slow without a busy unit waits. Embeddings
and gathers count the rows they touch. CPU milliseconds of a cold compile are the best of three.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch_neuronx  # noqa: F401  (registers the device)
from neuroncore.flops import model_flops
from neuroncore.graph import Graph, Value
from neuroncore.runtime import compile_graph
from neuroncore.targets import load_target
from neuroncore.timing.bounds import bounds
from torch.nn import functional as F  # noqa: N812  (its usual name)
from torch_neuronx.compile.trace import trace_graphs

from benchmarks.coverage import adamw

NAME = "Distance from the roofline"

TARGET = "trn2"
BF16, FP32, INT64 = torch.bfloat16, torch.float32, torch.int64


def _t(*shape: int, dtype: torch.dtype = BF16, grad: bool = False) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


def _index(*shape: int) -> torch.Tensor:
    return _t(*shape, dtype=INT64)


@dataclass(frozen=True)
class Case:
    """An op, its inputs (meta tensors), and whether its backward is what counts.

    `touched` stands for the bytes of inputs that are read in part.
    """

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    backward: bool = False
    touched: int | None = None


def _rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def _foreach_adamw(p: Any, g: Any, m: Any, v: Any) -> Any:
    return adamw([p], [g], [m], [v])


def _rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


def _scaled_attention(q: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, q, q, **kwargs)


_X = (2048, 4096)
_IMAGE = (8, 256, 56, 56)
_ROW = (4096,)

#: Name, with the size, and what is measured.
CASES: dict[str, Case] = {
    "add 2048x4096": Case(torch.add, (_t(*_X), _t(*_X))),
    "mul fp32 2048x4096": Case(torch.mul, (_t(*_X, dtype=FP32), _t(*_X, dtype=FP32))),
    "add row 2048x4096": Case(torch.add, (_t(*_X), _t(*_ROW))),
    "div 2048x4096": Case(torch.div, (_t(*_X), _t(*_X))),
    "cast to fp32 2048x4096": Case(lambda x: x.float(), (_t(*_X),)),
    "gelu 2048x4096": Case(F.gelu, (_t(*_X),)),
    "gelu tanh 2048x4096": Case(lambda x: F.gelu(x, approximate="tanh"), (_t(*_X),)),
    "silu * up 2048x11008": Case(lambda x, y: F.silu(x) * y, (_t(2048, 11008), _t(2048, 11008))),
    "gelu backward 2048x4096": Case(F.gelu, (_t(*_X, grad=True),), True),
    "silu backward 2048x4096": Case(F.silu, (_t(*_X, grad=True),), True),
    "where 2048x4096": Case(torch.where, (_t(*_X, dtype=torch.bool), _t(*_X), _t(*_X))),
    "masked_fill 2048x4096": Case(lambda x, m: x.masked_fill(m, -1e4), (_t(*_X), _t(*_X, dtype=torch.bool))),
    "dropout 2048x4096": Case(lambda x: F.dropout(x, 0.1, True), (_t(*_X),)),
    "sum last 2048x4096": Case(lambda x: x.sum(-1), (_t(*_X),)),
    "sum first 2048x4096": Case(lambda x: x.sum(0), (_t(*_X),)),
    "sum all 2048x4096": Case(lambda x: x.sum(), (_t(*_X),)),
    "mean fp32 2048x4096": Case(lambda x: x.mean(-1), (_t(*_X, dtype=FP32),)),
    "amax 2048x4096": Case(lambda x: x.amax(-1), (_t(*_X),)),
    "argmax 2048x4096": Case(lambda x: x.argmax(-1), (_t(*_X),)),
    "var 2048x4096": Case(lambda x: x.var(-1), (_t(*_X),)),
    "cumsum 2048x4096": Case(lambda x: x.cumsum(-1), (_t(*_X),)),
    "topk 50 of 64x32000": Case(lambda x: x.topk(50), (_t(64, 32000),)),
    "topk 2 of 4096x8": Case(lambda x: x.topk(2), (_t(4096, 8, dtype=FP32),)),
    "sort 64x1024": Case(lambda x: x.sort(-1)[0], (_t(64, 1024),)),
    "softmax 4096x4096": Case(lambda x: torch.softmax(x, -1), (_t(4096, 4096),)),
    "softmax backward 4096x4096": Case(lambda x: torch.softmax(x, -1), (_t(4096, 4096, grad=True),), True),
    "log_softmax 2048x32000": Case(lambda x: F.log_softmax(x, -1), (_t(2048, 32000),)),
    "cross entropy 2048x32000": Case(F.cross_entropy, (_t(2048, 32000), _index(2048))),
    "cross entropy backward 2048x32000": Case(F.cross_entropy, (_t(2048, 32000, grad=True), _index(2048)), True),
    "rms_norm fused 4096x4096": Case(lambda x, w: F.rms_norm(x, (4096,), w, 1e-6), (_t(4096, 4096), _t(*_ROW))),
    "rms_norm by hand 4096x4096": Case(_rms, (_t(4096, 4096), _t(*_ROW))),
    "rms_norm backward 4096x4096": Case(
        lambda x, w: F.rms_norm(x, (4096,), w, 1e-6), (_t(4096, 4096, grad=True), _t(*_ROW, grad=True)), True
    ),
    "layer_norm 2048x4096": Case(lambda x, w, b: F.layer_norm(x, (4096,), w, b), (_t(*_X), _t(*_ROW), _t(*_ROW))),
    "layer_norm backward 2048x4096": Case(
        lambda x, w, b: F.layer_norm(x, (4096,), w, b),
        (_t(*_X, grad=True), _t(*_ROW, grad=True), _t(*_ROW, grad=True)),
        True,
    ),
    "group_norm 32 of 8x256x56x56": Case(lambda x, w, b: F.group_norm(x, 32, w, b), (_t(*_IMAGE), _t(256), _t(256))),
    "batch_norm 8x256x56x56": Case(
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True),
        (_t(*_IMAGE), *(_t(256, dtype=FP32) for _ in range(4))),
    ),
    "batch_norm backward 8x256x56x56": Case(
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True),
        (
            _t(*_IMAGE, grad=True),
            _t(256, dtype=FP32),
            _t(256, dtype=FP32),
            _t(256, dtype=FP32, grad=True),
            _t(256, dtype=FP32, grad=True),
        ),
        True,
    ),
    "batch_norm inference 8x256x56x56": Case(F.batch_norm, (_t(*_IMAGE), *(_t(256, dtype=FP32) for _ in range(4)))),
    "max_pool 8x256x56x56": Case(lambda x: F.max_pool2d(x, 3, 2, 1), (_t(*_IMAGE),)),
    "avg_pool 8x256x56x56": Case(lambda x: F.adaptive_avg_pool2d(x, 1), (_t(*_IMAGE),)),
    "interpolate nearest 8x256x28x28": Case(lambda x: F.interpolate(x, scale_factor=2), (_t(8, 256, 28, 28),)),
    "interpolate bilinear 8x64x28x28": Case(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (_t(8, 64, 28, 28),)
    ),
    "transpose 4096x4096": Case(lambda x: x.t().contiguous(), (_t(4096, 4096),)),
    "transpose fp32 2048x4096": Case(lambda x: x.t().contiguous(), (_t(*_X, dtype=FP32),)),
    "heads 1x2048x32x128": Case(lambda x: x.transpose(1, 2).contiguous(), (_t(1, 2048, 32, 128),)),
    "channels last 8x256x56x56": Case(lambda x: x.permute(0, 2, 3, 1).contiguous(), (_t(*_IMAGE),)),
    "cat rows 2x2048x4096": Case(lambda x, y: torch.cat((x, y)), (_t(*_X), _t(*_X))),
    "cat columns 2x2048x4096": Case(lambda x, y: torch.cat((x, y), -1), (_t(*_X), _t(*_X))),
    "cat 2x(32,2048,64)": Case(lambda x, y: torch.cat((x, y), -1), (_t(32, 2048, 64), _t(32, 2048, 64))),
    "rotary 1x32x2048x128": Case(_rope, (_t(1, 32, 2048, 128), _t(1, 1, 2048, 128), _t(1, 1, 2048, 128))),
    "stack 4x2048x1024": Case(lambda *x: torch.stack(x, -1), tuple(_t(2048, 1024) for _ in range(4))),
    "pad 8x256x56x56": Case(lambda x: F.pad(x, (1, 1, 1, 1)), (_t(*_IMAGE),)),
    "repeat_interleave heads 8x2048x128 4": Case(
        lambda x: x[:, :, None].expand(1, 8, 4, 2048, 128).reshape(1, 32, 2048, 128), (_t(1, 8, 2048, 128),)
    ),
    "embedding 4096 of 32000x4096": Case(
        lambda w, i: F.embedding(i, w), (_t(32000, 4096), _index(4096)), touched=4096 * 4096 * 2 + 4096 * 8
    ),
    "embedding backward 4096 to 32000x1024": Case(
        lambda w, i: F.embedding(i, w), (_t(32000, 1024, grad=True), _index(4096)), True
    ),
    "gather 2048 of 2048x32000": Case(
        lambda x, i: x.gather(1, i), (_t(2048, 32000), _index(2048, 1)), touched=2048 * (2 + 8)
    ),
    "index_select 1024 of 4096x1024": Case(
        lambda x, i: x.index_select(0, i), (_t(4096, 1024), _index(1024)), touched=1024 * (2048 + 8)
    ),
    "index_put rows 1024 of 4096x1024": Case(
        lambda x, i, y: x.index_put((i,), y), (_t(4096, 1024), _index(1024), _t(1024, 1024))
    ),
    "index_add rows 4096 to 4096x1024": Case(
        lambda x, i, y: x.index_add(0, i, y), (_t(4096, 1024), _index(4096), _t(4096, 1024))
    ),
    "scatter_add 2048x64": Case(lambda x, i, y: x.scatter_add(1, i, y), (_t(2048, 64), _index(2048, 64), _t(2048, 64))),
    "tril 4096x4096": Case(torch.tril, (_t(4096, 4096),)),
    "foreach adamw 4096x4096 fp32": Case(_foreach_adamw, tuple(_t(4096, 4096, dtype=FP32) for _ in range(4))),
    "mse_loss 2048x4096": Case(F.mse_loss, (_t(*_X), _t(*_X))),
    "bce with logits 2048x4096": Case(F.binary_cross_entropy_with_logits, (_t(*_X), _t(*_X))),
    "norm 2048x4096": Case(lambda x: x.norm(), (_t(*_X),)),
    "mm 2048x4096x4096": Case(torch.mm, (_t(*_X), _t(4096, 4096))),
    "mm fp32 1024x2048x2048": Case(torch.mm, (_t(1024, 2048, dtype=FP32), _t(2048, 2048, dtype=FP32))),
    "linear + gelu 2048x1024x4096": Case(
        lambda x, w, b: F.gelu(F.linear(x, w, b)), (_t(2048, 1024), _t(4096, 1024), _t(4096))
    ),
    "bmm 32x512x128x512": Case(torch.bmm, (_t(32, 512, 128), _t(32, 128, 512))),
    "mv 4096x4096": Case(torch.mv, (_t(4096, 4096), _t(4096))),
    "mm 1x4096x11008": Case(torch.mm, (_t(1, 4096), _t(4096, 11008))),
    "conv 3x3 8x256x56x56": Case(lambda x, w: F.conv2d(x, w, padding=1), (_t(*_IMAGE), _t(256, 256, 3, 3))),
    "conv backward 3x3 8x128x28x28": Case(
        lambda x, w: F.conv2d(x, w, padding=1), (_t(8, 128, 28, 28, grad=True), _t(128, 128, 3, 3, grad=True)), True
    ),
    "conv patches 8x3x224x224 by 16": Case(
        lambda x, w: F.conv2d(x, w, stride=16), (_t(8, 3, 224, 224), _t(768, 3, 16, 16))
    ),
    "depthwise conv 7x7 8x96x56x56": Case(
        lambda x, w: F.conv2d(x, w, padding=3, groups=96), (_t(8, 96, 56, 56), _t(96, 1, 7, 7))
    ),
    "attention causal 32x2048x128": Case(lambda q: _scaled_attention(q, is_causal=True), (_t(1, 32, 2048, 128),)),
    "attention 32x2048x128": Case(_scaled_attention, (_t(1, 32, 2048, 128),)),
    "attention backward 32x2048x128": Case(
        lambda q: _scaled_attention(q, is_causal=True), (_t(1, 32, 2048, 128, grad=True),), True
    ),
    "attention by hand 32x2048x128": Case(_attention, tuple(_t(1, 32, 2048, 128) for _ in range(3))),
    "attention decode 32x1 of 2048": Case(
        F.scaled_dot_product_attention, (_t(8, 32, 1, 128), _t(8, 32, 2048, 128), _t(8, 32, 2048, 128))
    ),
}


def bound_ns(graph: Graph, touched: int | None = None) -> float:
    """The least time of a graph: its bytes once through HBM, or its products' FLOPs at peak.

    Args:
        graph: what is computed.
        touched: bytes of the inputs, where not all of them are read.
    """
    target = load_target(TARGET)
    read = {v.index for n in graph.nodes for v in _values((n.args, n.kwargs)) if v.node == -1}
    inputs = sum(graph.inputs[i].bytes for i in read) if touched is None else touched
    results = {v for v in graph.outputs if v.node >= 0} | {v for _, v in graph.mutates if v.node >= 0}
    outputs = sum(graph.nodes[v.node].outputs[v.index].bytes for v in results)
    dtypes = {s.dtype for s in graph.inputs} & {"fp32", "bf16"}
    peak = target.tensor_peak_flops_per_second["bf16" if "bf16" in dtypes else "fp32"]
    return max((inputs + outputs) / target.hbm_bytes_per_second, model_flops(graph) / peak) * 1e9


def _values(value: Any) -> Any:
    if isinstance(value, Value):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _values(item)


def measure(name: str) -> dict[str, object]:
    """One row."""
    case = CASES[name]
    graph = trace_graphs(case.function, *case.inputs, backward=case.backward)[-1]
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        executable = compile_graph(graph, TARGET)
        seconds.append(time.process_time() - begin)
        if seconds[-1] > 2:
            break
    least = bound_ns(graph, case.touched)
    limits = bounds(executable.program, load_target(TARGET))
    units = {"DMA": limits.dma_ns, **limits.engine_ns}
    busiest = max(units, key=units.__getitem__)
    time_ns = max(1, executable.program_ns)
    return {
        "op": name,
        "us": round(time_ns / 1e3, 1),
        "bound us": round(least / 1e3, 1),
        "times": round(time_ns / max(1.0, least), 2),
        "bound by": f"{busiest} {100 * units[busiest] / time_ns:.0f} %",
        "estimated %": round(100 * executable.estimated_ns / time_ns, 1),
        "instructions": executable.program.executed,
        "compile ms": round(min(seconds) * 1e3, 1),
    }


def run(names: tuple[str, ...] = ()) -> list[dict[str, object]]:
    """Rows of the table, the farthest from its bound first."""
    rows = []
    for name in names or tuple(CASES):
        rows.append(measure(name))
        print(rows[-1], file=sys.stderr, flush=True)
    return sorted(rows, key=lambda row: -float(str(row["times"])))


if __name__ == "__main__":
    from benchmarks.__main__ import _markdown

    words = sys.argv[1:]
    print(_markdown(run(tuple(n for n in CASES if any(w in n for w in words)))))
