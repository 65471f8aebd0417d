"""NEURONSCOPE_EXECUTE=program: values come from the programs, executed on the machine, not from torch's CPU kernels.

Around every eager op and every compiled graph: its inputs are kept as they were before, its CPU kernels run (they also
say what the results look like), then its program is executed on the machine and what it wrote replaces their results.
So a script can be run on the very instructions whose time it is told. It is as slow as the machine: for small models.

CPU kernels keep the last word where there is no program to execute (an op timed by an estimate, one that runs on the
host) or its values are drawn at random. 64-bit numbers are computed in 32 bits, as on the hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from neuroncore import machine
from neuroncore.errors import NeuroncoreError
from neuroncore.graph import Graph
from neuroncore.runtime import Executable
from torch import fx

from torch_neuronx import _C, _executables, lowering

__all__ = ["around_call", "around_graph"]

Finish = Callable[[str, Sequence[torch.Tensor | None]], None]
Array = npt.NDArray[Any]

#: dtypes numpy lacks: what their bits are kept as.
_BITS = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


def around_call(overload: str, args: Sequence[Any]) -> Finish:
    """Before an eager op: keep its inputs. What it gives is called after the op, to overwrite its results."""
    try:
        inputs = lowering.call_inputs(overload, args)
    except lowering.LoweringError:
        return lambda neff, results: None
    stored = _stored(inputs)

    def finish(neff: str, results: Sequence[torch.Tensor | None]) -> None:
        _execute(_executables.find(neff), stored, inputs, results)

    return finish


def around_graph(
    body: Callable[[list[Any]], Any], module: fx.GraphModule, graph: Graph, neff: str
) -> Callable[[list[Any]], Any]:
    """A compiled graph's body that computes its results by the graph's program."""
    sources = lowering.fx_inputs(module)
    executable = _executables.find(neff)
    if len(sources) != len(graph.inputs):  # the graph stands for bytes alone: an estimate
        return body

    def run(args: list[Any]) -> Any:
        _C.drain()
        inputs = [args[source] if isinstance(source, int) else source for source in sources]
        stored = _stored(inputs)
        results = body(args)
        _C.drain()
        _execute(executable, stored, inputs, list(_tensors(results)))
        return results

    return run


def _execute(
    executable: Executable | None,
    stored: Sequence[Array],
    inputs: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor | None],
) -> None:
    """Run a program on what its inputs were; write what it wrote to the tensors of these names."""
    if executable is None or executable.estimated_ns or not executable.program.outputs:
        return
    if any(instruction.opcode == "rng" for instruction in executable.program.text()):
        return
    sizes = [tensor.elements for tensor in executable.program.inputs]
    # An `out=` of another size was resized by the op; nobody reads what was in it.
    fitting = [
        array if array.size == size else np.zeros(size, array.dtype) for array, size in zip(stored, sizes, strict=True)
    ]
    try:
        written = machine.run(executable.program, fitting)
    except NeuroncoreError as error:
        raise RuntimeError(f"{executable.name}: its program does not execute: {error}") from error
    for name, array in written.items():
        kind, number = name.rstrip("0123456789"), int(name.lstrip("inout"))
        tensor = inputs[number] if kind == "in" else results[number]
        if tensor is not None:
            _overwrite(tensor, array)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory a tensor looks at, from its first element to its last, as numbers numpy knows; not a copy."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = _C.cpu_view(tensor)
    count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    flat = tensor.as_strided((count,), (1,))
    return flat.view(_BITS[tensor.dtype]) if tensor.dtype in _BITS else flat


def _stored(tensors: Sequence[torch.Tensor]) -> list[Array]:
    return [_flat(tensor).clone().numpy() for tensor in tensors]


def _overwrite(tensor: torch.Tensor, array: Array) -> None:
    target = _flat(tensor)
    if target.numel():
        target.copy_(torch.from_numpy(np.ascontiguousarray(array).reshape(-1)))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
