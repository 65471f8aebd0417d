"""The pass `decompose`, and what lowerings share; ops themselves are in the modules of `compiler.LOWERING_MODULES`.

Rules (reference/hw/compile_rules.md section 2): intermediates inside one ATen op are fp32, results have the dtype the
graph says, so that every op rounds where PyTorch rounds.
"""

from __future__ import annotations

from typing import Any

from neuroncore.compiler.ir import Module, Operand
from neuroncore.compiler.lowering import Builder, NotLowered
from neuroncore.compiler.views import View
from neuroncore.errors import UnsupportedOpError
from neuroncore.graph import Graph

__all__ = [
    "INTEGERS",
    "axes_of",
    "axis_last",
    "decompose",
    "divide",
    "exponentials",
    "matrix_product",
    "tensor",
]

INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool"})


def decompose(graph: Graph) -> Module:
    """The whole graph in primitives.

    Raises:
        UnsupportedOpError: complex tensors, negative strides, in-place writes through overlapping views.
    """
    return Builder(graph).run()


def divide(b: Builder, x: Operand, y: Operand, dtype: str) -> View:
    """A quotient: there is no divide instruction, so a reciprocal and a product."""
    if isinstance(y, float):
        if y == 0.0:
            raise NotLowered("division by the constant zero")
        return b.map("multiply", x, 1.0 / y, dtype=dtype)
    inverse = b.map("reciprocal", y)
    return b.map("multiply", x, inverse, dtype=dtype) if x != 1.0 else b.map("copy", inverse, dtype=dtype)


def axes_of(view: View, dim: Any) -> tuple[int, ...]:
    """The axes a `dim` argument names: all for None."""
    rank = len(view.shape)
    if dim is None or dim == ():
        return tuple(range(rank))
    return tuple(d % rank for d in ((dim,) if isinstance(dim, int) else dim)) if rank else ()


def exponentials(b: Builder, view: View, axis: int) -> tuple[View, View, View]:
    """(x - max, exp of it, sum of the exponentials with the axis kept), fp32."""
    largest = b.reduce("max", view, (axis,), keepdim=True)
    shifted = b.map("subtract", view, largest)
    powers = b.map("exp", shifted)
    return shifted, powers, b.reduce("add", powers, (axis,), keepdim=True)


def axis_last(b: Builder, view: View, axis: int) -> tuple[View, tuple[int, ...]]:
    """The view with `axis` last, copied when that is not how it lies in memory, and the order that undoes it."""
    rank = len(view.shape)
    axis %= rank
    order = (*(a for a in range(rank) if a != axis), axis)
    moved = view.permute(order)
    if axis != rank - 1:
        moved = b.copy(moved)
    return moved, tuple(order.index(a) for a in range(rank))


def matrix_product(b: Builder, x: View, y: View, dtype: str) -> View:
    """Two- or three-dimensional product; the result has the rank of the operands."""
    if any(b.dtype(v) in INTEGERS for v in (x, y)):
        raise NotLowered("integer matrix product")
    if x.shape[-1] != y.shape[-2] or x.shape[:-2] != y.shape[:-2]:
        at = f" at {b.node.source}" if b.node.source else ""
        raise UnsupportedOpError(
            f"{b.node.target}{at}: {list(x.shape)} times {list(y.shape)}: the inner sizes and the batches must be equal"
        )
    if len(x.shape) == 2:
        return b.contract(x.unsqueeze(0), y.unsqueeze(0), dtype).squeeze((0,))
    return b.contract(x, y, dtype)


def tensor(b: Builder, value: Any) -> View:
    """An argument that must be a tensor."""
    operand = b.arg(value)
    if isinstance(operand, float):
        raise NotLowered("a number where a tensor is expected")
    return operand
