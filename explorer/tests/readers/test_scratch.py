"""Columns in files and work done some rows at once: the same as in memory and all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from neuronscope.readers import keys, lanes, scratch
from neuronscope.readers.narrow import narrow

few_at_once = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (scratch, keys):
        monkeypatch.setattr(module, "CHUNK_ROWS", 5)


@few_at_once
@given(st.lists(st.lists(st.integers(-(2**40), 2**40) | st.integers(-3, 3), max_size=12), max_size=6), st.booleans())
def test_a_column_holds_what_was_appended(tmp_path: Path, parts: list[list[int]], in_files: bool) -> None:
    column = scratch.Scratch(tmp_path if in_files else None).column()
    for part in parts:
        column.append(narrow(np.array(part, np.int64)))
    assert column.finish().tolist() == [value for part in parts for value in part]
    assert list(tmp_path.iterdir()) == []  # a file has no name once it is mapped


def test_a_column_of_one_value_takes_no_memory_until_another_comes(tmp_path: Path) -> None:
    same = scratch.Scratch(tmp_path).column()
    other = scratch.Scratch(tmp_path).column()
    for column in (same, other):
        column.append(np.broadcast_to(np.int64(-1), 8))
        column.append(np.broadcast_to(np.int64(-1), 4))
    other.append(np.array([7], np.int16))
    assert same.finish().strides == (0,)
    assert other.finish().tolist() == [-1] * 12 + [7]


def test_what_was_let_go_of_can_be_read_again(tmp_path: Path) -> None:
    room = scratch.Scratch(tmp_path)
    kept = room.kept(np.arange(1_000))
    room.forget()
    assert kept.tolist() == list(range(1_000))
    assert room.take(kept, np.arange(0, 1_000, 3)).tolist() == list(range(0, 1_000, 3))


@given(st.lists(st.integers(-1, 4), max_size=40))
def test_small_codes_are_ordered_in_parts(codes: list[int]) -> None:
    expected = [row for code in range(5) for row, other in enumerate(codes) if other == code]
    assert keys.stable_order(np.array(codes, np.int8), 5).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-(2**62), 2**62) | st.integers(0, 2)), max_size=30))
def test_numbers_of_tuples_are_dense_and_the_same_in_every_part(rows: list[tuple[int, int]]) -> None:
    numbering, found = keys.Numbering(), []
    for low, high in scratch.ranges(len(rows), 5):
        first, second = (np.array(column, np.int64) for column in zip(*rows[low:high], strict=True))
        found += numbering.codes(first, second).tolist()
    assert [list(numbering.seen)[code] for code in found] == rows
    assert sorted(set(found)) == list(range(len(numbering.seen)))


def nested(count: int, crossing: bool) -> st.SearchStrategy[list[tuple[int, int]]]:
    lengths = st.integers(0, 9) if crossing else st.sampled_from([0, 1, 2, 4, 8, 16])
    starts = st.integers(0, 40)
    some = st.tuples(starts, lengths).map(
        lambda pair: pair if crossing or not pair[1] else (pair[0] - pair[0] % pair[1], pair[1])
    )
    return st.lists(some, max_size=count)


@given(st.booleans().flatmap(lambda crossing: nested(40, crossing)))
def test_nesting_in_parts_is_that_of_the_whole(intervals: list[tuple[int, int]]) -> None:
    rows = sorted((start, -max(length, 1), length) for start, length in intervals)
    start: npt.NDArray[Any] = np.array([row[0] for row in rows], np.int64)
    end = start + np.array([row[2] for row in rows], np.int64)
    group = np.zeros(len(rows), np.int64)
    in_parts = lanes.nest(group, start, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "CHUNK_ROWS", 1_000)
        whole = lanes.nest(group, start, end)
    assert in_parts.depth.tolist() == whole.depth.tolist()
    assert in_parts.parent.tolist() == whole.parent.tolist()
    assert in_parts.violations == whole.violations
