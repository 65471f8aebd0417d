"""The arrays that tiles of a profile are answered from: those its reader kept, else made from its Slice table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.arrays import Arrays, Room, kept_columns
from neuronscope.index.slices import COLUMNS, Slices, UnsortedError, fill

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["slice_arrays"]

_IN_SQL = {
    "event_id": "event_id",
    "track": "track_id",
    "lane": "lane",
    "start": "start_ts",
    "duration": "end_ts - start_ts",
    "name_id": "name_id",
    "op_id": "op_id",
    "launch_ns": "launch_ns",
    "estimated": "estimated::BIGINT",
}
_BATCH = 1 << 20


def slice_arrays(profile: Profile) -> Arrays:
    """The arrays of a profile's Slice table, times relative to its origin; kept beside it when it is large."""
    limited = ", ".join(f"min({sql})::BIGINT, max({sql})::BIGINT" for sql in _IN_SQL.values())
    shown = ", ".join(f"({sql})::BIGINT AS {name}" for name, sql in _IN_SQL.items())
    origin = profile.origin_ns

    def make(room: Room) -> None:
        rows = profile.row_count("Slice")
        found = [int(value or 0) for value in profile.rows(f"SELECT {limited} FROM Slice")[0].values()]
        limits = {name: (found[2 * at], found[2 * at + 1]) for at, name in enumerate(_IN_SQL)}
        for order in ("", " ORDER BY track_id, lane, start_ts"):
            batches = profile.batches(f"SELECT {shown} FROM Slice{order}", _BATCH)
            try:
                fill(room, _relative(batches, origin), limits, rows)
                return
            except UnsortedError:
                continue

    return kept_columns(profile, "timeline", ("Slice",), make)


def _relative(batches: Iterable[Any], origin: int) -> Iterator[Slices]:
    for batch in batches:
        slices = {name: batch.column(name).to_numpy() for name in COLUMNS}
        slices["start"] = slices["start"] - origin
        yield slices
