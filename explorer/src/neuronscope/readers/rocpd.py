"""Databases of ROCm tools → `Trace`: rocprofv3's `rocpd` output and the Remote Profile Data of `runTracer`.

rocprofv3 puts a run's identifier behind each table's name and has views without it; since its schema 4 times and
places stand in tables of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from neuronscope.readers.database import Database
from neuronscope.readers.exact import int64
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.rows import RowEvents
from neuronscope.readers.trace import Role, Trace

__all__ = ["TABLES", "is_mine", "read"]

TABLES = ("rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region", "rocpd_op", "rocpd_api")
_DRAWN = ("kernel_dispatch", "memory_copy", "memory_allocate", "region")
_NOT_READ = ("sample", "pmc_event", "gpu_pc_sample")
_SIZES = ("x", "y", "z")


def is_mine(database: Database) -> bool:
    """Whether it has any of the tables, with or without a run's identifier behind the name."""
    return any(table.startswith(TABLES) for table in database.tables)


def read(database: Database, path: Path, progress: Callable[[float], None] | None = None) -> Trace:
    """Read one database."""
    rows = RowEvents(path.name)
    facts: dict[str, str] = {"device_name": "AMD GPU"}
    if {"rocpd_op", "rocpd_api"} & database.tables:
        form = "RPD profile"
        _read_rpd(database, rows)
    else:
        form = "rocprofv3 database"
        for suffix in _runs(database):
            _Run(database, suffix, facts).read(rows)
    trace = rows.trace(form, path.stat().st_size)
    trace.facts.update(facts)
    left = [
        f"{table} ({count:,} rows)"
        for table in sorted(database.tables)
        if re.match(rf"rocpd_({'|'.join(_NOT_READ)})$", table) and (count := database.count(table))
    ]
    if left:
        text = f"tables of samples and counters that are not shown: {', '.join(left)}"
        trace.report.append(IngestWarning("unread_table", len(left), -1, "", "left out", text))
    if progress:
        progress(1.0)
    return trace


def _runs(database: Database) -> list[str]:
    """What stands behind the tables' names: nothing where there are views over all runs."""
    if any(f"rocpd_{name}" in database.tables for name in _DRAWN):
        return [""]
    found = (re.fullmatch(rf"rocpd_(?:{'|'.join(_DRAWN)})(_\w+)", table) for table in database.tables)
    return sorted({match[1] for match in found if match})


