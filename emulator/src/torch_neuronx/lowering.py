"""From torch to what the compiler is given: eager calls and FX graphs become `neuroncore.graph.Graph`.

`graph_from_call` serves the executable cache's miss (one ATen op), `graph_from_fx` serves torch.compile.
Both give the same node for the same op: arguments in the schema's order, defaults left out, arguments that say
nothing about the arithmetic (device, layout, pinning, generators) dropped, single numbers on the host inlined.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from neuroncore.graph import Graph, Node, TensorSpec, Value
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

__all__ = [
    "LoweringError",
    "byte_graph",
    "display",
    "dtype_name",
    "graph_from_call",
    "graph_from_fx",
    "operator_of",
    "tensor_spec",
]

#: Names of torch's dtypes in neuroncore. Types of equal width stand in for those NeuronCores don't have.
_DTYPES = {
    torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64",
    torch.float8_e4m3fn: "fp8_e4m3", torch.float8_e4m3fnuz: "fp8_e4m3", torch.float8_e5m2: "fp8_e5m2",
    torch.float8_e5m2fnuz: "fp8_e5m2", torch.int8: "int8", torch.int16: "int16", torch.int32: "int32",
    torch.int64: "int64", torch.uint8: "uint8", torch.uint16: "uint16", torch.uint32: "uint32", torch.uint64: "int64",
    torch.bool: "bool",
    torch.complex64: "complex64", torch.complex128: "complex128",
}  # fmt: skip

#: c10::ScalarType's numbers, as dtype arguments arrive from C++.
_SCALAR_TYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
    23: torch.float8_e5m2, 24: torch.float8_e4m3fn, 25: torch.float8_e5m2fnuz, 26: torch.float8_e4m3fnuz,
    27: torch.uint16, 28: torch.uint32,
    29: torch.uint64,
}  # fmt: skip

#: Schema types and argument names that say nothing about the arithmetic.
_SILENT_TYPES = ("Device", "Layout", "MemoryFormat", "Generator", "Stream")
_SILENT_NAMES = frozenset({"pin_memory", "non_blocking"})

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_SHOWN_INPUTS = 4


class LoweringError(TypeError):
    """A torch object that has no counterpart in a graph: a dtype, a layout. The caller gives an estimate instead."""


def dtype_name(dtype: torch.dtype) -> str:
    """Name of a dtype in neuroncore ("bf16").

    Raises:
        LoweringError: a quantized or sub-byte dtype.
    """
    name = _DTYPES.get(dtype)
    if name is None:
        known = ", ".join(sorted(set(_DTYPES.values())))
        raise LoweringError(f"{dtype} has no counterpart on a NeuronCore; known: {known}")
    return name


def tensor_spec(tensor: torch.Tensor) -> TensorSpec:
    """Shape, dtype and strides of a real or fake tensor. The offset is dropped: equal layouts share an executable.

    Raises:
        LoweringError: the tensor is sparse or its dtype unknown.
    """
    if tensor.layout != torch.strided:
        raise LoweringError(f"{tensor.layout} tensors have no counterpart on a NeuronCore; use .to_dense()")
    return TensorSpec(_ints(tensor.shape), dtype_name(tensor.dtype), _ints(tensor.stride()))


def operator_of(name: str) -> torch._ops.OpOverload:
    """The overload behind a dispatcher name such as "aten::mul.Tensor" or "aten::relu"."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def display(graph: Graph) -> tuple[str, str]:
    """Shapes and dtypes of what a graph reads, as profiles show them: ("[4,512] x [512]", "bf16 x bf16").

    Of a single op these are its operands, each as often as it is used; else the graph's inputs.
    """
    specs: Sequence[TensorSpec] = graph.inputs
    if len(graph.nodes) == 1:
        (node,) = graph.nodes
        specs = [graph.inputs[value.index] for value in _values((node.args, node.kwargs))]
    shown = specs[:_SHOWN_INPUTS]
    rest = len(specs) - len(shown)
    more = [f"{rest} more"] if rest else []
    shapes = " x ".join(["[" + ",".join(map(str, spec.shape)) + "]" for spec in shown] + more)
    return shapes, " x ".join([spec.dtype for spec in shown] + more)


