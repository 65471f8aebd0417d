"""Arrays kept beside a profile: the same answers, mapped instead of made."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from neuronscope import readers
from neuronscope.analysis import arrays, card, chain, events, overview, timeline_index
from neuronscope.analysis.profile import Profile
from neuronscope.index import arrays as index
from neuronscope.readers import tables, tracks

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64), st.lists(INT64))
def test_search_equals_numpys_on_wide_integers(values, keys):
    wide = np.sort(np.array(values, np.int64))
    for side in ("left", "right"):
        assert arrays.search(arrays.narrow(wide), keys, side).tolist() == np.searchsorted(
            wide, np.array(keys, np.int64), side
        ).tolist()  # fmt: skip


@given(st.lists(INT64))
def test_narrow_keeps_values(values):
    assert arrays.narrow(np.array(values, np.int64)).tolist() == values


@given(st.lists(st.booleans()))
def test_narrow_keeps_truth(values):
    assert arrays.narrow(np.array(values, np.bool_)).tolist() == values


@pytest.fixture
def folder(build_tables, rmsnorm, write_tables, tmp_path, monkeypatch):
    """A profile as the library keeps it, small as it is with an index."""
    monkeypatch.setattr(arrays, "_LEAST_ROWS", 1)
    monkeypatch.setattr(arrays, "_LEAST_BYTES", 1)
    path = write_tables(build_tables(rmsnorm), tmp_path / "naive")
    (path / "manifest.json").write_text("{}")
    return path


def answers(profile):
    ids = [row["id"] for row in profile.rows("SELECT id FROM SystemProfileEvents ORDER BY id")]
    tile = profile.timeline.tile(0, profile.span_ns, 200).to_pylist()
    return (
        card.profile_card(profile),
        profile.default_range,
        tile,
        overview.overview(profile, 0, profile.span_ns, 50),
        [chain.chain(profile, identity) for identity in ids],
        [events.event_details(profile, identity) for identity in ids],
    )


def made(monkeypatch):
    """Names of the sets of arrays that are made from tables from now on."""
    names = []
    commit = arrays._commit

    def spy(making, final, *rest):
        names.append(final.name)
        commit(making, final, *rest)

    monkeypatch.setattr(arrays, "_commit", spy)
    return names


def test_the_second_opening_maps_what_the_first_made(folder, monkeypatch):
    names = made(monkeypatch)
    first = answers(Profile("a", folder))
    assert {"timeline", "calls", "executions", "flows", "occupancy-device"} <= set(names)
    names.clear()
    assert answers(Profile("a", folder)) == first
    assert names == []
    hidden = [path.name for path in (folder / "index").iterdir() if path.name.startswith(".")]
    assert [name for name in hidden if not name.endswith(".lock")] == []


def test_changed_tables_and_damage_make_it_anew(folder, monkeypatch):
    first = answers(Profile("a", folder))
    names = made(monkeypatch)
    os.utime(folder / "Slice.parquet", ns=(1, 1))
    (folder / "index" / "flows" / "meta.json").write_text('{"key": ')
    next((folder / "index" / "executions").glob("*.npy")).write_bytes(b"short")
    assert answers(Profile("a", folder)) == first
    assert {"timeline", "flows", "executions"} <= set(names) and "calls" not in names


def test_a_folder_of_the_user_is_left_alone(folder):
    (folder / "manifest.json").unlink()
    answers(Profile("a", folder))
    assert not (folder / "index").exists()


def test_a_read_only_folder_is_no_obstacle(folder, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError("read-only")

    monkeypatch.setattr(arrays.tempfile, "mkdtemp", refuse)
    assert answers(Profile("a", folder))[0]
    assert json.loads((folder / "manifest.json").read_text()) == {}


def test_rows_by_id_are_those_of_the_query(folder):
    profile = Profile("a", folder)
    ids = [row["id"] for row in profile.rows("SELECT id FROM SystemProfileEvents ORDER BY id")]
    for wanted in ([ids[0]], [ids[-1], ids[1]], [-5], []):
        listed = ", ".join(map(str, wanted)) or "NULL"
        query = f"FROM SystemProfileEvents WHERE id IN ({listed}) ORDER BY id"
        by = lambda row: row["id"]  # noqa: E731
        assert sorted(profile.rows_with("SystemProfileEvents", "id", wanted), key=by) == profile.rows(query)
        named = profile.rows_with("SystemProfileEvents", "id", wanted, ("id", "name"))
        assert sorted(named, key=by) == profile.rows(f"SELECT id, name {query}")
    assert profile.rows_with("Execution", "event_id", [10**9]) == []


@pytest.mark.parametrize("chunk", [1_000_000, 300])
def test_the_index_a_reader_keeps_is_the_one_made_from_its_table(tmp_path, monkeypatch, chunk):
    spec = importlib.util.spec_from_file_location("synthetic_trace", Path(__file__).parents[1] / "synthetic.py")
    synthetic = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, synthetic)
    spec.loader.exec_module(synthetic)
    synthetic.write(tmp_path / "trace.json", 2, 120, counters=True)
    monkeypatch.setattr(tracks, "LEAST_ROWS", 1)
    monkeypatch.setattr(tables, "_PIECE_ROWS", chunk)
    readers.ingest(tmp_path / "trace.json", tmp_path / "profile")
    kept = index.load(tmp_path / "profile" / "index" / "timeline", index.key_of(tmp_path / "profile", ("Slice",)))
    made = timeline_index.slice_arrays(Profile("a", tmp_path / "profile"))  # no profile of the library: made anew
    assert set(kept) == set(made)
    for name, values in made.items():
        assert kept[name].tolist() == values.tolist(), name
    assert len(made["start"]) == 2 * 120 * 5 + 2
