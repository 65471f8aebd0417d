"""Values of a graph that depend on no input: which index an interpolation, a roll or a position table reads is known.

`constant` evaluates such a value with numpy; `runs` finds the few strided pieces that such an index is made of, so that
it becomes copies of views instead of a gather.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroncore.compiler.lowering import op_parts
from neuroncore.graph import Graph, Node, Value

__all__ = ["Run", "constant", "runs"]

Array = npt.NDArray[Any]

#: Elements up to which a constant is evaluated.
_LARGEST = 65_536
#: Steps between the results of a run that are tried.
_MOST_STEP = 8

_NUMPY = {
    "fp32": np.float32, "fp64": np.float64, "fp16": np.float16, "int8": np.int8, "int16": np.int16, "int32": np.int32,
    "int64": np.int64, "uint8": np.uint8, "bool": np.bool_,
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Results first, first + step, ... (`count` of them) are elements source, source + stride, ..."""

    first: int
    step: int
    source: int
    stride: int
    count: int


def _arange(args: tuple[Any, ...], named: dict[str, Any], count: int) -> Array:
    start = args[0] if len(args) > 1 else named.get("start", 0)
    step = args[2] if len(args) > 2 else named.get("step", 1)
    return np.asarray(start + np.arange(count) * step)


def _scaled(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda x, y, alpha=1, **_: fn(x, y * alpha if alpha != 1 else y)


def _clamp(x: Any, low: Any = None, high: Any = None, **named: Any) -> Any:
    low, high = named.get("min", low), named.get("max", high)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _divide(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return np.true_divide(x, y)
    return np.floor_divide(x, y) if rounding_mode == "floor" else np.trunc(np.true_divide(x, y))


#: Base name of an ATen op → numpy function of its arguments; the result takes the dtype and shape the graph says.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _scaled(np.add), "sub": _scaled(np.subtract), "mul": np.multiply, "div": _divide, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "round": np.round, "neg": np.negative, "abs": np.abs, "fmod": np.fmod,
    "remainder": np.remainder, "floor_divide": np.floor_divide, "clamp": _clamp, "clamp_min": np.maximum,
    "clamp_max": np.minimum, "maximum": np.maximum, "minimum": np.minimum, "where": np.where, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "rsub": lambda x, y: y - x,
}  # fmt: skip
_SAME = frozenset({
    "_to_copy", "clone", "convert_element_type", "to", "unsqueeze", "view", "_unsafe_view", "reshape", "squeeze",
    "alias", "detach",
})  # fmt: skip


def constant(graph: Graph, value: Any) -> Array | None:
    """The numbers of a value that depends on no input; None where it does, is large or needs an op unknown here."""
    return _evaluated(graph, value, {})


def _evaluated(graph: Graph, value: Any, known: dict[int, Array | None]) -> Array | None:
    if not isinstance(value, Value):
        return np.asarray(value) if isinstance(value, bool | int | float) else None
    if value.node < 0 or value.index:
        return None
    if value.node not in known:
        known[value.node] = None  # also stops what would never end
        known[value.node] = _node(graph, graph.nodes[value.node], known)
    return known[value.node]


def _node(graph: Graph, node: Node, known: dict[int, Array | None]) -> Array | None:
    if len(node.outputs) != 1 or node.outputs[0].elements > _LARGEST or node.outputs[0].dtype not in _NUMPY:
        return None
    spec, name, named = node.outputs[0], op_parts(node.target)[0], dict(node.kwargs)
    dtype = _NUMPY[spec.dtype]
    if name in ("arange", "iota"):
        result: Any = _arange(node.args, named, spec.elements)
    elif name in ("full", "zeros", "ones"):
        filled = {"zeros": 0, "ones": 1}.get(name, node.args[-1])
        result = np.full(spec.shape, filled)
    elif name in _SAME or name in _FUNCTIONS:
        args: list[Any] = []
        for arg in node.args[: 1 if name in _SAME else None]:
            found = _evaluated(graph, arg, known) if isinstance(arg, Value) else arg
            if found is None and arg is not None:
                return None
            args.append(found)
        if name in _SAME:
            result = args[0]
        else:
            named = {k: v for k, v in named.items() if k in ("alpha", "rounding_mode", "min", "max")}
            with np.errstate(all="ignore"):
                result = _FUNCTIONS[name](*args, **named)
    else:
        return None
    array: Array = np.asarray(result).astype(dtype)
    return array.reshape(spec.shape) if array.size == spec.elements else np.broadcast_to(array, spec.shape)


def runs(index: Array, most: int = 32) -> list[Run] | None:
    """The fewest strided pieces that make up a one-dimensional index, or None where there are more than `most`.

    Pieces are walked by a common step between results: doubling a picture's height reads every row twice, two runs of
    step two.
    """
    best: list[Run] | None = None
    for step in range(1, min(_MOST_STEP, max(1, len(index))) + 1):
        found: list[Run] = []
        for phase in range(min(step, len(index))):
            found += _pieces(index[phase::step], phase, step)
        if len(found) <= most and (best is None or len(found) < len(best)):
            best = found
    return best


def _pieces(index: Array, phase: int, step: int) -> list[Run]:
    """Runs of one stride, not negative, as long as possible from the front."""
    found: list[Run] = []
    start = 0
    while start < len(index):
        end = start + 1
        stride = int(index[end] - index[start]) if end < len(index) else 0
        if stride >= 0:
            while end < len(index) and int(index[end] - index[end - 1]) == stride:
                end += 1
        found.append(Run(phase + start * step, step, int(index[start]), max(0, stride), end - start))
        start = end
    return found