def graph_from_call(
    op: torch._ops.OpOverload | str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    results: Any = (),
    source: str = "",
) -> Graph:
    """The graph of one eager call.

    Args:
        op: the overload, or its dispatcher name.
        args: arguments in the schema's order, keyword-only ones may follow (as they lie on the dispatcher's stack).
        kwargs: further arguments by name.
        results: what the call returned: a tensor, or (nested) sequences of tensors and other values.
        source: "file.py:line" of the call.

    Raises:
        LoweringError: a dtype or layout without a counterpart.
    """
    op = operator_of(op) if isinstance(op, str) else op
    inputs = _Inputs(_on_device([*args, *(kwargs or {}).values(), results]))
    positional, named, written = _bind(op._schema, args, kwargs or {}, inputs.value)
    outputs = list(_specs(results))
    returned = _returned_writes(op._schema)
    mutates: list[tuple[int, Value]] = []
    for name, value in written:
        for target in _values(value):
            if name in returned:
                mutates.append((target.index, Value(0, returned[name])))
            elif not op._schema.returns:
                # foreach and fused optimizers return nothing: what they write is their result.
                mutates.append((target.index, Value(0, len(outputs))))
                outputs.append(inputs.specs[target.index])
    node = Node(str(op), positional, named, tuple(outputs), source)
    values = tuple(Value(0, index) for index in range(len(outputs)))
    return Graph(op.name(), tuple(inputs.specs), (node,), values, tuple(mutates))


