"""Compiles an eager op that the executable cache doesn't know. `_C` calls this once per signature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def compile_call(op: str, overload: str, args: Sequence[Any], outputs: Sequence[Any]) -> dict[str, Any]:
    """The executable of one call, as `_C` wants it.

    Args:
        op: "aten::mul".
        overload: "aten::mul.Tensor".
        args: arguments in the schema's order; numbers from the host are Python numbers.
        outputs: result tensors, None where undefined.
    """
    # Late: importing torch must load neither the compiler nor Arrow.
    from torch_neuronx import _programs, lowering

    try:
        graph = lowering.graph_from_call(overload, args, results=outputs)
    except lowering.LoweringError as error:
        _programs.warn_estimated(overload, error)
        graph = _byte_graph(overload, args, outputs)
    return _programs.executable_fields(graph, op, overload)


def _byte_graph(overload: str, args: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """An op on tensors that a graph can't describe, as one on as many bytes."""
    from neuroncore.graph import Graph, Node, TensorSpec, Value

    def spec(tensor: torch.Tensor) -> TensorSpec:
        return TensorSpec((tensor.numel() * tensor.element_size(),), "uint8")

    # Identity, not equality: an operand used twice is read once.
    inputs = tuple(spec(t) for t in {id(t): t for t in _tensors(args) if t.device.type != "cpu"}.values())
    results = tuple(map(spec, _tensors(outputs)))
    node = Node(f"estimate.{overload}", tuple(Value(-1, i) for i in range(len(inputs))), (), results)
    return Graph(overload, inputs, (node,), tuple(Value(0, i) for i in range(len(results))))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
