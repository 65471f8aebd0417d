"""The profile library: made once per source, whole or not at all, read-only."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from neuronscope.formats.errors import FormatError
from neuronscope.store import Profile, SqlError, Store, TagError, default_data_path, library

TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "args": {}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 4, "dur": 3, "args": {"stream": 7}},
    ],
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run of monday.pt.trace.json"
    path.write_text(json.dumps(TRACE))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


def same_ingest(a: Profile, b: Profile) -> bool:
    return (a.id, a.created_ns) == (b.id, b.created_ns)


def test_a_profile_is_a_folder_of_parquet_under_its_id(store: Store, trace: Path) -> None:
    profile = store.add(trace)
    assert profile.path == store.root / "profiles" / "global" / f"{profile.id}@latest"
    assert profile.name == "run of monday"
    assert profile.id.startswith("run-of-monday-")
    assert pq.read_table(profile.path / "Execution.parquet")["name"].to_pylist() == ["gemm"]
    assert profile.source == trace
    assert profile.result.stored == 2


def test_a_profile_is_made_again_only_when_its_source_changes(store: Store, trace: Path) -> None:
    first = store.add(trace)
    assert same_ingest(store.add(trace), first)
    changed = {**TRACE, "traceEvents": TRACE["traceEvents"][:1]}  # type: ignore[index]
    stat = trace.stat()
    text = json.dumps(changed)
    trace.write_text(text + " " * (stat.st_size - len(text)))
    os.utime(trace, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size and time: the content tells
    second = store.add(trace)
    assert not same_ingest(second, first)
    assert (second.id, second.result.stored) == (first.id, 1)
    assert [p.id for p in store.list()] == [first.id]


def test_a_profile_of_another_store_version_is_made_again(
    store: Store, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.add(trace)
    monkeypatch.setattr(library, "STORE_VERSION", library.STORE_VERSION + 1)
    assert not same_ingest(store.add(trace), first)


def test_originals_are_never_changed(store: Store, trace: Path) -> None:
    before = (trace.read_bytes(), trace.stat().st_mtime_ns)
    store.add(trace)
    assert (trace.read_bytes(), trace.stat().st_mtime_ns) == before
    assert sorted(p.name for p in trace.parent.iterdir()) == ["data", trace.name]


def test_list_and_open_find_complete_profiles_only(store: Store, trace: Path) -> None:
    assert store.list() == []
    profile = store.add(trace)
    (profile.path.parent / "half@latest").mkdir()
    assert [p.id for p in store.list()] == [profile.id]
    assert same_ingest(store.open(profile.id), profile)
    for wrong in ("half", "nothing", "../etc", ".hidden", "a/b", ""):
        with pytest.raises(KeyError):
            store.open(wrong)


def test_a_failed_ingest_leaves_nothing(store: Store, trace: Path) -> None:
    trace.write_text("{}")
    with pytest.raises(FormatError):
        store.add(trace)
    assert [p.name for p in store.root.rglob("*") if p.is_file() and not p.name.endswith(".lock")] == []


CHILD = """
import sys, time
from pathlib import Path
from neuronscope.readers import write
from neuronscope.store import Store
real = write.Writer._write
def slow(self, name, pieces):
    real(self, name, pieces)
    Path(sys.argv[3]).touch()
    time.sleep(60)
if sys.argv[3] != "-":
    write.Writer._write = slow
