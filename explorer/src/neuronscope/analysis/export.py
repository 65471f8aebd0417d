"""A profile written out for other tools: Parquet, JSON, its summary, or a trace for Perfetto.

JSON and Perfetto exports carry the profile's own tables too (`formats.attached`), so that `neuronscope` opens them
again with every figure they had.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from neuronscope.analysis import perfetto
from neuronscope.analysis.filter import DEVICE_TABLES
from neuronscope.analysis.library import device_figures, ingest_result
from neuronscope.formats.attached import Counted, Output, json_head, json_tables, tables_packet
from neuronscope.formats.errors import NeuronscopeError
from neuronscope.readers.processed import FIGURES
from neuronscope.schema.published import arrow_schema

if TYPE_CHECKING:
    from neuronscope.analysis.grouping import Grouping
    from neuronscope.analysis.profile import Profile

__all__ = ["FORMATS", "ExportError", "default_file", "export"]

FORMATS = ("parquet", "json", "summary-text", "summary-json", "perfetto")
_BATCH = 20_000


class ExportError(NeuronscopeError, OSError):
    """The output can't be written there; the message says why."""

    def __str__(self) -> str:
        return str(self.args[0])


def default_file(profile: Profile, form: str) -> Path:
    """Where an export goes when nobody says, in the current folder."""
    return Path(
        {"parquet": f"{profile.id}-parquet", "perfetto": f"{profile.id}.pftrace"}.get(form, f"{profile.id}.json")
    )


def export(profile: Profile, form: str, target: Path, grouping: Grouping | None = None) -> None:
    """Write a profile as `parquet` (a folder), `json` or `perfetto` (a file; `.gz` compresses).

    A Perfetto export is Perfetto's protobuf when the name ends with `.pftrace` or `.perfetto-trace`, else Chrome trace
    JSON, which its viewer opens as well; `grouping` says how its tracks are grouped. What was there is only replaced
    when all is written.

    Raises:
        ExportError: the folder to write Parquet into is not empty, or the name fits no format.
        OSError: it cannot be written.
    """
    if form == "parquet":
        _parquet(profile, target)
        return
    protobuf = target.name.removesuffix(".gz").endswith((".pftrace", ".perfetto-trace"))
    writer: Callable[[Profile, Output, dict[str, str]], None]
    if form == "json":
        writer, told = _json, "JSON"
    elif protobuf:
        writer, told = partial(perfetto.write_protobuf, grouping=grouping), "Perfetto trace"
    elif target.name.removesuffix(".gz").endswith(".json"):
        writer, told = partial(perfetto.write_json, grouping=grouping), "Chrome trace JSON"
    else:
        raise ExportError(f"{target}: name a .pftrace or .json file (also with .gz) for a Perfetto export")
    facts = {
        "export": told,
        "name": profile.name,
        "format": profile.info.get("format", ""),
        "source": str(profile.source or profile.info.get("path", "")),
        "tables": " ".join(profile.tables),
    }
    with _replacing(target) as raw:
        file = Counted(raw)
        writer(profile, file, facts)
        carried = tables_packet if form != "json" and protobuf else json_tables
        for part in carried(file.check, _tables(profile)):
            raw.write(part)
        if carried is json_tables:
            raw.write(b"\n}\n")


def _tables(profile: Profile) -> Iterator[tuple[str, bytes]]:
    """Every table as Parquet; the facts with the figures of what is exported, which may be a part (`filtered`)."""
    for name in profile.tables:
        yield name, _info(profile) if name == "ProfileInfo" else profile.parquet(name)


def _info(profile: Profile) -> bytes:
    facts = dict(profile.info)
    if profile.directory is not None:
        told = ingest_result(profile)
        facts |= {name: str(getattr(told, name)) for name in FIGURES}
    else:
        kept = profile.row_count("SystemProfileEvents")
        facts["notes.part_of"] = f"{facts.get('stored', 'unknown')} events, of which filters left {kept}"
        facts |= dict.fromkeys(("merged", "repaired", "skipped"), "0") | {
            "events_in_file": str(kept),
            "stored": str(kept),
        }
        facts |= {name: str(value) for name, value in device_figures(profile).items()}
    rows = [{"key": key, "value": value} for key, value in facts.items()]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema("ProfileInfo")), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `target` when the block ends well."""
    handle, temporary = tempfile.mkstemp(dir=target.absolute().parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as raw:
            if target.name.endswith(".gz"):
                with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, compresslevel=4, filename="") as packed:
                    yield packed  # type: ignore[misc]
            else:
                yield raw
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _parquet(profile: Profile, target: Path) -> None:
    """One file per table; `neuronscope view` opens the folder."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{target}: exists and is not an empty folder; give another --output-file")
    making = Path(tempfile.mkdtemp(dir=target.absolute().parent, prefix=f".{target.name}."))
    try:
        for name in profile.tables:
            pq.write_table(profile.table(name), making / f"{name}.parquet", compression="zstd")
        making.chmod(0o755)
        if target.exists():
            target.rmdir()
        making.rename(target)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


_EVENTS = """
SELECT e.name, e.start_ts AS timestamp, e.duration_ns AS duration, 'ns' AS timestamp_unit,
       e.trace_event_source, e.instance_id, e.process_id::VARCHAR AS process_id, e.thread_id, e.nc_idx,
       e.nc_idx AS lnc_idx, e.pcore_idx AS device_core_idx, try_cast(e.flow_id[1] AS BIGINT) AS exec_id, s.track_id
FROM SystemProfileEvents e LEFT JOIN Slice s ON s.event_id = e.id ORDER BY e.id
"""


def _json(profile: Profile, file: Output, facts: dict[str, str]) -> None:
    """`trace_event` (one object per event), `mem_usage`, `cpu_util`, and the device profile's tables by name."""
    file.write(b"{" + json_head(facts))
    file.write(b',\n"data_version": ' + json.dumps(profile.info.get("format", "")).encode())
    _rows(profile, file, "trace_event", _EVENTS)
    _rows(profile, file, "mem_usage", "SELECT * FROM HostMemUsage ORDER BY timestamp")
    _rows(profile, file, "cpu_util", "SELECT * FROM CpuUsage ORDER BY timestamp, cpu_id")
    for name in DEVICE_TABLES:
        if name in profile.tables:
            _rows(profile, file, name, f'SELECT * FROM "{name}"')
    file.write(b",\n")


def _rows(profile: Profile, file: Output, key: str, query: str) -> None:
    file.write(f',\n"{key}": ['.encode())
    first = True
    for batch in profile.query(query).to_batches(max_chunksize=_BATCH):
        for row in batch.to_pylist():
            kept: dict[str, Any] = {name: value for name, value in row.items() if value is not None}
            text = json.dumps(kept, ensure_ascii=False, default=str)
            file.write((b"\n" if first else b",\n") + text.encode(errors="replace"))
            first = False
    file.write(b"\n]")
