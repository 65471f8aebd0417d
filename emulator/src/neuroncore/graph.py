"""What the compiler is given: a graph of ATen ops over tensor specs. No torch here.

An eager op is a graph with one node; a compiled FX graph is a longer one. `torch_neuronx` builds these from torch
objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: dtype names used everywhere in neuroncore, with their size in bytes.
DTYPE_BYTES = {
    "fp32": 4, "bf16": 2, "fp16": 2, "fp64": 8, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "bool": 1,
    "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True)
class TensorSpec:
    """Shape, strides (in elements), storage offset (in elements) and dtype name of one tensor; no data."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] = ()
    offset: int = 0

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def bytes(self) -> int:
        """Size of the dense tensor in bytes."""
        return self.elements * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Value:
    """A tensor produced in a graph: input number `index` when `node` is -1, else output `index` of node `node`."""

    node: int
    index: int


@dataclass(frozen=True)
class Node:
    """One ATen op.

    `target` is the overload's full name ("aten.mul.Tensor"). `args`/`kwargs` follow the op's schema; tensors are
    `Value`s, lists are tuples, dtypes are the names of `DTYPE_BYTES`, everything else is a plain Python scalar, string
    or None. `outputs` are the specs of its results. `source` is "file.py:line" or "".
    """

    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outputs: tuple[TensorSpec, ...]
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Graph:
    """Inputs, nodes in execution order, results. `mutates` pairs (input index, value written to it at the end)."""

    name: str
    inputs: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    mutates: tuple[tuple[int, Value], ...] = ()