Store(sys.argv[1]).add(sys.argv[2])
"""


def child(store: Store, trace: Path, marker: Path | str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CHILD, str(store.root), str(trace), str(marker)])


def test_a_killed_ingest_leaves_nothing_visible_and_the_next_one_is_complete(
    store: Store, trace: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "writing"
    process = child(store, trace, marker)
    deadline = time.monotonic() + 60
    while not marker.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert store.list() == []
    profile = store.add(trace)
    assert profile.table("Execution").num_rows == 1
    assert [p.name for p in profile.path.parent.glob(".making-*")] == []


def test_two_processes_at_once_make_one_profile(store: Store, trace: Path) -> None:
    processes = [child(store, trace, "-") for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    (profile,) = store.list()
    assert profile.table("SystemProfileEvents").num_rows == 2
    assert [p.name for p in profile.path.parent.glob(".making-*")] == []


def test_an_absent_table_is_an_empty_one_with_its_columns(store: Store, trace: Path) -> None:
    profile = store.add(trace)
    table = profile.table("Instruction", ["engine", "start_ts"])
    assert (table.num_rows, table.column_names) == (0, ["engine", "start_ts"])
    assert profile.sql("SELECT count(*) AS n FROM Instruction").to_pylist() == [{"n": 0}]
    assert "Instruction" not in profile.tables()
    with pytest.raises(KeyError):
        profile.table("NoSuchTable")


def test_sql_takes_parameters_and_joins_tables(store: Store, trace: Path) -> None:
    query = "SELECT name FROM SystemProfileEvents WHERE duration_ns >= $least ORDER BY name"
    assert store.add(trace).sql(query, {"least": 4_000}).to_pylist() == [{"name": "aten::mm"}]


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO 'out.csv'",
        "CREATE TABLE t AS SELECT 1",
        "SELECT 1; SELECT 2",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'out.csv'",
        "/* */ explain -- it\n (ANALYZE, FORMAT JSON) COPY (SELECT 1) TO 'out.csv'",
        "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT nothing FROM Execution",
        "SELEC",
        "",
    ],
)
def test_sql_can_only_read_this_profile(store: Store, trace: Path, query: str) -> None:
    with pytest.raises(SqlError) as caught:
        store.add(trace).sql(query)
    assert "\n" not in str(caught.value)


def test_sql_that_takes_too_long_is_stopped(store: Store, trace: Path) -> None:
    with pytest.raises(SqlError, match=r"stopped after 0\.2 s"):
        store.add(trace).sql(
            "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range + b.range = 7", timeout_s=0.2
        )


def test_the_default_place_follows_xdg_and_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NEURONSCOPE_DATA_PATH", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_data_path() == tmp_path / "neuronscope"
    monkeypatch.setenv("NEURONSCOPE_DATA_PATH", str(tmp_path / "mine"))
    assert default_data_path() == tmp_path / "mine"


def test_odd_characters_in_paths_are_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / "a=b [c] 'd' *é"
    folder.mkdir()
    path = folder / "t?.json"
    path.write_text(json.dumps(TRACE))
    profile = Store(folder / "store").add(path, name="mine")
    assert profile.sql("SELECT count(*) AS n FROM Execution").to_pylist() == [{"n": 1}]
    assert profile.name == "mine"


def test_another_name_does_not_read_the_source_again(store: Store, trace: Path) -> None:
    first = store.add(trace)
    renamed = store.add(trace, name="baseline")
    assert same_ingest(renamed, first)
    assert renamed.name == "baseline"
    assert [p.name for p in store.list()] == ["baseline"]
    assert store.add(trace).name == "baseline"


def test_a_library_that_cannot_be_written_can_still_be_read(
    store: Store, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.add(trace)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(library, "locked", refuse)
    assert same_ingest(store.add(trace), first)
    trace.write_text(json.dumps({**TRACE, "traceEvents": TRACE["traceEvents"][:1]}))  # type: ignore[index]
    with pytest.raises(library.StoreError, match="cannot be written"):
        store.add(trace)


def test_a_full_disk_is_said_in_one_line_and_leaves_nothing(
    store: Store, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(library, "_write_manifest", full)
    with pytest.raises(library.StoreError, match="no room for the profile"):
        store.add(trace)
    assert [p for p in store.root.rglob("*") if p.is_file() and not p.name.endswith(".lock")] == []


def test_a_replacement_cut_short_keeps_the_old_profile_until_the_new_one_is_made(
    store: Store, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.add(trace)
    left = first.path.parent / f".making-{first.id}-killed"
    left.mkdir()
    first.path.rename(left / "old")  # between the two renames of a replacement
    assert store.list() == []
    assert same_ingest(store.add(trace), first)
    assert [p.name for p in first.path.parent.glob(".making-*")] == []


def test_names_that_are_not_unicode_are_no_obstacle(store: Store, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"t\xff.json")
    path.write_text(json.dumps(TRACE))
    assert store.add(path).source == path
    assert store.list()[0].source == path


def test_tags_survive_another_reading_and_two_writers(store: Store, trace: Path) -> None:
    profile = store.add(trace)
    store.tag(profile, ["a"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.tag(profile, [f"t{number}"]), range(20)))
    assert set(store.notes(profile).tags) == {"a", *(f"t{number}" for number in range(20))}
    trace.write_text(trace.read_text() + " ")
    assert store.notes(store.add(trace)).tags[0] == "a"
    with pytest.raises(TagError):
        store.tag(profile, ["a,b"])


def test_damaged_notes_are_none(store: Store, trace: Path) -> None:
    profile = store.add(trace)
    store.tag(profile, ["a"])
    (profile.path.parent / f".{profile.id}.notes.json").write_text('{"tags": [')
    assert store.notes(profile).tags == ()
    assert store.tag(profile, ["b"]).tags == ("b",)


def test_deleting_says_what_goes_and_leaves_the_original(store: Store, trace: Path) -> None:
    profile = store.add(trace)
    (goes,) = store.what_goes(profile)
    assert goes.path == profile.path
    assert goes.size_bytes == sum(file.stat().st_size for file in profile.path.iterdir())
    assert store.delete(profile.id) == [goes]
    assert trace.exists()
    assert store.list() == []
    with pytest.raises(KeyError):
        store.delete(profile.id)


def test_what_was_uploaded_goes_with_its_profile(store: Store, trace: Path) -> None:
    folder = store.root / "uploads" / "0123"
    folder.mkdir(parents=True)
    shutil.copy(trace, folder)
    profile = store.add(folder / trace.name)
    assert [one.path for one in store.what_goes(profile)] == [profile.path, folder.resolve()]
    store.delete(profile.id)
    assert not folder.exists()
    assert trace.exists()


def test_a_deletion_cut_short_is_finished_by_the_next_reading(store: Store, trace: Path) -> None:
    profile = store.add(trace)
    left = profile.path.parent / f".deleted-{profile.id}-x"
    left.mkdir()
    profile.path.rename(left / "old")
    assert store.list() == []
    assert store.add(trace).result.stored == profile.result.stored
    assert not left.exists()


def test_a_sweep_removes_what_was_killed_and_nothing_that_lives(store: Store, trace: Path) -> None:
    profile = store.add(trace)
    there = profile.path.parent
    for name in (".making-gone-12ab34cd-x1", ".making-busy-12ab34cd-x2", f".deleted-{profile.id}-x3"):
        (there / name).mkdir()
    with library.locked(there / ".busy-12ab34cd.lock"):
        store.sweep()
    assert {path.name for path in there.iterdir() if path.is_dir()} == {profile.path.name, ".making-busy-12ab34cd-x2"}
    assert store.open(profile.id).result.stored == profile.result.stored
