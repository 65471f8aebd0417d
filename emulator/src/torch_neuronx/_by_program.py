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
from neuroncore.graph import Graph, TensorSpec, Value
from neuroncore.isa.dtypes import STORAGE
from neuroncore.runtime import Executable
from torch import fx

from torch_neuronx import _C, _executables, lowering

__all__ = ["around_call", "around_graph"]

Finish = Callable[[str, Sequence[torch.Tensor | None]], None]
Array = npt.NDArray[Any]
#: A tensor and how the program lays it out, None: as it lies.
Place = tuple[torch.Tensor | None, TensorSpec | None]

#: dtypes numpy lacks: what their bits are kept as.
_BITS = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


def around_call(overload: str, args: Sequence[Any]) -> Finish:
    """Before an eager op: keep its inputs. What it gives is called after the op, to overwrite its results."""
    try:
        inputs = lowering.call_inputs(overload, args)
    except lowering.LoweringError:
        return lambda neff, results: None
    stored = [_array(tensor) for tensor in inputs]

    def finish(neff: str, results: Sequence[torch.Tensor | None]) -> None:
        _execute(_executables.find(neff), stored, [(t, None) for t in inputs], [(t, None) for t in results])

    return finish


def around_graph(
    body: Callable[[list[Any]], Any], module: fx.GraphModule, graph: Graph, neff: str
) -> Callable[[list[Any]], Any]:
    """A compiled graph's body that computes its results by the graph's program."""
    try:
        sources = lowering.fx_inputs(module)
    except lowering.LoweringError:
        return body
    executable = _executables.find(neff)
    if len(sources) != len(graph.inputs):  # the graph stands for bytes alone: an estimate
        return body

    # The graph's own layouts: a kernel's result may lie otherwise than torch said when the graph was traced.
    read, written = list(graph.inputs), [_spec(graph, value) for value in graph.outputs]

    def run(args: list[Any]) -> Any:
        _C.drain()
        inputs = [args[source] if isinstance(source, int) else source for source in sources]
        stored = [_array(tensor, spec) for tensor, spec in zip(inputs, read, strict=True)]
        results = body(args)
        _C.drain()
        outputs = list(_tensors(results))
        if len(outputs) == len(written):
            _execute(executable, stored, list(zip(inputs, read, strict=True)), list(zip(outputs, written, strict=True)))
        return results

    return run


def _spec(graph: Graph, value: Value) -> TensorSpec:
    return graph.inputs[value.index] if value.node == -1 else graph.nodes[value.node].outputs[value.index]


def _execute(
    executable: Executable | None, stored: Sequence[Array], inputs: Sequence[Place], results: Sequence[Place]
) -> None:
    """Run a program on what its inputs were; write what it wrote to the tensors of these names."""
    if executable is None or executable.estimated_ns or not executable.program.outputs:
        return
    if any(instruction.opcode == "rng" for instruction in executable.program.text()):
        return
    # An `out=` of another size was resized by the op, an argument of a graph may be left out: nobody reads those.
    fitting = [
        array if array.size == tensor.elements else np.zeros(tensor.elements, STORAGE[tensor.dtype])
        for array, tensor in zip(stored, executable.program.inputs, strict=True)
    ]
    try:
        written = machine.run(executable.program, fitting)
    except NeuroncoreError as error:
        raise RuntimeError(f"{executable.name}: its program does not execute: {error}") from error
    for name, array in written.items():
        kind, number = name.rstrip("0123456789"), int(name.lstrip("inout"))
        tensor, spec = inputs[number] if kind == "in" else results[number]
        if tensor is not None:
            _overwrite(tensor, spec, array)


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory as a host tensor of numbers that numpy knows; not a copy."""
    tensor = tensor.detach()
    tensor = tensor if tensor.device.type == "cpu" else _C.cpu_view(tensor)
    return tensor.view(_BITS[tensor.dtype]) if tensor.dtype in _BITS else tensor


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """From a tensor's first element to its last; not a copy."""
    count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    return tensor.as_strided((count,), (1,))


def _array(tensor: torch.Tensor | None, spec: TensorSpec | None = None) -> Array:
    """A copy of what a program reads: the memory of a tensor, laid out as `spec` says."""
    if tensor is None:
        return np.zeros(0)
    host = _on_host(tensor)
    if spec is None or not spec.strides or tuple(host.stride()) == spec.strides:
        return _memory(host).clone().numpy()
    turned = torch.empty_strided(host.shape, spec.strides, dtype=host.dtype)
    _memory(turned).zero_()
    return _memory(turned.copy_(host)).numpy()


def _overwrite(tensor: torch.Tensor, spec: TensorSpec | None, array: Array) -> None:
    host = _on_host(tensor)
    if not host.numel():
        return
    values = torch.from_numpy(np.ascontiguousarray(array).reshape(-1))
    if spec is None or not spec.strides or tuple(host.stride()) == spec.strides:
        _memory(host).copy_(values)
    else:
        host.copy_(values.as_strided(host.shape, spec.strides))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
