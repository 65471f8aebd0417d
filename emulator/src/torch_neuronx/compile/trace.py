"""Graphs of a model nobody runs: shapes only, no memory, no arithmetic. For compiling models larger than this machine.

>>> import torch, torch_neuronx  # doctest: +SKIP
>>> with torch.device("meta"):
...     model = torch.nn.Linear(4096, 11008, dtype=torch.bfloat16)
>>> (forward,) = trace_graphs(model, torch.empty(2048, 4096, dtype=torch.bfloat16, device="meta"))
>>> from neuroncore.runtime import compile_graph
>>> compile_graph(forward).program_ns
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from neuroncore.graph import Graph
from torch import fx
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from torch_neuronx import lowering
from torch_neuronx.compile.attention import fused
from torch_neuronx.compile.decompositions import decompositions
from torch_neuronx.compile.placement import DEVICE_TYPE
from torch_neuronx.compile.rng import replace_rng_operators

__all__ = ["trace_graphs", "trace_ops"]


def trace_graphs(
    model: Callable[..., Any], *args: Any, name: str = "model", backward: bool = False, **kwargs: Any
) -> tuple[Graph, ...]:
    """The graphs `torch.compile` would compile: the forward and, on request, the backward.

    Args:
        model: a module or function of tensors, on any device ("meta" costs no memory). No Dynamo: it must be traceable
            as it is, without control flow that depends on values.
        *args: its inputs; of tensors only shape, strides and dtype count.
        name: of the graphs.
        backward: differentiate the sum of all floating-point results.
        **kwargs: likewise.

    Raises:
        torch_neuronx.lowering.LoweringError: a dtype or layout without a counterpart.
    """
    graphs: list[Graph] = []

    def keep(module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        replace_rng_operators(module)
        graphs.append(lowering.graph_from_fx(module, name))
        return make_boxed_func(module.forward)

    with _Fake(model, args, kwargs) as (call, state, inputs, named):
        traced = aot_function(
            _attending(call, state, inputs, named),
            fw_compiler=keep,
            bw_compiler=keep,
            partition_fn=min_cut_rematerialization_partition,
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )
        _step(functools.partial(traced, state), inputs, named, backward=backward)
    return tuple(graphs)


def _attending(
    call: Callable[..., Any], state: dict[str, Any], inputs: tuple[Any, ...], named: dict[str, Any]
) -> Callable[..., Any]:
    """The function with attention as one op where it is written out by hand."""
    leaves, structure = tree_flatten((state, inputs, named))
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def flat(*tensors: torch.Tensor) -> Any:
        values = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        given, args, kwargs = tree_unflatten(values, structure)
        return call(given, *args, **kwargs)

    found = fused(flat, [leaves[place] for place in places])
    if found is flat:
        return call

    def replaced(given: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        values = tree_leaves((given, args, kwargs))
        return found(*(values[place] for place in places))

    return replaced


def trace_ops(
    model: Callable[..., Any],
    *args: Any,
    backward: bool = False,
    step: Callable[[], Any] | None = None,
    **kwargs: Any,
) -> tuple[Graph, ...]:
    """The ops eager mode would launch, in order, one graph each; views and other ops without a launch left out.

    Args:
        model: as for `trace_graphs`.
        *args: as for `trace_graphs`.
        backward: run the backward pass of the sum of all floating-point results too.
        step: called after that, for example an optimizer's `step` of parameters that are fake already.
        **kwargs: as for `trace_graphs`.
    """
    recorder = _Recorder()
    with _Fake(model, args, kwargs) as (call, state, inputs, named), recorder:
        _step(functools.partial(call, state), inputs, named, backward=backward)
        if step is not None:
            step()
    return tuple(recorder.graphs)


class _Fake:
    """A model with fake parameters on the device, as a function of (state, *args)."""

    def __init__(self, model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, FakeTensor)]
        if isinstance(model, torch.nn.Module):
            tensors += [p for p in model.parameters() if isinstance(p, FakeTensor)]
        self.mode = tensors[0].fake_mode if tensors else FakeTensorMode(allow_non_fake_inputs=True)
        self.model, self.args, self.kwargs = model, args, kwargs

    def __enter__(self) -> tuple[Callable[..., Any], dict[str, Any], tuple[Any, ...], dict[str, Any]]:
        self.mode.__enter__()
        model = self.model
        state: dict[str, Any] = {}
        if isinstance(model, torch.nn.Module):
            state = {n: self._fake(p) for n, p in model.named_parameters(remove_duplicate=False)}
            state |= {n: self._fake(b) for n, b in model.named_buffers(remove_duplicate=False)}
        args, kwargs = tree_map(self._fake, (tuple(self.args), dict(self.kwargs)))

        def call(state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            if isinstance(model, torch.nn.Module):
                return torch.func.functional_call(model, state, args, kwargs)
            return model(*args, **kwargs)

        return call, state, args, kwargs

    def __exit__(self, *error: object) -> None:
        self.mode.__exit__(*error)

    def _fake(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or (isinstance(value, FakeTensor) and value.device.type == DEVICE_TYPE):
            return value
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE_TYPE)
        return made.requires_grad_(value.requires_grad)


def _step(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, backward: bool) -> None:
    with torch.set_grad_enabled(backward):
        results = call(*args, **kwargs)
    if backward:
        wanted = [t for t in tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
        torch.autograd.backward(wanted, [torch.empty_like(t) for t in wanted])


class _Recorder(TorchDispatchMode):
    """Notes every op that would be launched."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: list[Graph] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        if not func.is_view and _moves_data(func, results):
            try:
                graph = lowering.graph_from_call(func, args, kwargs, results)
            except lowering.LoweringError:
                graph = lowering.byte_graph(func.name(), (args, kwargs), results)
            self.graphs.append(graph)
        return results


#: Ops of the device that only make or describe tensors.
_NO_LAUNCH = frozenset({
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "detach", "detach_",
    "resize_",
})  # fmt: skip


def _moves_data(func: Any, results: Any) -> bool:
    name = func._schema.name.split("::")[-1]
    gives = any(isinstance(t, torch.Tensor) for t in tree_leaves(results))
    return name not in _NO_LAUNCH and (gives or func._schema.is_mutable)  # foreach ops in place return nothing
