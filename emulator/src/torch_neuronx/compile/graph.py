"""One compiled graph: compiled once to a program, then each call makes one launch and issues the graph's arithmetic."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from neuroncore.errors import CapacityError, TargetError
from neuroncore.graph import Graph
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import _BoxedCodeGen

from torch_neuronx import _C, _by_program, _programs, lowering
from torch_neuronx._initialize import by_program
from torch_neuronx.compile import artifacts, metrics
from torch_neuronx.compile.errors import NEFFCompilationError
from torch_neuronx.compile.names import graph_name, profile_name
from torch_neuronx.compile.placement import Placement, place
from torch_neuronx.compile.rng import replace_rng_operators

__all__ = ["CompiledGraph", "compile_fx"]


class CompiledGraph:
    """What aot_autograd calls: takes a list of arguments, which it empties so that they can be freed early."""

    def __init__(self, name: str, body: Callable[[list[Any]], Any], executable_id: int, placement: Placement) -> None:
        self._boxed_call = True  # the calling convention, where aot_autograd looks for it
        self.name = name
        self._body = body
        self._executable_id = executable_id
        self._placement = placement

    def __call__(self, boxed: list[Any]) -> Any:
        """Launch once; values are ready when the device is synchronized."""
        placement = self._placement
        if not placement.host:
            placement.check()
            return _C.launch(self._executable_id, placement.device.index, partial(self._body, boxed))
        args = list(boxed)
        boxed.clear()
        moved = placement.inputs(args)
        results = _C.launch(self._executable_id, placement.device.index, partial(self._body, list(moved)))
        return placement.results(results, args, moved)


def compile_fx(module: fx.GraphModule, inputs: Sequence[Any], model: str, *, is_backward: bool) -> CompiledGraph:
    """Compile an ATen-level graph.

    Raises:
        NEFFCompilationError: the target is unknown or the graph doesn't fit the device.
    """
    name = graph_name(model)
    begin_ns, started = _C.host_now_ns(), time.perf_counter()
    replace_rng_operators(module)
    placement = place(module, is_backward)
    prepared = time.perf_counter()
    try:
        graph = _lower(module, name)
        lowered = time.perf_counter()
        fields = _programs.executable_fields(graph, profile_name(), name, raises=(TargetError, CapacityError))
    except Exception as error:
        raise NEFFCompilationError(
            f"Neuron backend NEFF execution setup failed with unexpected error: graph {name}: {error}"
        ) from error
    compiled = time.perf_counter()
    _C.record_compile(name, begin_ns, placement.device.index)
    artifacts.write(name, module, fields["neff"])
    metrics.record(
        metrics.NeuronCompilationMetrics(
            graph_id=metrics.next_id(),
            graph_name=name,
            model_name=model,
            has_collectives=any("c10d" in node.target for node in graph.nodes),
            graph_node_count=len(module.graph.nodes),
            timestamp=time.time(),
            torch_neuronx_fx_passes_us=round((prepared - started) * 1e6),
            torch_neuronx_lower_us=round((lowered - prepared) * 1e6),
            torch_neuronx_compile_us=round((compiled - lowered) * 1e6),
        )
    )
    body = _body(module)
    if by_program():
        body = _by_program.around_graph(body, module, graph, fields["neff"])
    return CompiledGraph(name, body, _C.create_executable(fields), placement)


def _lower(module: fx.GraphModule, name: str) -> Graph:
    try:
        return lowering.graph_from_fx(module, name)
    except lowering.LoweringError as error:
        _programs.warn_estimated(name, error)
        inputs = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
        results = fx.map_arg(module.graph.output_node().args, lambda node: node.meta.get("val"))
        return lowering.byte_graph(name, inputs, results)


def _body(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """The graph's generated code, which empties the list of its arguments: a tensor is freed after its last use."""
    module.graph.set_codegen(_BoxedCodeGen())
    module.recompile()
    if isinstance(module, _LazyGraphModule):
        module.real_recompile()  # else every call goes through the module's hooks
    forward = module.forward

    def run(args: list[Any]) -> Any:
        with torch.no_grad():  # autograd was traced already
            return forward(args)

    return run
