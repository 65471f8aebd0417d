"""Attention written out by hand becomes the one op that the compiler keeps on chip, before autograd sees it.

A captured graph is traced once more to ATen ops as autograd would get them, so that every spelling (`@`, `matmul`,
`F.softmax`, `masked_fill`, ...) looks alike. From a softmax back: casts, scalings, biases and masks down to the product
of query and key; forward: casts and a dropout that does nothing up to the product with the value. What is found is
replaced by `scaled_dot_product_attention`, whose gradient is a kernel too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

__all__ = ["fuse_attention", "fused"]

_log = logging.getLogger("torch_neuronx.compile")
aten = torch.ops.aten

#: Scores below this count for nothing beside others: what masks fill in.
_HIDDEN = -1e4
#: Longest sequence whose constant mask is looked at.
_LONGEST = 8192

_CASTS = (aten.to.dtype, aten._to_copy.default, aten.contiguous.default, aten.clone.default, aten.alias.default,
          aten.type_as.default, aten.to.dtype_layout, aten.to.device, aten.detach.default)  # fmt: skip
_SOFTMAX = (aten.softmax.int, aten._softmax.default)
_PRODUCTS = (aten.matmul.default, aten.bmm.default)
_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def fuse_attention(module: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """The graph with attention as one op, or the graph itself where there is none to be found.

    Args:
        module: what Dynamo captured.
        inputs: its (fake) arguments.
    """
    if not _may_attend(module):
        return module
    try:
        traced = _traced(module, inputs)
        count = _rewrite(traced.graph)
    except Exception as error:  # an optimization: whatever tracing can't do leaves the graph as it was
        _log.debug("attention not looked for: %r", error)
        return module
    if not count:
        return module
    traced.recompile()
    return traced


def fused(function: Callable[..., Any], inputs: Sequence[Any]) -> Callable[..., Any]:
    """The same for any traceable function of tensors."""
    try:
        with preserve_node_meta():
            traced = make_fx(function, pre_dispatch=True)(*inputs)
        count = _rewrite(traced.graph)
    except Exception as error:
        _log.debug("attention not looked for: %r", error)
        return function
    if not count:
        return function
    traced.recompile()
    return traced


def _may_attend(module: fx.GraphModule) -> bool:
    """A softmax between products, and nothing that only Dynamo's graph can hold."""
    names = set()
    for node in module.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return False
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if node.op in ("call_function", "call_method"):
            names.add(name)
    if any("autocast" in name or "set_grad_enabled" in name for name in names):
        return False
    return any("softmax" in name for name in names) and bool(names & {"matmul", "bmm", "__matmul__", "einsum"})


