"""A lock between processes that the system releases when its holder dies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["hold", "locked", "replace_text"]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path` for the time of a `with` block; waits for another holder."""
    with path.open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)


def hold(path: Path) -> IO[bytes] | None:
    """The lock file, locked until it is closed or its holder dies; None while another process holds it."""
    file = path.open("a+b")
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def replace_text(file: Path, text: str) -> None:
    """Replace a small file as a whole: after a crash the old text is there or the new one.

    The caller holds the file's lock, so one name beside it is enough; what a killed process left there is overwritten.

    Raises:
        OSError: it can't be written; the old text stays.
    """
    beside = file.with_name(f".{file.name.removeprefix('.')}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
