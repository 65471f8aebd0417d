"""The last step of a read: bookkeeping tables and Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from neuronscope.formats.errors import FormatError
from neuronscope.index.arrays import INDEX, Room, key_of, seal
from neuronscope.readers.model import Built
from neuronscope.readers.result import BOOKKEEPING, IngestResult, IngestWarning
from neuronscope.readers.trace import Trace
from neuronscope.readers.wording import printable
from neuronscope.schema.published import arrow_schema, schema_fields

__all__ = ["Writer", "add_rows", "change_facts", "write_profile"]

_ROW_GROUP = 65_536
_ROW_GROUPS = {"Execution": 16_384, "Gap": 16_384}  # read row by row too: whoever looks at one reads its group
_RISING = frozenset(
    {
        *("id", "event_id", "op_event_id", "previous_event_id", "next_event_id", "in_id", "out_id", "gap_id"),
        *("start_ts", "end_ts", "launch_ts", "enqueue_ts", "correlation", "external_id", "execution_id"),
        *("thread_id", "stream_id", "step"),
    }
)
"""Columns that change little from row to row: their differences take a third of the time to write and to read."""


class Writer:
    """Writes tables in two threads, while others are still being made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(2)
        self._begun: dict[str, Future[int]] = {}
        self._rooms: dict[Path, tuple[Room, tuple[str, ...]]] = {}

    def write(self, name: str, pieces: Iterable[pa.Table]) -> None:
        """Begin to write a table of some pieces; those are made in the writing thread."""
        self._begun[name] = self._pool.submit(self._write, name, iter(pieces))

    def room(self, name: str, tables: tuple[str, ...]) -> Room:
        """Where to make the arrays of an index of some tables, until `finish`."""
        folder = self._folder / INDEX / name
        folder.mkdir(parents=True)
        room = Room(folder)
        self._rooms[folder] = room, tables
        return room

    def finish(self) -> dict[str, int]:
        """Wait for all; rows of each table that has some."""
        rows = {name: begun.result() for name, begun in self._begun.items()}
        for folder, (room, tables) in self._rooms.items():
            seal(folder, key_of(self._folder, tables), room.finish())
        self._rooms.clear()
        return {name: count for name, count in rows.items() if count}

    def _write(self, name: str, pieces: Iterator[pa.Table]) -> int:
        rows, path, writer = 0, self._folder / f"{name}.parquet", None
        try:
            for table in pieces:
                if not table.num_rows:
                    continue
                if writer is None:
                    writer = pq.ParquetWriter(path, table.schema, **_settings(table.schema))
                # Pieces of several makers may differ in what they call nullable.
                alike = pa.Table.from_arrays(table.columns, schema=writer.schema)
                writer.write_table(alike, row_group_size=_ROW_GROUPS.get(name, _ROW_GROUP))
                rows += table.num_rows
        finally:
            if writer is not None:
                writer.close()
        return rows

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)
        for room, _ in self._rooms.values():
            room.close()


