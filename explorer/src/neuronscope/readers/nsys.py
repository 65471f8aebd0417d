"""Nsight Systems exports (`nsys export --type sqlite`) → `Trace`: kernels, copies, runtime calls, NVTX ranges."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from neuronscope.formats.errors import FormatError
from neuronscope.readers.exact import int64_column
from neuronscope.readers.narrow import constant
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import Events, Role, Trace, concat_events

__all__ = ["read_nsys"]

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
_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": Role.DEVICE,
    "CUPTI_ACTIVITY_KIND_MEMCPY": Role.MEMCPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": Role.MEMSET,
    "CUPTI_ACTIVITY_KIND_RUNTIME": Role.RUNTIME,
    "CUPTI_ACTIVITY_KIND_DRIVER": Role.RUNTIME,
    "NVTX_EVENTS": Role.ANNOTATION,
}
_NAMES = ("demangledName", "nameId", "shortName", "textId")
_KEPT = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "graphNodeId", "contextId")


def read_nsys(path: Path, progress: Callable[[float], None] | None = None) -> Trace:
    """Read one .sqlite export.

    Raises:
        FormatError: a database without any of the tables, or damaged.
    """
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return _read(database, path, progress)
    except sqlite3.Error as error:
        raise FormatError(f"{path}: this SQLite file can't be read ({error})") from None


def _read(database: sqlite3.Connection, path: Path, progress: Callable[[float], None] | None) -> Trace:
    listed = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    present = [table for table in _TABLES if table in listed]
    if not present:
        raise FormatError(
            f"{path}: a SQLite file, but no Nsight Systems export. Looked for the tables {', '.join(_TABLES)}"
        )
    strings = dict(database.execute("SELECT id, value FROM StringIds")) if "StringIds" in listed else {}
    trace = Trace("Nsight Systems export", _events([], Role.HOST, strings), 0, path.stat().st_size)
    parts = []
    for number, table in enumerate(present):
        cursor = database.execute(f'SELECT * FROM "{table}"')
        columns = [column[0] for column in cursor.description]
        rows = [dict(zip(columns, row, strict=True)) for row in cursor]
        trace.events_in_file += len(rows)
        timed = [row for row in rows if isinstance(row.get("start"), int) and isinstance(row.get("end"), int)]
        lost = len(rows) - len(timed)
        if lost:
            trace.skipped += lost
            text = f"{lost} rows of {table} without a start and an end (marks) left out"
            trace.report.append(IngestWarning("no_duration", lost, -1, path.name, "skipped", text))
        if timed:
            parts.append(_events(timed, _TABLES[table], strings))
        if progress:
            progress((number + 1) / len(present))
    if parts:
        trace.events = concat_events(parts)
    if "TARGET_INFO_GPU" in listed:
        names = [row[0] for row in database.execute("SELECT name FROM TARGET_INFO_GPU")]
        if names:
            trace.facts["device_name"] = str(names[0])
    for absent in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        if absent not in listed:
            text = f"no table {absent}: export with the CUDA trace (`nsys profile -t cuda,nvtx`)"
            trace.report.append(IngestWarning("missing_table", 1, -1, path.name, "partial", text))
    return trace


def _events(rows: list[dict[str, Any]], role: Role, strings: dict[int, str]) -> Events:
    count = len(rows)

    def ids(*keys: str) -> Any:
        return int64_column([next((row[key] for key in keys if row.get(key) is not None), -1) for row in rows])

    on_device = role in (Role.DEVICE, Role.MEMCPY, Role.MEMSET)
    # A thread's global id holds the process in bits 24..47 and the thread in the lowest 24.
    where = ids("globalTid", "globalPid")
    none = constant(-1, count)
    kept = [{key: row[key] for key in _KEPT if row.get(key) is not None} for row in rows]
    return Events(
        role=np.full(count, role, np.int8),
        name=pa.array([_name(row, role, strings) for row in rows], pa.string()).dictionary_encode(),
        category=pa.array([role.name.lower()] * count, pa.string()).dictionary_encode(),
        start=ids("start"),
        end=np.maximum(ids("end"), ids("start")),
        pid=np.where(where >= 0, where >> 24 & 0xFFFFFF, 0),
        tid=ids("streamId") if on_device else np.where(where >= 0, where & 0xFFFFFF, 0),
        device=ids("deviceId"),
        stream=ids("streamId"),
        nc=none,
        pcore=none,
        correlation=ids("correlationId"),
        external_id=none,
        execution_id=none,
        bytes=ids("bytes"),
        args=Texts.of(pa.array([msgspec.json.encode(item) if item else b"" for item in kept], pa.binary())),
    )


def _name(row: dict[str, Any], role: Role, strings: dict[int, str]) -> str:
    if role == Role.MEMCPY:
        return f"Memcpy {_COPIES.get(row.get('copyKind', 0), '')}".strip()
    if role == Role.MEMSET:
        return "Memset"
    if isinstance(row.get("text"), str):
        return str(row["text"])
    found = next((strings[row[key]] for key in _NAMES if row.get(key) in strings), "")
    return found.split("_v", 1)[0] if role == Role.RUNTIME and "_v" in found else found or "(no name)"
