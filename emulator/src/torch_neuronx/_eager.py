"""Compiles an eager op that the executable cache doesn't know. `_C` calls this once per signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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
        graph = lowering.byte_graph(overload, args, outputs)
    return _programs.executable_fields(graph, op, overload)
