"""rocprof and rocprofv3 outputs → `Trace`: kernel, copy and HIP/HSA API rows of CSV files, rocprofv3's JSON.

Columns are found by name: rocprofv3 and rocprofv2 write Start_Timestamp and End_Timestamp, rocprof BeginNs and EndNs,
all in ns. The JSON that `rocprof` itself writes is a chrome trace and read as one; databases are `rocpd`'s.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import msgspec

from neuronscope.formats.errors import FormatError
from neuronscope.readers import source
from neuronscope.readers.exact import int64
from neuronscope.readers.rows import RowEvents
from neuronscope.readers.trace import Role, Trace

__all__ = ["is_csv", "is_json", "read_csv", "read_json"]

# Columns as `_key` writes them, the one that is taken first.
_START = ("start_timestamp", "beginns", "start_ns")
_END = ("end_timestamp", "endns", "end_ns")
_NAME = ("kernel_name", "kernelname", "function", "operation", "direction", "name")
_JSON_MARK = b'"rocprofiler-sdk-tool"'
_LONGEST_CELL = 1 << 24


def is_csv(head: bytes) -> bool:
    """Whether the first line names the columns of one of these files."""
    line = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    columns = [_key(cell) for cell in line.split(",")]
    return any(name in columns for name in _START) and any(name in columns for name in _END)


def is_json(head: bytes) -> bool:
    """Whether the text begins as rocprofv3's JSON does."""
    return _JSON_MARK in head


def _key(column: str) -> str:
    return column.strip().strip('"').lower().replace("-", "_").replace(" ", "_")


def read_csv(paths: list[Path], progress: Callable[[float], None] | None = None) -> Trace:
    """Read the CSV files of one run.

    Raises:
        FormatError: no row with times.
    """
    rows = RowEvents(paths[0].name)
    csv.field_size_limit(_LONGEST_CELL)
    for number, path in enumerate(paths):
        with _text(path) as file:
            lines = _Lines(file)
            records = csv.reader(lines)
            seen: set[str] = set()
            try:
                keys = [_key(cell) for cell in next(records, [])]
                while True:
                    rows.at = lines.at if number == 0 else -1  # of further files the report names none
                    cells = next(records, None)
                    if cells is None:
                        break
                    if cells:
                        _add_cells(rows, dict(zip(keys, cells, strict=False)), seen)
            except csv.Error:
                rows.lose("skipped")
        if progress:
            progress((number + 1) / len(paths))
    return _finish(rows, sum(path.stat().st_size for path in paths), paths[0])


class _Lines:
    """The lines of a file, and the byte where the next one begins."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.at = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._file)
        if line.isascii():
            self.at += len(line)
        else:
            raw = line.encode("utf-8", "surrogateescape")
            self.at += len(raw)
            line = raw.decode("utf-8", "replace").removeprefix("\ufeff")
        return line.replace("\0", "")


def _text(path: Path) -> TextIO:
    """The file's text, whatever it is packed in."""
    with path.open("rb") as file:
        packed = source.packed(file.read(6)) is not None
    if packed:
        return io.TextIOWrapper(io.BytesIO(source.load(path).data), "utf-8", "surrogateescape", "")
    return path.open(encoding="utf-8", errors="surrogateescape", newline="")


def _add_cells(rows: RowEvents, record: dict[str, str], seen: set[str]) -> None:
    def first(*keys: str) -> str:
        return next((record[key] for key in keys if record.get(key)), "")

    if "counter_name" in record:  # a row per counter of the same dispatch
        if (dispatch := first("dispatch_id", "correlation_id")) in seen:
            rows.keep("counters")
            return
        seen.add(dispatch)
    domain, name = first("domain", "kind").upper(), first(*_NAME)
    copy = "MEMORY_COPY" in domain or name.upper().startswith(("MEMORY_COPY", "HOST_TO_DEVICE", "DEVICE_TO_"))
    if "MARKER" in domain or "ROCTX" in domain:
        role = Role.ANNOTATION
    elif "API" in domain or "function" in record:
        role = Role.RUNTIME
    elif "ALLOCATION" in domain or "SCRATCH" in domain:
        role = Role.HOST
    else:
        role = Role.MEMCPY if copy else Role.DEVICE
    agent = first("agent_id", "gpu_id", "destination_agent_id", "source_agent_id")
    rows.add(
        role,
        name,
        first(*_START),
        first(*_END),
        pid=first("process_id", "pid"),
        tid=first("thread_id", "tid"),
        device=agent.lower().removeprefix("agent").strip(),
        stream=first("queue_id", "stream_id"),
        correlation=first("correlation_id"),
        size=first("bytes", "size", "allocation_size"),
        category=domain.lower(),
    )


