"""Arrays made from a profile's tables once and kept beside them: opened again they are mapped, not read.

Kept in `<profile>/index/<name>/` as `.npy` files in the narrowest integer type, with a `meta.json` that says which
files they were made from. Only profiles of the library are written to, and only large ones; others are made anew, which
takes less than opening a page. `kept_arrays` is for what fits into memory, `kept_columns` for what is as long as the
profile, `kept_facts` for a few values that take a look at all of it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from neuronscope.store._lock import locked, replace_text

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["Arrays", "Column", "Room", "kept_arrays", "kept_columns", "kept_facts", "kind_of", "narrow", "search"]

Arrays = Mapping[str, npt.NDArray[Any]]

_VERSION = 2
_LEAST_ROWS = 100_000
_LEAST_BYTES = 1 << 20  # of tables that facts are kept of
_META = "meta.json"
_BLOCK = 1 << 20  # values


def kept_arrays(
    profile: Profile, name: str, tables: tuple[str, ...], make: Callable[[], Arrays], wide: tuple[str, ...] = ()
) -> Arrays:
    """What `make` returns, narrowed; from the profile's folder where it was kept and its tables are the same.

    Args:
        profile: whose tables.
        name: of the set of arrays, a file name.
        tables: the tables that the arrays are made from.
        make: makes them; one-dimensional integers or booleans.
        wide: arrays that stay as they are, because sums with them must not overflow.
    """
    folder = _folder(profile)
    key = _key(profile, tables) if folder is not None else ""
    if folder is not None:
        found = _load(folder / name, key)
        if found is not None:
            return found
    made = {label: array if label in wide else narrow(array) for label, array in make().items()}
    if folder is not None and max((len(array) for array in made.values()), default=0) >= _LEAST_ROWS:
        with contextlib.suppress(OSError):  # a full or read-only disk: made anew next time
            _save(folder, name, key, made)
    return made


def kept_columns(profile: Profile, name: str, tables: tuple[str, ...], make: Callable[[Room], None]) -> Arrays:
    """Like `kept_arrays` for arrays that grow with the profile: `make` appends to the columns of a `Room`.

    Args:
        profile: whose tables.
        name: of the set of arrays, a file name.
        tables: the tables that the arrays are made from.
        make: fills the room; called a second time where the disk is full.
    """
    folder = _folder(profile)
    if folder is not None:
        key = _key(profile, tables)
        found = _load(folder / name, key)
        if found is not None:
            return found
        if profile.row_count(tables[0]) >= _LEAST_ROWS:
            with contextlib.suppress(OSError):
                with _making(folder, name) as making:
                    room = Room(making)
                    try:
                        make(room)
                        meta = room.finish()
                    finally:
                        room.close()
                    _commit(making, folder / name, key, meta)
                found = _load(folder / name, key)
                if found is not None:
                    return found
    room = Room(None)
    make(room)
    return room.arrays()


def kept_facts(profile: Profile, name: str, tables: tuple[str, ...], make: Callable[[], Any]) -> Any:
    """A value of JSON made from tables, from the profile's folder where it was kept and its tables are the same."""
    folder = _folder(profile)
    if folder is None or not _large(profile, tables):
        return make()
    path, key = folder / f"{name}.json", f"{_code()} {_key(profile, tables)}"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return kept["value"]
    value = make()
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        with locked(folder / f".{name}.lock"):
            replace_text(path, json.dumps({"key": key, "value": value}))
    return value


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

    def close(self) -> None:
        """Close the files."""
        for column in self._columns.values():
            column.close()

    def finish(self) -> dict[str, Any]:
        """Close the files; what the folder's meta file says of each array."""
        self.arrays()
        for table in self._tables.values():
            if isinstance(table, np.memmap):
                table.flush()
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


def _folder(profile: Profile) -> Path | None:
    """Where a profile of the library keeps arrays; None for a folder that is somebody's original, and in memory."""
    directory = profile.directory
    return directory / "index" if directory is not None and (directory / "manifest.json").is_file() else None


def _large(profile: Profile, tables: tuple[str, ...]) -> bool:
    assert profile.directory is not None
    files = (path for table in tables for path in profile.directory.glob(f"{table}*.parquet"))
    return sum(path.stat().st_size for path in files) >= _LEAST_BYTES


@functools.cache
def _code() -> int:
    """Changes with the package's analyses: facts that older ones worked out are worked out anew."""
    folder = Path(__file__).parent
    return max(path.stat().st_mtime_ns for path in (*folder.glob("*.py"), *folder.glob("sql/*.sql")))


def _key(profile: Profile, tables: tuple[str, ...]) -> str:
    assert profile.directory is not None
    parts = [str(_VERSION)]
    for table in tables:
        for path in sorted(profile.directory.glob(f"{table}.parquet")) + sorted(
            profile.directory.glob(f"{table}_*.parquet")
        ):
            stat = path.stat()
            parts.append(f"{path.name}:{stat.st_size}:{stat.st_mtime_ns}")
    return " ".join(parts)


def _load(folder: Path, key: str) -> Arrays | None:
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


def _save(folder: Path, name: str, key: str, arrays: Arrays) -> None:
    with _making(folder, name) as making:
        meta: dict[str, Any] = {}
        for label, array in arrays.items():
            meta[label] = {"count": len(array)}
            if len(array) and array.strides == (0,):
                meta[label] |= {"value": array[0].item(), "bool": array.dtype == np.bool_}
            elif len(array):
                np.save(making / f"{label}.npy", array)
        _commit(making, folder / name, key, meta)


@contextlib.contextmanager
def _making(folder: Path, name: str) -> Iterator[Path]:
    """A folder to make arrays in, for one process at a time; what is left of it at the end is deleted.

    So is what killed processes left.
    """
    folder.mkdir(exist_ok=True)
    with locked(folder / f".{name}.lock"):
        for left in folder.glob(f".{name}-*"):
            shutil.rmtree(left, ignore_errors=True)
        making = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
        try:
            yield making
        finally:
            shutil.rmtree(making, ignore_errors=True)


def _commit(making: Path, final: Path, key: str, meta: dict[str, Any]) -> None:
    """Put a finished folder in the place of an older one."""
    (making / _META).write_text(json.dumps({"key": key, "arrays": meta}))
    making.chmod(0o755)
    if final.exists():
        final.rename(making / "old")
    making.rename(final)
    shutil.rmtree(final / "old", ignore_errors=True)
