"""Peak memory of processes, mapped pages included.

`ru_maxrss` is no measure: a child that is started by fork and exec inherits its parent's. Linux keeps the peak of a
process's own memory in /proc; elsewhere `ru_maxrss` is all there is.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import sys
import threading
from pathlib import Path
from types import TracebackType

__all__ = ["PeakOf", "peak_bytes"]

_PROC = Path("/proc")
_EVERY_S = 0.02
_TURNS = 10  # until it is looked for new processes


def peak_bytes() -> int:
    """Largest resident memory that this process had so far."""
    found = _peak(_PROC / "self")
    if found:
        return found
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class PeakOf:
    """Watches a process and those it starts: `bytes` is the sum of each one's peak. 0 where /proc is missing."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def bytes(self) -> int:
        """The sum so far."""
        return sum(self._peaks.values())

    def __enter__(self) -> PeakOf:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        known = [self._pid]
        for turn in itertools.count():
            if turn % _TURNS == 0:
                known = _with_children(self._pid)
            for pid in known:
                self._peaks[pid] = max(self._peaks.get(pid, 0), _peak(_PROC / str(pid)))
            if self._over.wait(_EVERY_S):
                return


def _with_children(root: int) -> list[int]:
    """A process and those below it."""
    children: dict[int, list[int]] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _peak(process: Path) -> int:
    with contextlib.suppress(OSError):
        for line in (process / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
