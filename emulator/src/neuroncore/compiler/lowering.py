"""The builder that decompositions write to, and the registry of what can be lowered.

`Builder` walks a graph, keeps one `View` per graph value and appends primitives. View ops only change the view.
An op whose lowering raises `NotLowered` (or that has none) becomes an `Estimate` with its reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from math import prod
from typing import Any

from neuroncore.compiler.ir import (
    Attend,
    AttendGradient,
    Buffer,
    Contract,
    Convolve,
    Estimate,
    Gather,
    Map,
    Module,
    Move,
    Operand,
    Pool,
    Prim,
    Reduce,
    Scan,
    Scatter,
    ScatterAdd,
    TopK,
    reads,
    writes,
)
from neuroncore.compiler.views import View, contiguous
from neuroncore.errors import UnsupportedOpError, VerifyError
from neuroncore.graph import DTYPE_BYTES, Graph, Node, TensorSpec, Value

__all__ = ["LOWERINGS", "VIEWS", "Builder", "NotLowered", "lowering", "op_parts", "view_op"]

#: dtypes no engine and no DMA conversion knows.
UNSUPPORTED_DTYPES = ("complex64", "complex128")

Result = View | tuple[View, ...] | list[View]
Lowering = Callable[..., Result]

#: Elements from which on the layout of an operand matters more than one more pass over it.
_LARGE = 4096

#: Rows up to which a long reduction is cut, see `fuse.split_reductions`.
_FEW_ROWS = 16

#: op name without overload → lowering; `@lowering` fills it.
LOWERINGS: dict[str, Lowering] = {}
#: the same for ops that only look at their input another way.
VIEWS: dict[str, Lowering] = {}


#: Ops of the device without a lowering, and why; an op in neither list has none yet.
REASONS: dict[str, str] = {
    "_grouped_mm": "how the rows are split among the matrices is data; no instruction here takes a length from memory",
    "batch_norm_gather_stats_with_counts": "only synchronized batch normalization over several devices uses it",
    "bitwise_left_shift": "integers of 64 bits are computed in 32",
    "bitwise_right_shift": "integers of 64 bits are computed in 32",
    "cross_entropy_loss": "torch takes it apart before it reaches the device",
    "histc": "which bin an element adds to is data",
    "layer_norm_backward": "torch calls native_layer_norm_backward",
    "masked_select": "how many elements there are is data",
    "nonzero": "how many elements there are is data",
    "nonzero_static": "where an element goes depends on how many came before it",
    "repeat_interleave": "how often an element is repeated is data; with one number torch takes it apart",
}


class NotLowered(Exception):  # noqa: N818  (a control-flow signal inside the compiler, not an error)
    """This form of an op has no lowering; the text says why."""


def lowering(*names: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of ATen ops, by name without overload; `name_` (in place) comes with it."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name] = function
        return function

    return register


def view_op(*names: str) -> Callable[[Lowering], Lowering]:
    """Register view ops."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            VIEWS[name] = function
        return function

    return register


def op_parts(target: str) -> tuple[str, str]:
    """("mul", "Tensor") of "aten.mul.Tensor" or "aten::mul.Tensor"; namespaces but aten and prims keep their prefix."""
    name = target.replace("::", ".")
    name = name.removeprefix("aten.").removeprefix("prims.")
    base, _, overload = name.partition(".")
    return base, overload or "default"


