"""Sessions of several processes of one run: one profile, with everything each of them recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from neuronscope.store import Profile

Ingest = Callable[..., Profile]


@pytest.fixture
def run(tmp_path: Path, make_session: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The golden session as two processes recorded at the same time, and an earlier capture of the second."""
    folder = tmp_path / "run"
    for pid, stamps in (
        (4121, ["20260928_120000_000000"]),
        (5000, ["20260928_110000_000000", "20260928_120000_000001"]),
    ):
        for stamp in stamps:
            monkeypatch.setattr(make_session, "PID", pid)
            monkeypatch.setattr(make_session, "TID", pid)
            monkeypatch.setattr(make_session, "STAMP", stamp)
            made = tmp_path / f"made-{pid}-{stamp}"
            make_session.main(made)
            shutil.copytree(made, folder, dirs_exist_ok=True)
    return folder


def test_processes_of_one_run_are_one_profile(ingest: Ingest, golden: Path, run: Path) -> None:
    one, both = ingest(golden), ingest(run)
    for name in ("events_in_file", "stored", "device_slices", "device_time_ns", "processes"):
        assert getattr(both.result, name) == 2 * getattr(one.result, name), name
    assert both.result.ranks == ()
    for table in (
        "SystemProfileEvents",
        "Execution",
        "HostOp",
        "Instruction",
        "DmaPacket",
        "Flow",
        "CpuUsage",
        "Summary",
    ):
        assert both.table(table).num_rows == 2 * one.table(table).num_rows, table
    for table, column in (("SystemProfileEvents", "id"), ("Execution", "execution_id"), ("Instruction", "id"),
                          ("DmaPacketAggregated", "id"), ("Slice", "event_id")):  # fmt: skip
        values = both.table(table)[column].to_pylist()
        assert len(set(values)) == len(values), table
    assert {row.kind for row in both.result.warnings} >= {"several_captures"}


def test_arrows_and_links_stay_inside_their_process(ingest: Ingest, run: Path) -> None:
    profile = ingest(run)
    query = """SELECT count(*) AS n, count(*) FILTER (a.process_id = b.process_id) AS inside FROM Flow
               JOIN SystemProfileEvents a ON a.id = in_id JOIN SystemProfileEvents b ON b.id = out_id
               WHERE in_table = 'SystemProfileEvents' AND out_table = 'SystemProfileEvents'"""
    (row,) = profile.sql(query).to_pylist()
    assert row["n"] == row["inside"] > 0
    query = """SELECT count(*) AS n FROM Instruction i JOIN Execution x USING (execution_id)
               WHERE i.start_ts >= x.start_ts AND i.end_ts <= x.end_ts"""
    assert profile.sql(query).to_pylist() == [{"n": profile.table("Instruction").num_rows}]
    query = """SELECT count(*) AS n FROM Flow f JOIN Instruction i ON i.id = f.in_id WHERE in_table = 'Instruction'"""
    inside = [row for row in profile.table("Flow").to_pylist() if row["in_table"] == "Instruction"]
    assert profile.sql(query).to_pylist() == [{"n": len(inside)}]


def test_ranks_of_the_traces_are_the_ranks(ingest: Ingest, run: Path) -> None:
    for number, trace in enumerate(sorted(run.glob("*/*_12*/trace.json"))):
        document = json.loads(trace.read_text())
        trace.write_text(json.dumps({"distributedInfo": {"rank": 1 - number, "world_size": 2}, **document}))
    profile = ingest(run)
    assert profile.result.ranks == (0, 1)
    assert set(profile.table("Execution")["rank"].to_pylist()) == {0, 1}
