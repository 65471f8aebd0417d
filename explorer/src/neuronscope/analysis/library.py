"""Profiles from the store: opened by path (ingested on first use) or by the id they got there."""

from __future__ import annotations

import os
from pathlib import Path

from neuronscope.analysis.profile import Profile, unique_names
from neuronscope.readers import Progress
from neuronscope.store import Profile as Stored
from neuronscope.store import Store

__all__ = ["library_profiles", "of_stored", "open_profile"]


def of_stored(stored: Stored, name: str | None = None) -> Profile:
    """A stored profile with its analyses."""
    return Profile(name or stored.name, stored.path, stored.source, stored.result)


def open_profile(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    data_path: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Open a trace file or session folder; ingests it unless the library holds it already.

    A folder of Parquet tables as the library keeps them (also one copied from another machine) is opened as it is.

    Raises:
        FormatError: no profile there; the message lists what was looked for.
        OSError: unreadable, or the library's folder is not writable.
    """
    folder = Path(path)
    if (folder / "ProfileInfo.parquet").is_file() and (folder / "Track.parquet").is_file():
        return Profile(name or folder.name, folder, folder)
    store = Store(data_path)
    stored = store.add(Path(path), name=name, progress=progress)
    store.opened(stored)
    return of_stored(stored, name)


def library_profiles(data_path: str | os.PathLike[str] | None = None) -> list[Profile]:
    """Every profile of the library, oldest first; names that several have are numbered."""
    listed = Store(data_path).list()
    names = unique_names([stored.name for stored in listed])
    return [of_stored(stored, name) for stored, name in zip(listed, names, strict=True)]
