"""Nesting and lanes against the plain definition."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from neuronscope.readers import lanes

INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 12)).map(lambda t: (t[0], t[1], t[1] + t[2])),
    max_size=40,
)


def columns(intervals: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ordered = sorted(intervals, key=lambda i: (i[0], i[1], -max(i[2], i[1] + 1)))
    array = np.array(ordered, np.int64).reshape(-1, 3)
    return array[:, 0].copy(), array[:, 1].copy(), array[:, 2].copy()


def overlap_in_lane(group: np.ndarray, lane: np.ndarray, start: np.ndarray, end: np.ndarray) -> bool:
    rows = list(zip(group.tolist(), lane.tolist(), start.tolist(), np.maximum(end, start + 1).tolist(), strict=True))
    return any(a[:2] == b[:2] and a[2] < b[3] and b[2] < a[3] for a, b in itertools.combinations(rows, 2))


@given(INTERVALS)
def test_no_two_intervals_overlap_in_a_lane(intervals: list[tuple[int, int, int]]) -> None:
    group, start, end = columns(intervals)
    assert not overlap_in_lane(group, lanes.free_lanes(group, start, end), start, end)
    assert not overlap_in_lane(group, lanes.nest(group, start, end).depth, start, end)


@given(INTERVALS)
def test_a_parent_encloses_its_child_unless_counted_as_crossing(intervals: list[tuple[int, int, int]]) -> None:
    group, start, end = columns(intervals)
    nesting = lanes.nest(group, start, end)
    last = np.maximum(end, start + 1)
    crossing = 0
    for row, parent in enumerate(nesting.parent.tolist()):
        if parent < 0:
            continue
        assert group[parent] == group[row]
        assert start[parent] <= start[row] < last[parent]
        crossing += last[row] > last[parent]
    assert crossing <= nesting.violations


@given(INTERVALS)
def test_busy_time_is_the_union_per_group(intervals: list[tuple[int, int, int]]) -> None:
    group, start, end = columns(intervals)
    covered = {
        (g, t) for g, s, e in zip(group.tolist(), start.tolist(), end.tolist(), strict=True) for t in range(s, e)
    }
    assert lanes.busy_ns(group, start, end) == len(covered)


def test_depth_is_the_number_of_enclosing_intervals() -> None:
    group, start, end = columns([(0, 0, 100), (0, 10, 50), (0, 10, 20), (0, 60, 90), (1, 5, 6)])
    nesting = lanes.nest(group, start, end)
    assert nesting.depth.tolist() == [0, 1, 2, 1, 0]
    assert nesting.parent.tolist() == [-1, 0, 1, 0, -1]
    assert nesting.violations == 0


def test_a_child_that_outlives_its_parent_is_counted_and_gets_a_lane_of_its_own() -> None:
    group, start, end = columns([(0, 10, 60), (0, 20, 80), (0, 65, 70)])
    nesting = lanes.nest(group, start, end)
    assert nesting.violations == 1
    assert nesting.depth.tolist() == [0, 1, 2]