class _Run:
    """The tables of one run."""

    def __init__(self, database: Database, suffix: str, facts: dict[str, str]) -> None:
        self.database = database
        self.suffix = suffix
        self.strings = self.info("string", "string")
        self.kernels = self.info("info_kernel_symbol", "display_name", "formatted_kernel_name", "kernel_name")
        self.processes = self.info("info_process", "pid")
        self.threads = self.info("info_thread", "tid")
        self.agents = self.info("info_agent", "type_index", "logical_index", "absolute_index")
        self.categories: dict[Any, str] = {}
        for row in database.rows(f"rocpd_info_agent{suffix}"):
            name = row.get("product_name") or row.get("name")
            if row.get("type") == "GPU" and isinstance(name, str):
                facts["device_name"] = name

    def info(self, table: str, *columns: str) -> dict[tuple[Any, Any], Any]:
        """The first of the columns that says something, by the run's identifier and row id."""
        return {
            (row.get("guid"), row.get("id")): next((row[key] for key in columns if row.get(key) is not None), None)
            for row in self.database.rows(f"rocpd_{table}{self.suffix}")
        }

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """Rows with the ids of their event, and in newer schemas their times and places, joined."""
        name = f"rocpd_{table}{self.suffix}"
        if name not in self.database.tables:
            return
        columns = self.database.columns(name)
        joins: list[str] = []
        selected: list[str] = []

        def join(other: str, key: str, wanted: dict[str, str]) -> None:
            there = f"rocpd_{other}{self.suffix}"
            if key not in columns or there not in self.database.tables:
                return
            alias = f"j{len(joins)}"
            held = self.database.columns(there)
            same = f' AND "{alias}".guid = t.guid' if "guid" in held and "guid" in columns else ""
            joins.append(f'LEFT JOIN "{there}" AS "{alias}" ON "{alias}".id = t."{key}"{same}')
            selected.extend(f'"{alias}"."{old}" AS "{new}"' for old, new in wanted.items() if old in held)

        join("event", "event_id", {"stack_id": "stack_id", "category_id": "category_id"})
        join("timestamp", "start_id", {"value": "start"})
        join("timestamp", "end_id", {"value": "end"})
        places = ("pid", "tid", "agent_id", "queue_id", "stream_id")
        join("track", "track_id", {place: place for place in places if place not in columns})
        yield from self.database.joined(name, selected, joins)

    def read(self, rows: RowEvents) -> None:
        for table in _DRAWN:
            for row in self.rows(table):
                self.add(rows, table, row)

    def add(self, rows: RowEvents, table: str, row: dict[str, Any]) -> None:
        run = row.get("guid")
        category = str(self.strings.get((run, row.get("category_id"))) or table)
        name: object = self.strings.get((run, row.get("name_id")))
        extra: dict[str, Any] = {}
        role = Role.HOST
        if table == "kernel_dispatch":
            role, name = Role.DEVICE, self.kernels.get((run, row.get("kernel_id")))
            extra = {what: [row.get(f"{what}_size_{axis}") for axis in _SIZES] for what in ("grid", "workgroup")}
        elif table == "memory_copy":
            role = Role.MEMCPY
        elif table == "memory_allocate":
            name = f"memory {row.get('type') or 'allocation'}".lower()
        elif "MARKER" in category:
            role = Role.ANNOTATION
            name = _message(row.get("extdata")) or name
        elif "API" in category or "HIP" in category or "HSA" in category:
            role = Role.RUNTIME
        agent = row.get("agent_id") if table == "kernel_dispatch" else row.get("dst_agent_id")
        rows.add(
            role,
            name,
            row.get("start"),
            row.get("end"),
            pid=self.processes.get((run, row.get("pid")), row.get("pid")),
            tid=self.threads.get((run, row.get("tid")), row.get("tid")),
            device=self.agents.get((run, agent), agent),
            stream=row.get("stream_id") if row.get("stream_id") is not None else row.get("queue_id"),
            correlation=row.get("stack_id"),
            size=row.get("size"),
            category=category.lower(),
            args=msgspec.json.encode(extra) if extra and _plain(extra) else b"",
        )


def _plain(extra: dict[str, Any]) -> bool:
    return all(isinstance(value, int) for values in extra.values() for value in values)


def _message(text: object) -> str:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return ""
    return str(found.get("message") or "") if isinstance(found, dict) else ""


def _read_rpd(database: Database, rows: RowEvents) -> None:
    """RPD: `rocpd_api` on the host, `rocpd_op` on devices, `rocpd_api_ops` between them."""
    strings = {row.get("id"): row.get("string") for row in database.rows("rocpd_string")}
    launched = {row.get("op_id"): row.get("api_id") for row in database.rows("rocpd_api_ops")}
    for row in database.rows("rocpd_api"):
        name = strings.get(row.get("apiName_id"))
        marker = str(name).startswith(("UserMarker", "roctx"))
        said = strings.get(row.get("args_id")) if marker else None
        rows.add(
            Role.ANNOTATION if marker else Role.RUNTIME,
            said or name,
            row.get("start"),
            row.get("end"),
            pid=row.get("pid"),
            tid=row.get("tid"),
            correlation=row.get("id"),
            category="api",
        )
    for row in database.rows("rocpd_op"):
        kind = str(strings.get(row.get("opType_id")) or "")
        role = Role.MEMCPY if kind.startswith("Copy") else Role.MEMSET if kind.startswith("Fill") else Role.DEVICE
        if kind.startswith(("Barrier", "Marker")):
            role = Role.DEVICE_ANNOTATION
        rows.add(
            role,
            strings.get(row.get("description_id")) or kind,
            row.get("start"),
            row.get("end"),
            device=row.get("gpuId"),
            stream=int64(row.get("queueId")),
            correlation=launched.get(row.get("id")),
            category=kind.lower(),
        )