def _traced(module: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    fake = [node.meta.get("example_value", given) for node, given in zip(placeholders, inputs, strict=True)]
    with preserve_node_meta():
        return make_fx(fx.Interpreter(module).run, pre_dispatch=True, _allow_non_fake_inputs=True)(*fake)


# -- matching ------------------------------------------------------------------------------------------------


@dataclass
class _Attention:
    """What was found; nodes from the softmax down to the first product are in `inner`."""

    query: fx.Node
    key: fx.Node  # with its last two axes exchanged already: [..., width, keys]
    value: fx.Node
    last: fx.Node  # the product with the value
    steps: list[tuple[str, Any]] = field(default_factory=list)  # from the product up: scale, add, hide


def _rewrite(graph: fx.Graph) -> int:
    count = 0
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _SOFTMAX:
            found = _match(node)
            if found is not None and _replace(graph, found):
                count += 1
    if count:
        _drop_unused(graph)
    return count


def _match(softmax: fx.Node) -> _Attention | None:
    shape = _shape(softmax)
    if len(shape) not in (3, 4) or softmax.args[1] not in (-1, len(shape) - 1):
        return None
    last = _last_product(softmax)
    if last is None:
        return None
    walked = _down(softmax.args[0], shape)
    if walked is None:
        return None
    product, steps = walked
    query, key = product.args[:2]
    weights, value = last.args[:2]
    if not all(isinstance(n, fx.Node) for n in (query, key, value)):
        return None
    if len({_dtype(n) for n in (query, key, value, last)}) != 1 or _shape(weights) != shape:
        return None
    if any(len(_shape(n)) != len(shape) or _shape(n)[:-2] != shape[:-2] for n in (query, key, value)):
        return None
    return _Attention(query, key, value, last, steps)


def _last_product(softmax: fx.Node) -> fx.Node | None:
    """Up from the softmax through casts and idle dropout, each with one reader."""
    node = softmax
    while True:
        if len(node.users) != 1:
            return None
        (user,) = node.users
        if user.target in _PRODUCTS:
            return user if user.args[0] is node and user.args[1] is not node else None
        idle = user.target == aten.dropout.default and (not user.args[1] or not user.args[2])
        idle = idle or (user.target == aten.native_dropout.default and not user.args[1])
        same = user.target in _VIEWS and _shape(user) == _shape(node)
        if not (idle or same or user.target in _CASTS) or not user.args or user.args[0] is not node:
            return None
        node = user


def _down(node: Any, shape: tuple[int, ...]) -> tuple[fx.Node, list[tuple[str, Any]]] | None:
    """From scores down to the product of query and key: that and what was done to it, the first step first."""
    if not isinstance(node, fx.Node) or node.op != "call_function" or _shape(node) != shape:
        return None
    if node.target in _PRODUCTS:
        return node, []
    for below, step in _steps(node):
        if isinstance(below, fx.Node) and len(below.users) == 1:
            walked = _down(below, shape)
            if walked is not None:
                return walked[0], [*walked[1], *([step] if step else [])]
    return None


def _steps(node: fx.Node) -> Iterator[tuple[Any, tuple[str, Any] | None]]:
    """What a node may do to scores below it: (the scores, the step)."""
    args = node.args
    if node.target in _CASTS or (node.target in _VIEWS and _shape(args[0]) == _shape(node)):
        yield args[0], None
    elif node.target in (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar):
        divides = node.target in (aten.div.Tensor, aten.div.Scalar)
        for below, other in ((args[0], args[1]), *(() if divides else ((args[1], args[0]),))):
            factor = _number(other)
            if factor is not None and factor > 0:
                yield below, ("scale", 1.0 / factor if divides else factor)
    elif node.target == aten.add.Tensor and not node.kwargs:
        for below, other in ((args[0], args[1]), (args[1], args[0])):
            if isinstance(other, fx.Node):
                yield below, ("add", other)
    elif node.target == aten.sub.Tensor and not node.kwargs and isinstance(args[1], fx.Node):
        yield args[0], ("subtract", args[1])
    elif node.target in (aten.masked_fill.Scalar, aten.masked_fill.Tensor):
        fill = _number(args[2])
        if fill is not None and fill <= _HIDDEN:
            yield args[0], ("hide", (args[1], fill))
    elif node.target in (aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf):
        fill, other = _number(args[2]), _number(args[1])
        if fill is not None and fill <= _HIDDEN:
            yield args[1], ("keep", (args[0], fill))
        if other is not None and other <= _HIDDEN:
            yield args[2], ("hide", (args[0], other))


# -- replacing -----------------------------------------------------------------------------------------------


def _replace(graph: fx.Graph, found: _Attention) -> bool:
    with graph.inserting_before(found.last):
        mask = _Mask(graph, _shape(found.last)[-2], _dtype(found.query))
        for kind, value in found.steps:
            mask.step(kind, value)
        if mask.failed:
            return False
        query, value = found.query, found.value
        key = _turned(graph, found.key)
        shared = _shared(key), _shared(value)
        gqa = None not in shared
        if gqa:
            key, value = (n for n in shared if n is not None)
        flat = len(_shape(found.query)) == 3
        if flat:
            query, key, value = (graph.call_function(aten.unsqueeze.default, (n, 0)) for n in (query, key, value))
        bias = mask.result(flat=flat)
        named: dict[str, Any] = {"scale": mask.scale}
        if gqa:
            named["enable_gqa"] = True
        attention = graph.call_function(
            aten.scaled_dot_product_attention.default, (query, key, value, bias, 0.0, mask.causal), named
        )
        result = graph.call_function(aten.squeeze.dim, (attention, 0)) if flat else attention
    for node in (attention, result):
        node.meta = {k: v for k, v in found.last.meta.items() if k not in ("val", "tensor_meta", "example_value")}
    found.last.replace_all_uses_with(result)
    return True


@dataclass
class _Mask:
    """Collects what is done to scores: a factor, an additive bias, and which are hidden (true: hidden)."""

    graph: fx.Graph
    rows: int
    dtype: torch.dtype
    scale: float = 1.0
    bias: fx.Node | None = None
    hidden: fx.Node | None = None
    causal: bool = False
    failed: bool = False

    def step(self, kind: str, value: Any) -> None:
        call = self.graph.call_function
        if kind == "scale":
            self.scale *= value
            if self.bias is not None:
                self.bias = call(aten.mul.Tensor, (self.bias, value))
        elif kind in ("add", "subtract"):
            if kind == "add" and self._is_causal(value, additive=True):
                self.causal = True
                return
            if kind == "subtract":
                value = call(aten.neg.default, (value,))
            self.bias = value if self.bias is None else call(aten.add.Tensor, (self.bias, value))
        else:
            mask, fill = value
            if self._is_causal(mask, additive=False, keeps=kind == "keep"):
                self.causal = True
                return
            if kind == "keep":
                mask = call(aten.logical_not.default, (mask,))
            if math.isinf(fill):
                self.hidden = mask if self.hidden is None else call(aten.logical_or.default, (self.hidden, mask))
                return
            # A finite fill stays finite: a row that hides everything has no undefined weights.
            zero = call(aten.mul.Tensor, (call(aten._to_copy.default, (mask,), {"dtype": self.dtype}), fill))
            self.bias = zero if self.bias is None else call(aten.add.Tensor, (self.bias, zero))

    def result(self, *, flat: bool) -> fx.Node | None:
        """The mask argument of scaled_dot_product_attention; `flat` where there is no axis of heads."""
        call = self.graph.call_function
        if self.causal and (self.bias is not None or self.hidden is not None):
            ahead = call(aten.ones.default, ([self.rows, self.rows],), {"dtype": torch.bool, "device": self._device()})
            ahead = call(aten.triu.default, (ahead, 1))
            self.hidden = ahead if self.hidden is None else call(aten.logical_or.default, (self.hidden, ahead))
            self.causal = False
        if self.bias is not None:
            bias = call(aten._to_copy.default, (self.bias,), {"dtype": self.dtype})
            if self.hidden is not None:
                bias = call(aten.where.ScalarSelf, (self.hidden, -math.inf, bias))
                bias = call(aten._to_copy.default, (bias,), {"dtype": self.dtype})
        elif self.hidden is not None:
            bias = call(aten.logical_not.default, (self.hidden,))
        else:
            return None
        return call(aten.unsqueeze.default, (bias, 0)) if flat else bias

    def _device(self) -> torch.device:
        source = self.bias if self.bias is not None else self.hidden
        while source is not None and "val" not in source.meta:
            source = next((a for a in source.args if isinstance(a, fx.Node)), None)
        assert source is not None
        device: torch.device = source.meta["val"].device
        return device

    def _is_causal(self, node: fx.Node, *, additive: bool, keeps: bool = False) -> bool:
        """Whether a constant hides exactly what lies ahead of the diagonal."""
        shape = _shape(node)
        if len(shape) < 2 or shape[-2:] != (self.rows, self.rows) or math.prod(shape[:-2]) != 1:
            return False
        if self.rows > _LONGEST:
            return False
        value = _constant(node)
        if value is None:
            return False
        with unset_fake_temporarily():
            value = value.reshape(self.rows, self.rows)
            ahead = torch.ones(self.rows, self.rows, dtype=torch.bool).triu(1)
            if additive:
                return bool((value[ahead] <= _HIDDEN).all()) and bool((value[~ahead] == 0).all())
            return bool(torch.equal(value.bool(), ~ahead if keeps else ahead))


def _turned(graph: fx.Graph, key: fx.Node) -> fx.Node:
    """The keys as [..., keys, width]: what was transposed, or that transposed back."""
    rank = len(_shape(key))
    if key.target == aten.transpose.int and {d % rank for d in key.args[1:3]} == {rank - 2, rank - 1}:
        return key.args[0]
    if key.target == aten.permute.default:
        order = [d % rank for d in key.args[1]]
        if order == [*range(rank - 2), rank - 1, rank - 2]:
            return key.args[0]
    return graph.call_function(aten.transpose.int, (key, -2, -1))


def _shared(node: fx.Node) -> fx.Node | None:
    """[batch, groups, n, d] of which the node repeats every group for several heads."""
    if "val" not in node.meta or len(_shape(node)) != 4:
        return None
    source: Any = None
    if node.target == aten.repeat_interleave.self_int and node.args[2:] == (1,):
        source = node.args[0]
    elif node.target in _VIEWS or node.target == aten.flatten.using_ints:
        wide = node.args[0]
        while isinstance(wide, fx.Node) and wide.target in (aten.clone.default, aten.contiguous.default):
            wide = wide.args[0]
        if isinstance(wide, fx.Node) and wide.target == aten.expand.default:
            source = wide.args[0]
            while isinstance(source, fx.Node) and source.target == aten.slice.Tensor:
                if _shape(source) != _shape(source.args[0]):
                    return None
                source = source.args[0]
            if not isinstance(source, fx.Node) or source.target != aten.unsqueeze.default or source.args[1] != 2:
                return None
            source = source.args[0]
            while isinstance(source, fx.Node) and source.target == aten.slice.Tensor:
                if _shape(source) != _shape(source.args[0]):
                    return None
                source = source.args[0]
    if not isinstance(source, fx.Node):
        return None
    batch, heads, length, width = _shape(node)
    given = _shape(source)
    fits = len(given) == 4 and (given[0], given[2], given[3]) == (batch, length, width) and heads % given[1] == 0
    return source if fits else None


# -- values --------------------------------------------------------------------------------------------------


def _shape(node: Any) -> tuple[int, ...]:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return tuple(int(n) for n in value.shape) if isinstance(value, torch.Tensor) else ()


def _dtype(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _number(value: Any) -> float | None:
    """A number, or the one of a constant tensor with a single element."""
    if isinstance(value, bool | int | float):
        return float(value)
    if not isinstance(value, fx.Node) or math.prod(_shape(value)) != 1:
        return None
    found = _constant(value)
    if found is None:
        return None
    with unset_fake_temporarily():
        return float(found.reshape(()).item())


def _constant(node: fx.Node) -> torch.Tensor | None:
    """The value of a node that depends on no input and on no random number, computed on the host."""
    known: dict[fx.Node, Any] = {}

    def value(one: fx.Node) -> Any:
        if one not in known:
            target = one.target
            fixed = one.op == "call_function" and isinstance(target, torch._ops.OpOverload)
            if not fixed or torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable:
                raise LookupError(one.name)
            args, named = fx.map_arg((one.args, one.kwargs), value)
            if "device" in named:
                named = {**named, "device": "cpu"}
            known[one] = target(*args, **named)
        return known[one]

    try:
        with unset_fake_temporarily(), torch.no_grad():
            found = value(node)
    except (LookupError, RuntimeError, TypeError):
        return None
    return found if isinstance(found, torch.Tensor) else None


def _drop_unused(graph: fx.Graph) -> None:
    """Erase what nobody reads any more; ops that write their arguments stay."""
    for node in reversed(list(graph.nodes)):
        pure = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable
        random = pure and torch.Tag.nondeterministic_seeded in node.target.tags
        if node.op == "call_function" and pure and not random and not node.users:
            graph.erase_node(node)
