"""The compiled parts of linking against the plain Python that defines them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronscope.readers import arguments, compiled, lanes
from neuronscope.readers.narrow import constant
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import Events

pytestmark = pytest.mark.skipif(compiled._linking is None, reason="not built (python explorer/hatch_build.py native)")

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=80)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Start and end, in order of (start, longest first)."""
    ordered = sorted(rows, key=lambda row: (row[0], -row[1]))
    start = np.array([row[0] for row in ordered], np.int64)
    return start, start + np.array([row[1] for row in ordered], np.int64)


def in_plain_python(monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    monkeypatch.setattr(lanes, "linking", lambda: None if plain else compiled._linking)
    monkeypatch.setattr(arguments, "linking", lambda: None if plain else compiled._linking)


@settings(max_examples=150, deadline=None)
@given(rows=INTERVALS, size=st.integers(1, 30))
def test_nesting_is_the_same_compiled_plain_and_in_pieces(rows: list[tuple[int, int]], size: int) -> None:
    start, end = columns(rows)
    found = []
    for plain in (True, False):
        for step in (len(rows), size):
            with pytest.MonkeyPatch.context() as patch:
                in_plain_python(patch, plain)
                walk = lanes.Nest(7)
                parts = [walk.next(start[at : at + step], end[at : at + step]) for at in range(0, len(rows), step)]
            depth, parent = (np.concatenate(column).tolist() for column in zip(*parts, strict=True))
            found.append((depth, parent, [row for rows in walk.crossing for row in rows.tolist()]))
    assert found[1:] == [found[0]] * 3


@settings(max_examples=150, deadline=None)
@given(rows=INTERVALS, size=st.integers(1, 30))
def test_lanes_are_the_same_compiled_plain_and_in_pieces(rows: list[tuple[int, int]], size: int) -> None:
    start, end = columns(rows)
    found = []
    for plain in (True, False):
        for step in (len(rows), size):
            with pytest.MonkeyPatch.context() as patch:
                in_plain_python(patch, plain)
                walk = lanes.Lanes()
                parts = [walk.next(start[at : at + step], end[at : at + step]) for at in range(0, len(rows), step)]
            found.append(np.concatenate(parts).tolist())
    assert found[1:] == [found[0]] * 3
    last = np.maximum(end, start + 1)
    for lane in set(found[0]):
        here = np.flatnonzero(np.array(found[0]) == lane)
        assert (start[here[1:]] >= last[here[:-1]]).all()


ARGUMENTS = st.sampled_from(
    [b"", b"{}", b"{ }", b'{"a": 1}', b'{\n  "b": "\xc3\xa9"\n}', b"[1]", b"null", b"{" + b" " * 30 + b"}", b"{"]
)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(ARGUMENTS, st.sampled_from(["", "cpu_op", 'q"'])), min_size=1, max_size=40), data=st.data()
)
def test_attributes_are_the_same_compiled_and_plain(rows: list[tuple[bytes, str]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    texts = Texts.of(*(pa.array([row[0] for row in some], pa.binary()) for some in (rows[:cut], rows[cut:])))
    category = pa.array([row[1] for row in rows]).dictionary_encode().take(pa.array(order))
    none = constant(-1, len(rows))
    numbers = dict.fromkeys(
        ("role", "start", "end", "pid", "tid", "device", "stream", "nc", "pcore", "correlation", "external_id"), none
    )
    ev = Events(**numbers, execution_id=none, bytes=none, name=category, category=category, args=texts.take(order))
    found = []
    for plain in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            in_plain_python(patch, plain)
            found.append(arguments.attributes_of(ev, 0, len(rows)).to_pylist())
    assert found[0] == found[1]


def test_rows_that_no_piece_holds_are_refused() -> None:
    offsets = np.array([0, 2], np.int32)
    for pieces, row in (([], 0), ([(0, offsets, b"{}")], 1), ([(5, offsets, b"{}")], 4), ([(0, offsets, b"{")], 0)):
        with pytest.raises(ValueError, match="rows that the pieces do not hold"):
            compiled._linking.attributes(pieces, np.array([row]), np.zeros(1, np.int32), [b"{"])
