"""Tiles equal what looking at every slice would give; the index only makes it fast."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronscope.analysis import Profile
from neuronscope.analysis.arrays import Room
from neuronscope.analysis.overview import Occupancy, overview
from neuronscope.analysis.timeline import Timeline
from neuronscope.analysis.timeline_gaps import Gaps
from neuronscope.index.longest import LongestIndex
from neuronscope.index.slices import COLUMNS, fill, limits_of


@st.composite
def slice_lists(draw):
    """Slices as (track, lane, start, duration, name); lanes of track 9 may overlap, the others never do."""
    found = []
    for track, lane in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), unique=True, max_size=4)):
        clock = draw(st.integers(0, 50))
        for gap, duration in draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60)), max_size=90)):
            found.append((track, lane, clock + gap, duration))
            clock += gap + duration
    found += [(9, 0, s, d) for s, d in draw(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 120)), max_size=25))]
    return found


def timeline(slices):
    column = lambda index: np.array([row[index] for row in slices], np.int64)  # noqa: E731
    count = len(slices)
    return Timeline(
        event_id=np.arange(100, 100 + count),
        track=column(0),
        lane=column(1),
        start=column(2),
        end=column(2) + column(3),
        name_id=np.arange(count) % 7,
        op_id=np.arange(count) % 5,
        launch_ns=np.arange(count),
        estimated=np.arange(count) % 11 == 0,
    )


def by_looking_at_every_slice(slices, start, end, width, tracks):
    """The documented meaning of a tile, one slice at a time."""
    length = end - start
    items = []
    for track, lane in sorted({(t, ln) for t, ln, _, _ in slices}):
        if tracks is not None and track not in tracks:
            continue
        rows = sorted(
            ((s, index, d) for index, (t, ln, s, d) in enumerate(slices) if (t, ln) == (track, lane)),
            key=lambda r: r[:2],
        )
        groups = {}
        for s, index, d in rows:
            if s >= end or (s < start and s + d <= start):
                continue
            if d * width >= length:
                items.append((100 + index, track, lane, s, d, index % 7, index % 5, 1, 1.0, index, index % 11 == 0))
            else:
                pixel = -1 if s < start else (s - start) * width // length
                groups.setdefault(pixel, []).append((s, index, d))
        for group in groups.values():
            _, longest, _ = max(group, key=lambda row: row[2])
            first = group[0][0]
            duration = max(s + d for s, _, d in group) - first
            busy = min(sum(d for _, _, d in group) / duration, 1.0) if duration else 1.0
            launch = longest if len(group) == 1 else 0
            estimated = any(index % 11 == 0 for _, index, _ in group)
            items.append(
                (
                    100 + longest,
                    track,
                    lane,
                    first,
                    duration,
                    longest % 7,
                    longest % 5,
                    len(group),
                    busy,
                    launch,
                    estimated,
                )
            )
    return sorted(items)


@settings(max_examples=300, deadline=None)
@given(
    slice_lists(),
    st.integers(-20, 900),
    st.integers(1, 4000),
    st.integers(1, 200),
    st.sampled_from([None, {1}, {0, 9}]),
)
def test_tile_equals_brute_force(slices, start, length, width, tracks):
    tile = timeline(slices).tile(start, start + length, width, tracks)
    got = sorted(tuple(row.values())[:-1] for row in tile.to_pylist())
    want = by_looking_at_every_slice(slices, start, start + length, width, tracks)
    assert [row[:8] + row[9:] for row in got] == [row[:8] + row[9:] for row in want]
    np.testing.assert_allclose([row[8] for row in got], [row[8] for row in want], rtol=1e-6)


@settings(max_examples=100, deadline=None)
@given(slice_lists(), st.integers(1, 70), st.integers(1, 5))
def test_an_index_made_in_pieces_and_in_files_is_the_same(tmp_path_factory, slices, size, apart):
    rows = sorted(slices)
    track, lane, start, duration = (np.array([row[at] for row in rows], np.int64) for at in range(4))
    number = np.arange(len(rows))
    values = (number * apart, track, lane, start, duration, number % 7, number % 5, number % 3, number % 11 == 0)
    whole = {name: np.asarray(column, np.int64) for name, column in zip(COLUMNS, values, strict=True)}
    pieces = [{name: column[at : at + size] for name, column in whole.items()} for at in range(0, len(rows), size)]
    memory, files = Room(None), Room(tmp_path_factory.mktemp("index"))
    fill(memory, [whole], limits_of(whole), len(rows))
    fill(files, pieces, limits_of(whole), len(rows))
    made, kept = memory.arrays(), files.finish()
    assert set(made) == set(kept)
    for label, facts in kept.items():
        if "value" in facts:
            assert set(made[label].tolist()) == {facts["value"]}
        elif facts["count"]:
            assert np.load(files.folder / f"{label}.npy").tolist() == made[label].tolist()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 900), st.integers(0, 90)), max_size=300),
    st.integers(-10, 900),
    st.integers(1, 500),
    st.integers(0, 60),
    st.sampled_from([None, {1}, {0, 2}]),
)
def test_gaps_of_a_window_are_those_that_a_look_at_each_finds(rows, start, length, least, tracks):
    rows = sorted(rows)
    track, begin, duration = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    found = Gaps.of(np.arange(len(rows)), track, begin, begin + duration).within(start, start + length, least, tracks)
    assert found.tolist() == [
        at
        for at, (on, s, d) in enumerate(rows)
        if d >= least and s < start + length and s + d > start and (tracks is None or on in tracks)
    ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=400), st.data())
def test_longest_of_a_run_is_the_first_of_the_longest(durations, data):
    index = LongestIndex(np.array(durations, np.int64))
    first = data.draw(st.integers(0, len(durations) - 1))
    last = data.draw(st.integers(first + 1, len(durations)))
    want = first + int(np.argmax(durations[first:last]))
    assert index.longest(np.array([first]), np.array([last])).tolist() == [want]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 30)), max_size=30), st.integers(1, 20))
def test_overview_busy_time_sums_to_the_union(intervals, width):
    start = np.array([s for s, _ in intervals], np.int64)
    end = start + np.array([d for _, d in intervals], np.int64)
    busy, _ = Occupancy(start, end, np.zeros(len(intervals), np.int64)).pixels(0, 20 * width, width)
    covered = {moment for s, d in intervals for moment in range(s, s + d) if moment < 20 * width}
    assert round(sum(busy) * 20, 1) == len(covered)


def test_overview_never_rounds_an_operator_away():
    busy, labels = Occupancy(np.array([10]), np.array([12]), np.array([4])).pixels(0, 10**9, 4)
    assert busy[0] > 0 and busy[1:] == [0.0] * 3 and labels == [4, -1, -1, -1]


def test_overview_shows_host_slices_where_no_operator_ran(build_tables, rmsnorm):
    tables = build_tables(rmsnorm)
    assert max(overview(Profile("ops", tables), 0, 2_433_000, 40)[0]["busy"]) < 1.0
    tables["HostOp"] = tables["HostOp"].slice(0, 0)
    tables["Execution"] = tables["Execution"].slice(0, 0)
    (host,) = overview(Profile("no ops", tables), 0, 2_433_000, 40)
    names = tables["Name"].to_pylist()
    shown = {row["name"] for row in names if row["name_id"] in host["name_id"]}
    assert host["kind"] == "framework" and max(host["busy"]) > 0 and "aten::mul" in shown


def test_no_slice_vanishes_however_far_one_zooms_out():
    slices = [(0, 0, 10 * index, 3) for index in range(5000)]
    tile = timeline(slices).tile(0, 50_000_000, 100).to_pylist()
    assert [(row["count"], row["start"], row["duration"]) for row in tile] == [(5000, 0, 49_993)]
    assert abs(tile[0]["busy"] - 0.3) < 1e-3


def test_gaps_narrower_than_a_pixel_are_left_to_the_busy_share():
    gaps = Gaps.of(*(np.array(column, np.int64) for column in ([7, 8], [0, 0], [3, 200], [10, 300])))
    line = timeline([(0, 0, 0, 3), (0, 0, 10, 190), (0, 0, 300, 9)])
    line.gaps = gaps
    rows = [row for row in line.tile(0, 400, 20).to_pylist() if row["kind"] == 1]
    assert [(row["event_id"], row["start"], row["duration"]) for row in rows] == [(8, 200, 100)]


def test_slices_come_from_the_profile_relative_to_its_origin(build_tables, rmsnorm):
    line = Profile("naive", build_tables(rmsnorm)).timeline
    assert len(line) == 30
    assert int(line.start.min()) == 0


def test_neighbour_ends_at_the_lane():
    line = timeline([(0, 0, 0, 1), (0, 0, 5, 1), (1, 0, 7, 1)])
    assert line.neighbour(100, 1) == 101
    assert line.neighbour(101, 1) is None
    assert line.neighbour(100, -1) is None
