"""What compiling took, per graph: `get_dynamo_metrics()` and the optional CSV table."""

from __future__ import annotations

import csv
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from torch._dynamo.utils import counters

from torch_neuronx.compile.names import get_rank

__all__ = ["NeuronCompilationMetrics", "get_dynamo_metrics", "record", "reset_dynamo_metrics"]


@dataclass(frozen=True)
class NeuronCompilationMetrics:
    """One compiled graph; durations in microseconds, measured on this machine.

    Attributes:
        graph_id: number of the graph in this process, from 0.
        graph_name: "<model>_<aot id>_<type>_<nth>".
        timestamp: seconds since the epoch at which compiling ended.
        torch_neuronx_fx_passes_us: preparing the FX graph.
        torch_neuronx_lower_us: FX graph to compiler graph.
        torch_neuronx_compile_us: compiler graph to executable, simulation included.
    """

    graph_id: int
    graph_name: str
    model_name: str
    has_collectives: bool
    graph_node_count: int
    timestamp: float
    torch_neuronx_fx_passes_us: int
    torch_neuronx_lower_us: int
    torch_neuronx_compile_us: int


_metrics: list[NeuronCompilationMetrics] = []


def get_dynamo_metrics() -> list[NeuronCompilationMetrics]:
    """Metrics of every graph compiled since the start or the last reset, oldest first."""
    return list(_metrics)


def reset_dynamo_metrics() -> None:
    """Forget all metrics and the "neuron" counters of `torch._dynamo.utils.counters`."""
    _metrics.clear()
    counters.pop("neuron", None)


def next_id() -> int:
    """Id of the next graph."""
    return len(_metrics)


def record(entry: NeuronCompilationMetrics) -> None:
    """Keep one graph's metrics; append them to the CSV table where TORCH_NEURONX_ENABLED_METRIC_TABLES asks for it."""
    _metrics.append(entry)
    counters["neuron"]["graphs_compiled"] += 1
    if "graph_stats" not in os.environ.get("TORCH_NEURONX_ENABLED_METRIC_TABLES", "").replace(" ", "").split(","):
        return
    folder = Path(os.environ.get("TORCH_NEURONX_METRICS_DIR", "/tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"metric_table_graph_stats_rank{get_rank()}.csv"
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(NeuronCompilationMetrics)])
        if is_new:
            writer.writeheader()
        writer.writerow(asdict(entry))
