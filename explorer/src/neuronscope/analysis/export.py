"""A profile written out for other tools: Parquet, JSON, its summary, or a trace for Perfetto."""

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

import pyarrow.parquet as pq

from neuronscope.analysis import perfetto
from neuronscope.analysis.filter import DEVICE_TABLES
from neuronscope.formats.errors import NeuronscopeError

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
    writer: Callable[[Profile, IO[bytes]], None]
    if form == "json":
        writer = _json
    elif target.name.removesuffix(".gz").endswith((".pftrace", ".perfetto-trace")):
        writer = partial(perfetto.write_protobuf, grouping=grouping)
    elif target.name.removesuffix(".gz").endswith(".json"):
        writer = partial(perfetto.write_json, grouping=grouping)
    else:
        raise ExportError(f"{target}: name a .pftrace or .json file (also with .gz) for a Perfetto export")
    with _replacing(target) as file:
        writer(profile, file)


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


def _json(profile: Profile, file: IO[bytes]) -> None:
    """`trace_event` (one object per event), `mem_usage`, `cpu_util`, and the device profile's tables by name."""
    file.write(b'{\n"data_version": ' + json.dumps(profile.info.get("format", "")).encode())
    _rows(profile, file, "trace_event", _EVENTS)
    _rows(profile, file, "mem_usage", "SELECT * FROM HostMemUsage ORDER BY timestamp")
    _rows(profile, file, "cpu_util", "SELECT * FROM CpuUsage ORDER BY timestamp, cpu_id")
    for name in DEVICE_TABLES:
        if name in profile.tables:
            _rows(profile, file, name, f'SELECT * FROM "{name}"')
    file.write(b"\n}\n")


def _rows(profile: Profile, file: IO[bytes], key: str, query: str) -> None:
    file.write(f',\n"{key}": ['.encode())
    first = True
    for batch in profile.query(query).to_batches(max_chunksize=_BATCH):
        for row in batch.to_pylist():
            kept: dict[str, Any] = {name: value for name, value in row.items() if value is not None}
            text = json.dumps(kept, ensure_ascii=False, default=str)
            file.write((b"\n" if first else b",\n") + text.encode(errors="replace"))
            first = False
    file.write(b"\n]")
