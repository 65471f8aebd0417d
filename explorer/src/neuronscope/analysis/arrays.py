"""Arrays made from a profile's tables once and kept beside them: opened again they are mapped, not read.

Kept in `<profile>/index/<name>/` as `.npy` files in the narrowest integer type, with a `meta.json` that says which
files they were made from. Only profiles of the library are written to, and only large ones; others are made anew, which
takes less than opening a page.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["Arrays", "kept_arrays", "narrow", "search"]

Arrays = Mapping[str, npt.NDArray[Any]]

_VERSION = 1
_LEAST_ROWS = 100_000
_META = "meta.json"


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
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return array.astype(kind)
    return array


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
    folder.mkdir(exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
    try:
        meta: dict[str, Any] = {}
        for label, array in arrays.items():
            meta[label] = {"count": len(array)}
            if len(array) and array.strides == (0,):
                meta[label] |= {"value": array[0].item(), "bool": array.dtype == np.bool_}
            elif len(array):
                np.save(making / f"{label}.npy", array)
        (making / _META).write_text(json.dumps({"key": key, "arrays": meta}))
        making.chmod(0o755)
        final = folder / name
        if final.exists():
            final.rename(making / "old")
        making.rename(final)
        shutil.rmtree(final / "old", ignore_errors=True)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
