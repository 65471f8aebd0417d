"""Empty tensors, sizes of zero and one, and integers beyond fp32's 24 bits."""

import pytest
import torch
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.runtime import compile_graph

aten = torch.ops.aten
X, Y, Z = (Value(-1, i) for i in range(3))


def compiles(target, args, inputs, outputs):
    """An op that writes nothing compiles to a program of no time."""
    graph = Graph("g", inputs, (Node(target, args, (), outputs),), tuple(Value(0, i) for i in range(len(outputs))))
    executable = compile_graph(graph)
    assert executable.program_ns == executable.estimated_ns == 0


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
@pytest.mark.parametrize("target", ["aten.relu.default", "aten.exp.default", "aten.clone.default", "aten.neg.default"])
def test_elementwise_on_nothing(shape, target):
    spec = TensorSpec(shape, "fp32")
    compiles(target, (X,), (spec,), (spec,))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)])
def test_two_operands_on_nothing(shape):
    spec = TensorSpec(shape, "fp32")
    for target in ("aten.add.Tensor", "aten.copy_.default", "aten.div.Tensor", "aten.eq.Tensor"):
        compiles(target, (X, Y), (spec, spec), (spec,))
    compiles("aten.where.self", (X, Y, Z), (TensorSpec(shape, "bool"), spec, spec), (spec,))


def test_structure_on_nothing():
    empty, one = TensorSpec((0, 5), "fp32"), TensorSpec((3, 5), "fp32")
    compiles("aten.cat.default", ((X, X), 0), (empty,), (empty,))
    compiles("aten._softmax.default", (X, -1, False), (empty,), (empty,))
    compiles("aten.native_layer_norm.default", (X, (5,), None, None, 1e-5), (empty,),
             (empty, TensorSpec((0, 1), "fp32"), TensorSpec((0, 1), "fp32")))  # fmt: skip
    compiles("aten.linear.default", (X, Y), (empty, one), (TensorSpec((0, 3), "fp32"),))
    compiles("aten.mm.default", (X, Y), (empty, TensorSpec((5, 4), "fp32")), (TensorSpec((0, 4), "fp32"),))
    compiles("aten.bmm.default", (X, Y), (TensorSpec((0, 2, 3), "fp32"), TensorSpec((0, 3, 4), "fp32")),
             (TensorSpec((0, 2, 4), "fp32"),))  # fmt: skip
    compiles("aten.embedding.default", (X, Y), (one, TensorSpec((0,), "int64")), (empty,))
    compiles("aten.index_select.default", (X, 0, Y), (one, TensorSpec((0,), "int64")), (empty,))
    compiles("aten.arange.default", (0,), (), (TensorSpec((0,), "int64"),))
    compiles("aten.permute.default", (X, (1, 0)), (empty,), (TensorSpec((5, 0), "fp32"),))
    compiles("aten.native_dropout.default", (X, 0.5, True), (empty,), (empty, TensorSpec((0, 5), "bool")))


def test_sums_over_nothing_are_zero(oracle, aten_call):
    x = torch.zeros(3, 0)
    oracle([aten_call(aten.sum.dim_IntList, X, [1])], [x])
    oracle([aten_call(aten.sum.default, X)], [x])
    oracle([aten_call(aten.mean.dim, X, [1])], [x])
    oracle([aten_call(aten.mm.default, X, Y)], [x, torch.zeros(0, 4)])
    oracle([aten_call(aten.linear.default, X, Y, Z)], [x, torch.zeros(4, 0), torch.ones(4)])


def test_lists_with_empty_tensors(oracle, aten_call):
    oracle([aten_call(aten._foreach_add.Scalar, [X, Y], 1.0)], [torch.ones(3), torch.zeros(0)])


@pytest.mark.parametrize(("start", "end", "step"), [(1, 4, 1), (0, 2**62, 1), (-3, 2**62, 1), (0, 7, 2), (4, 4, 1)])
def test_slice_scatter(oracle, aten_call, start, end, step):
    x = torch.randn(5, 8)
    src = torch.randn(5, len(range(*slice(start, end, step).indices(8))))
    oracle([aten_call(aten.slice_scatter.default, X, Y, 1, start, end, step)], [x, src])


def test_slice_scatter_of_another_layout(oracle, aten_call):
    x, src = torch.randn(8, 5).t(), torch.randn(2, 8)
    oracle([aten_call(aten.slice_scatter.default, X, Y, 0, 1, 3)], [x, src])


BIG = torch.tensor([2**31 - 1, 2**30 + 1, 2**24 + 1, 2**24, -(2**31) + 1, -(2**24) - 1, 0, 1, 5] * 20)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers_are_exact(oracle, aten_call, dtype):
    x, y = BIG.to(dtype), BIG.flip(0).to(dtype)
    half = (x // 2).to(dtype)
    for op in (aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.ge.Tensor, aten.gt.Tensor, aten.le.Tensor):
        oracle([aten_call(op, X, Y)], [half, (y // 2).to(dtype)])
    for op in (aten.maximum.default, aten.minimum.default):
        oracle([aten_call(op, X, Y)], [x, y])
    oracle([aten_call(aten.add.Tensor, X, Y)], [half, (y // 2).to(dtype)])
    oracle([aten_call(aten.sub.Tensor, X, Y)], [half, (y // 2).to(dtype)])
    oracle([aten_call(aten.add.Scalar, X, 2**24 + 1)], [half])
    oracle([aten_call(aten.eq.Scalar, X, 2**24 + 1)], [half + 1])
    oracle([aten_call(aten.mul.Tensor, X, Y)], [(x % 1000).to(dtype), (y % 1000).to(dtype)])
    oracle([aten_call(aten.where.self, X, Y, Z)], [x > 0, x, y])
    oracle([aten_call(aten.full.default, [50], 2**30 + 1, dtype=dtype)], [])
    oracle([aten_call(aten.neg.default, X)], [x])
    oracle([aten_call(aten.clone.default, X)], [x])


def test_copies_between_integers_are_exact(oracle, aten_call):
    oracle([aten_call(aten._to_copy.default, X, dtype=torch.int32)], [BIG])
    oracle([aten_call(aten._to_copy.default, X, dtype=torch.int64)], [BIG.int()])
    oracle([aten_call(aten.index_select.default, X, 0, Y)], [BIG, torch.arange(50)])
