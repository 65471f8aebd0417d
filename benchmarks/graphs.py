"""The walk-through's RMSNorms, on [4, 512] bf16 unless told: the ops one by one as in eager mode, fused, compiled."""

from __future__ import annotations

from typing import Any

from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.isa import Program
from neuroncore.runtime import compile_graph
from neuroncore.targets import load_target
from neuroncore.timing import simulate

__all__ = ["add", "compiled", "fused", "mean", "multiplications", "rms_norm_programs", "rsqrt"]

TARGET = "trn2"
SHAPE = TensorSpec((4, 512), "bf16", (512, 1))


def _program(
    op: str, inputs: tuple[TensorSpec, ...], args: tuple[Any, ...], output: TensorSpec, target: str
) -> Program:
    return _compiled(Graph(op, inputs, (Node(op, args, (), (output,)),), (Value(0, 0),)), target)


def _compiled(graph: Graph, target: str) -> Program:
    executable = compile_graph(graph, target)
    if executable.estimated_ns:
        raise RuntimeError(f"{graph.name} is only estimated, not lowered: the prediction would not be the model's")
    return executable.program  # type: ignore[no-any-return]


def _column(x: TensorSpec) -> TensorSpec:
    return TensorSpec((x.shape[0], 1), x.dtype, (1, 1))


def _weight(x: TensorSpec) -> TensorSpec:
    return TensorSpec((x.shape[1],), x.dtype, (1,))


def multiplications(x: TensorSpec = SHAPE, target: str = TARGET) -> list[Program]:
    """x*x, x*rsqrt(...) and ...*weight."""
    first, second = Value(-1, 0), Value(-1, 1)
    return [
        _program("aten.mul.Tensor", (x,), (first, first), x, target),
        _program("aten.mul.Tensor", (x, _column(x)), (first, second), x, target),
        _program("aten.mul.Tensor", (x, _weight(x)), (first, second), x, target),
    ]


def mean(x: TensorSpec = SHAPE, target: str = TARGET) -> list[Program]:
    """The mean over the last dimension, kept."""
    return [_program("aten.mean.dim", (x,), (Value(-1, 0), (-1,), True), _column(x), target)]


def add(x: TensorSpec = SHAPE, target: str = TARGET) -> list[Program]:
    """Adding epsilon to a column."""
    column = _column(x)
    return [_program("aten.add.Scalar", (column,), (Value(-1, 0), 1e-6), column, target)]


def rsqrt(x: TensorSpec = SHAPE, target: str = TARGET) -> list[Program]:
    """The reciprocal square root of a column."""
    column = _column(x)
    return [_program("aten.rsqrt.default", (column,), (Value(-1, 0),), column, target)]


def fused(x: TensorSpec = SHAPE, target: str = TARGET) -> list[Program]:
    """torch.rms_norm: the normalised tensor and, per row, the reciprocal root that its backward needs."""
    value, weight = Value(-1, 0), Value(-1, 1)
    statistics = TensorSpec((x.shape[0], 1), "fp32", (1, 1))
    node = Node("aten._fused_rms_norm.default", (value, (x.shape[1],), weight, None), (), (x, statistics))
    return [_compiled(Graph("rms_norm", (x, _weight(x)), (node,), (Value(0, 0), Value(0, 1))), target)]


def compiled(x: TensorSpec = SHAPE, target: str = TARGET) -> list[Program]:
    """The naive one as one graph."""
    value, weight = Value(-1, 0), Value(-1, 1)
    column = _column(x)
    nodes = (
        Node("aten.mul.Tensor", (value, value), (), (x,)),
        Node("aten.mean.dim", (Value(0, 0), (-1,), True), (), (column,)),
        Node("aten.add.Scalar", (Value(1, 0), 1e-6), (), (column,)),
        Node("aten.rsqrt.default", (Value(2, 0),), (), (column,)),
        Node("aten.mul.Tensor", (value, Value(3, 0)), (), (x,)),
        Node("aten.mul.Tensor", (Value(4, 0), weight), (), (x,)),
    )
    return [_compiled(Graph("rms_norm", (x, _weight(x)), nodes, (Value(5, 0),)), target)]


def rms_norm_programs(kind: str, x: TensorSpec, target: str) -> list[float]:
    """Program times in nanoseconds of the eager ops called `kind` ("mul", "mean", …), or of "fused" or "compiled"."""
    kinds = {"mul": multiplications, "mean": mean, "add": add, "rsqrt": rsqrt, "fused": fused, "compiled": compiled}
    if kind not in kinds:
        return []
    return [float(simulate(program, load_target(target)).program_ns) for program in kinds[kind](x, target)]
