"""Columns that may be larger than memory: `Scratch` keeps them in files of a folder and maps them.

Mapped pages are the system's to drop, so that what a trace of any size takes is what is being worked on. A column is
appended to from its first row to its last, then only read. Without a folder, or while small, it stays in memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

__all__ = ["CHUNK_ROWS", "SCRATCH_PREFIX", "Column", "Scratch", "ranges", "rows_where"]

CHUNK_ROWS = 1 << 20  # what is worked on at once; a shorter column stays in memory
SCRATCH_PREFIX = ".column-"
_AT_ONCE = 1 << 18  # rows that a pass looks at: its arrays fit the cache, and the allocator keeps their memory

Array = npt.NDArray[Any]


def ranges(count: int, size: int = 0) -> Iterator[tuple[int, int]]:
    """Bounds of at most `size` rows that cover `count`; by default as many as are best looked at together."""
    size = size or min(_AT_ONCE, CHUNK_ROWS)
    for low in range(0, count, size):
        yield low, min(low + size, count)


def rows_where(count: int, chosen: Callable[[int, int], npt.NDArray[np.bool_]]) -> Array:
    """Rows for which `chosen`, asked for one range of rows after the other, is true; of 32 bits where these do."""
    kind = np.int32 if count < 2**31 else np.int64
    found = [(low + np.flatnonzero(chosen(low, high))).astype(kind) for low, high in ranges(count)]
    return np.concatenate(found) if found else np.zeros(0, kind)


class Scratch:
    """Makes columns; owns their files, which go when it does."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._maps: list[mmap.mmap] = []

    def column(self, kind: npt.DTypeLike | None = None) -> Column:
        """An empty column of the given type, by default of the narrowest that holds what comes."""
        return Column(self, kind)

    def kept(self, values: Array) -> Array:
        """The same values, in a file when they are many."""
        column = self.column(values.dtype)
        column.append(values)
        return column.finish()

    def take(self, column: Array, rows: Array) -> Array:
        """`column[rows]`, without the pages of all of a mapped column in memory at once."""
        if len(rows) <= CHUNK_ROWS:
            return column[rows]
        found = np.empty(len(rows), column.dtype)
        for low, high in ranges(len(rows)):
            found[low:high] = column[rows[low:high]]
            self.forget()
        return found

    def file(self) -> tuple[BinaryIO, Path]:
        """A new file and its name."""
        handle, name = tempfile.mkstemp(prefix=SCRATCH_PREFIX, dir=self.folder)
        return os.fdopen(handle, "w+b"), Path(name)

    def mapped(self, file: BinaryIO, path: Path, kind: np.dtype[Any]) -> Array:
        """The values in a file that is complete; the name goes at once where the system allows that."""
        file.flush()
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        file.close()
        with contextlib.suppress(OSError):
            path.unlink()
        self._maps.append(view)
        return np.frombuffer(view, kind)

    def forget(self) -> None:
        """Give back the memory of what was read; it can be read again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for view in tuple(self._maps):
                view.madvise(mmap.MADV_DONTNEED)


class Column:
    """One column while it grows."""

    def __init__(self, scratch: Scratch, kind: npt.DTypeLike | None) -> None:
        self._scratch = scratch
        self._fixed = kind is not None
        self._kind: np.dtype[Any] = np.dtype(kind if kind is not None else np.int8)
        self._parts: list[Array] = []
        self._held = 0
        self._file: BinaryIO | None = None
        self._path = Path()
        self._written = 0
        self._constant: Any = None  # the value, while all rows are of a `narrow.constant`
        self._constant_rows = 0

    def append(self, values: Array) -> None:
        """More rows."""
        if not len(values):
            return
        if not self._fixed and values.dtype.itemsize > self._kind.itemsize:
            self._widen(values.dtype)
        fresh = not self._written and not self._parts
        if values.strides == (0,) and fresh and (not self._constant_rows or self._constant == values[0]):
            self._constant = values[0]
            self._constant_rows += len(values)
            return
        if self._constant_rows:
            filled, self._constant_rows = self._constant_rows, 0
            for low, high in ranges(filled):
                self._add(np.full(high - low, self._constant, self._kind))
        self._add(np.ascontiguousarray(values, self._kind))

    def _add(self, values: Array) -> None:
        self._parts.append(values)
        self._held += len(values)
        if self._scratch.folder is not None and self._held > CHUNK_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._file is None:
            self._file, self._path = self._scratch.file()
        for part in self._parts:
            self._file.write(part.data)
        self._written += self._held
        self._parts, self._held = [], 0

    def _widen(self, kind: np.dtype[Any]) -> None:
        old, self._kind = self._kind, np.dtype(kind)
        self._parts = [part.astype(kind) for part in self._parts]
        if self._file is None:
            return
        narrow = self._scratch.mapped(self._file, self._path, old)
        self._file, self._path = self._scratch.file()
        for low, high in ranges(len(narrow)):
            self._file.write(narrow[low:high].astype(kind).data)

    def finish(self) -> Array:
        """All rows; no more may be appended."""
        if self._constant_rows:
            return np.broadcast_to(self._kind.type(self._constant), self._constant_rows)
        if self._file is None:
            parts, self._parts = self._parts, []
            return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, self._kind)
        self._flush()
        return self._scratch.mapped(self._file, self._path, self._kind)
