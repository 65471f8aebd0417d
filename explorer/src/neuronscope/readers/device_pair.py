"""One NTFF and its NEFF → `Trace`: a profile of the device alone.

They belong together by content, whatever their names: a NTFF keeps the hashes of the executables it timed, a NEFF's
hash follows from its program. A NTFF of ours also opens alone; the vendor's files are told apart by the numbers in
their names and can't be read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from neuronscope.formats import container, neff
from neuronscope.formats.errors import FormatError
from neuronscope.readers import device_only, session
from neuronscope.readers.engine_rows import add_engine_rows
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.trace import Trace

__all__ = ["DevicePair", "find_pair", "read_pair"]

_ID = re.compile(r"\d{5,}")


@dataclass(frozen=True)
class DevicePair:
    """A device profile's timeline, the executables it holds that are at hand, and NEFFs beside it that are others."""

    timeline: Path
    executables: tuple[Path, ...]
    others: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Everything that is read."""
        return (self.timeline, *self.executables)


def find_pair(path: Path) -> DevicePair:
    """The NTFF and the NEFFs that belong together: `path` is one of them, or the folder that holds them.

    Raises:
        FormatError: the NTFF is missing, is of another executable, or there are several.
    """
    folder = path if path.is_dir() else path.parent
    neffs = [path] if path.suffix == ".neff" else sorted(folder.glob("*.neff"))
    ntffs = [path] if path.suffix == ".ntff" else sorted(folder.glob("*.ntff"))
    if not ntffs:
        raise FormatError(f"{path}: a NEFF without its NTFF. Put both into one folder, or record one with `capture`")
    held = {timeline: _held(timeline) for timeline in ntffs}
    hashes = {executable: _hash(executable) for executable in neffs}
    pairs = {
        timeline: tuple(e for e in neffs if (hashes[e] or _number(e)) in (names or {_number(timeline): ""}))
        for timeline, names in held.items()
    }
    matching = [timeline for timeline, found in pairs.items() if found]
    if len(ntffs) > 1 and not any(names is not None for names in held.values()):
        raise FormatError(
            f"{folder}: {len(ntffs)} NTFF files that are not ours. If they are a raw Neuron capture, "
            f"{session.vendor_command(folder)}"
        )
    if len(matching) > 1 or (not matching and len(ntffs) > 1):
        listed = ", ".join(timeline.name for timeline in (matching or ntffs)[:5])
        raise FormatError(f"{folder}: {len(matching or ntffs)} device profiles ({listed}); name the .ntff to open")
    timeline = (matching or ntffs)[0]
    others = tuple(
        f"{executable.name} is {hashes[executable] or _number(executable) or 'unknown'}"
        for executable in neffs
        if executable not in pairs[timeline]
    )
    alone = path == timeline and held[timeline]
    if not pairs[timeline] and held[timeline] is None:
        _refuse(timeline, neffs)
    if not pairs[timeline] and neffs and not alone:
        names = held[timeline] or {}
        what = ", ".join(f"{h} ({n})" if n else h for h, n in list(names.items())[:3])
        raise FormatError(
            f"{folder}: {timeline.name} holds executable {what}, but {'; '.join(others[:3])}: the hashes must be the "
            f"same. Give the pair of one compilation, or the .ntff alone"
        )
    return DevicePair(timeline, pairs[timeline], others if alone else ())


def _refuse(timeline: Path, neffs: list[Path]) -> None:
    """Say why a NTFF that holds nothing of ours can't be opened."""
    read = container.read(timeline)  # damaged, newer, or the vendor's
    if read.kind == "ntff":
        raise FormatError(f"{timeline}: no executable ran while it was recorded")
    beside = f" beside {', '.join(one.name for one in neffs[:3])}" if neffs else ""
    raise FormatError(f"{timeline}: a {read.kind} file{beside}, not a device profile (NTFF)")


def _held(timeline: Path) -> dict[str, str] | None:
    """Hash and name of the executables a NTFF holds; None where it isn't ours or can't be read."""
    try:
        programs = container.read(timeline).tables.get("programs")
    except FormatError:
        return None
    if programs is None or not programs.num_rows:
        return None
    return dict(zip(programs["neff"].to_pylist(), programs["name"].to_pylist(), strict=True))


def _hash(executable: Path) -> str:
    """A NEFF's content hash, "" where it isn't ours or can't be read."""
    try:
        return neff.read(executable).hash
    except FormatError:
        return ""


def _number(path: Path) -> str:
    """The hash in a file's name: its first long number."""
    found = _ID.search(path.name)
    return found[0] if found else ""


def read_pair(pair: DevicePair, progress: Callable[[float], None] | None = None) -> Trace:
    """Read the pair.

    Raises:
        FormatError: made by the vendor's tools, or damaged.
    """
    timeline = pair.timeline
    try:
        read = container.read(timeline)
        inside = [neff.read(executable) for executable in pair.executables]
    except FormatError as error:
        executable = pair.executables[0] if pair.executables else "FILE.neff"
        raise FormatError(
            f"{error}. If it is the vendor's, run on the instance `neuron-explorer view -n {executable} -s {timeline} "
            f"--ingest-only --data-path OUT` and open OUT"
        ) from None
    programs = read.tables["programs"]
    trace = session.read_device(timeline, pair.executables)
    if "Instruction" not in trace.tables and any(row.kind == "unreadable_file" for row in trace.report):
        raise FormatError(f"{timeline}: {trace.report[-1].message}")
    names = dict(zip(programs["neff"].to_pylist(), programs["name"].to_pylist(), strict=True))
    trace.events = device_only.events_of(trace.tables, timeline.stem, names)
    trace.events_in_file = len(trace.events)
    add_engine_rows(trace)
    trace.facts["device_only"] = "true"
    trace.report.append(device_only.note(timeline.name))
    missing = set(names) - {one.hash for one in inside}
    if missing:
        beside = f" ({'; '.join(pair.others[:3])})" if pair.others else ""
        text = (
            f"{len(missing)} of {programs.num_rows} executables without NEFF beside {timeline.name}{beside}: their "
            f"timelines are complete, their programs can't be shown"
        )
        trace.report.append(IngestWarning("no_neff", len(missing), -1, timeline.name, "kept", text))
    trace.neuron = True
    trace.format = "NEFF and NTFF" if inside else "NTFF"
    if progress:
        progress(1.0)
    return trace
