"""Nsight Systems exports (`nsys export --type sqlite`) → `Trace`: kernels, copies, graphs, runtime calls, ranges.

Tables and columns are found by name: which of them exist depends on what was traced and on the version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from neuronscope.readers.database import Database
from neuronscope.readers.exact import int64
from neuronscope.readers.keys import codes_of
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.rows import RowEvents
from neuronscope.readers.trace import Events, Role, Trace

__all__ = ["TABLES", "is_mine", "read"]

_COPIES = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
_ROLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": Role.DEVICE,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": Role.DEVICE,
    "CUPTI_ACTIVITY_KIND_MEMCPY": Role.MEMCPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": Role.MEMSET,
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": Role.DEVICE_ANNOTATION,
    "CUPTI_ACTIVITY_KIND_RUNTIME": Role.RUNTIME,
    "CUPTI_ACTIVITY_KIND_DRIVER": Role.RUNTIME,
    "NVTX_EVENTS": Role.ANNOTATION,
    "PROFILER_OVERHEAD": Role.OVERHEAD,
    "CUDA_GPU_MEMORY_USAGE_EVENTS": Role.INSTANT,
}
TABLES = (
    *("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_MEMCPY"),
    *("CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER", "NVTX_EVENTS"),
)
_WANTED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "export with the CUDA trace (`nsys profile -t cuda,nvtx`)",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "export with the CUDA trace (`nsys profile -t cuda,nvtx`)",
}
_NAMES = ("demangledName", "shortName", "mangledName", "nameId", "textId", "name")
_NOT_ARGS = frozenset(
    {
        *("start", "end", "globalTid", "globalPid", "deviceId", "streamId", "correlationId", "text"),
        *("demangledName", "shortName", "mangledName", "nameId", "textId", "callchainId"),
    }
)
_MARK, _START_END = 34, 60  # NVTX_EVENTS.eventType
_WARNINGS_FROM = 2  # DIAGNOSTIC_EVENT.severity
_MOST_WARNINGS = 5


def is_mine(database: Database) -> bool:
    """Whether it has any of the tables."""
    return any(table in database.tables for table in TABLES)


def read(database: Database, path: Path, progress: Callable[[float], None] | None = None) -> Trace:
    """Read one export."""
    strings = {row.get("id"): row.get("value") for row in database.rows("StringIds")}
    rows = RowEvents(path.name)
    listed = [*(table for table in _ROLES if table in database.tables), *_other_ranges(database)]
    for number, table in enumerate(listed):
        for row in database.rows(table):
            _add(rows, table, row, strings)
        if progress:
            progress((number + 1) / len(listed))
    trace = rows.trace("Nsight Systems export", path.stat().st_size)
    trace.events = _apart(trace.events)
    _describe(trace, database, strings)
    for absent, advice in _WANTED.items():
        if absent not in database.tables:
            graphs = absent.endswith("KERNEL") and "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in database.tables
            text = f"no table {absent}: " + (
                "graphs were recorded as wholes (`--cuda-graph-trace=node` has their kernels)" if graphs else advice
            )
            trace.report.append(IngestWarning("missing_table", 1, -1, path.name, "partial", text))
    _unread(trace, database, set(listed))
    return trace


def _other_ranges(database: Database) -> list[str]:
    """Tables of ranges on threads that this reader does not know by name: libraries' calls, MPI, OS calls."""
    return sorted(
        table
        for table in database.tables - set(_ROLES)
        if {"start", "end", "globalTid"} <= database.columns(table) and not table.startswith("sqlite_")
    )


