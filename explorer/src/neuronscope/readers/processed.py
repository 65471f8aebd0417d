"""Profiles that Neuronscope has processed already: a folder of its tables, or an export that carries them.

They are taken as they are, so that every figure stays what it was; the facts say where the profile came from.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from neuronscope.formats import attached
from neuronscope.formats.errors import FormatError
from neuronscope.readers import source
from neuronscope.readers.result import IngestResult, IngestWarning, Progress
from neuronscope.readers.wording import printable
from neuronscope.readers.write import change_facts

if TYPE_CHECKING:
    from neuronscope.readers import Reader

__all__ = ["FIGURES", "ExportReader", "FolderReader", "is_folder"]

_COUNTS = ("events_in_file", "stored", "merged", "repaired", "skipped")
FIGURES = (*_COUNTS, "device_slices", "device_time_ns", "device_busy_ns", "processes")
"""Figures of an ingest's result that the facts of a profile (ProfileInfo) repeat."""


def is_folder(folder: Path) -> bool:
    """Whether a folder holds the tables of a profile that was processed here, with all its figures."""
    return (folder / "Track.parquet").is_file() and set(FIGURES) <= set(_facts(folder))


@dataclass(frozen=True)
class FolderReader:
    """Copies the tables of a processed profile."""

    source: Path
    format: str = "processed profile"

    def files(self) -> list[Path]:
        """Its tables."""
        return sorted(self.source.glob("*.parquet"))

    def read(self, store_dir: Path, progress: Progress | None = None) -> IngestResult:
        """See `Reader.read`."""
        files = self.files()
        for number, file in enumerate(files):
            shutil.copyfile(file, store_dir / file.name)
            if progress:
                progress("write", (number + 1) / len(files))
        return _result(store_dir, self.source, {})


@dataclass(frozen=True)
class ExportReader:
    """Takes the tables out of an export.

    Attributes:
        plain: makes a reader of what other viewers see of it, for one that was changed or cut short, given the row of
            the report that says so; None: there is none.
    """

    source: Path
    plain: Callable[[IngestWarning], Reader] | None
    format: str = "export"

    def files(self) -> list[Path]:
        """The export."""
        return [self.source]

    def read(self, store_dir: Path, progress: Progress | None = None) -> IngestResult:
        """See `Reader.read`."""
        try:
            result = self._carried(store_dir)
        except FormatError as error:
            for left in store_dir.glob("*.parquet"):
                left.unlink()
            why = str(error)
        else:
            if progress:
                progress("write", 1.0)
            return result
        finally:
            source.remove_scratch(store_dir)
        name = printable(self.source, name_only=True)
        if self.plain is None:
            raise FormatError(f"{printable(self.source)}: an export of Neuronscope that can't be opened again: {why}")
        text = f"an export of Neuronscope, but {why}: only what other viewers see of it is read"
        return self.plain(IngestWarning("export_changed", 1, -1, name, "partial", text)).read(store_dir, progress)

    def _carried(self, store_dir: Path) -> IngestResult:
        """The profile it carries.

        Raises:
            FormatError: that is not, or no longer, what it shows.
        """
        data = source.load(self.source, store_dir).data
        held = attached.read_protobuf(data) if data[:1] == b"\x0a" else attached.read_json(data)
        if held is None:
            raise FormatError("the tables it carried are gone")
        if not held.unchanged:
            raise FormatError("its events were changed since")
        for name, table in held.tables():
            (store_dir / f"{name}.parquet").write_bytes(table)
        return _result(store_dir, self.source, held.facts)


def _facts(folder: Path) -> dict[str, str]:
    try:
        table = pq.read_table(folder / "ProfileInfo.parquet", columns=["key", "value"], partitioning=None)
    except (pa.ArrowException, OSError):
        return {}
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def _result(folder: Path, path: Path, told: Mapping[str, str]) -> IngestResult:
    """What the tables say of the profile; those of an export, which is `told`, also say from now on where it is from.

    Raises:
        FormatError: tables that don't say what they should.
    """
    facts = _facts(folder)
    try:
        figures = {name: int(facts[name]) for name in FIGURES}
        report = tuple(
            IngestWarning(**row)
            for row in pq.read_table(folder / "IngestReport.parquet", partitioning=None).to_pylist()
        )
        tables = {file.stem: pq.read_metadata(file).num_rows for file in sorted(folder.glob("*.parquet"))}
        size = sum(file.stat().st_size for file in folder.glob("*.parquet"))
    except (KeyError, ValueError, TypeError, OSError, pa.ArrowException) as error:
        raise FormatError(f"its tables are damaged ({type(error).__name__}: {error})") from None
    form = facts.get("format", "processed profile")
    if told:
        change_facts(folder, lambda _: {"exported_as": told["export"], "exported_from": told.get("source", "")})
        form = f"{form}, exported by Neuronscope as {told['export']}"
    dropped = facts.get("dropped", "")
    return IngestResult(
        format=form,
        source=path,
        **figures,
        dropped=int(dropped) if dropped.isdecimal() else None,
        ranks=tuple(int(rank) for rank in facts.get("ranks", "").split(",") if rank.isdecimal()),
        report=report,
        tables=tables,
        bytes_read=size,
    )
