"""Finding the format of a file or folder from its content, and reading it: `detect`, `ingest`."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from neuronscope.formats import attached
from neuronscope.formats.errors import FormatError
from neuronscope.readers import archive, chrome, model, neuron_json, processed, rocprof, source, texts, write
from neuronscope.readers.folder import databases_in, only_profile, other_profiles, unreadable
from neuronscope.readers.result import IngestResult, IngestWarning, Progress
from neuronscope.readers.trace import Trace
from neuronscope.readers.wording import printable

__all__ = ["FormatError", "IngestResult", "IngestWarning", "Progress", "Reader", "detect", "ingest"]


class Reader(Protocol):
    """Reads one format. Of a folder with several sessions `source` is the one taken."""

    @property
    def format(self) -> str:
        """What the user is told it is, as far as is known before reading."""
        ...

    @property
    def source(self) -> Path:
        """The file or folder that will be read."""
        ...

    def files(self) -> list[Path]:
        """Every file that a change of would change the profile."""
        ...

    def read(self, store_dir: Path, progress: Progress | None = None) -> IngestResult:
        """Read the source and write the Parquet tables into `store_dir`, an existing empty directory."""
        ...


@dataclass(frozen=True)
class _File:
    """A reader of one file or folder: `load` makes the trace, the rest is common."""

    format: str
    source: Path
    load: Callable[[Callable[[float], None] | None, Path], Trace]
    inputs: tuple[Path, ...]

    def files(self) -> list[Path]:
        return list(self.inputs)

    def read(self, store_dir: Path, progress: Progress | None = None) -> IngestResult:
        def report(stage: str, fraction: float) -> None:
            if progress:
                progress(stage, fraction)

        report("read", 0.0)
        collecting = gc.isenabled()
        gc.disable()  # what is made has no cycles; looking for some takes a twentieth of the time
        try:
            return self._read(store_dir, report)
        finally:
            if collecting:
                gc.enable()
            texts.remove_spills(store_dir)
            source.remove_scratch(store_dir)

    def _read(self, store_dir: Path, report: Progress) -> IngestResult:
        trace = self.load(lambda done: report("parse", 0.05 + 0.5 * done), store_dir)
        report("link", 0.6)
        with write.Writer(store_dir) as writer:
            built = model.build(trace, writer.write, writer.room)
            report("write", 0.85)
            result = write.write_profile(trace, built, self.source, writer)
        report("write", 1.0)
        return result


@dataclass(frozen=True)
class _Beside:
    """A reader of what is opened in a folder that holds other things too; those are told."""

    reader: Reader
    rows: tuple[IngestWarning, ...]

    @property
    def format(self) -> str:
        return self.reader.format

    @property
    def source(self) -> Path:
        return self.reader.source

    def files(self) -> list[Path]:
        return self.reader.files()

    def read(self, store_dir: Path, progress: Progress | None = None) -> IngestResult:
        return write.add_rows(store_dir, self.reader.read(store_dir, progress), self.rows)


def detect(path: str | os.PathLike[str]) -> Reader:
    """Find the format of a file or folder from its content.

    Raises:
        FormatError: nothing here is a profile; the message lists what was looked for.
        FileNotFoundError: the path does not exist.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.is_dir():
        if not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return _in_folder(path)
    if not path.is_file():
        raise FormatError(
            f"{path}: neither a file nor a folder. A trace is read more than once: save it to a file first"
        )
    with path.open("rb") as file:
        first = file.read(4096)
    head = source.head(path, 4096) if source.packed(first) else first
    if not first.strip() or not (head or source.packed(first)):
        raise FormatError(f"{path}: empty file")
    if attached.is_export(head):
        return processed.ExportReader(path, partial(_shown, path) if head[:1] == b"{" else None)
    if archive.is_archive(head):
        return archive.ArchiveReader(path, detect)
    if head[:16] == b"SQLite format 3\0":
        from neuronscope.readers import database

        return _File("database", path, lambda progress, _: database.read_database(path, progress), (path,))
    if rocprof.is_csv(head):
        return _File("rocprof output", path, lambda progress, _: rocprof.read_csv([path], progress), (path,))
    if (
        source.packed(first)
        or head.lstrip(b"\xef\xbb\xbf \t\r\n\0")[:1] in (b"{", b"[")
        or source.wide_encoding(head[:4])
    ):
        if rocprof.is_json(head):
            return _File("rocprof output", path, lambda progress, _: rocprof.read_json(path, progress), (path,))
        return _File("trace", path, lambda progress, scratch: _read_json(path, progress, scratch), (path,))
    if head[:4] == b"PAR1":
        raise FormatError(f"{path}: one Parquet table; give the folder of the whole profile")
    if path.suffix == ".ntff" or (path.suffix == ".neff" and not _in_session(path)):
        return _pair(path)  # of a session: the device's part alone
    for ending, what in _NOT_READ.items():
        if path.name.lower().endswith(ending):
            raise FormatError(f"{path}: {what}")
    if path.suffix in (".pb", ".ntff", ".neff"):
        raise FormatError(f"{path}: one file of a session; give its folder {path.parent}")
    looks = next((what for begin, what in _SIGNATURES if first.startswith(begin)), "")
    raise FormatError(
        f"{path}: {looks or 'unknown format'}. Looked for: a trace in JSON (.json; also .gz, .zst, .bz2, .xz) with "
        f"traceEvents, a neuron-explorer JSON export, a .zip or .tar of these, an Nsight Systems or rocprofv3 database "
        f"(SQLite), a rocprof CSV or JSON, one NEFF with its NTFF. Folders: a session with trace_info.pb or ntrace.pb, "
        f"traces or databases of several ranks, Parquet tables"
    )