class Builder:
    """Appends primitives for one graph; see the module's docstring."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.buffers: list[Buffer] = []
        self.prims: list[Prim] = []
        self.env: dict[Value, View] = {}
        self.mutated: dict[int, View] = {}
        self.node: Node = Node("", (), (), ())
        self._draws = 0
        for index, spec in enumerate(graph.inputs):
            # The tensor's own storage begins at its first element: equal layouts at other offsets share an executable.
            view = View(0, spec.shape, spec.strides or contiguous(spec.shape))
            if view.elements and any(s < 0 for s in view.strides):
                raise UnsupportedOpError(
                    f"{graph.name}: input {index} has negative strides {view.strides}; make it contiguous"
                )
            self.env[Value(-1, index)] = self._buffer(f"in{index}", "input", spec.dtype, view, index)

    # -- tensors -------------------------------------------------------------------------------------------------------

    def _buffer(self, name: str, kind: str, dtype: str, view: View, position: int = -1) -> View:
        if dtype in UNSUPPORTED_DTYPES:
            raise UnsupportedOpError(
                f"{self.node.target or self.graph.name}{self._where()}: dtype {dtype} of {name} is not supported by "
                f"NeuronCores; supported: {', '.join(d for d in DTYPE_BYTES if d not in UNSUPPORTED_DTYPES)}. "
                f"Use real and imaginary parts."
            )
        view = replace(view, buffer=len(self.buffers))
        self.buffers.append(Buffer(name, kind, dtype, view.extent, position))
        return view

    def _where(self) -> str:
        return f" at {self.node.source}" if self.node.source else ""

    def dtype(self, view: View) -> str:
        """Dtype of the buffer a view looks at."""
        return self.buffers[view.buffer].dtype

    def spec(self, output: int = 0) -> TensorSpec:
        """Spec of an output of the node being lowered.

        Raises:
            UnsupportedOpError: the graph names fewer results than the op has.
        """
        if output >= len(self.node.outputs):
            raise UnsupportedOpError(
                f"{self.node.target}{self._where()}: the graph gives {len(self.node.outputs)} results, the op has more"
            )
        return self.node.outputs[output]

    def temp(self, shape: tuple[int, ...], dtype: str) -> View:
        """A new temporary; laid out like an output of the current node when it has the same shape."""
        strides = contiguous(shape)
        for spec in self.node.outputs:
            if spec.shape == shape and _permuted_dense(spec):
                strides = spec.strides
                break
        return self._buffer(f"t{len(self.buffers)}", "temp", dtype, View(0, shape, strides))

    def rows(self, shape: tuple[int, ...], dtype: str) -> View:
        """A new temporary whose last axis is contiguous; otherwise laid out as `temp` does."""
        out = self.temp(shape, dtype)
        if out.strides[-1] == 1 or shape[-1] == 1:
            return out
        return self.dense(shape, dtype)

    def arg(self, value: Any) -> Operand:
        """A graph argument as an operand: tensors become views, numbers floats; a view stays one."""
        if isinstance(value, View):
            return value
        if isinstance(value, Value):
            return self.env[value]
        if isinstance(value, bool | int | float):
            return float(value)
        raise NotLowered(f"argument {value!r} is neither a tensor nor a number")

    # -- primitives ----------------------------------------------------------------------------------------------------

    def map(self, fn: str, *ins: Operand, dtype: str = "fp32", shape: tuple[int, ...] | None = None) -> View:
        """An elementwise primitive with broadcasting; the result is a new temporary of `dtype`."""
        if shape is None:
            shape = broadcast(*(v.shape for v in ins if isinstance(v, View)))
        out = self.temp(shape, dtype)
        self.write(fn, ins, out)
        return out

    def write(self, fn: str, ins: Sequence[Operand], out: View) -> None:
        """An elementwise primitive into an existing view."""
        operands = tuple(v.expand(out.shape) if isinstance(v, View) else v for v in ins)
        if fn != "copy":
            operands = tuple(self._straight(v, out) if isinstance(v, View) else v for v in operands)
        self.prims.append(Map(fn, operands, out, self.node.target, self.node.source))

    def _straight(self, view: View, out: View) -> View:
        """A large operand that lies across the result is turned first: moving single elements takes far longer."""
        if self.buffers[view.buffer].made or not _across(view, out.strides):
            return view
        turned = self._buffer(f"t{len(self.buffers)}", "temp", self.dtype(view), View(0, out.shape, out.strides))
        self.prims.append(Map("copy", (view,), turned, self.node.target, self.node.source))
        return turned

    def reduce(
        self, fn: str, src: View, axes: Sequence[int], *, keepdim: bool, dtype: str = "fp32", scale: float = 1.0
    ) -> View:
        """Fold `axes` of a view; the result is a new temporary."""
        rank = len(src.shape)
        chosen = sorted({a % rank for a in axes}) if rank else []
        kept = tuple(a for a in range(rank) if a not in chosen)
        if prod(src.shape[a] for a in chosen) == 0:
            if fn != "add":
                raise NotLowered("largest or smallest element of an empty dimension")
            shape = tuple(1 if a in chosen else src.shape[a] for a in range(rank) if keepdim or a not in chosen)
            empty = 0.0 if scale == 1.0 else float("nan")
            return self.map("copy", empty, dtype=dtype, shape=shape)
        if rank - 1 in chosen and 0 in chosen and kept and src.shape[0] > 1 and src.shape[-1] > 1:
            # Leading and trailing axes with others between: the trailing ones first, along memory.
            trailing = [a for a in chosen if a > max(kept)]
            inner = self.reduce(fn, src, trailing, keepdim=True)
            return self.reduce(
                fn, inner, [a for a in chosen if a < max(kept)] + trailing, keepdim=keepdim, dtype=dtype, scale=scale
            )
        order = src.permute((*kept, *chosen))
        if fn not in ("add", "mean", "variance") and _across(order, contiguous(order.shape)):
            src = self.copy(order).permute(tuple(sorted(range(rank), key=(*kept, *chosen).__getitem__)))
        out = self.temp(tuple(src.shape[a] for a in kept), dtype)
        self.prims.append(
            Reduce(fn, src.permute((*kept, *chosen)), len(chosen), out, self.node.target, scale, self.node.source)
        )
        for axis in chosen if keepdim else ():
            out = out.unsqueeze(axis)
        return out

    def moments(self, src: View, axes: Sequence[int]) -> tuple[View, View]:
        """Mean and variance (divided by the count) over some axes, which are kept, fp32.

        Where rows are few and long, so that they must be cut to fill the partitions, by two sums; else by Vector's
        bn_stats, one pass for both.
        """
        rank = len(src.shape)
        chosen = sorted({a % rank for a in axes})
        count = max(1, prod(src.shape[a] for a in chosen))
        rows = src.elements // count
        kept = tuple(a for a in range(rank) if a not in chosen)
        order = src.permute((*kept, *chosen))
        apart = bool(kept) and chosen[0] < max(kept) and 0 in chosen
        if rows <= _FEW_ROWS or count < 2 or apart or _across(order, contiguous(order.shape)):
            minus = self.reduce("add", src, chosen, keepdim=True, scale=-1.0 / count)
            squares = self.map("square", self.map("add", src, minus))
            mean = self.map("multiply", minus, -1.0)
            return mean, self.reduce("add", squares, chosen, keepdim=True, scale=1.0 / count)
        mean = self.reduce("mean", src, chosen, keepdim=True)
        return mean, self.reduce("variance", src, chosen, keepdim=True)

    def contract(self, a: View, b: View, dtype: str) -> View:
        """Batched matrix product [..., M, K] x [..., K, N] with equal batch axes; the result is [B, M, N]."""
        out = self.temp((prod(a.shape[:-2]), a.shape[-2], b.shape[-1]), dtype)
        if not a.shape[-1]:
            self.write("copy", (0.0,), out)
            return out
        self.prims.append(Contract(a, b, out, self.node.target, self.node.source))
        return out

    def iota(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> View:
        """int32 offset + the sum of index times stride, made on chip where it is read; strides are not negative."""
        return replace(self._made("iota", "int32"), shape=shape, strides=strides, offset=offset)

    def random(self, shape: tuple[int, ...]) -> View:
        """uint32 uniform random bits, drawn where they are read; use the view once."""
        return replace(self._made("random", "uint32"), shape=shape, strides=contiguous(shape))

    def _made(self, kind: str, dtype: str) -> View:
        if kind == "random":  # two readers of one view must not share their bits
            self._draws += 1
        name = kind if kind == "iota" else f"random{self._draws}"
        number = next((i for i, b in enumerate(self.buffers) if b.name == name), None)
        if number is None:
            number = len(self.buffers)
            self.buffers.append(Buffer(name, kind, dtype, 2**31))
        return View(number, (), ())

    def move(self, src: View, dst: View) -> None:
        """A DMA copy into an existing view."""
        self.prims.append(Move(src.expand(dst.shape), dst, self.node.target, self.node.source))

    def gather(self, table: View, index: View, dtype: str) -> View:
        """Rows of a table."""
        out = self.temp((*index.shape, table.shape[1]), dtype)
        self.prims.append(Gather(table, index, out, self.node.target, self.node.source))
        return out

    def scatter(self, table: View, index: View, src: View, *, add: bool) -> None:
        """Put (or add) rows of `src` to the rows `index` of a contiguous two-dimensional temporary."""
        kind = ScatterAdd if add else Scatter
        self.prims.append(kind(table, index, src, self.node.target, self.node.source))

    def convolve(
        self,
        form: str,
        src: View,
        weight: View,
        shape: tuple[int, ...],
        dtype: str,
        *,
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
        bias: View | None = None,
        spread: tuple[int, int] = (1, 1),
    ) -> View:
        """A convolution; see `ir.Convolve`."""
        out = self.temp(shape, dtype)
        node = self.node
        self.prims.append(
            Convolve(form, src, weight, out, stride, padding, dilation, node.target, bias, spread, node.source)
        )
        return out

    def attend(
        self, q: View, k: View, v: View, out: View, rows: View, scale: float, *, causal: bool, bias: View | None = None
    ) -> None:
        """Attention on chip into existing views; see `ir.Attend`."""
        node = self.node
        self.prims.append(Attend(q, k, v, out, rows, scale, causal, node.target, bias, node.source))

    def attend_gradient(
        self, ins: tuple[View, ...], outs: tuple[View, ...], scale: float, *, causal: bool, bias: View | None = None
    ) -> None:
        """Gradients of attention; `ins` and `outs` are the views of `ir.AttendGradient` in its order."""
        node = self.node
        grad, q, k, v, out, rows = ins
        dq, dk, dv = outs
        self.prims.append(
            AttendGradient(grad, q, k, v, out, rows, dq, dk, dv, scale, causal, node.target, bias, node.source)
        )

    def dense(self, shape: tuple[int, ...], dtype: str) -> View:
        """A new row-major temporary."""
        return self._buffer(f"t{len(self.buffers)}", "temp", dtype, View(0, shape, contiguous(shape)))

    def pool(
        self,
        form: str,
        ins: tuple[View, ...],
        outs: tuple[View, ...],
        *,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int] = (1, 1),
        divisor: int = 0,
        padded: bool = True,
    ) -> None:
        """Pooling into existing views; see `ir.Pool`."""
        node = self.node
        self.prims.append(
            Pool(form, ins, outs, kernel, stride, padding, dilation, node.target, divisor, padded, node.source)
        )

    def scan(self, fn: str, src: View, dtype: str) -> View:
        """A recurrence along the rows of a matrix; see `ir.Scan`."""
        out = self.dense(src.shape, dtype)
        self.prims.append(Scan(fn, src, out, self.node.target, self.node.source))
        return out

    def topk(self, src: View, k: int, *, largest: bool) -> tuple[View, View]:
        """Values [rows, k] in the dtype of `src` and indices, int64, of a matrix's rows; see `ir.TopK`."""
        shape = (src.shape[0], k)
        values, indices = self.dense(shape, self.dtype(src)), self.dense(shape, "int64")
        self.prims.append(TopK(src, values, indices, largest, self.node.target, self.node.source))
        return values, indices

    def reshape(self, view: View, shape: tuple[int, ...]) -> View:
        """A reshape; a copy where the layout does not permit a view."""
        new = view.reshape(shape)
        if new is None:
            new = self.copy(view).reshape(shape)
        if new is None:
            raise VerifyError(f"{self.node.target}: a contiguous copy of {view} can't be reshaped to {shape}")
        return new

    def copy(self, view: View, dtype: str | None = None) -> View:
        """A contiguous copy."""
        out = self._buffer(
            f"t{len(self.buffers)}", "temp", dtype or self.dtype(view), View(0, view.shape, contiguous(view.shape))
        )
        self.write("copy", (view,), out)
        return out

    # -- graph walk ----------------------------------------------------------------------------------------------------

    def run(self) -> Module:
        """Lower every node and bind outputs and mutations."""
        for number, node in enumerate(self.graph.nodes):
            self.node = node
            for index, view in enumerate(self._lower(node)):
                self.env[Value(number, index)] = view
        self._bind()
        return Module(self.graph.name, tuple(self.buffers), tuple(p for p in self.prims if _does_something(p)))

    def _lower(self, node: Node) -> tuple[View, ...]:
        name, overload = op_parts(node.target)
        in_place = name.endswith("_") and not name.endswith("__") and name not in LOWERINGS
        function = VIEWS.get(name) or LOWERINGS.get(name) or (LOWERINGS.get(name[:-1]) if in_place else None)
        if overload.endswith("out") and "out" in dict(node.kwargs):
            in_place, target = True, dict(node.kwargs)["out"]
        else:
            in_place = in_place or name in _WRITES_FIRST
            target = node.args[0] if node.args else None
        mark = (len(self.buffers), len(self.prims))
        try:
            if function is None:
                raise NotLowered(REASONS.get(name, "no lowering"))
            result = self._call(function, node)
            views = (result,) if isinstance(result, View) else tuple(result)
        except NotLowered as reason:
            del self.buffers[mark[0] :], self.prims[mark[1] :]
            views = self._estimate(node, str(reason))
        if in_place and isinstance(target, Value):
            self.mutate(target, views[0])
        elif in_place and isinstance(target, tuple):
            for one, view in zip(target, views, strict=False):
                self.mutate(one, view)
        return views

    def _call(self, function: Lowering, node: Node) -> Result:
        kwargs = {k: v for k, v in node.kwargs if k not in _IGNORED_KWARGS}
        try:
            inspect.signature(function).bind(self, *node.args, **kwargs)
        except TypeError as error:
            raise NotLowered(f"this form has no lowering ({error})") from None
        return function(self, *node.args, **kwargs)

    def mutate(self, target: Value, view: View) -> None:
        """Let a graph value be another view from here on; an input's memory is written at the end.

        Raises:
            UnsupportedOpError: the value is also seen through another view.
        """
        old = self.env[target]
        for value, seen in self.env.items():
            if (
                value != target
                and seen.buffer == old.buffer
                and self.buffers[old.buffer].kind != "input"
                and seen != old
            ):
                raise UnsupportedOpError(
                    f"{self.node.target}{self._where()}: in-place write to a tensor that is also seen through another "
                    f"view in the same graph; functionalize the graph first"
                )
        aliases = [value for value, seen in self.env.items() if seen == old]
        for value in aliases:
            self.env[value] = view
        root = target.index if target.node == -1 else next((v.index for v in aliases if v.node == -1), None)
        if root is not None:
            self.mutated[root] = view

    def _estimate(self, node: Node, reason: str) -> tuple[View, ...]:
        ins = tuple(self.env[v] for v in _values(node.args) + _values(tuple(v for _, v in node.kwargs)))
        outs = tuple(self._buffer(f"t{len(self.buffers)}", "temp", s.dtype, _layout(s)) for s in node.outputs)
        self.prims.append(Estimate(ins, outs, estimate_flops(node, ins), reason, node.target, node.source))
        return outs

    def _bind(self) -> None:
        """Give results their final buffers: rename temporaries where that is safe, else copy."""
        self.node = Node("", (), (), ())
        final: dict[int, View] = dict(self.mutated)
        for index, value in self.graph.mutates:
            final.setdefault(index, self.env[value])
        for index in sorted(final):
            where = self._input_view(index)
            view = final[index]
            if view == where:
                continue
            if view.shape != where.shape:
                raise VerifyError(
                    f"{self.graph.name}: value of shape {view.shape} written to input {index} {where.shape}"
                )
            if self._renameable(view, where):
                self._rename(view.buffer, where.buffer)
            else:
                self._copy_out(view, where)
        for position, value in enumerate(self.graph.outputs):
            view = self.env[value]
            if value in [v for i, v in self.graph.mutates] or any(view == v for v in final.values()):
                continue  # the mutated input is the result
            kind = self.buffers[view.buffer].kind
            spec = self._value_spec(value)
            if kind != "temp":
                continue  # an alias of an input or of another result costs nothing
            layout = _layout(spec)
            if _same_layout(view, layout) and self.buffers[view.buffer].elements == layout.extent:
                self.buffers[view.buffer] = replace(
                    self.buffers[view.buffer], name=f"out{position}", kind="output", position=position
                )
            else:
                out = self._buffer(f"out{position}", "output", spec.dtype, layout, position)
                self._copy_out(view, out)

    def _copy_out(self, view: View, out: View) -> None:
        last = next((p for p in reversed(self.prims) for w in writes(p) if w.buffer == view.buffer), None)
        self.prims.append(
            Map("copy", (view,), out, last.op if last else "aten.copy_.default", last.source if last else "")
        )

    def _input_view(self, index: int) -> View:
        spec = self.graph.inputs[index]
        return View(index, spec.shape, spec.strides or contiguous(spec.shape))

    def _value_spec(self, value: Value) -> TensorSpec:
        return self.graph.inputs[value.index] if value.node == -1 else self.graph.nodes[value.node].outputs[value.index]

    def _renameable(self, view: View, where: View) -> bool:
        """True when the temporary can be computed straight into the input it is meant for."""
        buffer = self.buffers[view.buffer]
        if buffer.kind != "temp" or buffer.dtype != self.buffers[where.buffer].dtype:
            return False
        if not _same_layout(view, where) or buffer.elements != self.buffers[where.buffer].elements:
            return False
        first = next((i for i, p in enumerate(self.prims) if any(w.buffer == view.buffer for w in writes(p))), None)
        if first is None:
            return False
        estimated = isinstance(self.prims[first], Estimate)
        if not estimated and not isinstance(self.prims[first], Map):
            return False
        later = [v for p in self.prims[first:] for v in reads(p) if v.buffer == where.buffer]
        other = [
            w
            for i, p in enumerate(self.prims)
            for w in writes(p)
            if w.buffer in (view.buffer, where.buffer) and i != first
        ]
        after = [v for p in self.prims[first + 1 :] for v in reads(p) if v.buffer == where.buffer]
        return not other and not after and (estimated or all(_same_layout(v, where) for v in later))

    def _rename(self, old: int, new: int) -> None:
        def swap(view: Operand) -> Operand:
            return replace(view, buffer=new) if isinstance(view, View) and view.buffer == old else view

        self.prims = [map_views(prim, swap) for prim in self.prims]
        self.env = {k: replace(v, buffer=new) if v.buffer == old else v for k, v in self.env.items()}


