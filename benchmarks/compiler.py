"""Compiling and simulating without running.

Single ops that the cache doesn't know, and a decoder layer of Llama 7B's sizes (hidden 4096, 32 heads, intermediate
11008, bf16, causal attention, rotary embedding) on meta tensors at growing sequence lengths. CPU time on one core, the
first compilation of each after one of another op; each layer in a process of its own, so that its peak memory (torch's
own 0.4 GB included) can be told. `written` counts the instructions of the program's text, its loops not unrolled.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks._memory import peak_bytes

NAME = "Compile time and memory"

_HIDDEN, _HEADS, _INTERMEDIATE = 4096, 32, 11008
_LENGTHS = (2048, 4096, 8192, 16384, 32768)


def _layer() -> Any:
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("q", "k", "v", "o"):
                setattr(self, name, nn.Linear(_HIDDEN, _HIDDEN, bias=False))
            self.gate = nn.Linear(_HIDDEN, _INTERMEDIATE, bias=False)
            self.up = nn.Linear(_HIDDEN, _INTERMEDIATE, bias=False)
            self.down = nn.Linear(_INTERMEDIATE, _HIDDEN, bias=False)
            self.first, self.second = nn.RMSNorm(_HIDDEN), nn.RMSNorm(_HIDDEN)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            def turned(x: Any) -> Any:
                left, right = x.chunk(2, -1)
                return x * cos + torch.cat((-right, left), -1) * sin

            batch, length, hidden = x.shape
            y = self.first(x)
            q, k, v = (p(y).view(batch, length, _HEADS, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
            y = nn.functional.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).reshape(batch, length, hidden))
            y = self.second(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    return Layer()


def _one_layer(length: int) -> dict[str, Any]:
    """Compile the layer in this process."""
    import torch
    import torch_neuronx  # noqa: F401  (registers the device)
    from neuroncore.runtime import compile_graph
    from torch_neuronx.compile.trace import trace_graphs

    with torch.device("meta"):
        model = _layer().bfloat16()
        x = torch.empty(1, length, _HIDDEN, dtype=torch.bfloat16)
        angle = torch.empty(1, 1, length, _HIDDEN // _HEADS, dtype=torch.bfloat16)
    (graph,) = trace_graphs(model, x, angle, angle)
    begin = time.process_time()
    executable = compile_graph(graph, "trn2")
    seconds = time.process_time() - begin
    peak = round(peak_bytes() / 1e6)
    return _row(f"decoder layer, {length} tokens", executable, seconds) | {"peak MB": peak}


def _row(name: str, executable: Any, seconds: float) -> dict[str, Any]:
    return {
        "what": name,
        "compile ms": round(seconds * 1e3, 1),
        "instructions": executable.program.executed,
        "written": sum(1 for _ in executable.program.text()),
        "NEFF kB": round(len(executable.neff) / 1e3, 1),
        "device ms": round(executable.program_ns / 1e6, 3),
        "estimated %": round(100 * executable.estimated_ns / max(1, executable.program_ns), 1),
        "peak MB": "",
    }


def _ops() -> list[dict[str, Any]]:
    """Single ops of up to a thousand instructions, as the eager cache compiles them."""
    import torch
    import torch_neuronx  # noqa: F401  (registers the device)
    from neuroncore.runtime import compile_graph
    from torch_neuronx.compile.trace import trace_ops

    def meta(*shape: int) -> Any:
        return torch.empty(*shape, dtype=torch.bfloat16, device="meta")

    attention = torch.nn.functional.scaled_dot_product_attention
    cases: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "mul, 4x512": (torch.mul, (meta(4, 512), meta(4, 512))),
        "softmax, 4096x4096": (lambda x: torch.softmax(x, -1), (meta(4096, 4096),)),
        "mm, 512x2048x1024": (torch.mm, (meta(512, 2048), meta(2048, 1024))),
        "conv2d, 8x64x28x28, 3x3": (torch.nn.functional.conv2d, (meta(8, 64, 28, 28), meta(64, 64, 3, 3))),
        "attention, 8 heads x 512 x 64": (lambda q: attention(q, q, q, is_causal=True), (meta(1, 8, 512, 64),)),
    }
    first = trace_ops(torch.sub, meta(4, 512), meta(4, 512))
    compile_graph(first[0], "trn2")
    rows = []
    for name, (function, inputs) in cases.items():
        graph = trace_ops(function, *inputs)[-1]
        begin = time.process_time()
        executable = compile_graph(graph, "trn2")
        rows.append(_row(name, executable, time.process_time() - begin))
    return rows


def run() -> list[dict[str, object]]:
    """Rows of the table."""
    rows: list[dict[str, object]] = []
    for argument in ("ops", *map(str, _LENGTHS)):
        command = [sys.executable, "-m", "benchmarks.compiler", argument]
        root = Path(__file__).parents[1]
        answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
        rows += json.loads(answer.splitlines()[-1])
    return rows


if __name__ == "__main__":
    print(json.dumps(_ops() if sys.argv[1] == "ops" else [_one_layer(int(sys.argv[1]))]))
