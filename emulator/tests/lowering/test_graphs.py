"""FX graphs as compiler graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from neuroncore.graph import Graph, Value
from torch._dynamo.backends.common import aot_autograd
from torch_neuronx import lowering


@pytest.fixture
def lowered() -> Callable[..., Graph]:
    """The compiler graph of a function that torch.compile captures on the CPU."""

    def run(function: Callable[..., Any], *args: Any) -> Graph:
        graphs: list[Graph] = []

        def compiler(module: torch.fx.GraphModule, inputs: Any) -> Any:
            graphs.append(lowering.graph_from_fx(module, "test"))

            def body(boxed: list[Any]) -> Any:
                return module.forward(*boxed)

            body._boxed_call = True
            return body

        torch._dynamo.reset()
        backend = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)
        with torch.no_grad():
            torch.compile(function, backend=backend, fullgraph=True)(*args)
        (graph,) = graphs
        return graph

    return run


def targets(graph: Graph) -> list[str]:
    return [node.target for node in graph.nodes]


def test_rms_norm(lowered: Callable[..., Graph]) -> None:
    def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight

    graph = lowered(rms_norm, torch.ones(4, 512, dtype=torch.bfloat16), torch.ones(512, dtype=torch.bfloat16))
    names = ["mul.Tensor", "mean.dim", "add.Tensor", "rsqrt.default", "mul.Tensor", "mul.Tensor"]
    assert targets(graph) == [f"aten.{name}" for name in names]
    assert graph.nodes[1].args == (Value(0, 0), (-1,), True)
    assert graph.nodes[2].args == (Value(1, 0), 1e-6)
    assert graph.nodes[5].args == (Value(4, 0), Value(-1, 1))
    assert graph.outputs == (Value(5, 0),)
    assert lowering.display(graph) == ("[4,512] x [512]", "bf16 x bf16")


def test_same_op_is_the_same_node_as_in_an_eager_call(lowered: Callable[..., Graph]) -> None:
    x = torch.ones(4, 8)
    graph = lowered(lambda x: x.sum(-1), x)
    eager = lowering.graph_from_call("aten::sum.dim_IntList", [x, [-1], False, None], results=x.sum(-1))
    assert graph.nodes == eager.nodes


def test_write_back_is_a_mutation_and_no_node(lowered: Callable[..., Graph]) -> None:
    graph = lowered(lambda x: x.mul_(2) + 1, torch.ones(4))
    assert targets(graph) == ["aten.mul.Tensor", "aten.add.Tensor"]
    assert graph.mutates == ((0, Value(0, 0)),)
    assert graph.outputs == (Value(1, 0),)


def test_items_of_lists_are_numbered(lowered: Callable[..., Graph]) -> None:
    def swap(x: torch.Tensor) -> torch.Tensor:
        first, second = x.split(2)
        return second - first

    graph = lowered(swap, torch.ones(4, 8))
    assert graph.nodes[1].args == (Value(0, 1), Value(0, 0))


def test_host_constant_is_a_number(lowered: Callable[..., Graph]) -> None:
    graph = lowered(lambda x: x + torch.tensor(2.5), torch.ones(4))
    used = [argument for node in graph.nodes for argument in node.args if isinstance(argument, float)]
    assert used == [2.5] and len(graph.inputs) == 1


def test_tensor_constant_is_an_input(lowered: Callable[..., Graph]) -> None:
    graph = lowered(lambda x: x + torch.tensor([1.0, 2.0, 3.0]), torch.ones(3))
    assert [spec.shape for spec in graph.inputs] == [(3,), (3,)]


def test_nodes_know_the_line_they_come_from(lowered: Callable[..., Graph]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    graph = lowered(function, torch.ones(3))
    line = function.__code__.co_firstlineno + 1
    assert graph.nodes[0].source.endswith(f"test_graphs.py:{line}")