_SIGNATURES = (
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program"),
    (b"\x80\x02", "a pickle, perhaps a memory snapshot of PyTorch"),
    (b"\x80\x04", "a pickle, perhaps a memory snapshot of PyTorch"),
    (b"\x80\x05", "a pickle, perhaps a memory snapshot of PyTorch"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"ARROW1", "an Arrow file"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"Rar!", "a RAR archive; unpack it and open the folder"),
    (b"7z\xbc\xaf", "a 7z archive; unpack it and open the folder"),
    (b"<", "an XML or HTML document"),
    (b"\0asm", "a WebAssembly module"),
    (b"PERFILE2", "a recording of Linux perf"),
)


_NOT_READ = {
    ".xplane.pb": "an XPlane file of JAX or TensorFlow; open the .trace.json.gz that lies beside it",
    ".nsys-rep": "an Nsight Systems report; export it first: nsys export --type sqlite FILE, and open the .sqlite",
    ".qdrep": "an Nsight Systems report; export it first: nsys export --type sqlite FILE, and open the .sqlite",
    ".ncu-rep": "an Nsight Compute report, which holds no timeline",
    ".pftrace": "a Perfetto trace; write JSON instead (rocprofv3 --output-format json, torch: export_chrome_trace)",
    ".perfetto-trace": "a Perfetto trace; write JSON instead (torch: export_chrome_trace)",
    ".otf2": "an OTF2 trace; write JSON or CSV instead (rocprofv3 --output-format json)",
    ".pickle": "a pickle, perhaps a memory snapshot of PyTorch: it holds no timeline",
}


def _in_folder(path: Path) -> Reader:
    """The reader of a folder: a session, Parquet tables, traces of several ranks, one trace, other tools' files."""
    from neuronscope.readers import neuron_parquet, ranks, session  # loading these takes longer than a short trace

    if not session.has_session(path):
        if processed.is_folder(path):
            return processed.FolderReader(path)
        folder = neuron_parquet.find_folder(path)
        if folder is not None:
            inputs = tuple(file for files in folder.files.values() for file in files)
            read = partial(neuron_parquet.read_folder, folder)
            return _File("Parquet profile", folder.directory, lambda progress, _: read(progress), inputs)
        found = ranks.find_ranks(path) or ranks.find_hosts(path)
        if found is not None:
            return _beside(path, ranks.RanksReader(path, found), [*found.files.values(), *found.older, *found.others])
        if any(path.glob("*.ntff")) or any(path.glob("*.neff")):
            return _pair(path)
        databases = databases_in(path)
        found = ranks.find_databases(databases)
        if found is not None:
            return _beside(path, ranks.RanksReader(path, found), databases)
        files = only_profile(path)
        if len(files) == 1:
            return _beside(path, detect(files[0]), files)
        return _File("rocprof output", path, lambda progress, _: rocprof.read_csv(files, progress), (*files,))
    processes = ranks.find_sessions(path)
    if processes is not None:
        return ranks.RanksReader(path, processes)
    taken = session.find_session(path)
    return _File(
        "neuronscope session",
        taken.directory,
        lambda progress, scratch: session.read_session(taken, progress, scratch),
        tuple(session.files_of(taken.directory)),
    )


def _in_session(path: Path) -> bool:
    from neuronscope.readers import session

    return session.is_session(path.parent)


def _beside(folder: Path, reader: Reader, opened: Collection[Path]) -> Reader:
    """The reader, with what else is in the folder as rows of the report."""
    rows = []
    for what, paths in (
        ("other profiles here are not shown; open them by name", other_profiles(folder, opened)),
        ("files or folders here may not be read", unreadable(folder)),
    ):
        if paths:
            listed = ", ".join(printable(path.relative_to(folder)) for path in paths[:5])
            more = ", …" if len(paths) > 5 else ""
            text = f"{what}: {listed}{more}"
            name = printable(folder, name_only=True)
            rows.append(IngestWarning("not_opened", len(paths), -1, name, "left out", text))
    return _Beside(reader, tuple(rows)) if rows else reader


def _pair(path: Path) -> Reader:
    from neuronscope.readers import device_pair

    pair = device_pair.find_pair(path)
    return _File("NEFF and NTFF", pair.timeline, lambda progress, _: device_pair.read_pair(pair, progress), pair.files)


def _read_json(path: Path, progress: Callable[[float], None] | None, scratch: Path) -> Trace:
    found = neuron_json.read_if_neuron(path)
    return found if found is not None else chrome.read_trace(path, progress, scratch)


def _shown(path: Path, row: IngestWarning) -> Reader:
    """Reads what other viewers see of an export; `row` says why."""

    def load(progress: Callable[[float], None] | None, scratch: Path) -> Trace:
        trace = _read_json(path, progress, scratch)
        trace.report.insert(0, row)
        return trace

    return _File("trace", path, load, (path,))


def ingest(
    path: str | os.PathLike[str], store_dir: str | os.PathLike[str], progress: Progress | None = None
) -> IngestResult:
    """Read a profile and write its Parquet tables into `store_dir`, which is made if needed.

    Raises:
        FormatError: unknown format, or nothing in it could be kept.
        OSError: a file cannot be read or written.
    """
    reader = detect(path)
    store_dir = Path(store_dir)
    store_dir.mkdir(parents=True, exist_ok=True)
    return reader.read(store_dir, progress)
