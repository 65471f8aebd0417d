"""Kernels of wide rows fit SBUF and PSUM, whatever is fused: sizes of real models."""

import pytest
from neuroncore.compiler import divide_program, dump
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.runtime import compile_graph
from neuroncore.targets import load_target

X, W = Value(-1, 0), Value(-1, 1)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("width", [4096, 5120, 8192, 12288, 16384])
def test_layer_norm_and_what_follows_it(width, dtype):
    """Columns' weights are read from PSUM only where an operand there may be as long."""
    x, w = TensorSpec((1024, width), dtype), TensorSpec((width,), dtype)
    row = TensorSpec((1024, 1), "fp32")
    norm = Node("aten.native_layer_norm.default", (X, (width,), W, W, 1e-5), (), (x, row, row))
    gelu = Node("aten.gelu.default", (Value(0, 0),), (), (x,))
    scaled = Node("aten.mul.Tensor", (Value(1, 0), W), (), (x,))
    graph = Graph("g", (x, w), (norm, gelu, scaled), (Value(2, 0), Value(0, 1), Value(0, 2)))
    assert compile_graph(graph).estimated_ns == 0


def test_the_gradient_of_a_wide_layer_norm_is_fused_less():
    """What fusing reckons its tiles to need is less than what they take."""
    x, w, row = TensorSpec((77, 11008), "bf16"), TensorSpec((11008,), "bf16"), TensorSpec((77, 1), "fp32")
    arguments = (X, Value(-1, 2), (11008,), Value(-1, 3), Value(-1, 4), W, W, (True, True, True))
    gradient = Node("aten.native_layer_norm_backward.default", arguments, (), (x, w, w))
    doubled = Node("aten.mul.Tensor", (Value(0, 0), Value(-1, 2)), (), (x,))
    graph = Graph("g", (x, w, x, row, row), (gradient, doubled), (Value(1, 0), Value(0, 1), Value(0, 2)))
    assert compile_graph(graph).estimated_ns == 0
    assert dump(graph, "allocate", load_target("trn2"))  # `ir` shows what was compiled
    assert divide_program(graph, load_target("trn2"), 2) is not None


@pytest.mark.parametrize("rows", [77, 200])
@pytest.mark.parametrize("op", ["aten.tril.default", "aten.gelu_backward.default", "aten.silu.default"])
def test_rows_of_a_vocabulary_that_few_numbers_divide(op, rows):
    x = TensorSpec((rows, 50257), "fp32")
    arguments = (X, X) if op == "aten.gelu_backward.default" else (X,)
    graph = Graph("g", (x,), (Node(op, arguments, (), (x,)),), (Value(0, 0),))
    assert compile_graph(graph).estimated_ns == 0
