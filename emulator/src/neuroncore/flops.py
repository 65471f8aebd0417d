"""FLOPs of a graph's matrix products: what Neuron Explorer calls model FLOPs. A multiply-add counts two.

Products that the compiler adds (transposes by multiplication, recomputation) are not the model's.
"""

from __future__ import annotations

from math import prod
from typing import Any

from neuroncore.compiler import op_parts
from neuroncore.graph import Graph, Node, TensorSpec, Value

__all__ = ["model_flops"]


def model_flops(graph: Graph) -> int:
    """FLOPs of the matrix products of all nodes, from their shapes."""
    return sum(_node_flops(graph, node) for node in graph.nodes)


def _node_flops(graph: Graph, node: Node) -> int:
    name = op_parts(node.target)[0].rstrip("_")
    tensors = [_spec(graph, argument) for argument in node.args if isinstance(argument, Value)]
    result = node.outputs[0] if node.outputs else None
    if result is None:
        return 0
    if name in ("mm", "bmm", "matmul", "linear", "dot", "mv") and tensors:
        return 2 * result.elements * _last(tensors[0])
    if name in ("addmm", "baddbmm", "addmv", "addbmm") and len(tensors) > 1:
        return 2 * result.elements * _last(tensors[1])
    if name in ("convolution", "_convolution"):
        # Every element of the smaller side meets one window of the weight.
        transposed = next((a for a in node.args if isinstance(a, bool)), False)
        side = tensors[0] if transposed else result
        return 2 * side.elements * prod(tensors[1].shape[1:])
    if name == "convolution_backward":
        # The gradient of the result meets every tap once for the input's gradient and once for the weight's.
        mask = node.args[-1] if isinstance(node.args[-1], tuple) else (True, True, False)
        gradient, _, weight = tensors[0], tensors[1], tensors[2]
        return 2 * gradient.elements * prod(weight.shape[1:]) * sum(map(bool, mask[:2]))
    if "scaled_dot_product" in name and len(tensors) > 2:
        # Backward: scores again, and two products each for query and key and for value.
        backward = name.endswith("_backward")
        query, key, value = tensors[1:4] if backward else tensors[:3]
        scores = prod(query.shape[:-1]) * key.shape[-2]
        per_score = (3 * _last(query) + 2 * _last(value)) if backward else (_last(query) + _last(value))
        return 2 * scores * per_score
    return 0


def _last(spec: TensorSpec) -> int:
    return spec.shape[-1] if spec.shape else 1


def _spec(graph: Graph, value: Any) -> TensorSpec:
    return graph.inputs[value.index] if value.node == -1 else graph.nodes[value.node].outputs[value.index]
