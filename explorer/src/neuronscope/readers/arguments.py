"""What events hold besides times and ids: their arguments, decoded where needed, kept as JSON text otherwise."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.readers.compiled import linking
from neuronscope.readers.exact import Int64, TextColumn, int64_column
from neuronscope.readers.narrow import Coded
from neuronscope.readers.native import argument_texts
from neuronscope.readers.trace import Events

__all__ = [
    "Inputs",
    "attributes",
    "attributes_of",
    "decode",
    "emulator_facts",
    "input_texts",
    "print_inputs",
    "texts_of",
]


class Inputs(msgspec.Struct, gc=False):
    """Shapes and types of an operator's inputs, as torch records them with `record_shapes`."""

    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw(b""))
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw(b""))


class _Split(msgspec.Struct, gc=False):
    """Arguments of our emulator's device rows."""

    launch_ns: int | str | float | None = -1
    program_ns: int | str | float | None = -1
    estimated_ns: int | str | float | None = 0
    neff: str | int | None = ""
    shapes: str | None = ""
    dtypes: str | None = ""
    source: str | None = ""
    module: str | None = ""
    bound: str | None = ""


def decode(texts: list[bytes], kind: Any) -> list[Any]:
    """Each text as a `kind`; a default one where the text is no object, or has a field of another type."""
    try:
        return msgspec.json.Decoder(list[kind]).decode(b"[" + b",".join(text or b"{}" for text in texts) + b"]")
    except (msgspec.DecodeError, RecursionError):
        pass
    decoder = msgspec.json.Decoder(kind)
    found = []
    for text in texts:
        try:
            found.append(decoder.decode(text or b"{}"))
        except (msgspec.DecodeError, RecursionError):
            found.append(kind())
    return found


def input_texts(args: pa.Array) -> list[pa.Array]:
    """The JSON texts of the operators' input shapes and of their types."""
    found = argument_texts(args, (b"Input Dims", b"Input type"))
    if found is not None:
        return found
    decoded = decode(args.to_pylist(), Inputs)
    columns = [item.dims for item in decoded], [item.types for item in decoded]
    return [TextColumn.join(column).binary() for column in columns]


def emulator_facts(ev: Events, rows: Int64) -> dict[str, Any]:
    """Launch split, executable and call site of our emulator's device rows, as columns of `Execution`."""
    decoded = decode(ev.args.read(rows).to_pylist(), _Split)
    facts: dict[str, Any] = {
        name: int64_column([getattr(item, name) for item in decoded])
        for name in ("launch_ns", "program_ns", "estimated_ns")
    }
    for name in ("neff", "shapes", "dtypes", "source", "module", "bound"):
        facts[name] = Coded.of([str(getattr(item, name) or "") for item in decoded])
    prefix = "nc_exec_running "
    names = ev.name.dictionary.to_pylist()
    facts["overload"] = Coded(ev.name.indices.to_numpy()[rows], [name.removeprefix(prefix) for name in names])
    return facts


def texts_of(ev: Events, rows: Int64, key: str) -> list[str]:
    """One argument of each row as text, empty where missing."""
    found = []
    for text in ev.args.read(rows).to_pylist():
        try:
            value = msgspec.json.decode(text) if text else {}
        except (msgspec.DecodeError, RecursionError):
            value = {}
        found.append(str(value.get(key, "")) if isinstance(value, dict) else "")
    return found


def print_inputs(dims: bytes, types: bytes) -> tuple[str, str]:
    """`[4,512] x [512]` and `bf16 x bf16` from Kineto's "Input Dims" and "Input type"."""
    try:
        shapes = msgspec.json.decode(dims) if dims else []
        kinds = msgspec.json.decode(types) if types else []
    except (msgspec.DecodeError, RecursionError):
        return "", ""
    shapes = shapes if isinstance(shapes, list) else []
    kinds = kinds if isinstance(kinds, list) else []
    tensors = [index for index, shape in enumerate(shapes) if isinstance(shape, list) and shape]
    printed = [msgspec.json.encode(shapes[index]).decode() for index in tensors]
    named = [str(kinds[index]).removeprefix("c10::") if index < len(kinds) else "" for index in tensors]
    return " x ".join(printed), " x ".join(name for name in named if name)


def attributes_of(ev: Events, low: int, high: int) -> pa.Array:
    """`attributes` of a range of events."""
    rows, categories, native = np.arange(low, high), ev.category.slice(low, high - low), linking()
    located = None if native is None else ev.args.located(rows)
    if located is not None:
        codes = np.ascontiguousarray(categories.indices.to_numpy(), np.int32)
        found = native.attributes(*located, codes, _prefixes(categories))
        if found is not None:
            buffers = [None, *map(pa.py_buffer, found)]
            return pa.Array.from_buffers(pa.binary(), len(rows), buffers).cast(pa.string())
    return attributes(categories, ev.args.read(rows))


PHASE = "\0ph="
"""Between a category and the phase of an instant that is not a plain one (a counter, a sample, an object, …)."""


def _prefixes(categories: pa.DictionaryArray) -> list[bytes]:
    """How the attributes of each category begin."""
    found = []
    for text in categories.dictionary.to_pylist() or [""]:
        name, _, phase = text.partition(PHASE)
        members = [(b'"category":', name), (b'"ph":', phase)]
        found.append(b"{" + b",".join(key + msgspec.json.encode(value) for key, value in members if value))
    return found


def attributes(categories: pa.DictionaryArray, texts: pa.Array) -> pa.Array:
    """Everything else the file held, as JSON: the category and the arguments (`texts`)."""
    prefixes = _prefixes(categories)
    if not len(texts):
        return pa.array([], pa.string())
    kind = pa.large_binary() if pa.types.is_large_binary(texts.type) else pa.binary()
    empty = pc.equal(pc.binary_length(texts), 0)
    args = pc.if_else(empty, pa.scalar(b"{}", kind), texts) if pc.any(empty).as_py() else texts
    prefix = pa.array(prefixes, kind).take(categories.indices)
    nothing = pa.scalar(b"", kind)
    # The opening brace of each object becomes the comma (or, of an empty one, the space) after the category.
    data_type = np.int64 if kind == pa.large_binary() else np.int32
    _, offset_buffer, data_buffer = args.buffers()
    offsets = np.frombuffer(offset_buffer, data_type)[args.offset : args.offset + len(args) + 1]
    data = np.frombuffer(data_buffer, np.uint8)[: offsets[-1]].copy()
    first = data[offsets[:-1]]
    is_object = first == ord("{")
    lengths = np.diff(offsets)
    short = np.flatnonzero(is_object & (lengths < 24))
    bare = [row for row in short.tolist() if not data[offsets[row] + 1 : offsets[row + 1] - 1].tobytes().strip()]
    data[offsets[:-1][is_object]] = ord(",")
    data[offsets[bare]] = ord(" ")
    alone = np.array([text == b"{" for text in prefixes], np.bool_)[categories.indices.to_numpy()]
    data[offsets[:-1][is_object & alone]] = ord(" ")
    body = pa.Array.from_buffers(
        kind, len(args), [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    )
    result = pc.binary_join_element_wise(prefix, body, nothing)
    if not is_object.all():
        label = pc.if_else(pa.array(alone), pa.scalar(b'"args":', kind), pa.scalar(b',"args":', kind))
        whole = pc.binary_join_element_wise(prefix, label, args, pa.scalar(b"}", kind), nothing)
        result = pc.if_else(pa.array(is_object), result, whole)
    return result.cast(pa.large_string() if kind == pa.large_binary() else pa.string())
