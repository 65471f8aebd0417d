"""The eager ops of the walk-through's naive RMSNorm on [4, 512] bf16, compiled one by one as eager mode does."""

from __future__ import annotations

from typing import Any

from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.isa import Program
from neuroncore.runtime import compile_graph

__all__ = ["add", "mean", "multiplications", "rsqrt"]

TARGET = "trn2"
X = TensorSpec((4, 512), "bf16", (512, 1))
COLUMN = TensorSpec((4, 1), "bf16", (1, 1))
WEIGHT = TensorSpec((512,), "bf16", (1,))


def _program(op: str, inputs: tuple[TensorSpec, ...], args: tuple[Any, ...], output: TensorSpec) -> Program:
    graph = Graph(op, inputs, (Node(op, args, (), (output,)),), (Value(0, 0),))
    executable = compile_graph(graph, TARGET)
    if executable.estimated_ns:
        raise RuntimeError(f"{op} is only estimated, not lowered: the prediction would not be the model's")
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
