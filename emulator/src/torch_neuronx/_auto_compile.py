"""`torch.compile(model)` without a backend picks neuron for graphs on the device, as the real package does.

Inductor, the default, has no code generator for the device. Dynamo calls its wrapper once per captured graph, where the
choice is made; graphs on other devices go on to Inductor.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch


def install() -> None:
    """Make the choice part of torch's default backend. Idempotent."""
    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__
    if getattr(original, "chooses_neuron", False):
        return

    @functools.wraps(original)
    def call(self: Any, module: Any, inputs: Sequence[Any]) -> Any:
        if not _on_neuron(module, inputs):
            return original(self, module, inputs)
        from torch_neuronx.compile import neuron_backend

        return neuron_backend(module, inputs)

    call.chooses_neuron = True  # type: ignore[attr-defined]
    wrapper.__call__ = call


def _on_neuron(module: Any, inputs: Sequence[Any]) -> bool:
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    tensors += [*module.parameters(), *module.buffers()]
    if tensors:
        return any(tensor.device.type == "neuron" for tensor in tensors)
    # Without tensors to look at, the devices named in the graph decide.
    devices = [value for node in module.graph.nodes for value in (*node.args, *node.kwargs.values())]
    return any("neuron" in str(value) for value in devices if isinstance(value, str | torch.device))