def _does_something(prim: Prim) -> bool:
    """Primitives on empty tensors vanish."""
    if isinstance(prim, Estimate):
        return True
    if isinstance(prim, Scatter | ScatterAdd) and not prim.src.elements:
        return False
    return any(w.elements for w in writes(prim))


def _across(view: View, strides: tuple[int, ...]) -> bool:
    """Whether a large view is contiguous along another axis than a layout with `strides`."""
    axes = [i for i, (n, s) in enumerate(zip(view.shape, strides, strict=True)) if n > 1 and s == 1]
    if view.elements < _LARGE or not axes or view.strides[axes[0]] in (0, 1):
        return False
    return any(n >= 8 and s == 1 for n, s in zip(view.shape, view.strides, strict=True))


def map_views(prim: Prim, change: Callable[[Operand], Any]) -> Prim:
    """A primitive with every view replaced."""
    if isinstance(prim, Map):
        return replace(prim, ins=tuple(change(v) for v in prim.ins), out=change(prim.out))
    if isinstance(prim, Reduce):
        return replace(prim, src=change(prim.src), out=change(prim.out))
    if isinstance(prim, Contract):
        return replace(prim, a=change(prim.a), b=change(prim.b), out=change(prim.out))
    if isinstance(prim, Move):
        return replace(prim, src=change(prim.src), dst=change(prim.dst))
    if isinstance(prim, Gather):
        return replace(prim, table=change(prim.table), index=change(prim.index), dst=change(prim.dst))
    if isinstance(prim, Scatter | ScatterAdd):
        return replace(prim, table=change(prim.table), index=change(prim.index), src=change(prim.src))
    if isinstance(prim, Convolve):
        bias = None if prim.bias is None else change(prim.bias)
        return replace(prim, src=change(prim.src), weight=change(prim.weight), out=change(prim.out), bias=bias)
    if isinstance(prim, Pool):
        return replace(prim, ins=tuple(map(change, prim.ins)), outs=tuple(map(change, prim.outs)))
    if isinstance(prim, Attend | AttendGradient | TopK | Scan):
        views = {f.name: getattr(prim, f.name) for f in fields(prim)}
        return replace(prim, **{name: change(v) for name, v in views.items() if isinstance(v, View)})
    return replace(prim, reads=tuple(map(change, prim.reads)), writes=tuple(map(change, prim.writes)))


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape several shapes broadcast to."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, n in enumerate(shape, rank - len(shape)):
            if n != 1:
                if result[axis] not in (1, n):
                    raise NotLowered(f"shapes {shapes} do not broadcast")
                result[axis] = n
    return tuple(result)


