"""The walk-through's RMSNorms on [4, 512] bf16: the naive one's ops one by one as in eager mode, fused, compiled."""

from __future__ import annotations

from typing import Any

from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.isa import Program
from neuroncore.runtime import compile_graph

__all__ = ["add", "compiled", "fused", "mean", "multiplications", "rsqrt"]

TARGET = "trn2"
X = TensorSpec((4, 512), "bf16", (512, 1))
COLUMN = TensorSpec((4, 1), "bf16", (1, 1))
WEIGHT = TensorSpec((512,), "bf16", (1,))


def _program(op: str, inputs: tuple[TensorSpec, ...], args: tuple[Any, ...], output: TensorSpec) -> Program:
    return _compiled(Graph(op, inputs, (Node(op, args, (), (output,)),), (Value(0, 0),)))


def _compiled(graph: Graph) -> Program:
    executable = compile_graph(graph, TARGET)
    if executable.estimated_ns:
        raise RuntimeError(f"{graph.name} is only estimated, not lowered: the prediction would not be the model's")
    return executable.program  # type: ignore[no-any-return]


def multiplications() -> list[Program]:
    """x*x, x*rsqrt(...) and ...*weight."""
    first, second = Value(-1, 0), Value(-1, 1)
    return [
        _program("aten.mul.Tensor", (X,), (first, first), X),
        _program("aten.mul.Tensor", (X, COLUMN), (first, second), X),
        _program("aten.mul.Tensor", (X, WEIGHT), (first, second), X),
    ]


def mean() -> list[Program]:
    """The mean over the last dimension, kept."""
    return [_program("aten.mean.dim", (X,), (Value(-1, 0), (-1,), True), COLUMN)]


def add() -> list[Program]:
    """Adding epsilon to [4, 1]."""
    return [_program("aten.add.Scalar", (COLUMN,), (Value(-1, 0), 1e-6), COLUMN)]


def rsqrt() -> list[Program]:
    """The reciprocal square root of [4, 1]."""
    return [_program("aten.rsqrt.default", (COLUMN,), (Value(-1, 0),), COLUMN)]


def fused() -> list[Program]:
    """torch.rms_norm: the normalised tensor and, per row, the reciprocal root that its backward needs."""
    x, weight = Value(-1, 0), Value(-1, 1)
    statistics = TensorSpec((4, 1), "fp32", (1, 1))
    node = Node("aten._fused_rms_norm.default", (x, (512,), weight, None), (), (X, statistics))
    return [_compiled(Graph("rms_norm", (X, WEIGHT), (node,), (Value(0, 0), Value(0, 1))))]


def compiled() -> list[Program]:
    """The naive one as one graph."""
    x, weight = Value(-1, 0), Value(-1, 1)
    nodes = (
        Node("aten.mul.Tensor", (x, x), (), (X,)),
        Node("aten.mean.dim", (Value(0, 0), (-1,), True), (), (COLUMN,)),
        Node("aten.add.Scalar", (Value(1, 0), 1e-6), (), (COLUMN,)),
        Node("aten.rsqrt.default", (Value(2, 0),), (), (COLUMN,)),
        Node("aten.mul.Tensor", (x, Value(3, 0)), (), (X,)),
        Node("aten.mul.Tensor", (Value(4, 0), weight), (), (X,)),
    )
    return [_compiled(Graph("rms_norm", (X, WEIGHT), nodes, (Value(5, 0),)))]
