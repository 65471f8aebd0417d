"""Share of engine and DMA time that comes from lowered programs, launch cost excluded.

A training step (forward, backward, AdamW) of models on meta tensors, each eager op on its own and compiled as graphs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch_neuronx  # noqa: F401  (registers the device)
from neuroncore.graph import Graph
from neuroncore.runtime import compile_graph
from neuronscope.formats import neff
from torch_neuronx.compile.trace import trace_graphs, trace_ops

from benchmarks.models import MODELS

NAME = "Coverage of real models"


@dataclass(frozen=True)
class Coverage:
    """Simulated and estimated nanoseconds of a step, and where the estimated ones come from."""

    executables: int
    total_ns: int
    estimated_ns: int
    estimated: Counter[tuple[str, str]]

    @property
    def share(self) -> float:
        """Part of the time that is simulated, 0..1."""
        return 1.0 - self.estimated_ns / max(1, self.total_ns)


def step_graphs(name: str, size: str, *, compiled: bool) -> Iterator[Graph]:
    """The graphs of a training step of a model, in order."""
    case = MODELS[name](size)
    trace = trace_graphs if compiled else trace_ops
    yield from trace(case.model, *case.inputs, backward=True)
    yield from trace(adamw, *_optimizer_state([p.detach() for p in case.model.parameters()]))


def adamw(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    averages: list[torch.Tensor],
    squares: list[torch.Tensor],
) -> list[torch.Tensor]:
    """The hundredth AdamW step, as torch.optim does it with foreach=True."""
    rate, beta1, beta2, decay, step = 1e-3, 0.9, 0.95, 0.1, 100
    torch._foreach_mul_(parameters, 1 - rate * decay)
    torch._foreach_lerp_(averages, gradients, 1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_div_(roots, (1 - beta2**step) ** 0.5)
    torch._foreach_add_(roots, 1e-8)
    torch._foreach_addcdiv_(parameters, averages, roots, -rate / (1 - beta1**step))
    return parameters


def _optimizer_state(parameters: list[torch.Tensor]) -> tuple[list[torch.Tensor], ...]:
    def like() -> list[torch.Tensor]:
        return [torch.empty_like(p) for p in parameters]

    return like(), like(), like(), like()


def measure(name: str, size: str, *, compiled: bool, target: str = "trn2") -> Coverage:
    """Compile and time a step; equal graphs once."""
    counts = Counter(_Key(graph) for graph in step_graphs(name, size, compiled=compiled))
    total = missing = 0
    estimated: Counter[tuple[str, str]] = Counter()
    for key, count in counts.items():
        executable = compile_graph(key.graph, target)
        total += count * executable.program_ns
        missing += count * executable.estimated_ns
        for op, reason, duration_ns in neff.unpack(executable.neff).info["estimates"]:
            estimated[op, reason] += count * duration_ns
    return Coverage(sum(counts.values()), total, missing, estimated)


class _Key:
    """A graph, equal to those that compile to the same program."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.text = repr((graph.inputs, [(n.target, n.args, n.kwargs, n.outputs) for n in graph.nodes], graph.mutates))

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.text == other.text


def run(sizes: tuple[str, ...] = ("tiny", "real"), names: tuple[str, ...] = ()) -> list[dict[str, object]]:
    """One row per model, size and mode."""
    rows: list[dict[str, object]] = []
    for name in names or tuple(MODELS):
        for size in sizes:
            for compiled in (False, True):
                started = time.perf_counter()
                found = measure(name, size, compiled=compiled)
                worst = [f"{op} {ns / 1e3:.0f} us ({why})" for (op, why), ns in found.estimated.most_common(3)]
                rows.append({
                    "model": f"{name}: {MODELS[name](size).described}",
                    "mode": "compiled" if compiled else "eager",
                    "executions": found.executables,
                    "engine and DMA ms": f"{found.total_ns / 1e6:.3f}",
                    "lowered %": f"{100 * found.share:.2f}",
                    "estimated": "; ".join(worst),
                    "seconds to compile": f"{time.perf_counter() - started:.1f}",
                })  # fmt: skip
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    from benchmarks.__main__ import _markdown

    chosen = [a for a in sys.argv[1:] if a in ("tiny", "real")] or ["tiny", "real"]
    print(_markdown(run(tuple(chosen), tuple(a for a in sys.argv[1:] if a in MODELS))))
