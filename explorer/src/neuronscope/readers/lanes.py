"""Geometry of intervals: nesting on host threads, free lanes on device tracks, unions of busy time. Plain numpy."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from neuronscope.readers.compiled import linking
from neuronscope.readers.exact import Int64
from neuronscope.readers.scratch import ranges

__all__ = [
    "Lanes",
    "Nest",
    "Nesting",
    "Stacks",
    "busy_ns",
    "enclosing",
    "enclosing_in",
    "free_lanes",
    "groups_of",
    "nest",
    "running_end",
]

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Nesting:
    """Depth and innermost enclosing interval (row, -1 none) of each interval; `crossing`: those that outlive theirs."""

    depth: Int32
    parent: Int64
    crossing: Int64

    @property
    def violations(self) -> int:
        """How many end after the interval they began in."""
        return len(self.crossing)


def groups_of(group: Int64) -> list[tuple[int, int]]:
    """Bounds of the runs of equal values in a sorted column."""
    if not len(group):
        return []
    cuts = np.flatnonzero(np.diff(group)) + 1
    bounds = [0, *cuts.tolist(), len(group)]
    return list(itertools.pairwise(bounds))


def nest(group: Int64, start: Int64, end: Int64) -> Nesting:
    """Nesting inside each group; rows sorted by (group, start, longest first). Empty intervals count as 1 ns long."""
    count = len(start)
    depth = np.zeros(count, np.int32)
    parent = np.full(count, -1, np.int32 if count < 2**31 else np.int64)
    crossing: list[Int64] = []
    for low, high in groups_of(group):
        walk = Nest(low)
        for begin, past in ranges(high - low):
            some = slice(low + begin, low + past)
            depth[some], parent[some] = walk.next(start[some], end[some])
        crossing += walk.crossing
    return Nesting(depth, parent, np.concatenate(crossing) if crossing else np.zeros(0, np.int64))


Open = tuple[int, int, int]  # end, lane and row of an interval that is still open; lists of them: innermost last


class Nest:
    """Nesting of one group's intervals, some at a time, in order of (start, longest first).

    Attributes:
        crossing: rows so far, some at a time, that end after the one they begin in.
    """

    def __init__(self, first: int = 0) -> None:
        """`first` is the row of the first interval."""
        self.crossing: list[Int64] = []
        self._row = first
        self._open: list[Open] = []

    def next(self, start: Int64, end: Int64) -> tuple[Int64, Int64]:
        """Depth and parent of the next intervals."""
        begins = np.ascontiguousarray(start, np.int64)
        ends = np.maximum(end, begins + 1)
        first, self._row = self._row, self._row + len(begins)
        native = linking()
        if native is not None:
            depth, parent, crossed, self._open = native.nest(self._open, first, begins, ends)
            if crossed:
                self.crossing.append(np.frombuffer(crossed, np.int64))
            return np.frombuffer(depth, np.int32), np.frombuffer(parent, np.int64)
        if not len(begins):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        open_rows = [item for item in self._open if item[0] > begins[0]]
        level, above = _nest_inside(open_rows, first, begins, ends)
        if level is None or above is None:
            level, above, crossed = _nest_crossing(open_rows, first, begins, ends)
            self.crossing.append(np.array(crossed, np.int64))
        now = int(begins[-1])
        late = np.flatnonzero(ends > now)
        ended = zip(ends[late].tolist(), level[late].tolist(), (first + late).tolist(), strict=True)
        self._open = [*(item for item in open_rows if item[0] > now), *ended]
        return level, above


def _nest_inside(
    open_rows: list[Open], first: int, begins: Int64, ends: Int64
) -> tuple[Int64, Int64] | tuple[None, None]:
    """Depth and parent of intervals that begin while some are open; None when one of them outlives its parent."""
    held = len(open_rows)
    if any(item[1] != lane or item[0] > open_rows[lane - 1][0] for lane, item in enumerate(open_rows) if lane):
        return None, None
    if held:
        if open_rows[0][1] != 0:
            return None, None
        begins = np.concatenate((np.full(held, int(begins[0]) - 1), begins))
        ends = np.concatenate(([item[0] for item in open_rows], ends))
    closed = np.searchsorted(np.sort(ends), begins, "right")
    level = np.arange(len(begins)) - closed
    above = np.full(len(begins), -1, np.int64)
    order = np.argsort(level.astype(np.int16) if level.max(initial=0) < 2**15 else level, kind="stable")
    edges = np.searchsorted(level[order], np.arange(int(level.max(initial=0)) + 2))
    for deep in range(1, len(edges) - 1):
        outer, inner = order[edges[deep - 1] : edges[deep]], order[edges[deep] : edges[deep + 1]]
        above[inner] = outer[np.searchsorted(outer, inner) - 1]
    if ((above >= 0) & (ends > ends[above])).any():
        return None, None
    rows = np.concatenate(([item[2] for item in open_rows], np.arange(first, first + len(begins) - held)))
    above = np.where(above >= 0, rows.astype(np.int64)[above], -1)
    return level[held:], above[held:]


def _nest_crossing(open_rows: list[Open], first: int, begins: Int64, ends: Int64) -> tuple[Int64, Int64, list[int]]:
    """Nesting where some intervals outlive their parent: each goes one lane below every interval still open."""
    count = len(begins)
    level = np.zeros(count, np.int64)
    above = np.full(count, -1, np.int64)
    crossed: list[int] = []
    open_rows = list(open_rows)
    for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        if any(item[0] <= begin for item in open_rows):
            open_rows = [item for item in open_rows if item[0] > begin]
        if open_rows:
            level[row] = max(item[1] for item in open_rows) + 1
            holder = next((item for item in reversed(open_rows) if item[0] >= end), None)
            if open_rows[-1][0] < end:
                crossed.append(first + row)
            above[row] = (holder or open_rows[-1])[2]
        open_rows.append((end, int(level[row]), first + row))
    return level, above, crossed


def free_lanes(group: Int64, start: Int64, end: Int64) -> Int32:
    """The first lane that is free at each start; rows sorted by (group, start)."""
    lanes = np.zeros(len(start), np.int32)
    for low, high in groups_of(group):
        lanes[low:high] = Lanes().next(start[low:high], end[low:high])
    return lanes


Running = tuple[int, int]  # end and lane


class Lanes:
    """Lanes of one group's intervals, some at a time, in order of start: the first that is free."""

    def __init__(self) -> None:
        self._running: list[Running] = []

    def next(self, start: Int64, end: Int64) -> Int64:
        """Lanes of the next intervals."""
        if not len(start):
            return np.zeros(0, np.int32)
        begins = np.ascontiguousarray(start, np.int64)
        ends = np.maximum(end, begins + 1)
        native = linking()
        if native is not None:
            found, self._running = native.free_lanes(self._running, begins, ends)
            return np.frombuffer(found, np.int32)
        running = [item for item in self._running if item[0] > begins[0]]
        lanes = np.zeros(len(begins), np.int32)
        before = max((end for end, _ in running), default=int(begins[0]))
        reach = np.maximum.accumulate(np.concatenate(([before], ends[:-1])))
        fresh = np.flatnonzero(begins >= reach)  # where nothing runs
        for first, stop in itertools.pairwise([*({0} - {*fresh[:1].tolist()}), *fresh.tolist(), len(begins)]):
            if stop - first > 1 or (running and not first):
                lanes[first:stop] = _greedy(running if not first else [], begins[first:stop], ends[first:stop])
        late = np.flatnonzero(ends > begins[-1])
        now = int(begins[-1])
        started = zip(ends[late].tolist(), lanes[late].tolist(), strict=True)
        self._running = [*(item for item in running if item[0] > now), *started]
        return lanes


