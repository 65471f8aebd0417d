"""rocprof and rocprofv3 outputs → `Trace`: kernel, copy and HIP/HSA API rows of CSV files, rocprofv3's JSON.

Columns are found by name: rocprofv3 writes Start_Timestamp and End_Timestamp, rocprof BeginNs and EndNs, both in ns.
The JSON that `rocprof` itself writes is a chrome trace and read as one.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from neuronscope.formats.errors import FormatError
from neuronscope.readers import source
from neuronscope.readers.exact import int64
from neuronscope.readers.narrow import constant
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import Events, Role, Trace

__all__ = ["is_csv", "is_json", "read_csv", "read_json"]

_START = ("Start_Timestamp", "BeginNs", "start_ns")
_END = ("End_Timestamp", "EndNs", "end_ns")
_NAME = ("Kernel_Name", "KernelName", "Name", "Function", "Direction")
_JSON_MARK = b'"rocprofiler-sdk-tool"'


@dataclass(frozen=True)
class _Row:
    role: Role
    name: str
    start: int
    end: int
    pid: int
    tid: int
    device: int
    stream: int
    correlation: int
    size: int


def is_csv(head: bytes) -> bool:
    """Whether the first line names the columns of one of these files."""
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    columns = [cell.strip().strip('"') for cell in line.split(",")]
    return any(name in columns for name in _START) and any(name in columns for name in _END)


def is_json(head: bytes) -> bool:
    """Whether the text begins as rocprofv3's JSON does."""
    return _JSON_MARK in head


def read_csv(paths: list[Path], progress: Callable[[float], None] | None = None) -> Trace:
    """Read the CSV files of one run.

    Raises:
        FormatError: no row with times.
    """
    rows: list[_Row] = []
    bad = size = 0
    for number, path in enumerate(paths):
        size += path.stat().st_size
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            for record in csv.DictReader(file):
                row = _of_csv(record)
                if row is None:
                    bad += 1
                else:
                    rows.append(row)
        if progress:
            progress((number + 1) / len(paths))
    return _trace(rows, bad, size, paths[0])


def _of_csv(record: dict[str, Any]) -> _Row | None:
    def first(*keys: str) -> str:
        return next((str(record[key]) for key in keys if record.get(key) not in (None, "")), "")

    def agent(text: str) -> int:
        return int64(text.removeprefix("Agent").strip())

    start, end = int64(first(*_START)), int64(first(*_END))
    if start < 0 or end < 0:
        return None
    domain = first("Domain", "Kind").upper()
    name = first(*_NAME)
    copy = "MEMORY_COPY" in domain or name.startswith(("MEMORY_COPY", "HOST_TO_DEVICE", "DEVICE_TO_"))
    if "API" in domain or "Function" in record:
        role = Role.RUNTIME
    elif copy:
        role = Role.MEMCPY
    elif "MARKER" in domain:
        role = Role.ANNOTATION
    else:
        role = Role.DEVICE
    return _Row(
        role,
        name or "(no name)",
        start,
        max(start, end),
        max(int64(first("Process_Id", "pid")), 0),
        max(int64(first("Thread_Id", "tid")), 0),
        agent(first("Agent_Id", "gpu-id", "Source_Agent_Id")),
        int64(first("Queue_Id", "queue-id", "Stream_Id")),
        int64(first("Correlation_Id")),
        int64(first("Bytes", "Size")),
    )


def read_json(path: Path, progress: Callable[[float], None] | None = None) -> Trace:
    """Read rocprofv3's JSON.

    Raises:
        FormatError: not that, or no row with times.
    """
    try:
        document = msgspec.json.decode(source.load(path).data)
        tools = document["rocprofiler-sdk-tool"]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{path}: no rocprofv3 JSON ({error})") from None
    rows: list[_Row] = []
    bad = 0
    for tool in tools if isinstance(tools, list) else [tools]:
        for row in _of_tool(tool):
            if row is None:
                bad += 1
            else:
                rows.append(row)
    if progress:
        progress(1.0)
    return _trace(rows, bad, path.stat().st_size, path)


def _of_tool(tool: dict[str, Any]) -> Iterator[_Row | None]:
    pid = int64(tool.get("metadata", {}).get("pid"), 0)
    kernels = {
        int64(symbol.get("kernel_id")): str(symbol.get("formatted_kernel_name") or symbol.get("kernel_name") or "")
        for symbol in tool.get("kernel_symbols", [])
        if isinstance(symbol, dict)
    }
    operations: dict[Any, list[str]] = {}
    for kind in tool.get("strings", {}).get("buffer_records", []):
        operations[kind.get("kind")] = [str(name) for name in kind.get("operations", [])]
    for name, records in tool.get("buffer_records", {}).items():
        for record in records if isinstance(records, list) else []:
            yield _of_record(name, record, pid, kernels, operations)


def _of_record(
    name: str, record: Any, pid: int, kernels: dict[int, str], operations: dict[Any, list[str]]
) -> _Row | None:
    if not isinstance(record, dict):
        return None
    start, end = int64(record.get("start_timestamp")), int64(record.get("end_timestamp"))
    if start < 0 or end < 0:
        return None
    dispatch = record.get("dispatch_info") or {}
    correlation = record.get("correlation_id")
    correlation = correlation.get("internal") if isinstance(correlation, dict) else correlation
    known = operations.get(record.get("kind"), [])
    operation = int64(record.get("operation"))
    called = known[operation] if 0 <= operation < len(known) else name
    role, what = Role.HOST, called
    if name == "kernel_dispatch":
        role, what = Role.DEVICE, kernels.get(int64(dispatch.get("kernel_id")), "(kernel)")
    elif name == "memory_copy":
        role = Role.MEMCPY
    elif name.endswith("_api"):
        role = Role.ANNOTATION if "marker" in name else Role.RUNTIME
    return _Row(
        role,
        what,
        start,
        max(start, end),
        pid,
        max(int64(record.get("thread_id")), 0),
        _handle(dispatch.get("agent_id") or record.get("dst_agent_id")),
        _handle(dispatch.get("queue_id") or record.get("stream_id")),
        int64(correlation),
        int64(record.get("bytes")),
    )


def _handle(value: Any) -> int:
    return int64(value.get("handle") if isinstance(value, dict) else value)


def _trace(rows: list[_Row], bad: int, size: int, path: Path) -> Trace:
    if not rows:
        raise FormatError(f"{path}: no row with a start and an end time in ns")
    none = constant(-1, len(rows))

    def column(name: str) -> Any:
        return np.array([getattr(row, name) for row in rows], np.int64)

    device = np.isin(column("role"), (Role.DEVICE, Role.MEMCPY))
    events = Events(
        role=column("role").astype(np.int8),
        name=pa.array([row.name for row in rows], pa.string()).dictionary_encode(),
        category=pa.array([row.role.name.lower() for row in rows], pa.string()).dictionary_encode(),
        start=column("start"),
        end=column("end"),
        pid=column("pid"),
        tid=column("tid"),
        device=np.where(device, np.maximum(column("device"), 0), -1),
        stream=np.where(device, np.maximum(column("stream"), 0), -1),
        nc=none,
        pcore=none,
        correlation=column("correlation"),
        external_id=none,
        execution_id=none,
        bytes=column("size"),
        args=Texts.of(pa.array([b""] * len(rows), pa.binary())),
    )
    trace = Trace("rocprof output", events, len(rows) + bad, size, facts={"device_name": "AMD GPU"})
    if bad:
        trace.skipped = bad
        text = f"{bad} rows without times left out"
        trace.report.append(IngestWarning("skipped", bad, -1, path.name, "skipped", text))
    return trace