def call_inputs(op: str, args: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors that are the inputs of the graph `graph_from_call` makes of these arguments, in its order.

    Raises:
        LoweringError: a dtype or layout without a counterpart.
    """
    inputs = _Inputs(_on_device(args))
    _bind(operator_of(op)._schema, args, {}, inputs.value)
    return inputs.tensors


def fx_inputs(module: fx.GraphModule) -> list[int | torch.Tensor]:
    """Where the inputs of the graph of `graph_from_fx` come from: a placeholder's number or a constant of the module.

    Raises:
        LoweringError: a dtype or layout without a counterpart.
    """
    reader = _FxReader(module, "")
    reader.read()
    return reader.sources


def graph_from_fx(module: fx.GraphModule, name: str) -> Graph:
    """The graph of an ATen-level FX module whose nodes carry fake values, as aot_autograd gives them.

    Copies back into an input become `Graph.mutates`. Tensor constants of the module become further inputs, those with a
    single element on the host numbers.

    Raises:
        LoweringError: a dtype or layout without a counterpart.
    """
    return _FxReader(module, name).read()


def byte_graph(name: str, inputs: Any, results: Any) -> Graph:
    """Work on tensors that a graph can't describe, as one opaque op on as many bytes; the compiler estimates it.

    Args:
        name: of the op or graph.
        inputs: tensors and other values, nested; one that appears twice is read once.
        results: the same for what is written.
    """

    def spec(tensor: torch.Tensor) -> TensorSpec:
        return TensorSpec((int(tensor.numel()) * tensor.element_size(),), "uint8", (1,))

    read = {id(item): item for item in _leaves(inputs) if isinstance(item, torch.Tensor)}
    specs = tuple(map(spec, read.values()))
    outputs = tuple(spec(item) for item in _leaves(results) if isinstance(item, torch.Tensor))
    node = Node(f"estimate.{name}", tuple(Value(-1, number) for number in range(len(specs))), (), outputs)
    return Graph(name, specs, (node,), tuple(Value(0, number) for number in range(len(outputs))))


class _Inputs:
    """The distinct tensors of a call, in the order of first use."""

    def __init__(self, inline_host_scalars: bool) -> None:
        self.specs: list[TensorSpec] = []
        self.tensors: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._inline = inline_host_scalars

    def value(self, tensor: torch.Tensor) -> Any:
        """The tensor as a graph argument: an input, or the number a host scalar holds."""
        if self._inline and tensor.dim() == 0 and tensor.device.type == "cpu":
            return tensor.item()
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self.specs)
            self.specs.append(tensor_spec(tensor))
            self.tensors.append(tensor)
        return Value(-1, number)


class _FxReader:
    """Walks an FX graph once; `env` holds each FX node's `Value`, nested tuples of them, or its plain value."""

    def __init__(self, module: fx.GraphModule, name: str) -> None:
        self.module = module
        self.name = name
        self.inputs: list[TensorSpec] = []
        self.sources: list[int | torch.Tensor] = []
        self.nodes: list[Node] = []
        self.env: dict[fx.Node, Any] = {}
        self.mutates: dict[int, Value] = {}

    def read(self) -> Graph:
        outputs: list[Value] = []
        placeholders = 0
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.env[node] = None if _is_for_host(node) else self._input(node.meta.get("val"), placeholders)
                placeholders += 1
            elif node.op == "get_attr":
                self.env[node] = self._constant(node)
            elif node.op == "output":
                outputs = list(_values(fx.map_arg(node.args[0], self.env.__getitem__)))
            else:
                self.env[node] = self._call(node)
        mutates = tuple(sorted(self.mutates.items()))
        return Graph(self.name, tuple(self.inputs), tuple(self.nodes), tuple(outputs), mutates)

    def _input(self, value: Any, source: int | torch.Tensor) -> Any:
        if isinstance(value, torch.Tensor):
            self.inputs.append(tensor_spec(value))
            self.sources.append(source)
            return Value(-1, len(self.inputs) - 1)
        return _plain(value)

    def _constant(self, node: fx.Node) -> Any:
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return str(node.target)
        real = type(value) in (torch.Tensor, torch.nn.Parameter)
        if real and value.dim() == 0 and value.device.type == "cpu":
            with unset_fake_temporarily():
                return value.item()
        return self._input(value, value)

    def _call(self, node: fx.Node) -> Any:
        if _is_host_call(node):
            return _plain(node.meta.get("val"))
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.env.__getitem__)
        value = node.meta.get("val")
        if node.target is operator.getitem:
            return args[0][args[1]]
        if isinstance(node.target, torch._ops.OpOverload):
            if node.target is torch.ops.aten.copy_.default and self._write_back(args[0], args[1]):
                return args[1]
            positional, named, _ = _bind(node.target._schema, args, kwargs, None)
        elif not any(isinstance(item, torch.Tensor) for item in _leaves(value)):
            return _plain(value)  # arithmetic on sizes
        else:
            # A higher-order op: which tensors it reads is all that is known here.
            positional, named = tuple(_values((args, kwargs))), ()
        target = str(node.target) if isinstance(node.target, torch._ops.OpOverload) else f"higher_order.{node.target}"
        self.nodes.append(Node(target, positional, named, tuple(_specs(value)), _source(node.stack_trace)))
        counter = iter(range(len(self.nodes[-1].outputs)))
        return _nest(value, lambda: Value(len(self.nodes) - 1, next(counter)))

    def _write_back(self, target: Any, source: Any) -> bool:
        """Note a final copy into an input. False where the copy also converts and so is work of its own."""
        if not (isinstance(target, Value) and target.node == -1 and isinstance(source, Value)):
            return False
        old = self.inputs[target.index]
        new = self.inputs[source.index] if source.node == -1 else self.nodes[source.node].outputs[source.index]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            return False
        self.mutates[target.index] = source
        return True


def _is_host_call(node: fx.Node) -> bool:
    """Python on the host (arithmetic on sizes, generator states): no part of the device's program."""
    is_op = isinstance(node.target, torch._ops.OperatorBase) or node.target is operator.getitem
    return node.op == "call_function" and not is_op


