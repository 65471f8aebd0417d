"""Arrays in files: made from front to back, mapped when they are looked at.

A folder holds `.npy` files in the narrowest integer type and a `meta.json` that says what they were made from, written
last: without it there is no index.
"""

from __future__ import annotations

import json
import mmap
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "INDEX",
    "LEAST_ROWS",
    "Arrays",
    "Column",
    "Room",
    "commit",
    "key_of",
    "kind_of",
    "load",
    "narrow",
    "seal",
    "search",
]

Arrays = Mapping[str, npt.NDArray[Any]]

INDEX = "index"  # the folder in a profile's
LEAST_ROWS = 100_000  # of shorter tables arrays are made anew, which takes less than opening a page
_VERSION = 2
_META = "meta.json"
_BLOCK = 1 << 20  # values


class Column:
    """An array that is filled from front to back, in memory or in a file; of one value for all nothing is kept."""

    def __init__(self, path: Path | None, low: int, high: int, count: int) -> None:
        self.count = count
        self.value = low if low == high and count > 1 else None
        self._kind = kind_of(low, high)
        self._array: npt.NDArray[Any] | None = None
        self._file: BinaryIO | None = None
        self._at = 0
        if self.value is not None:
            return
        if path is None or not count:
            self._array = np.empty(count, self._kind)
        else:
            self._file = path.open("wb")
            header = {"descr": self._kind.str, "fortran_order": False, "shape": (count,)}
            np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, values: npt.NDArray[Any]) -> None:
        """The next values."""
        self._at += len(values)
        if self._file is not None:
            self._file.write(np.ascontiguousarray(values, self._kind).data)
        elif self._array is not None:
            self._array[self._at - len(values) : self._at] = values

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def finish(self) -> npt.NDArray[Any]:
        """Close the file; of an array in memory the array."""
        if self._at != self.count:
            raise ValueError(f"{self._at} values for a column of {self.count}")
        self.close()
        if self.value is not None:
            return np.broadcast_to(np.array(self.value, np.int64), (self.count,))
        return np.zeros(0, np.int64) if self._array is None else self._array


class Room:
    """Where columns are made: in the files of a folder, or in memory."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._columns: dict[str, Column] = {}
        self._tables: dict[str, npt.NDArray[Any]] = {}

    def column(self, label: str, low: int, high: int, count: int) -> Column:
        """A new column of `count` values between `low` and `high`; one of the same label is begun anew."""
        if label in self._columns:
            self._columns[label].close()
        path = self.folder / f"{label}.npy" if self.folder else None
        made = self._columns[label] = Column(path, low, high, count)
        return made

    def table(self, label: str, high: int, count: int) -> npt.NDArray[Any]:
        """A new array of `count` values up to `high`, to be written in any order; -1 at first."""
        kind = kind_of(-1, high)
        made: npt.NDArray[Any]
        if self.folder and count:
            path = self.folder / f"{label}.npy"
            # Written, not mapped, at first: a full disk is an error then; in a sparse mapped file it ends the process.
            column = Column(path, -1, max(high, 0), count)
            try:
                for at in range(0, count, _BLOCK):
                    column.append(np.full(min(_BLOCK, count - at), -1, kind))
            finally:
                column.close()
            made = np.load(path, mmap_mode="r+", allow_pickle=False)
        else:
            made = np.full(count, -1, kind)
        self._tables[label] = made
        return made

    def add(self, label: str, array: npt.NDArray[Any]) -> None:
        """A whole array that is at hand."""
        self.column(label, int(array.min(initial=0)), int(array.max(initial=0)), len(array)).append(array)

    def arrays(self) -> Arrays:
        """All of them."""
        return {label: column.finish() for label, column in self._columns.items()} | self._tables

    def forget(self) -> None:
        """Give back the memory of what was written in any order; the files keep it."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for table in self._tables.values():
                if isinstance(table, np.memmap) and isinstance(table.base, mmap.mmap):
                    table.base.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Close the files."""
        for column in self._columns.values():
            column.close()

    def finish(self) -> dict[str, Any]:
        """Close the files; what the folder's meta file says of each array."""
        self.arrays()
        meta: dict[str, Any] = {label: {"count": len(table)} for label, table in self._tables.items()}
        for label, column in self._columns.items():
            meta[label] = {"count": column.count}
            if column.value is not None:
                meta[label] |= {"value": column.value, "bool": False}
        return meta


def kind_of(low: int, high: int) -> np.dtype[Any]:
    """The narrowest integer type for values from `low` to `high`."""
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return np.dtype(kind)
    return np.dtype(np.int64)


def narrow(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same values in the narrowest integer type; one value for all takes no memory."""
    if not len(array):
        return array
    if array.dtype == np.bool_:
        same = bool(array.all()) or not bool(array.any())
        return np.broadcast_to(np.array(bool(array[0])), array.shape) if same else array
    low, high = int(array.min()), int(array.max())
    if low == high and len(array) > 1:
        return np.broadcast_to(np.array(low, np.int64), array.shape)
    return array.astype(kind_of(low, high), copy=False)


def search(ordered: npt.NDArray[Any], keys: npt.ArrayLike, side: Literal["left", "right"] = "left") -> Any:
    """`np.searchsorted` in the narrow type of the array: numpy would convert all of it to the type of the keys."""
    wanted = np.asarray(keys, np.int64)
    limits = np.iinfo(ordered.dtype)
    at = np.searchsorted(ordered, np.clip(wanted, limits.min, limits.max).astype(ordered.dtype), side)
    return np.where(wanted > limits.max, len(ordered), at)


def key_of(directory: Path, tables: tuple[str, ...]) -> str:
    """Says which files of a profile's folder arrays are made from: changes when those do."""
    parts = [str(_VERSION)]
    for table in tables:
        for path in sorted(directory.glob(f"{table}.parquet")) + sorted(directory.glob(f"{table}_*.parquet")):
            stat = path.stat()
            parts.append(f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}")
    return " ".join(parts)


def load(folder: Path, key: str) -> Arrays | None:
    """The arrays in a folder, mapped; None when there are none of this key."""
    try:
        meta = json.loads((folder / _META).read_text())
        if meta["key"] != key:
            return None
        found: dict[str, npt.NDArray[Any]] = {}
        for label, facts in meta["arrays"].items():
            if "value" in facts:
                kind = np.bool_ if facts["bool"] else np.int64
                found[label] = np.broadcast_to(np.array(facts["value"], kind), (facts["count"],))
            elif facts["count"]:
                found[label] = np.load(folder / f"{label}.npy", mmap_mode="r", allow_pickle=False)
            else:
                found[label] = np.zeros(0, np.int64)
            if len(found[label]) != facts["count"]:
                return None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent, or cut off by a crash of the machine: made anew
    return found


def seal(folder: Path, key: str, meta: dict[str, Any]) -> None:
    """Say that the arrays of a folder are complete: from now on they are found."""
    (folder / _META).write_text(json.dumps({"key": key, "arrays": meta}))


def commit(making: Path, final: Path, key: str, meta: dict[str, Any]) -> None:
    """Put a finished folder in the place of an older one."""
    seal(making, key, meta)
    making.chmod(0o755)
    if final.exists():
        final.rename(making / "old")
    making.rename(final)
    shutil.rmtree(final / "old", ignore_errors=True)