def read_json(path: Path, progress: Callable[[float], None] | None = None) -> Trace:
    """Read rocprofv3's JSON.

    Raises:
        FormatError: not that, or no row with times.
    """
    try:
        document = msgspec.json.decode(source.load(path).data)
        tools = document["rocprofiler-sdk-tool"]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: no rocprofv3 JSON ({error})") from None
    rows = RowEvents(path.name)
    for tool in tools if isinstance(tools, list) else [tools]:
        if isinstance(tool, dict):
            _Tool(tool).read(rows)
        else:
            rows.lose("skipped")
    if progress:
        progress(1.0)
    return _finish(rows, path.stat().st_size, path)


class _Tool:
    """One process's part of the JSON; whatever has a type of its own is taken for absent."""

    def __init__(self, tool: dict[str, Any]) -> None:
        self.tool = tool
        self.pid = _dict(tool.get("metadata")).get("pid")
        self.kernels = {
            int64(symbol.get("kernel_id")): symbol.get("formatted_kernel_name") or symbol.get("kernel_name")
            for symbol in _dicts(tool.get("kernel_symbols"))
        }
        self.agents = {
            _handle(agent.get("id")): int64(agent.get("logical_node_type_id"))
            for agent in _dicts(tool.get("agents"))
            if int64(agent.get("logical_node_type_id")) >= 0
        }
        strings = _dict(tool.get("strings"))
        self.operations = {
            str(kind.get("kind")): _list(kind.get("operations")) for kind in _dicts(strings.get("buffer_records"))
        }
        self.kinds = [str(kind.get("kind")) for kind in _dicts(strings.get("buffer_records"))]
        self.ranges = {int64(entry.get("key")): entry.get("value") for entry in _dicts(strings.get("marker_api"))}

    def read(self, rows: RowEvents) -> None:
        for name, records in _dict(self.tool.get("buffer_records")).items():
            for record in _list(records):
                if isinstance(record, dict):
                    self.add(rows, name, record)
                else:
                    rows.lose("skipped")

    def called(self, name: str, record: dict[str, Any]) -> object:
        """What a record's operation is called: its kind is a name, or a number into the list of kinds."""
        kind, operation = record.get("kind"), int64(record.get("operation"))
        number = int64(kind)
        known = self.operations.get(self.kinds[number] if 0 <= number < len(self.kinds) else str(kind), [])
        return known[operation] if 0 <= operation < len(known) else name

    def add(self, rows: RowEvents, name: str, record: dict[str, Any]) -> None:
        dispatch = _dict(record.get("dispatch_info"))
        correlation = record.get("correlation_id")
        ids = _dict(correlation)
        role, what = Role.HOST, self.called(name, record)
        if name == "kernel_dispatch":
            role, what = Role.DEVICE, self.kernels.get(int64(dispatch.get("kernel_id")))
        elif name == "memory_copy":
            role = Role.MEMCPY
        elif "marker" in name:
            role, what = Role.ANNOTATION, self.ranges.get(int64(ids.get("internal"))) or what
        elif name.endswith("_api"):
            role = Role.RUNTIME
        agent = _handle(dispatch.get("agent_id") or record.get("dst_agent_id"))
        rows.add(
            role,
            what,
            record.get("start_timestamp"),
            record.get("end_timestamp"),
            pid=self.pid,
            tid=record.get("thread_id"),
            device=self.agents.get(agent, agent),
            stream=_handle(dispatch.get("queue_id") or record.get("stream_id")),
            correlation=ids.get("internal") if ids else correlation,
            size=record.get("bytes"),
            category=name,
        )


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    return (one for one in _list(value) if isinstance(one, dict))


def _handle(value: object) -> int:
    return int64(value.get("handle") if isinstance(value, dict) else value)


def _finish(rows: RowEvents, size: int, path: Path) -> Trace:
    trace = rows.trace("rocprof output", size)
    if not len(trace.events):
        raise FormatError(f"{path}: no row with a start and an end time in ns")
    trace.facts["device_name"] = "AMD GPU"
    return trace
