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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronscope.index.arrays import INDEX, LEAST_ROWS, Arrays, Column, Room, key_of, kind_of, load, narrow, search
from neuronscope.index.arrays import commit as _commit
from neuronscope.store._lock import locked, replace_text

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = [
    "Arrays",
    "Column",
    "Room",
    "kept_arrays",
    "kept_columns",
    "kept_facts",
    "kept_folder",
    "kind_of",
    "narrow",
    "search",
]

_LEAST_ROWS = LEAST_ROWS
_LEAST_BYTES = 1 << 20  # of tables that facts are kept of


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
        found = load(folder / name, key)
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
        found = load(folder / name, key)
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
                found = load(folder / name, key)
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
        with locked(folder / ".facts.lock"):
            replace_text(path, json.dumps({"key": key, "value": value}))
    return value


def kept_folder(profile: Profile, name: str, tables: tuple[str, ...], make: Callable[[Path], Any]) -> Path | None:
    """A folder of files made from tables, in the profile's folder; None where nothing can be kept.

    Args:
        profile: whose tables.
        name: of the folder.
        tables: what the files are made from.
        make: fills an empty folder.
    """
    folder = _folder(profile)
    if folder is None:
        return None
    final, key = folder / name, f"{_code()} {key_of(folder.parent, tables)}"
    if load(final, key) is not None:
        return final
    try:
        with _making(folder, name) as making:
            make(making)
            _commit(making, final, key, {})
    except OSError:  # a full or read-only disk
        return None
    return final


def _folder(profile: Profile) -> Path | None:
    """Where a profile of the library keeps arrays; None for a folder that is somebody's original, and in memory."""
    directory = profile.directory
    return directory / INDEX if directory is not None and (directory / "manifest.json").is_file() else None


def _large(profile: Profile, tables: tuple[str, ...]) -> bool:
    assert profile.directory is not None
    files = (path for table in tables for path in profile.directory.glob(f"{table}*.parquet"))
    return sum(path.stat().st_size for path in files) >= _LEAST_BYTES


@functools.cache
def _code() -> int:
    """Changes with the package's analyses: facts that older ones worked out are worked out anew."""
    folder = Path(__file__).parent
    return max(path.stat().st_mtime_ns for path in (*folder.glob("*.py"), *folder.glob("sql/*.sql")))


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


def _key(profile: Profile, tables: tuple[str, ...]) -> str:
    assert profile.directory is not None
    return key_of(profile.directory, tables)


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
