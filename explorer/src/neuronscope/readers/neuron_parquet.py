"""A folder of Parquet tables as Neuron Explorer keeps a processed profile → `Trace`.

Tables are found by name (large ones may be split into Name_0, Name_1, …) and their columns by name, so that folders of
other versions of its schema open too: what is absent stays empty, what is new is said and left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neuronscope.formats.errors import FormatError
from neuronscope.readers import device_only
from neuronscope.readers.engine_rows import add_engine_rows
from neuronscope.readers.exact import MAX_NS, int64, too_long
from neuronscope.readers.instances import apart, several_instances
from neuronscope.readers.narrow import constant
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import Events, Role, Trace
from neuronscope.schema.own import OWN_TABLES
from neuronscope.schema.published import SCHEMA_VERSION, arrow_schema, table_names

__all__ = ["ParquetFolder", "find_folder", "read_folder"]

_MAIN = ("SystemProfileEvents", "Instruction")
_MADE = {spec.name for spec in OWN_TABLES} | {
    *("SystemProfileEvents", "SystemProfileMetadata", "SchemaFields", "Warning", "Flow")
}
_HARDWARE = re.compile(r"nc_exec_running|cc_running|cc_exec_barrier")
_DEEPEST = 4  # <data path>/profiles/global/<name>@latest


@dataclass(frozen=True)
class ParquetFolder:
    """The folder of one profile, its tables' files, and the other profiles that were there."""

    directory: Path
    files: dict[str, list[Path]]
    others: tuple[Path, ...] = ()


def find_folder(path: Path) -> ParquetFolder | None:
    """The profile in a folder, or the newest of those in the data path it is; None when there is none."""
    found: list[Path] = []
    for depth in range(_DEEPEST):
        pattern = "/".join(["*"] * depth + ["*.parquet"])
        found = sorted({file.parent for file in path.glob(pattern) if _table(file) in _MAIN})
        if found:
            break
    if not found:
        return None
    found.sort(key=lambda folder: folder.stat().st_mtime_ns)
    files: dict[str, list[Path]] = {}
    for file in sorted(found[-1].glob("*.parquet"), key=lambda file: (len(file.name), file.name)):
        files.setdefault(_table(file), []).append(file)
    return ParquetFolder(found[-1], files, tuple(found[:-1]))


