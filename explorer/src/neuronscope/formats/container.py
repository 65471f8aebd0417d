"""Read and write our profile files: a protobuf envelope around Arrow tables (see container.proto)."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from neuronscope.formats import tables
from neuronscope.formats.container_pb2 import Container
from neuronscope.formats.errors import FormatError

MAGIC = "neuronscope"
VERSION = 2
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
_ROWS_PER_TABLE = 4_000_000  # keeps one protobuf bytes field far below its 2 GiB limit


@dataclass(frozen=True)
class Session:
    """What made a profile; one field per field of `Session` in container.proto, same names, units and meaning."""

    producer: str
    producer_version: str
    emulated: bool
    model_version: str
    target: str
    target_hash: str
    instance_id: str
    process_id: int
    session_id: int
    lnc: int
    modes: tuple[str, ...]
    start_ns: int
    stop_ns: int
    dropped_events: Mapping[int, int] = field(default_factory=dict)
    unfinished_executions: int = 0
    host_model: str = "measured"
    device_cost_ns: Mapping[str, int] = field(default_factory=dict)
    device_cost_status: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfileFile:
    """One decoded file: its kind, session facts and tables by name (declared columns only, in declared order)."""

    kind: str
    version: int
    session: Session
    tables: Mapping[str, pa.Table]


def write(path: str | os.PathLike[str], kind: str, session: Session, rows: Mapping[str, Any] | None = None) -> None:
    """Write one profile file atomically (temporary file, then rename).

    Args:
        path: file to write; its folder must exist.
        kind: a key of `tables.BY_KIND`.
        session: what made the profile.
        rows: per table name, a mapping column → sequence (list, numpy or Arrow array) or a `pyarrow.Table`;
            tables left out are written empty.

    Raises:
        ValueError: unknown kind, table or column, or columns of unequal length.
        OSError: the file cannot be written; nothing is left behind.
    """
    if kind not in tables.BY_KIND:
        raise ValueError(f"unknown profile file kind {kind!r}; known: {', '.join(tables.BY_KIND)}")
    specs = {spec.name: spec for spec in tables.BY_KIND[kind]}
    given = dict(rows or {})
    if unknown := set(given) - set(specs):
        raise ValueError(f"{kind} files have no table {sorted(unknown)}; known: {sorted(specs)}")
    message = Container(magic=MAGIC, kind=kind, version=VERSION)
    _session_to_message(session, message.session)
    for name, spec in specs.items():
        table = _as_table(spec, given.get(name, {}))
        for start in range(0, max(table.num_rows, 1), _ROWS_PER_TABLE):
            part = table.slice(start, _ROWS_PER_TABLE).unify_dictionaries().combine_chunks()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema, options=_COMPRESSED) as writer:
                writer.write_table(part)
            data = sink.getvalue().to_pybytes()
            message.tables.add(name=name, rows=part.num_rows, arrow_ipc=data, crc32=zlib.crc32(data))
    write_atomic(Path(path), message.SerializeToString(deterministic=True))


def read(path: str | os.PathLike[str]) -> ProfileFile:
    """Read one profile file.

    Raises:
        FormatError: not one of ours, a newer version, or damaged; the message names file, table and what to do.
        OSError: the file cannot be opened.
    """
    path = Path(path)
    message = Container()
    try:
        message.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise FormatError(f"{path}: not a Neuronscope profile file, or truncated ({error})") from None
    if message.magic != MAGIC:
        raise FormatError(
            f"{path}: not a Neuronscope profile file; a raw capture of the vendor's tools is processed by "
            f"`neuron-explorer view -d DIR --ingest-only --data-path OUT` on the instance"
        )
    if message.version > VERSION or message.kind not in tables.BY_KIND:
        raise FormatError(
            f"{path}: {message.kind} version {message.version}; this Neuronscope reads up to {VERSION}. Upgrade it."
        )
    parts: dict[str, list[pa.Table]] = {spec.name: [] for spec in tables.BY_KIND[message.kind]}
    for table in message.tables:
        if table.name not in parts:
            continue
        if zlib.crc32(table.arrow_ipc) != table.crc32:
            raise FormatError(
                f"{path}: table {table.name} is damaged (checksum differs). Capture again or restore the file."
            )
        try:
            parts[table.name].append(pa.ipc.open_stream(table.arrow_ipc).read_all())
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"{path}: table {table.name} cannot be decoded ({error})") from None
    result = {}
    for spec in tables.BY_KIND[message.kind]:
        found = parts[spec.name]
        conformed = [_conform(path, spec, t, message.version) for t in found]
        result[spec.name] = pa.concat_tables(conformed) if found else _as_table(spec, {})
    return ProfileFile(message.kind, message.version, _session_from_message(message.session), result)


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees either nothing or all of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _as_table(spec: tables.TableSpec, data: Mapping[str, Sequence[Any]] | pa.Table) -> pa.Table:
    schema = spec.schema
    if isinstance(data, pa.Table):
        return data.select(schema.names).cast(schema)
    if unknown := set(data) - set(schema.names):
        raise ValueError(f"table {spec.name} has no column {sorted(unknown)}")
    if not data:
        return schema.empty_table()
    if missing := set(schema.names) - set(data):
        raise ValueError(f"table {spec.name} needs column {sorted(missing)}")
    arrays = []
    for column in schema:
        value = data[column.name]
        if pa.types.is_dictionary(column.type):
            array = pa.array(value, pa.string()).dictionary_encode()
        else:
            array = pa.array(value, column.type)
        arrays.append(array)
    if len({len(a) for a in arrays}) > 1:
        raise ValueError(f"table {spec.name}: columns differ in length")
    return pa.Table.from_arrays(arrays, schema=schema)


def _conform(path: Path, spec: tables.TableSpec, table: pa.Table, version: int) -> pa.Table:
    """The declared columns; those that came with a later version than the file's are -1 or empty."""
    for column in spec.schema:
        if column.name not in table.column_names and version < tables.SINCE.get((spec.name, column.name), 0):
            unknown: object = "" if pa.types.is_dictionary(column.type) else -1
            values = pa.array([unknown] * table.num_rows, pa.string() if unknown == "" else column.type)
            table = table.append_column(column.name, values.dictionary_encode() if unknown == "" else values)
    if missing := set(spec.schema.names) - set(table.column_names):
        raise FormatError(f"{path}: table {spec.name} lacks column {sorted(missing)}")
    table = table.select(spec.schema.names)
    if empty := [name for name in spec.schema.names if table[name].null_count]:
        raise FormatError(f"{path}: table {spec.name} holds nulls in {empty}")
    try:
        return table.cast(spec.schema)
    except (pa.ArrowException, ValueError) as error:
        raise FormatError(f"{path}: table {spec.name} has other types ({str(error).splitlines()[0]})") from None


_MAPS = ("dropped_events", "device_cost_ns", "device_cost_status")


def _session_to_message(session: Session, message: Any) -> None:
    for name in Session.__dataclass_fields__:
        value = getattr(session, name)
        if name in _MAPS:
            getattr(message, name).update(value)
        elif name == "modes":
            message.modes.extend(value)
        else:
            setattr(message, name, value)


def _session_from_message(message: Any) -> Session:
    values: dict[str, Any] = {name: getattr(message, name) for name in Session.__dataclass_fields__}
    for name in _MAPS:
        values[name] = dict(values[name])
    values["modes"] = tuple(values["modes"])
    return Session(**values)
