"""Compiled programs of this process, by content hash: what a capture writes as NEFF and NTFF files."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuroncore.runtime import Executable

_lock = threading.Lock()
_by_hash: dict[str, Executable] = {}


def add(executable: Executable) -> None:
    """Keeps an executable for the life of the process."""
    with _lock:
        _by_hash.setdefault(executable.hash, executable)


def find(hash_: str) -> Executable | None:
    """The executable with this hash, None where it was only estimated."""
    return _by_hash.get(hash_)


def count() -> int:
    """Number of distinct executables."""
    return len(_by_hash)


def fields(executable: Executable, op: str, overload: str, shapes: str, dtypes: str) -> dict[str, Any]:
    """What `_C` keeps of an executable: the argument of `_C.create_executable` and the result of a miss handler."""
    return {
        "neff": executable.hash,
        "op": op,
        "overload": overload,
        "program_ns": executable.program_ns,
        "estimated_ns": executable.estimated_ns,
        "bytes_read": executable.bytes_read,
        "bytes_written": executable.bytes_written,
        "flops": executable.flops,
        "shapes": shapes,
        "dtypes": dtypes,
        "bound": ", ".join(executable.bound),
    }