def write_profile(trace: Trace, built: Built, source: Path, writer: Writer) -> IngestResult:
    """Write every table that has rows, and wait for those begun before.

    Raises:
        FormatError: nothing of the source could be kept.
        OSError: the folder cannot be written.
    """
    stored = trace.events_in_file - trace.skipped
    drawn = built.slices
    name = printable(source, name_only=True)
    if not trace.events_in_file:
        raise FormatError(f"{printable(source)}: its list of events is empty")
    if stored <= 0:
        raise FormatError(f"{printable(source)}: none of its {trace.events_in_file:,} events could be kept")
    if not len(trace.events):
        raise FormatError(f"{printable(source)}: nothing to show, {trace.events_in_file:,} events without any interval")
    rows = [
        IngestWarning("stored", stored, -1, name, "kept", f"{stored:,} of {trace.events_in_file:,} events kept"),
        IngestWarning("slices", drawn, -1, name, "kept", f"{drawn:,} slices on the timeline"),
    ]
    if trace.merged:
        text = f"{trace.merged:,} rows of trace.json are the same executions as in ntrace.pb; kept once"
        rows.append(IngestWarning("merged", trace.merged, -1, "trace.json", "merged", text))
    report = (*rows, *(row if row.file else _in_file(row, name) for row in trace.report))
    tables = {name: table for name, table in {**trace.tables, **built.tables}.items() if table.num_rows}
    tables["IngestReport"] = pa.Table.from_pylist(
        [{name: getattr(row, name) for name in IngestWarning.__dataclass_fields__} for row in report],
        schema=arrow_schema("IngestReport"),
    )
    warnings = [row for row in report if row.kind not in BOOKKEEPING]
    if warnings:
        tables["Warning"] = pa.Table.from_pylist(
            [{"message": row.message, "category": row.kind} for row in warnings], schema=arrow_schema("Warning")
        )
    facts = {
        "format": trace.format,
        "path": printable(source),
        "emulated": "false",
        "dropped": "unknown" if trace.dropped is None else str(trace.dropped),
        "events_in_file": str(trace.events_in_file),
        "stored": str(stored),
        "repaired": str(trace.repaired),
        "skipped": str(trace.skipped),
        "merged": str(trace.merged),
        "device_slices": str(built.device_slices),
        "device_time_ns": str(built.device_time_ns),
        "device_busy_ns": str(built.device_busy_ns),
        "processes": str(built.processes),
        "instance": trace.instance,
        **trace.facts,
    }
    facts.setdefault("label", _label(trace, built))
    if trace.ranks:
        facts["ranks"] = ",".join(str(rank) for rank in trace.ranks)
    tables["ProfileInfo"] = pa.Table.from_pylist(
        [{"key": key, "value": value} for key, value in facts.items()], schema=arrow_schema("ProfileInfo")
    )
    for name, table in sorted(tables.items(), key=lambda item: -item[1].nbytes):  # the largest first
        writer.write(name, (table,))
    written = writer.finish()
    writer.write("SchemaFields", (schema_fields(written),))
    written = writer.finish()
    return IngestResult(
        format=trace.format,
        source=source,
        events_in_file=trace.events_in_file,
        stored=stored,
        merged=trace.merged,
        repaired=trace.repaired,
        skipped=trace.skipped,
        dropped=trace.dropped,
        device_slices=built.device_slices,
        device_time_ns=built.device_time_ns,
        device_busy_ns=built.device_busy_ns,
        processes=built.processes,
        ranks=trace.ranks,
        report=report,
        tables=written,
        bytes_read=trace.bytes_read,
    )


def add_rows(folder: Path, result: IngestResult, rows: Iterable[IngestWarning]) -> IngestResult:
    """The result, and the tables in `folder`, with more rows of the report."""
    report = (*result.report, *rows)
    tables = {"IngestReport": [asdict(row) for row in report]}
    tables["Warning"] = [{"message": r.message, "category": r.kind} for r in report if r.kind not in BOOKKEEPING]
    counts = dict(result.tables)
    for name, listed in tables.items():
        if listed:
            table = pa.Table.from_pylist(listed, schema=arrow_schema(name))
            pq.write_table(table, folder / f"{name}.parquet", **_settings(table.schema))
            counts[name] = len(listed)
    return replace(result, report=report, tables=counts)


def change_facts(folder: Path, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
    """Other values for some facts of the profile in `folder`: those that `change` gives for what they are."""
    path = folder / "ProfileInfo.parquet"
    table = pq.read_table(path, partitioning=None)
    facts = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    if changed := change(facts):
        rows = [{"key": key, "value": value} for key, value in {**facts, **changed}.items()]
        pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema("ProfileInfo")), path, compression="zstd")


def _in_file(row: IngestWarning, file: str) -> IngestWarning:
    return IngestWarning(row.kind, row.count, row.offset, file, row.action, row.message)


def _label(trace: Trace, built: Built) -> str:
    if trace.facts.get("emulated") == "true":
        return f"emulated · {trace.facts.get('target', 'unknown target')}"
    if not built.device_slices:
        return "host only"
    return f"real · {trace.facts['device_name']}" if "device_name" in trace.facts else "recorded"


def _settings(schema: pa.Schema) -> dict[str, Any]:
    names = [f.name for f in schema if pa.types.is_dictionary(f.type) or pa.types.is_boolean(f.type)]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": names,
        "column_encoding": {
            f.name: "DELTA_BINARY_PACKED" for f in schema if f.name in _RISING and pa.types.is_integer(f.type)
        },
        "write_statistics": [f.name for f in schema if pa.types.is_integer(f.type)],
    }
