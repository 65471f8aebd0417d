"""A compiler graph's executable and what `_C` keeps of it. An unknown time is no failure: it becomes an estimate.

Three tiers: the graph compiled; the graph as one opaque op that moves its tensors (the compiler's own bandwidth-bound
estimate, with a NEFF); the bytes moved at the target's rate. The last two mark the whole program as estimated.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from typing import Any

from neuroncore.errors import TargetError
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.runtime import Executable, compile_graph

from torch_neuronx import _executables, lowering

__all__ = ["executable_fields", "warn_estimated"]

_log = logging.getLogger("torch_neuronx")
_warned: set[str] = set()


def executable_fields(
    graph: Graph, op: str, overload: str, raises: tuple[type[Exception], ...] = (TargetError,)
) -> dict[str, Any]:
    """Compile a graph, keep its executable, and return what `_C.create_executable` takes.

    Args:
        graph: what to compile.
        op: name that profiles show ("aten::mul", or the compiled graph's name).
        overload: full name ("aten::mul.Tensor").
        raises: errors of the compiler that are the user's to solve, and so reach the caller.

    Raises:
        neuroncore.errors.TargetError: NEURON_PLATFORM_TARGET_OVERRIDE names no target.
    """
    shapes, dtypes = lowering.display(graph)
    try:
        executable = compile_graph(graph)
    except raises:
        raise
    except Exception as error:
        warn_estimated(overload, error)
        try:
            executable = _marked(compile_graph(_opaque(graph)))
        except Exception as second:
            _log.debug("%s: no estimate by the compiler either: %s", overload, second)
            return _bytes_only(graph, op, overload, shapes, dtypes)
    _executables.add(executable)
    return _executables.fields(executable, op, overload, shapes, dtypes)


def warn_estimated(overload: str, error: Exception) -> None:
    """Say once per op that its device time is an estimate, and why."""
    if overload not in _warned:
        _warned.add(overload)
        text = " ".join(str(error).split()) or "no reason given"
        _log.warning("device time of %s is a bandwidth-bound estimate: %s: %s", overload, type(error).__name__, text)


def _marked(executable: Executable) -> Executable:
    return replace(executable, estimated_ns=executable.program_ns)


def _opaque(graph: Graph) -> Graph:
    """One op no compiler knows, which reads the graph's inputs and writes its results."""
    results = [_spec_of(graph, value) for value in graph.outputs]
    results += [_spec_of(graph, value) for _, value in graph.mutates if value not in graph.outputs]
    outputs = tuple(map(_real, results))
    node = Node(f"estimate.{graph.name}", tuple(Value(-1, i) for i in range(len(graph.inputs))), (), outputs)
    values = tuple(Value(0, i) for i in range(len(outputs)))
    return Graph(graph.name, tuple(map(_real, graph.inputs)), (node,), values)


def _spec_of(graph: Graph, value: Value) -> TensorSpec:
    return graph.inputs[value.index] if value.node == -1 else graph.nodes[value.node].outputs[value.index]


def _real(spec: TensorSpec) -> TensorSpec:
    """Dense, and complex numbers as pairs: what the bandwidth-bound estimate needs to know."""
    if spec.dtype.startswith("complex"):
        return TensorSpec((*spec.shape, 2), "fp64" if spec.dtype == "complex128" else "fp32")
    return TensorSpec(spec.shape, spec.dtype)


def _bytes_only(graph: Graph, op: str, overload: str, shapes: str, dtypes: str) -> dict[str, Any]:
    from neuroncore.targets import load_target

    target = load_target()
    read = sum(spec.bytes for spec in graph.inputs)
    written = sum(_spec_of(graph, value).bytes for value in graph.outputs)
    duration_ns = max(1, round((read + written) / target.dma_bytes_per_second * 1e9))
    identity = (target.hash, graph.inputs, [(node.target, node.outputs) for node in graph.nodes])
    digest = hashlib.sha256(f"estimate|{identity}".encode()).digest()
    return {
        "neff": str(int.from_bytes(digest[:8], "big") >> 1),
        "op": op,
        "overload": overload,
        "program_ns": duration_ns,
        "estimated_ns": duration_ns,
        "bytes_read": read,
        "bytes_written": written,
        "flops": 0,
        "shapes": shapes,
        "dtypes": dtypes,
        "bound": "",
    }
