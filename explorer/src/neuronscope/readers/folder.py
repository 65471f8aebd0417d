"""What a folder holds that is no session and no Parquet profile: one trace, a job's ranks, another tool's output."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from neuronscope.formats.errors import FormatError
from neuronscope.readers import rocprof, source

__all__ = ["TRACES", "databases_in", "looks_like_trace", "only_profile", "other_profiles", "traces_in", "unreadable"]

TRACES = (".json", ".json.gz", ".json.zst", ".json.bz2", ".json.xz")
_DATABASES = (".sqlite", ".db", ".rpd")
_JAX_COPY = "perfetto_trace.json.gz"  # JAX: the same events once more, beside <host>.trace.json.gz
_DEEPEST = 5  # JAX: plugins/profile/<run>/<host>.trace.json.gz
_MOST_FILES = 20_000
_HEAD_BYTES = 4096


def traces_in(folder: Path) -> list[Path]:
    """Its JSON files, or when none of them is a trace those of its sub-folders, as deep as a profile may lie."""
    by_depth: dict[int, list[Path]] = {}
    for path in _files(folder):
        if path.name.lower().endswith(TRACES):
            by_depth.setdefault(len(path.relative_to(folder).parts), []).append(path)
    for depth in sorted(by_depth):  # settings often lie above the traces they are of
        if any(looks_like_trace(path) for path in by_depth[depth]):
            return sorted(by_depth[depth])
    return sorted(by_depth[min(by_depth)]) if by_depth else []


def databases_in(folder: Path) -> list[Path]:
    """Its SQLite files."""
    return sorted(path for path in _files(folder) if path.name.lower().endswith(_DATABASES) and _is_sqlite(path))


def other_profiles(folder: Path, opened: Collection[Path]) -> list[Path]:
    """Traces and databases of a folder besides those that are opened."""
    found = databases_in(folder)
    found += [path for path in traces_in(folder) if path.name != _JAX_COPY and looks_like_trace(path)]
    return sorted(path for path in found if path not in opened)


def only_profile(folder: Path) -> list[Path]:
    """The files of the one profile in a folder: a database, a trace, or the CSV tables of one rocprof run.

    Raises:
        FormatError: there is none, or several.
    """
    found = [[path] for path in databases_in(folder)]
    if not found:
        listed = traces_in(folder)
        if len(listed) > 1:  # settings and summaries often lie beside a trace
            listed = [path for path in listed if looks_like_trace(path)] or listed
            listed = [path for path in listed if path.name != _JAX_COPY] or listed
        found = [[path] for path in listed]
    if not found:
        tables: dict[Path, list[Path]] = {}
        for path in _files(folder):
            if path.suffix.lower() == ".csv" and rocprof.is_csv(source.head(path, _HEAD_BYTES)):
                tables.setdefault(path.parent, []).append(path)
        found = [sorted(paths) for _, paths in sorted(tables.items())]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(str(paths[0].relative_to(folder)) for paths in found[:5])
        more = ", …" if len(found) > 5 else ""
        raise FormatError(f"{folder}: {len(found)} profiles in it ({names}{more}); name the one to open")
    if closed := unreadable(folder):
        names = ", ".join(str(path.relative_to(folder)) for path in closed[:5])
        raise FormatError(f"{folder}: no profile here that can be read; no permission to read {names}")
    raise FormatError(
        f"{folder}: no profile here. Looked for: trace_info.pb or ntrace.pb in it or in <instance>_pid_<pid>/<time>/ "
        f"below it, Parquet tables of a processed profile, traces ({', '.join(TRACES)}; one, or one per rank), a NEFF "
        f"with its NTFF, an Nsight Systems or rocprofv3 database ({', '.join(_DATABASES)}), rocprof tables (.csv)"
    )


def _files(folder: Path, onerror: Callable[[OSError], None] | None = None) -> Iterator[Path]:
    """Its files, as deep as a profile may lie; hidden folders are left out."""
    count = 0
    for place, folders, names in os.walk(folder, onerror=onerror):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = [] if depth + 1 >= _DEEPEST else sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            count += 1
            if count > _MOST_FILES:
                return
            path = Path(place, name)
            with contextlib.suppress(OSError):  # in a folder that may be listed only
                if path.is_file():
                    yield path


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def unreadable(folder: Path) -> list[Path]:
    """Files and folders in it that this user may not read."""
    closed: list[Path] = []

    def note(error: OSError) -> None:
        if error.filename:
            closed.append(Path(error.filename))

    closed += [path for path in _files(folder, note) if not os.access(path, os.R_OK)]
    return sorted(set(closed))


def looks_like_trace(path: Path) -> bool:
    """Whether a JSON file begins as one of events does."""
    try:
        head = source.head(path, _HEAD_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n\0")
    except OSError:
        return False
    return head[:1] == b"[" or any(key in head for key in (b'"traceEvents"', b'"ph"', b'"schemaVersion"', b"rocprof"))
