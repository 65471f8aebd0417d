"""Profiles from the store: opened by path (ingested on first use) or by the id they got there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from neuronscope.analysis.card import format_of
from neuronscope.analysis.profile import Profile, unique_names
from neuronscope.readers import IngestResult, IngestWarning, Progress
from neuronscope.readers.processed import FIGURES
from neuronscope.store import Profile as Stored
from neuronscope.store import Store

__all__ = ["device_figures", "ingest_result", "library_profiles", "of_stored", "open_profile"]


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
    if _is_stored(folder):
        return Profile(name or folder.name, folder, folder)
    store = Store(data_path)
    stored = store.add(Path(path), name=name, progress=progress)
    store.opened(stored)
    return of_stored(stored, name)


def _is_stored(folder: Path) -> bool:
    try:
        return (folder / "ProfileInfo.parquet").is_file() and (folder / "Track.parquet").is_file()
    except PermissionError:
        return False  # told when it is read


def ingest_result(profile: Profile) -> IngestResult:
    """What the ingest found: as it was told, or of a processed profile copied here from the tables it wrote."""
    if profile.ingest_result is not None:
        return profile.ingest_result
    info = profile.info

    def count(name: str) -> int:
        text = info.get(name, "")
        return int(text) if text.isdecimal() else 0

    figures: dict[str, Any] = {name: count(name) for name in FIGURES}
    if not set(FIGURES) <= set(info):  # a profile of an older version
        figures |= device_figures(profile)
    report = tuple(IngestWarning(**row) for row in profile.table("IngestReport").to_pylist())
    return IngestResult(
        format=format_of(profile) or "processed profile",
        source=profile.source or Path(),
        **figures,
        dropped=count("dropped") if info.get("dropped", "").isdecimal() else None,
        ranks=tuple(int(rank) for rank in info.get("ranks", "").split(",") if rank.isdecimal()),
        report=report,
    )


def device_figures(profile: Profile) -> dict[str, int]:
    """Device work and host processes of a profile, from its tables."""
    (device,) = profile.rows("""
        WITH ordered AS (
            SELECT start_ts, end_ts, duration_ns, greatest(start_ts, coalesce(max(end_ts) OVER (
                PARTITION BY process_id, device ORDER BY start_ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), start_ts)) AS begin FROM Execution)
        SELECT count(*) AS device_slices, coalesce(sum(duration_ns), 0)::BIGINT AS device_time_ns,
               coalesce(sum(greatest(end_ts - begin, 0)), 0)::BIGINT AS device_busy_ns FROM ordered""")
    (host,) = profile.rows("SELECT count(DISTINCT process_id) AS processes FROM SystemProfileEvents")
    return {**device, **host}


def library_profiles(data_path: str | os.PathLike[str] | None = None) -> list[Profile]:
    """Every profile of the library, oldest first; names that several have are numbered."""
    listed = Store(data_path).list()
    names = unique_names([stored.name for stored in listed])
    return [of_stored(stored, name) for stored, name in zip(listed, names, strict=True)]
