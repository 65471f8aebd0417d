"""Makes the arrays that tiles are answered from, slice by slice in order of (track, lane, start).

One pass over the Slice table, which the reader writes in that order; nothing as long as the profile is held in memory
when the arrays go to files (`arrays.Room`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neuronscope.analysis.arrays import Arrays, Room, kept_columns
from neuronscope.analysis.longest import BLOCK, LongestIndex, levels

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["COLUMNS", "fill", "limits_of", "slice_arrays"]

Ints = npt.NDArray[np.int64]
Slices = Mapping[str, Ints]
Limits = Mapping[str, tuple[int, int]]

COLUMNS = ("event_id", "track", "lane", "start", "duration", "name_id", "op_id", "launch_ns", "estimated")
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
_DENSE = 4  # ids up to this many times the number of slices get a table by id
_LONG_AGO = -(2**62)


class _UnsortedError(Exception):
    """The slices are not in order of (track, lane, start)."""


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
            except _UnsortedError:
                continue

    return kept_columns(profile, "timeline", ("Slice",), make)


def _relative(batches: Iterable[Any], origin: int) -> Iterator[Slices]:
    for batch in batches:
        slices = {name: batch.column(name).to_numpy() for name in COLUMNS}
        slices["start"] = slices["start"] - origin
        yield slices


def limits_of(slices: Slices) -> Limits:
    """Least and largest value of each column."""
    return {name: (int(slices[name].min(initial=0)), int(slices[name].max(initial=0))) for name in COLUMNS}


def fill(room: Room, batches: Iterable[Slices], limits: Limits, count: int) -> None:
    """Make the arrays of `Timeline` from its slices.

    Args:
        room: where.
        batches: columns of some slices each, as `COLUMNS`, in order of (track, lane, start).
        limits: least and largest value of each column.
        count: number of slices.
    """
    wide = (_LONG_AGO, 2**62)  # of what is summed or compared with times
    columns = {name: room.column(name, *(wide if name == "start" else limits[name]), count) for name in COLUMNS}
    busy_before = room.column("busy_before", *wide, count + 1)
    estimated_before = room.column("estimated_before", 0, count * limits["estimated"][1], count + 1)
    busy_before.append(np.zeros(1, np.int64))
    estimated_before.append(np.zeros(1, np.int64))
    low, high = limits["event_id"]
    dense = low >= 0 and high < _DENSE * count + BLOCK
    row_of = room.table("row_of", count, high + 1 if count else 0) if dense else None
    identities: list[Ints] = []
    lane_first: list[int] = []
    overlaps: list[bool] = []
    blocks = _Blocks()
    last = (_LONG_AGO, _LONG_AGO, _LONG_AGO, _LONG_AGO)  # track, lane, start, end of the slice before
    at = busy = estimated = 0
    for batch in batches:
        track, lane, start, duration = (batch[name] for name in ("track", "lane", "start", "duration"))
        size = len(track)
        if not size:
            continue
        end = start + duration
        before = [
            np.concatenate(([value], column[:-1]))
            for value, column in zip(last, (track, lane, start, end), strict=True)
        ]
        same = (track == before[0]) & (lane == before[1])
        if ((track < before[0]) | ((track == before[0]) & (lane < before[1])) | (same & (start < before[2]))).any():
            raise _UnsortedError
        for name in COLUMNS:
            columns[name].append(batch[name])
        lanes_so_far = len(lane_first)
        fresh = np.flatnonzero(~same)
        lane_first += (fresh + at).tolist()
        overlaps += [False] * len(fresh)
        # Without overlap, ends never exceed the next start inside a lane.
        crossing = np.flatnonzero(same & (before[3] > start))
        for number in np.unique(np.searchsorted(fresh, crossing, "right")).tolist():
            overlaps[lanes_so_far + number - 1] = True
        sums = busy + np.cumsum(duration)
        counts = estimated + np.cumsum(batch["estimated"])
        busy_before.append(sums)
        estimated_before.append(counts)
        if row_of is not None:
            row_of[batch["event_id"]] = np.arange(at, at + size)
        else:
            identities.append(batch["event_id"])
        blocks.append(duration)
        busy, estimated, at = int(sums[-1]), int(counts[-1]), at + size
        last = int(track[-1]), int(lane[-1]), int(start[-1]), int(end[-1])
    if row_of is None:
        whole = np.concatenate(identities) if identities else np.zeros(0, np.int64)
        order = np.argsort(whole, kind="stable")
        room.add("order", order)
        room.add("identities", whole[order])
    longest = room.column("longest", 0, count, sum(LongestIndex.sizes(count)))
    for level in levels(*blocks.finish()):
        longest.append(level)
    room.add("lane_first", np.array(lane_first, np.int64))
    room.add("lane_overlaps", np.array(overlaps, np.int64))


class _Blocks:
    """The longest slice of each block, gathered as durations come."""

    def __init__(self) -> None:
        self._rest: Ints = np.zeros(0, np.int64)
        self._best: list[Ints] = []
        self._durations: list[Ints] = []
        self._at = 0

    def append(self, durations: Ints) -> None:
        """The next durations."""
        whole = np.concatenate((self._rest, durations))
        full = len(whole) // BLOCK * BLOCK
        self._rest = whole[full:]
        self._blocks(whole[:full])

    def _blocks(self, durations: Ints) -> None:
        best = durations.reshape(-1, BLOCK).argmax(axis=1) + np.arange(0, len(durations), BLOCK)
        self._best.append(best + self._at)
        self._durations.append(durations[best])
        self._at += len(durations)

    def finish(self) -> tuple[Ints, Ints]:
        """Positions of the longest, and their durations."""
        if len(self._rest):
            padded = np.full(BLOCK, -1, np.int64)
            padded[: len(self._rest)] = self._rest
            self._blocks(padded)
        return (
            np.concatenate(self._best) if self._best else np.zeros(0, np.int64),
            np.concatenate(self._durations) if self._durations else np.zeros(0, np.int64),
        )
