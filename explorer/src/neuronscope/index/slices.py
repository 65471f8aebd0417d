"""The arrays that tiles are answered from, made slice by slice in order of (track, lane, start).

The reader fills them while it writes the Slice table; of a profile without them one pass over that table does. Nothing
as long as the profile is held in memory when the arrays go to files (`arrays.Room`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from neuronscope.index.arrays import Room
from neuronscope.index.longest import BLOCK, LongestIndex, levels

__all__ = ["COLUMNS", "SliceIndex", "UnsortedError", "fill", "limits_of"]

Ints = npt.NDArray[np.int64]
Slices = Mapping[str, npt.NDArray[Any]]
Limits = Mapping[str, tuple[int, int]]

COLUMNS = ("event_id", "track", "lane", "start", "duration", "name_id", "op_id", "launch_ns", "estimated")
_DENSE = 4  # ids up to this many times the number of slices get a table by id
_LONG_AGO = -(2**62)
_WIDE = (_LONG_AGO, 2**62)  # of what is summed or compared with times


class UnsortedError(Exception):
    """The slices are not in order of (track, lane, start)."""


def limits_of(slices: Slices) -> Limits:
    """Least and largest value of each column."""
    return {name: (int(slices[name].min(initial=0)), int(slices[name].max(initial=0))) for name in COLUMNS}


def fill(room: Room, batches: Iterable[Slices], limits: Limits, count: int) -> None:
    """Make the arrays from all slices; see `SliceIndex`."""
    index = SliceIndex(room, limits, count)
    for batch in batches:
        index.append(batch)
    index.finish()


class SliceIndex:
    """The arrays of `Timeline` while they grow.

    Args:
        room: where.
        limits: least and largest value of each column, or bounds of these.
        count: number of slices.
    """

    def __init__(self, room: Room, limits: Limits, count: int) -> None:
        self._room = room
        self._count = count
        self._columns = {
            name: room.column(name, *(_WIDE if name == "start" else limits[name]), count) for name in COLUMNS
        }
        self._busy_before = room.column("busy_before", *_WIDE, count + 1)
        self._estimates = limits["estimated"][1] > 0
        self._estimated_before = room.column("estimated_before", 0, count * limits["estimated"][1], count + 1)
        self._busy_before.append(np.zeros(1, np.int64))
        self._estimated_before.append(np.zeros(1, np.int64))
        low, high = limits["event_id"]
        dense = low >= 0 and high < _DENSE * count + BLOCK
        self._row_of = room.table("row_of", count, high + 1 if count else 0) if dense else None
        self._identities: list[npt.NDArray[Any]] = []
        self._lane_first: list[int] = []
        self._overlaps: list[bool] = []
        self._blocks = _Blocks()
        self._last = (_LONG_AGO, _LONG_AGO, _LONG_AGO, _LONG_AGO)  # track, lane, start, end of the slice before
        self._at = self._busy = self._estimated = 0

    def append(self, slices: Slices) -> None:
        """The next slices: columns as `COLUMNS`, in order of (track, lane, start), times relative to the origin.

        Raises:
            UnsortedError: they are in another order.
        """
        track, lane, start, duration = (slices[name] for name in ("track", "lane", "start", "duration"))
        size = len(track)
        if not size:
            return
        end = start + duration
        same, crossing = np.empty(size, np.bool_), np.empty(size, np.bool_)
        same[1:] = (track[1:] == track[:-1]) & (lane[1:] == lane[:-1])
        same[0] = (track[0], lane[0]) == self._last[:2]
        fresh = np.flatnonzero(~same)
        before = [self._last[:2], *zip(track[fresh - 1].tolist(), lane[fresh - 1].tolist(), strict=True)]
        if len(fresh) and fresh[0]:
            before.pop(0)
        elif len(fresh):
            before.pop(1)
        now = zip(track[fresh].tolist(), lane[fresh].tolist(), strict=True)
        back = same[1:] & (start[1:] < start[:-1])
        if (
            back.any()
            or (same[0] and start[0] < self._last[2])
            or (len(fresh) and any(new < old for new, old in zip(now, before, strict=True)))
        ):
            raise UnsortedError
        for name, column in self._columns.items():
            column.append(slices[name])
        lanes_so_far = len(self._lane_first)
        self._lane_first += (fresh + self._at).tolist()
        self._overlaps += [False] * len(fresh)
        # Without overlap, ends never exceed the next start inside a lane.
        crossing[1:] = same[1:] & (end[:-1] > start[1:])
        crossing[0] = same[0] and self._last[3] > start[0]
        crossed = np.flatnonzero(crossing)
        for number in np.unique(np.searchsorted(fresh, crossed, "right")).tolist():
            self._overlaps[lanes_so_far + number - 1] = True
        sums = self._busy + np.cumsum(duration, dtype=np.int64)
        self._busy_before.append(sums)
        if self._estimates:
            counts = self._estimated + np.cumsum(slices["estimated"], dtype=np.int64)
            self._estimated_before.append(counts)
            self._estimated = int(counts[-1])
        else:
            self._estimated_before.append(np.broadcast_to(np.int64(0), size))
        if self._row_of is not None:
            self._row_of[slices["event_id"]] = np.arange(self._at, self._at + size)
            self._room.forget()
        else:
            self._identities.append(slices["event_id"])
        self._blocks.append(duration)
        self._busy, self._at = int(sums[-1]), self._at + size
        self._last = int(track[-1]), int(lane[-1]), int(start[-1]), int(end[-1])

    def finish(self) -> None:
        """What can only be made at the end."""
        room = self._room
        if self._row_of is None:
            whole = np.concatenate(self._identities) if self._identities else np.zeros(0, np.int64)
            order = np.argsort(whole, kind="stable")
            room.add("order", order)
            room.add("identities", whole[order])
        longest = room.column("longest", 0, self._count, sum(LongestIndex.sizes(self._count)))
        for level in levels(*self._blocks.finish()):
            longest.append(level)
        room.add("lane_first", np.array(self._lane_first, np.int64))
        room.add("lane_overlaps", np.array(self._overlaps, np.int64))


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
