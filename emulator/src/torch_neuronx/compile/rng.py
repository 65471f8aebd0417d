"""Random ops that a backward graph repeats (activation checkpoints): the forward keeps the generator's state.

aot_autograd's partitioner marks such ops with higher-order operators that know no neuron device. They become plain
calls here: functions on the host that read and set the state, and the op itself.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state

__all__ = ["is_host_call", "read_state", "replace_rng_operators", "swap_state"]


def read_state(device: torch.device) -> torch.Tensor:
    """The device's generator state."""
    return torch.neuron.get_rng_state(device)


def swap_state(state: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Set the device's generator state; returns what it was."""
    previous = torch.neuron.get_rng_state(device)
    torch.neuron.set_rng_state(state, device)
    return previous


def is_host_call(node: fx.Node) -> bool:
    """True for a call that only handles generator states, and so is no part of the device's program."""
    return node.op == "call_function" and node.target in (read_state, swap_state)


def replace_rng_operators(module: fx.GraphModule) -> None:
    """Rewrite a graph in place."""
    changed = False
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in (run_and_save_rng_state, run_with_rng_state):
            continue
        changed = True
        with module.graph.inserting_before(node):
            if node.target is run_and_save_rng_state:
                result, device = _op(module.graph, node, node.args)
                with module.graph.inserting_before(result):
                    state = module.graph.call_function(read_state, (device,))
                _replace_pair(node, state, result)
            else:
                result, device = _op(module.graph, node, node.args[1:])
                with module.graph.inserting_before(result):
                    previous = module.graph.call_function(swap_state, (node.args[0], device))
                module.graph.call_function(swap_state, (previous, device))
                node.replace_all_uses_with(result)
        module.graph.erase_node(node)
    if changed:
        module.recompile()


def _op(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...]) -> tuple[fx.Node, torch.device]:
    """The op that a higher-order operator wraps, with its fake result, and the device it draws on."""
    op, *rest = args
    result = graph.call_function(op, tuple(rest), dict(node.kwargs))
    result.stack_trace = node.stack_trace
    fakes = fx.map_arg((tuple(rest), dict(node.kwargs)), lambda arg: arg.meta["val"])
    with _fake_mode(fakes):
        value = result.meta["val"] = op(*fakes[0], **fakes[1])
    return result, (value[0] if isinstance(value, list | tuple) else value).device


def _fake_mode(values: Any) -> Any:
    mode = torch._guards.detect_fake_mode(values)
    if mode is None:
        raise RuntimeError("a random op without tensor arguments can't be repeated in a backward graph")
    return mode


def _replace_pair(node: fx.Node, state: fx.Node, result: fx.Node) -> None:
    """Uses of the (state, result) pair take the new nodes."""
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise RuntimeError(f"{node} is used as a whole by {user}; expected its items to be taken")
        user.replace_all_uses_with(state if user.args[1] == 0 else result)
        user.graph.erase_node(user)
