"""Geometry of intervals: nesting on host threads, free lanes on device tracks, unions of busy time. Plain numpy."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from neuronscope.readers.exact import Int64

__all__ = ["Nesting", "Stacks", "busy_ns", "enclosing", "free_lanes", "groups_of", "nest", "running_end"]

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Nesting:
    """Depth and innermost enclosing interval (row, -1 none) of each interval; how many end after their parent does."""

    depth: Int32
    parent: Int64
    violations: int


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
    parent = np.full(count, -1, np.int64)
    violations = 0
    last = np.maximum(end, start + 1)
    for low, high in groups_of(group):
        begins, ends = start[low:high], last[low:high]
        closed = np.searchsorted(np.sort(ends), begins, "right")
        level = np.arange(high - low) - closed
        above = np.full(high - low, -1, np.int64)
        order = np.argsort(level, kind="stable")
        edges = np.searchsorted(level[order], np.arange(int(level.max(initial=0)) + 2))
        for deep in range(1, len(edges) - 1):
            outer, inner = order[edges[deep - 1] : edges[deep]], order[edges[deep] : edges[deep + 1]]
            above[inner] = outer[np.searchsorted(outer, inner) - 1]
        late = (above >= 0) & (ends > ends[above])
        if late.any():
            level, above, crossed = _nest_crossing(begins, ends)
            violations += crossed
        depth[low:high] = level
        parent[low:high] = np.where(above >= 0, above + low, -1)
    return Nesting(depth, parent, violations)


def _nest_crossing(begins: Int64, ends: Int64) -> tuple[Int64, Int64, int]:
    """Nesting where some intervals outlive their parent: each goes one lane below every interval still open."""
    count = len(begins)
    level = np.zeros(count, np.int64)
    above = np.full(count, -1, np.int64)
    crossed = 0
    open_rows: list[tuple[int, int, int]] = []  # (end, lane, row), innermost last
    for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        if any(item[0] <= begin for item in open_rows):
            open_rows = [item for item in open_rows if item[0] > begin]
        if open_rows:
            level[row] = max(item[1] for item in open_rows) + 1
            holder = next((item for item in reversed(open_rows) if item[0] >= end), None)
            crossed += open_rows[-1][0] < end
            above[row] = (holder or open_rows[-1])[2]
        open_rows.append((end, int(level[row]), row))
    return level, above, crossed


def free_lanes(group: Int64, start: Int64, end: Int64) -> Int32:
    """The first lane that is free at each start; rows sorted by (group, start)."""
    lanes = np.zeros(len(start), np.int32)
    last = np.maximum(end, start + 1)
    for low, high in groups_of(group):
        begins, ends = start[low:high], last[low:high]
        reach = np.maximum.accumulate(ends)
        overlap = np.zeros(high - low, np.bool_)
        overlap[1:] = begins[1:] < reach[:-1]
        if not overlap.any():
            continue
        fresh = np.flatnonzero(~overlap)
        bounds = [*fresh.tolist(), high - low]
        for first, stop in itertools.pairwise(bounds):
            if stop - first > 1:
                lanes[low + first : low + stop] = _greedy(begins[first:stop], ends[first:stop])
    return lanes


def _greedy(begins: Int64, ends: Int64) -> Int32:
    lanes = np.zeros(len(begins), np.int32)
    running: list[tuple[int, int]] = []
    free: list[int] = []
    used = 0
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
    nesting, bounds, start, end = stacks.nesting, stacks.bounds, stacks.start, stacks.end
    found = np.full(len(at), -1, np.int64)
    for value in np.unique(group).tolist():
        if value not in bounds:
            continue
        low, high = bounds[value]
        asked = np.flatnonzero(group == value)
        row = np.searchsorted(start[low:high], at[asked], "right") - 1
        row = np.where(row >= 0, row + low, -1)
        while True:
            past = (row >= 0) & (end[row] < at[asked])
            if not past.any():
                break
            row = np.where(past, nesting.parent[row], row)
        found[asked] = row
    return found


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