def _greedy(running: list[Running], begins: Int64, ends: Int64) -> Int32:
    lanes = np.zeros(len(begins), np.int32)
    taken = {lane for _, lane in running}
    used = max(taken, default=-1) + 1
    free = sorted({*range(used)} - taken)
    running = list(running)
    heapq.heapify(running)
    for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        while running and running[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(running)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, used = used, used + 1
        lanes[row] = lane
        heapq.heappush(running, (end, lane))
    return lanes


@dataclass(frozen=True)
class Stacks:
    """Nested intervals to ask what was open when: rows sorted by (group, start), bounds of each group's rows."""

    nesting: Nesting
    bounds: Mapping[int, tuple[int, int]]
    start: Int64
    end: Int64


def enclosing(stacks: Stacks, group: Int64, at: Int64) -> Int64:
    """Row of the innermost interval of each `group` that is open at the time `at`, -1 none."""
    found = np.full(len(at), -1, np.int64)
    for value in np.unique(group).tolist():
        if value not in stacks.bounds:
            continue
        low, high = stacks.bounds[value]
        asked = np.flatnonzero(group == value)
        inner = enclosing_in(
            stacks.nesting.parent[low:high], stacks.start[low:high], stacks.end[low:high], at[asked], low
        )
        found[asked] = np.where(inner >= 0, low + inner, -1)
    return found


def enclosing_in(parent: Int64, start: Int64, end: Int64, at: Int64, first: int = 0) -> Int64:
    """Among the nested intervals of one group the innermost that is open at each time `at`, -1 none.

    `parent` counts rows from `first` before the group's.
    """
    row = np.searchsorted(start, at, "right") - 1
    open_ = np.flatnonzero(row >= 0)
    while len(open_):
        open_ = open_[end[row[open_]] < at[open_]]
        above = parent[row[open_]].astype(np.int64)
        row[open_] = np.where(above >= 0, above - first, -1)
        open_ = open_[above >= 0]
    return row


def running_end(group: Int64, end: Int64) -> Int64:
    """Latest end of all earlier rows of the group, -1 for its first row; rows sorted by (group, start)."""
    before = np.full(len(end), -1, np.int64)
    for low, high in groups_of(group):
        before[low + 1 : high] = np.maximum.accumulate(end[low:high])[:-1]
    return before


def busy_ns(group: Int64, start: Int64, end: Int64) -> int:
    """Length of the union of the intervals of each group, summed over groups; any order."""
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    before = running_end(group, end)
    from_here = np.where(before < 0, start, np.maximum(start, before))
    return int(np.maximum(end - from_here, 0).sum())
