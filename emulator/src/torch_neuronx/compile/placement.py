"""Where a compiled graph's tensors live: inputs on the host are copied to the device, results stay there.

Dynamo traces with the devices the caller used. A graph that never mentions the device ("host graph") is retargeted: it
runs on the current NeuronCore, its results are neuron tensors unless TORCH_NEURONX_RETAIN_DEVICE_MODE=1, and what it
mutates is copied back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torch_neuronx.compile.errors import NEFFExecutionError
from torch_neuronx.compile.rng import is_host_call

__all__ = ["Placement", "place"]

DEVICE_TYPE = "neuron"


@dataclass(frozen=True)
class Placement:
    """How to call one graph.

    Attributes:
        device: where it runs.
        host: it was traced on the host; its inputs are copied.
        results_to_host: its results are copied back (gradients of host parameters, or retained devices).
        mutated: inputs the graph writes.
        error: why it can't be called.
    """

    device: torch.device
    host: bool
    results_to_host: bool
    mutated: tuple[int, ...]
    error: str | None = None

    def check(self) -> None:
        """Refuse a call that can't work.

        Raises:
            NEFFExecutionError: inputs on different devices.
        """
        if self.error is not None:
            raise NEFFExecutionError(self.error)

    def inputs(self, args: Sequence[Any]) -> list[Any]:
        """A host graph's arguments on the device.

        Raises:
            RuntimeError: an input on the host although copying is switched off.
        """
        return [self._input(index, value) for index, value in enumerate(args)]

    def _input(self, index: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            return value
        if os.environ.get("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY") == "1":
            raise RuntimeError(
                f"Input tensor at index {index} is on cpu device, expected neuron. Move it with .to('neuron'), "
                "or unset TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY to have it copied."
            )
        return value.to(self.device)

    def results(self, results: Any, args: Sequence[Any], moved: Sequence[Any]) -> Any:
        """A host graph's results where the caller expects them; mutated inputs are copied back."""
        for index in self.mutated:
            if args[index] is not moved[index]:
                args[index].copy_(moved[index])
        if not self.results_to_host:
            return results
        return type(results)(item.cpu() if isinstance(item, torch.Tensor) else item for item in results)


def place(module: fx.GraphModule, is_backward: bool) -> Placement:
    """Decide where a graph runs, and rewrite its device arguments and constants if it was traced on the host."""
    tensors = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder" and _is_data(node)]
    used = sorted({str(device) for device in _devices(module) if device.type == DEVICE_TYPE})
    mutated = _mutated(module)
    if used:
        device = next((value.device for value in tensors if value.device.type == DEVICE_TYPE), torch.device(used[0]))
        return Placement(device, False, False, mutated, _mixture(tensors))
    device = torch.device(DEVICE_TYPE, torch.neuron.current_device())
    _retarget(module, device)
    # Autograd wants the gradient of a host parameter on the host.
    retain = os.environ.get("TORCH_NEURONX_RETAIN_DEVICE_MODE", "0") == "1"
    return Placement(device, True, is_backward or retain, mutated)


def _is_data(node: fx.Node) -> bool:
    """True for a tensor input; generator states stay on the host."""
    if node.users and all(is_host_call(user) for user in node.users):
        return False
    return isinstance(node.meta.get("val"), torch.Tensor)


def _devices(module: fx.GraphModule) -> Iterator[torch.device]:
    for node in module.graph.nodes:
        value = node.meta.get("val")
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, torch.Tensor):
                yield item.device


def _mixture(tensors: Sequence[torch.Tensor]) -> str | None:
    """Why these inputs can't go together.

    A single number on the host travels with the launch; an empty tensor there is torch's token that orders effects.
    """
    big = [tensor for tensor in tensors if tensor.device.type != "cpu" or (tensor.dim() > 0 and tensor.numel() > 0)]
    devices = {str(tensor.device) for tensor in big}
    if len(devices) < 2:
        return None
    return (
        f"cannot mix input devices: the graph's inputs are on {', '.join(sorted(devices))}. "
        "Move the module and all its inputs to one neuron device."
    )


def _retarget(module: fx.GraphModule, device: torch.device) -> None:
    def moved(value: Any) -> Any:
        return device if isinstance(value, torch.device) and value.type == "cpu" else value

    for node in module.graph.nodes:
        node.args = fx.node.map_aggregate(node.args, moved)
        node.kwargs = fx.node.map_aggregate(node.kwargs, moved)
        if node.op == "get_attr":
            value = getattr(module, str(node.target), None)
            if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 0:
                setattr(module, str(node.target), value.to(device))
    module.recompile()


def _mutated(module: fx.GraphModule) -> tuple[int, ...]:
    numbers = {node: i for i, node in enumerate(n for n in module.graph.nodes if n.op == "placeholder")}
    found = {
        numbers[node.args[0]]
        for node in module.graph.nodes
        if node.op == "call_function" and node.target is torch.ops.aten.copy_.default and node.args[0] in numbers
    }
    return tuple(sorted(found))
