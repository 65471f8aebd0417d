"""The last step of a read: bookkeeping tables and Parquet files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from neuronscope.formats.errors import FormatError
from neuronscope.readers.model import Built
from neuronscope.readers.result import BOOKKEEPING, IngestResult, IngestWarning
from neuronscope.readers.trace import Trace
from neuronscope.schema.published import arrow_schema, schema_fields

__all__ = ["write_profile"]

_ROW_GROUP = 65_536


def write_profile(trace: Trace, built: Built, source: Path, store_dir: Path) -> IngestResult:
    """Write every table that has rows.

    Raises:
        FormatError: nothing of the source could be kept.
        OSError: the folder cannot be written.
    """
    stored = trace.events_in_file - trace.skipped
    drawn = built.tables["Slice"].num_rows
    if stored <= 0 or not len(trace.events):
        raise FormatError(f"{source}: none of its {trace.events_in_file} events could be kept")
    rows = [
        IngestWarning("stored", stored, -1, source.name, "kept", f"{stored:,} of {trace.events_in_file:,} events kept"),
        IngestWarning("slices", drawn, -1, source.name, "kept", f"{drawn:,} slices on the timeline"),
    ]
    if trace.merged:
        text = f"{trace.merged:,} rows of trace.json are the same executions as in ntrace.pb; kept once"
        rows.append(IngestWarning("merged", trace.merged, -1, "trace.json", "merged", text))
    report = (*rows, *(row if row.file else _in_file(row, source.name) for row in trace.report))
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
        "path": str(source),
        "emulated": "false",
        "dropped": "unknown" if trace.dropped is None else str(trace.dropped),
        "events_in_file": str(trace.events_in_file),
        "stored": str(stored),
        "repaired": str(trace.repaired),
        "skipped": str(trace.skipped),
        "merged": str(trace.merged),
        "instance": trace.instance,
        **trace.facts,
    }
    facts.setdefault("label", _label(trace, built))
    if trace.ranks:
        facts["ranks"] = ",".join(str(rank) for rank in trace.ranks)
    tables["ProfileInfo"] = pa.Table.from_pylist(
        [{"key": key, "value": value} for key, value in facts.items()], schema=arrow_schema("ProfileInfo")
    )
    tables["SchemaFields"] = schema_fields(tables)
    with ThreadPoolExecutor(2) as pool:
        # The largest first, beside all others.
        for done in [
            pool.submit(_write, store_dir / f"{name}.parquet", table)
            for name, table in sorted(tables.items(), key=lambda item: -item[1].nbytes)
        ]:
            done.result()
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
        tables={name: table.num_rows for name, table in tables.items()},
        bytes_read=trace.bytes_read,
    )


def _in_file(row: IngestWarning, file: str) -> IngestWarning:
    return IngestWarning(row.kind, row.count, row.offset, file, row.action, row.message)


def _label(trace: Trace, built: Built) -> str:
    if trace.facts.get("emulated") == "true":
        return f"emulated · {trace.facts.get('target', 'unknown target')}"
    if not built.device_slices:
        return "host only"
    return f"real · {trace.facts['device_name']}" if "device_name" in trace.facts else "recorded"


def _write(path: Path, table: pa.Table) -> None:
    names = [f.name for f in table.schema if pa.types.is_dictionary(f.type) or pa.types.is_boolean(f.type)]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=1,
        row_group_size=_ROW_GROUP,
        use_dictionary=names,
        write_statistics=[f.name for f in table.schema if pa.types.is_integer(f.type)],
    )