def _is_for_host(node: fx.Node) -> bool:
    return bool(node.users) and all(map(_is_host_call, node.users))


def _bind(
    schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensor: Callable[[torch.Tensor], Any] | None
) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...], list[tuple[str, Any]]]:
    """Arguments by the schema: positional ones, named ones that are no defaults, and the written ones by name."""
    positional: list[tuple[Any, bool]] = []
    named: list[tuple[str, Any]] = []
    written: list[tuple[str, Any]] = []
    for number, argument in enumerate(schema.arguments):
        given = number < len(args) or argument.name in kwargs
        value = args[number] if number < len(args) else kwargs.get(argument.name, argument.default_value)
        kind = str(argument.real_type)
        if any(silent in kind for silent in _SILENT_TYPES) or argument.name in _SILENT_NAMES:
            value, given = None, False
        elif "ScalarType" in kind and isinstance(value, int):
            value = dtype_name(_SCALAR_TYPES[value]) if value in _SCALAR_TYPES else None
        value = _plain(value, tensor)
        default = argument.has_default_value() and value == _plain(argument.default_value)
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.append((argument.name, value))
        if not argument.kwarg_only:
            positional.append((value, given and not default))
        elif given and not default:
            named.append((argument.name, value))
    while positional and not positional[-1][1]:
        positional.pop()
    return tuple(value for value, _ in positional), tuple(named), written


def _returned_writes(schema: Any) -> dict[str, int]:
    """Written argument → position of the result that is that argument."""
    found: dict[str, int] = {}
    for position, result in enumerate(schema.returns):
        if result.alias_info is None or not result.alias_info.is_write:
            continue
        for argument in schema.arguments:
            info = argument.alias_info
            if info is not None and info.is_write and info.before_set == result.alias_info.before_set:
                found[argument.name] = position
    return found


def _plain(value: Any, tensor: Callable[[torch.Tensor], Any] | None = None) -> Any:
    """A torch argument as a graph argument."""
    if isinstance(value, torch.Tensor):
        return tensor(value) if tensor is not None else None
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.SymFloat):
        return float(value)
    if isinstance(value, torch.SymBool):
        return bool(value)
    if isinstance(value, list | tuple) and not isinstance(value, Value):
        return tuple(_plain(item, tensor) for item in value)
    if value is None or isinstance(value, Value | bool | int | float | complex | str):
        return value
    return str(value)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _values(value: Any) -> Iterator[Value]:
    return (item for item in _leaves(value) if isinstance(item, Value))


def _specs(results: Any) -> Iterator[TensorSpec]:
    """Specs of the tensors in a result, flattened; a missing tensor (an unwanted gradient) keeps its place, empty."""
    for item in _leaves(results):
        if isinstance(item, torch.Tensor):
            yield tensor_spec(item)
        elif item is None and isinstance(results, list | tuple):
            yield TensorSpec((0,), "fp32", (1,))


def _nest(value: Any, new: Callable[[], Value]) -> Any:
    """The structure of a result with a `Value` for each spec that `_specs` gives."""
    if isinstance(value, list | tuple):
        return tuple(new() if item is None else _nest(item, new) for item in value)
    return new() if isinstance(value, torch.Tensor) else _plain(value)


def _on_device(values: Any) -> bool:
    """True when some tensor is not on the host, so that single numbers on the host travel with the call."""
    return any(isinstance(item, torch.Tensor) and item.device.type not in ("cpu", "meta") for item in _leaves(values))


def _ints(sizes: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes)


def _source(stack_trace: str | None) -> str:
    """The innermost frame of an FX node's stack trace as "file.py:line"; empty when there is none.

    Files below the working folder are named relative to it, as in execution records.
    """
    frames = _FRAME.findall(stack_trace or "")
    if not frames:
        return ""
    file, line = frames[-1]
    return f"{file.removeprefix(str(Path.cwd()) + '/')}:{line}"