def _add(rows: RowEvents, table: str, row: dict[str, Any], strings: dict[Any, Any]) -> None:
    role = _ROLES.get(table, Role.HOST)
    name = _name(table, row, strings)
    if table == "NVTX_EVENTS":
        if int64(row.get("eventType")) == _START_END:
            role = Role.ASYNC  # may begin and end on different threads
        elif row.get("end") is None:
            if not name or int64(row.get("eventType"), _MARK) != _MARK:
                rows.keep("metadata")  # a domain, a category
                return
            role = Role.INSTANT
    where = int64(row.get("globalTid"))
    where = where if where >= 0 else int64(row.get("globalPid"), 0)
    kept = {
        key: value
        for key, value in row.items()
        if key not in _NOT_ARGS and isinstance(value, int | str) and -(2**63) <= int64(value, 0) < 2**63
    }
    rows.add(
        role,
        name,
        row.get("start"),
        row.get("end"),
        pid=where >> 24 & 0xFFFFFF,  # a thread's global id: the process in bits 24..47, the thread in the lowest 24
        tid=where & 0xFFFFFF,
        device=row.get("deviceId"),
        stream=row.get("streamId"),
        correlation=row.get("correlationId"),
        size=row.get("bytes"),
        category=table.removeprefix("CUPTI_ACTIVITY_KIND_").lower(),
        args=msgspec.json.encode(kept) if kept else b"",
    )


def _name(table: str, row: dict[str, Any], strings: dict[Any, Any]) -> str:
    if table == "CUPTI_ACTIVITY_KIND_MEMCPY":
        return f"Memcpy {_COPIES.get(int64(row.get('copyKind')), '')}".strip()
    if table == "CUPTI_ACTIVITY_KIND_MEMSET":
        return "Memset"
    if table == "CUPTI_ACTIVITY_KIND_GRAPH_TRACE":
        return f"CUDA graph {row.get('graphId', '')}".strip()
    if table == "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION":
        return "Synchronize"
    if isinstance(row.get("text"), str):
        return str(row["text"])
    for key in _NAMES:
        value = row.get(key)
        found = value if isinstance(value, str) else strings.get(value) if value is not None else None
        if isinstance(found, str) and found:
            return found.split("_v", 1)[0] if _ROLES.get(table) == Role.RUNTIME else found
    return "GPU memory" if table == "CUDA_GPU_MEMORY_USAGE_EVENTS" else ""


def _apart(events: Events) -> Events:
    """Correlation ids count anew in each process: with several, each (process, id) gets a number of its own."""
    linked = np.flatnonzero(events.correlation >= 0)
    if len(np.unique(events.pid[linked])) < 2:
        return events
    correlation = events.correlation.copy()
    correlation[linked] = codes_of(events.pid[linked], events.correlation[linked]) + 1
    return replace(events, correlation=correlation)


def _describe(trace: Trace, database: Database, strings: dict[Any, Any]) -> None:
    for row in database.rows("PROCESSES"):
        if isinstance(row.get("name"), str):
            trace.process_names.setdefault(int64(row.get("pid"), 0), row["name"])
    for row in database.rows("ThreadNames"):
        where, name = int64(row.get("globalTid")), strings.get(row.get("nameId"))
        if where >= 0 and isinstance(name, str):
            trace.thread_names.setdefault((where >> 24 & 0xFFFFFF, where & 0xFFFFFF), name)
    names = [row["name"] for row in database.rows("TARGET_INFO_GPU") if isinstance(row.get("name"), str)]
    if names:
        trace.facts["device_name"] = names[0]
    for row in database.rows("TARGET_INFO_SESSION_START_TIME"):
        if int64(row.get("utcEpochNs")) > 0:
            trace.facts["notes.recorded_at_utc_ns"] = str(row["utcEpochNs"])
    said = [
        str(row.get("text"))
        for row in database.rows("DIAGNOSTIC_EVENT")
        if int64(row.get("severity")) >= _WARNINGS_FROM and row.get("text")
    ]
    for text in said[:_MOST_WARNINGS]:
        message = f"Nsight Systems says: {' '.join(text.split())[:300]}"
        trace.report.append(IngestWarning("producer_warning", 1, -1, "", "kept", message))


def _unread(trace: Trace, database: Database, read_tables: set[str]) -> None:
    """Say which tables of events are not shown."""
    told = read_tables | {"DIAGNOSTIC_EVENT", "TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS"}
    timed = ("start", "timestamp", "rawTimestamp")
    left = [
        f"{table} ({count:,} rows)"
        for table in sorted(database.tables - told)
        if database.columns(table).intersection(timed) and (count := database.count(table))
    ]
    if left:
        text = f"tables of samples and metrics that are not shown: {', '.join(left)}"
        trace.report.append(IngestWarning("unread_table", len(left), -1, "", "left out", text))