def estimate_flops(node: Node, ins: Sequence[View]) -> int:
    """Flops of an op without a lowering: known for convolutions and attention, else one per output element."""
    name, _ = op_parts(node.target)
    out = node.outputs[0].elements if node.outputs else 0
    if name.startswith(("convolution", "_convolution")) and len(ins) >= 2:
        taps = prod(ins[1].shape[1:])
        return 2 * out * taps * (2 if "backward" in name else 1)
    if "scaled_dot_product" in name and len(ins) >= 3 and len(ins[0].shape) == 4:
        batch, heads, queries, width = ins[0].shape
        flops = 4 * batch * heads * queries * ins[1].shape[2] * width
        return flops * 5 // 2 if "backward" in name else flops
    return out


def _values(args: tuple[Any, ...]) -> list[Value]:
    found: list[Value] = []
    for arg in args:
        if isinstance(arg, Value):
            found.append(arg)
        elif isinstance(arg, tuple | list):
            found += _values(tuple(arg))
    return found


def _layout(spec: TensorSpec) -> View:
    return View(0, spec.shape, spec.strides or contiguous(spec.shape))


def _permuted_dense(spec: TensorSpec) -> bool:
    if not spec.strides:
        return False
    order = sorted(range(len(spec.shape)), key=lambda i: -spec.strides[i])
    return _same_layout(
        View(0, spec.shape, spec.strides).permute(tuple(order)),
        _layout(TensorSpec(tuple(spec.shape[i] for i in order), spec.dtype)),
    )


def _same_layout(a: View, b: View) -> bool:
    return (
        a.shape == b.shape
        and a.offset == b.offset
        and all(s == t or n == 1 for n, s, t in zip(a.shape, a.strides, b.strides, strict=True))
    )


#: Arguments that say nothing about the arithmetic.
_IGNORED_KWARGS = frozenset({"device", "layout", "pin_memory", "non_blocking", "memory_format", "out", "requires_grad"})
#: Ops that write their first argument though their name has no trailing underscore.
_WRITES_FIRST = frozenset({"set_data"})
