"""One NEFF and its NTFF → `Trace`: a profile of the device alone. The hashes in their names must be the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from neuronscope.formats import container, neff
from neuronscope.formats.errors import FormatError
from neuronscope.readers import device_only, session
from neuronscope.readers.trace import Trace

__all__ = ["find_pair", "read_pair"]

_ID = re.compile(r"\d{5,}")


def find_pair(path: Path) -> tuple[Path, Path]:
    """The NEFF and the NTFF that belong together: `path` is one of them, or the folder that holds one of each.

    Raises:
        FormatError: the other one is missing, or their names name different executables.
    """
    folder = path if path.is_dir() else path.parent
    neffs = [path] if path.suffix == ".neff" else sorted(folder.glob("*.neff"))
    ntffs = [path] if path.suffix == ".ntff" else sorted(folder.glob("*.ntff"))
    if not neffs or not ntffs:
        there, missing = ("NTFF", "NEFF") if ntffs else ("NEFF", "NTFF")
        raise FormatError(f"{path}: a {there} without its {missing}. Put both into one folder")
    pairs = [(n, t) for n in neffs for t in ntffs if (number := _number(n)) and number == _number(t)]
    if len(pairs) == 1:
        return pairs[0]
    if pairs:
        listed = ", ".join(t.name for _, t in pairs[:5])
        raise FormatError(f"{folder}: {len(pairs)} device profiles ({listed}); name the .ntff to open")
    raise FormatError(
        f"{folder}: {neffs[0].name} is of executable {_number(neffs[0]) or 'unknown'}, {ntffs[0].name} of "
        f"{_number(ntffs[0]) or 'unknown'}: the hashes in the names must be the same. Give the pair of one compilation"
    )


def _number(path: Path) -> str:
    """The hash in a file's name: its first long number."""
    found = _ID.search(path.name)
    return found[0] if found else ""


def read_pair(pair: tuple[Path, Path], progress: Callable[[float], None] | None = None) -> Trace:
    """Read the pair.

    Raises:
        FormatError: made by the vendor's tools, damaged, or of different executables.
    """
    executable, timeline = pair
    try:
        read = container.read(timeline)
        inside = neff.read(executable)
    except FormatError as error:
        raise FormatError(
            f"{error}. If it is the vendor's, run on the instance `neuron-explorer view -n {executable} -s {timeline} "
            f"--ingest-only --data-path OUT` and open OUT"
        ) from None
    programs = set(read.tables["programs"]["neff"].cast("string").to_pylist())
    if programs and inside.hash not in programs:
        raise FormatError(
            f"{timeline}: holds executables {', '.join(sorted(programs)[:3])}, but {executable.name} is {inside.hash}"
        )
    trace = session.read_device(timeline, executable)
    name = str(inside.info.get("name", "")) or executable.stem
    trace.events = device_only.events_of(trace.tables, name)
    trace.events_in_file = len(trace.events)
    trace.facts["device_only"] = "true"
    trace.report.append(device_only.note(timeline.name))
    trace.neuron = True
    trace.format = "NEFF and NTFF"
    if progress:
        progress(1.0)
    return trace
