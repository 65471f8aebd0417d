"""From an execution down to the engines: its part of the device tables as a profile of its own, and the way back.

`open_execution` makes it once and keeps it beside the tables, so that a link to it works again tomorrow.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from neuronscope.analysis.arrays import kept_folder
from neuronscope.analysis.columns import table_schemas
from neuronscope.analysis.profile import Profile
from neuronscope.formats.errors import NeuronscopeError
from neuronscope.readers.one_execution import write_execution
from neuronscope.readers.result import IngestResult

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NoDeviceRowsError", "Within", "device_profile_id", "has_device_rows", "open_execution"]

_ROWS = ("Instruction", "DmaPacketAggregated")
_OF_EXECUTION = (
    *_ROWS,
    "ExecutionInfo",
    "ActiveTime",
    "SemaphoreUpdate",
    "SbufUsage",
    "PsumUsage",
    "SbufAllocation",
    "HbmUsage",
    "DmaUsage",
    "PendingDma",
    "StackFrame",
    "StackFrameFileLocation",
    "StackFrameFileName",
    "StackFrameFunctionName",
    "Hardware",
    "Throttle",
)
_OF_FILE = ("format", "path", "events_in_file", "stored", "repaired", "skipped", "merged", "dropped", "processes")
_COUNTED = ("device_slices", "device_time_ns", "device_busy_ns")
"""Facts about a profile's file, not about what made it."""
_SEPARATOR = "~"


class NoDeviceRowsError(NeuronscopeError, KeyError):
    """The profile doesn't say what the engines did in that execution."""

    def __str__(self) -> str:
        return str(self.args[0])


class Within(Profile):
    """The engines and DMA queues of one execution.

    Attributes:
        outer: id of the profile that the execution is part of.
        event: id of the execution's event there.
    """

    outer = ""
    event = -1


def device_profile_id(profile: Profile, execution: int) -> str:
    """The id of an execution's own profile: that of the whole, and the execution's number after a tilde."""
    return f"{profile.id}{_SEPARATOR}{execution}"


def has_device_rows(profile: Profile, row: Mapping[str, Any]) -> bool:
    """Whether the profile says what the engines did in an execution (a row of the table Execution)."""
    return not isinstance(profile, Within) and any(
        name in profile.tables and profile.rows(f'SELECT 1 FROM "{name}" WHERE {_condition(name, row)} LIMIT 1')
        for name in _ROWS
    )


def _condition(table: str, row: Mapping[str, Any]) -> str:
    """Rows of the execution: by its number, of an export without such numbers those that ran meanwhile."""
    columns = table_schemas()[table]
    time = next((name for name in ("start_ts", "execution_start_ts", "timestamp") if name in columns), None)
    meanwhile = "true" if time is None else f"{time} BETWEEN {int(row['start_ts'])} AND {int(row['end_ts'])}"
    if "execution_id" not in columns:
        return meanwhile
    return f"(execution_id = {int(row['execution_id'])} OR execution_id IS NULL AND {meanwhile})"


def open_execution(profile: Profile, execution: int) -> Within:
    """The profile of one execution.

    Raises:
        NoDeviceRowsError: there is no such execution, or nothing is known about its engines.
    """
    found = profile.rows(f"SELECT * FROM Execution WHERE execution_id = {int(execution)}")
    if not found or not has_device_rows(profile, found[0]):
        raise NoDeviceRowsError(
            f"{profile.name}: nothing is known about the engines of execution {execution}. Record with the device "
            "profile on, or open one that has the table Instruction"
        )
    row = found[0]
    title = row["op"] or row["name"]
    opened = _open(profile, row, f"{profile.name} · {title} #{execution}", title)
    opened.id = device_profile_id(profile, execution)
    opened.outer, opened.event = profile.id, row["event_id"]
    return opened


def _open(profile: Profile, row: Mapping[str, Any], name: str, title: str) -> Within:
    def make(folder: Path) -> IngestResult:
        tables = {
            table: profile.query(f'SELECT * FROM "{table}" WHERE {_condition(table, row)}')
            for table in _OF_EXECUTION
            if table in profile.tables
        }
        if "Flow" in profile.tables:
            tables["Flow"] = _arrows(profile, tables)
        facts = {key: value for key, value in profile.info.items() if key not in (*_OF_FILE, *_COUNTED)}
        result = write_execution(tables, title, row["neff"], facts, profile.source or Path(profile.name), folder)
        (folder / "manifest.json").write_text("{}")  # a profile of the library: its indexes are kept too
        return result

    kept = kept_folder(profile, f"execution-{int(row['execution_id'])}", tuple(profile.tables), make)
    if kept is not None:
        return Within(name, kept, profile.source)
    folder = Path(tempfile.mkdtemp(prefix="neuronscope-"))
    try:
        make(folder)
        return Within(name, {file.stem: pq.read_table(file) for file in folder.glob("*.parquet")}, profile.source)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)


def _arrows(profile: Profile, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Arrows between the execution's own rows."""
    bounds = []
    for side in ("in", "out"):
        parts = [
            f"({side}_table = '{name}' AND {side}_id BETWEEN {min(ids)} AND {max(ids)})"
            for name in _ROWS
            if (table := tables.get(name)) is not None and (ids := table["id"].drop_null().to_pylist())
        ]
        bounds.append("(" + " OR ".join(parts or ["false"]) + ")")
    return profile.query(f"SELECT * FROM Flow WHERE {' AND '.join(bounds)}")