def _mended(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The texts with U+FFFD for what is not UTF-8."""
    kind = column.type
    texts = [
        None if text is None else text.decode("utf-8", "replace")
        for chunk in column.chunks
        for text in (chunk.dictionary_decode() if pa.types.is_dictionary(kind) else chunk).cast(pa.binary()).to_pylist()
    ]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _table(file: Path) -> str:
    return re.sub(r"_\d+$", "", file.stem)


def read_folder(folder: ParquetFolder, progress: Callable[[float], None] | None = None) -> Trace:
    """Read the tables.

    Raises:
        FormatError: none of them can be read.
    """
    reader = _Folder(folder)
    known = [name for name in folder.files if name in table_names()]
    for number, name in enumerate(known):
        reader.read(name)
        if progress:
            progress((number + 1) / len(known))
    return reader.trace()


class _Folder:
    def __init__(self, folder: ParquetFolder) -> None:
        self.folder = folder
        self.tables: dict[str, pa.Table] = {}
        self.report: list[IngestWarning] = []
        self.bytes_read = self.mended = 0
        if folder.others:
            listed = ", ".join(path.name for path in folder.others[-5:])
            text = (
                f"{len(folder.others) + 1} profiles here; the newest, {folder.directory.name}, is shown, not {listed}"
            )
            self.note("several_profiles", len(folder.others), text, "newest taken")
        unknown = sorted(set(folder.files) - set(table_names()))
        if unknown:
            text = f"tables that schema {SCHEMA_VERSION} does not have are left out: {', '.join(unknown)}"
            self.note("unknown_table", len(unknown), text, "left out")

    def note(self, kind: str, count: int, message: str, action: str, file: str = "") -> None:
        self.report.append(IngestWarning(kind, count, -1, file or self.folder.directory.name, action, message))

    def read(self, name: str) -> None:
        """One table in the columns of the schema."""
        parts = []
        for file in self.folder.files[name]:
            try:
                part = pq.read_table(file, partitioning=None)
                parts.append(part.rename_columns(part.column_names))  # damaged names are found here
                self.bytes_read += file.stat().st_size
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                text = f"{file.name} can't be read ({str(error).splitlines()[0]})"
                self.note("unreadable_file", 1, text, "left out", file.name)
        if not parts:
            return
        whole = pa.concat_tables(parts, promote_options="permissive")
        columns = []
        schema = arrow_schema(name)
        wrong = []
        for field in schema:
            if field.name not in whole.column_names:
                columns.append(pa.nulls(whole.num_rows, field.type))
                continue
            column = whole[field.name]
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                self.note("damaged_text", 1, f"{name}: column {field.name} holds text that is not UTF-8", "repaired")
                column = _mended(column)
            try:
                columns.append(column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                wrong.append(field.name)
                columns.append(pa.nulls(whole.num_rows, field.type))
        if wrong:
            self.note("column_type", len(wrong), f"{name}: columns of another type left empty: {wrong}", "left out")
        extra = sorted(set(whole.column_names) - set(schema.names))
        if extra:
            self.note("unknown_column", len(extra), f"{name}: columns left out: {', '.join(extra)}", "left out")
        loose = pa.schema([pa.field(field.name, field.type) for field in schema])
        self.tables[name] = pa.Table.from_arrays(columns, schema=loose)

    def trace(self) -> Trace:
        if not any(name in self.tables for name in _MAIN):
            raise FormatError(
                "; ".join(row.message for row in self.report) or f"{self.folder.directory}: no readable table"
            )
        system = self.tables.get("SystemProfileEvents")
        kept = {name: table for name, table in self.tables.items() if name not in _MADE}
        if "Flow" in self.tables:  # arrows between system events are made anew; those inside a device profile stay
            arrows = self.tables["Flow"]
            kept["Flow"] = arrows.filter(pc.not_equal(arrows["in_table"].fill_null(""), "SystemProfileEvents"))
        facts = {"device_name": "AWS Neuron", **self.facts()}
        if system is None:
            events = device_only.events_of(kept, self.folder.directory.name.removesuffix("@latest"))
            self.report.append(device_only.note(self.folder.directory.name))
            total = len(events)
            facts["device_only"] = "true"
        else:
            events = self.events(system)
            total = system.num_rows
        skipped = total - len(events)
        if skipped:
            self.note(
                "no_timestamp", skipped, f"{skipped} rows of SystemProfileEvents without times left out", "skipped"
            )
        instances = system["instance_id"].drop_null().unique().to_pylist() if system is not None else []
        if several := several_instances([str(name) for name in instances]):
            self.report.append(several)
        trace = Trace(
            format="neuron-explorer profile (Parquet)",
            events=events,
            events_in_file=total,
            bytes_read=self.bytes_read,
            facts=facts,
            instance=str(instances[0]) if instances else "local",
            report=self.report,
            tables=kept,
            skipped=skipped,
            repaired=self.mended,
            neuron=True,
        )
        if system is None:
            add_engine_rows(trace)
        return trace

    def facts(self) -> dict[str, str]:
        found = {}
        for name in ("Metadata", "SystemProfileMetadata"):
            table = self.tables.get(name)
            row = table.to_pylist()[0] if table is not None and table.num_rows else {}
            for key in ("instance_type", "explorer_version", "compiler_version", "runtime_version", "profile_name"):
                if row.get(key):
                    found[f"notes.{key}"] = str(row[key])
        if "notes.instance_type" in found:
            found["device_name"] = f"AWS Neuron ({found['notes.instance_type']})"
        return found

    def events(self, table: pa.Table) -> Events:
        begun = table["start_ts"].fill_null(-1)
        timed = pc.and_(pc.is_valid(table["end_ts"]), pc.and_(pc.greater_equal(begun, 0), pc.less(begun, MAX_NS)))
        table = table.filter(timed)
        names = table["name"].fill_null("(no name)").combine_chunks().dictionary_encode()
        source = table["trace_event_source"].fill_null("").to_numpy(zero_copy_only=False)
        count = table.num_rows
        listed = names.dictionary.to_pylist()
        hardware_name = np.array([bool(_HARDWARE.match(name)) for name in listed] or [False], np.bool_)
        operator = np.array(["::" in name for name in listed] or [False], np.bool_)
        step = np.array([name.startswith("ProfilerStep#") for name in listed] or [False], np.bool_)
        codes = names.indices.to_numpy()
        role = np.full(count, Role.HOST, np.int8)
        role[source == "neuron_rt"] = Role.NRT
        role[source == "neuron_hw"] = Role.DEVICE
        if count:
            framework = ~np.isin(source, ("neuron_rt", "neuron_hw"))
            role[framework & operator[codes]] = Role.OP
            role[framework & step[codes]] = Role.ANNOTATION
            role[(source == "") & hardware_name[codes]] = Role.DEVICE
        extra = [text or "" for text in table["extra_attributes_json"].to_pylist()]

        def ids(name: str, missing: int = -1) -> Any:
            return table[name].fill_null(missing).to_numpy().astype(np.int64)

        flows = [int64(flow[0]) if flow else -1 for flow in table["flow_id"].to_pylist()]
        start, end = ids("start_ts"), ids("end_ts")
        wrong = (end < start) | (end > MAX_NS) | too_long(start, np.clip(end, 0, MAX_NS))
        self.mended = int(wrong.sum())
        if self.mended:
            text = f"{self.mended} rows of SystemProfileEvents with an impossible end: shown with no duration"
            self.note("negative_duration", self.mended, text, "repaired")
        none = constant(-1, count)
        on_core = np.isin(role, (Role.DEVICE, Role.NRT))
        return Events(
            role=role,
            name=names,
            category=pa.array([""] * count, pa.string()).dictionary_encode(),
            start=start,
            end=np.where(wrong, start, end),
            pid=apart(ids("process_id", 0), [str(name or "") for name in table["instance_id"].to_pylist()]),
            tid=ids("thread_id", 0),
            device=ids("nc_idx"),
            stream=none,
            nc=np.where(on_core, np.maximum(ids("nc_idx"), 0), ids("nc_idx")),
            pcore=ids("pcore_idx"),
            correlation=none,
            external_id=none,
            execution_id=np.where(on_core | (role == Role.OP), np.array(flows, np.int64), -1) if count else none,
            bytes=none,
            args=Texts.of(pa.array([text.encode() for text in extra], pa.binary())),
        )
