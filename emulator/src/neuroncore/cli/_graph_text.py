"""Graphs of ATen ops as text, so that the compiler can be tried without torch.

```
aten.mul.Tensor bf16[4,512] bf16[4,512]
aten.mean.dim bf16[4,512] [-1] true -> bf16[4,1]
x = bf16[128,256]; y = aten.mm.default x bf16[256,512] -> bf16[128,512]; aten.relu.default y
```

Statements end with `;` or a line break. A statement is an input (`x = bf16[4,512]`) or an op with its arguments in the
order of its schema: tensors (`dtype[sizes]` makes a new input), names of earlier results, JSON values, and
`keyword=value`. The result follows `->`, several one after the other, of which later ops see the first; without it, it
has the broadcast shape of the tensors and the first one's dtype. Results that no later op uses are the graph's.
"""

from __future__ import annotations

import json
import re
from typing import Any

from neuroncore.cli._common import CommandError
from neuroncore.graph import DTYPE_BYTES, Graph, Node, TensorSpec, Value

__all__ = ["parse_graph"]

_SPEC = re.compile(r"(\w+)\[([\d,\s]*)\]$")
_TOKEN = re.compile(r'\[[^\]]*\]|"(?:[^"\\]|\\.)*"|[^\s\["]+(?:\[[^\]]*\])?')
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


def parse_graph(text: str) -> Graph:
    """Read a graph.

    Raises:
        CommandError: a statement is no op; says which and what was expected.
    """
    reader = _Reader()
    for statement in re.split(r"[;\n]", text):
        if statement.strip():
            reader.read(statement.strip())
    if not reader.nodes:
        raise CommandError(f"{text!r}: no op. Give one as in: aten.mul.Tensor bf16[4,512] bf16[4,512]")
    used = {value for node in reader.nodes for value in _values(node.args, dict(node.kwargs))}
    made = [Value(number, 0) for number in range(len(reader.nodes))]
    outputs = tuple(
        Value(value.node, index)
        for value in made
        if value not in used
        for index in range(len(reader.nodes[value.node].outputs))
    )
    return Graph("text", tuple(reader.inputs), tuple(reader.nodes), outputs)


def _values(*things: Any) -> list[Value]:
    found: list[Value] = []
    for thing in things:
        if isinstance(thing, Value):
            found.append(thing)
        elif isinstance(thing, tuple | list):
            found += _values(*thing)
        elif isinstance(thing, dict):
            found += _values(*thing.values())
    return found


class _Reader:
    def __init__(self) -> None:
        self.inputs: list[TensorSpec] = []
        self.nodes: list[Node] = []
        self.names: dict[str, Value] = {}

    def read(self, statement: str) -> None:
        name, _, rest = statement.partition("=")
        if not re.fullmatch(r"%?\w+\s*", name) or not rest.strip():
            name, rest = "", statement
        name, rest = name.strip(), rest.strip()
        value = self._input(rest, statement) if _SPEC.match(rest) else self._op(rest, statement)
        if name:
            self.names[name] = value

    def spec_of(self, value: Value) -> TensorSpec:
        return self.inputs[value.index] if value.node < 0 else self.nodes[value.node].outputs[value.index]

    def _input(self, text: str, statement: str) -> Value:
        self.inputs.append(_spec(text, statement))
        return Value(-1, len(self.inputs) - 1)

    def _op(self, text: str, statement: str) -> Value:
        head, _, result = text.partition("->")
        target, *tokens = _TOKEN.findall(head)
        if not re.fullmatch(r"(aten[.:]|prims[.:]).+", target):
            raise CommandError(f"{statement!r}: {target!r} is no op; write its overload in full, as in aten.mul.Tensor")
        target = target.replace("::", ".")
        if target.count(".") == 1:
            target += ".default"
        args: list[Any] = []
        kwargs: list[tuple[str, Any]] = []
        for token in tokens:
            key, equals, value = token.partition("=")
            if equals and re.fullmatch(r"\w+", key):
                kwargs.append((key, self._argument(value, statement)))
            else:
                args.append(self._argument(token, statement))
        tensors = [self.spec_of(value) for value in _values(args)]
        if result.strip():
            # Spaces stand between results, commas between sizes.
            outputs = [_spec(one, statement) for one in re.findall(r"\w+\[[^\]]*\]|\S+", result)]
        elif tensors:
            outputs = [TensorSpec(_broadcast([one.shape for one in tensors], statement), tensors[0].dtype)]
        else:
            raise CommandError(f"{statement!r}: say what it gives, as in `-> bf16[4,512]`")
        self.nodes.append(Node(target, tuple(args), tuple(kwargs), tuple(map(_dense, outputs))))
        return Value(len(self.nodes) - 1, 0)

    def _argument(self, token: str, statement: str) -> Any:
        if token in self.names:
            return self.names[token]
        if _SPEC.match(token):
            return self._input(token, statement)
        if token in DTYPE_BYTES:
            return token
        if token.startswith("[") and (names := [part.strip() for part in token[1:-1].split(",")])[0] in self.names:
            return tuple(self._argument(name, statement) for name in names)
        try:
            value = json.loads(token)
        except ValueError:
            raise CommandError(
                f"{statement!r}: {token!r} is neither a tensor (bf16[4,512]), nor an earlier result, nor a JSON value"
            ) from None
        return tuple(value) if isinstance(value, list) else value


def _spec(text: str, statement: str) -> TensorSpec:
    match = _SPEC.match(text)
    dtype = _DTYPES.get(match[1], match[1]) if match else ""
    if match is None or dtype not in DTYPE_BYTES:
        raise CommandError(f"{statement!r}: {text!r} is no tensor; dtypes: {', '.join(DTYPE_BYTES)}")
    return _dense(TensorSpec(tuple(int(size) for size in match[2].split(",") if size.strip()), dtype))


def _dense(spec: TensorSpec) -> TensorSpec:
    strides, step = [], 1
    for size in reversed(spec.shape):
        strides.append(step)
        step *= max(size, 1)
    return TensorSpec(spec.shape, spec.dtype, tuple(reversed(strides)))


def _broadcast(shapes: list[tuple[int, ...]], statement: str) -> tuple[int, ...]:
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            raise CommandError(f"{statement!r}: the shapes do not broadcast; say what it gives, as in `-> bf16[4,512]`")
        result.append(wide.pop() if wide else 1)
    return tuple(result)
