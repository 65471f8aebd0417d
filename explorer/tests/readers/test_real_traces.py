"""Public traces of real accelerators, laid beside the checkout where tests run in full; figures from their index."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from neuronscope.formats.errors import FormatError
from neuronscope.store import Profile, Store

sys.path.insert(0, str(Path(__file__).parent))
import account  # type: ignore[import-not-found]

TRACES = Path(__file__).parents[4] / "shared" / "traces"
pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the shared traces are not laid beside this checkout (../shared/traces)"
)


@functools.cache
def index(name: str) -> list[dict[str, Any]]:
    path = TRACES / name
    return json.loads(path.read_text()) if path.is_file() else []  # type: ignore[no-any-return]


def add(path: Path, tmp_path: Path) -> Profile:
    profile = Store(tmp_path).add(path)
    account.check(profile.result, profile.path, path.read_bytes())
    return profile


@pytest.mark.parametrize("entry", index("real/index.json"), ids=lambda e: Path(e["file"]).name)
def test_a_real_trace_gives_its_exact_figures(entry: dict[str, Any], tmp_path: Path) -> None:
    profile = add(TRACES / entry["file"], tmp_path)
    result = profile.result
    assert (result.events_in_file, result.stored, result.repaired) == (entry["events"], entry["events"], 0)
    exact = entry["exact"]
    if exact is None:
        return
    executions = profile.table("Execution")
    kernels = executions.filter(pc.equal(executions["kind"], "exec"))
    assert kernels.num_rows == exact["kernels"]
    assert (pc.sum(kernels["duration_ns"]).as_py() or 0) == exact["kernel_total_ns"]
    assert len(set(kernels["name"].to_pylist())) == exact["distinct_kernels"]
    assert (result.device_slices, result.device_busy_ns) == (
        exact["gpu_events"],
        sum(exact["gpu_busy_union_ns"].values()),
    )
    assert profile.table("HostOp").num_rows == exact["cpu_op"]
    assert sorted(profile.table("Step")["name"].to_pylist()) == exact["steps"]
    query = """SELECT name, count(*) AS n, sum(duration_ns)::BIGINT AS ns FROM Execution WHERE kind = 'exec'
               GROUP BY name ORDER BY ns DESC, name LIMIT 5"""
    found = [(row["n"], row["ns"]) for row in profile.sql(query).to_pylist()]
    assert found == [(count, ns) for _, count, ns in exact["top5"]]


def test_bert_on_an_h100_is_idle_most_of_the_time(tmp_path: Path) -> None:
    path = TRACES / "real" / "h100_bert_small.json.gz"
    if not path.is_file():
        pytest.skip("this trace is not among the shared ones")
    profile = add(path, tmp_path)
    executions = profile.table("Execution").to_pylist()
    kernels = [e for e in executions if e["kind"] == "exec"]
    span = max(e["end_ts"] for e in executions) - min(e["start_ts"] for e in executions)
    assert (len(kernels), sum(e["duration_ns"] for e in kernels) // 1000, round(span / 1000)) == (60, 307, 3908)
    assert all(e["op"] for e in executions)
    causes = [e["gap_cause"] for e in executions]
    assert causes.count("host_late") > 50


@pytest.mark.parametrize("entry", index("odd/expectations.json"), ids=lambda e: e["file"])
def test_an_odd_file_gives_what_its_user_expects(entry: dict[str, Any], tmp_path: Path) -> None:
    expect = entry["expect"]
    path = TRACES / "odd" / entry["file"]
    if expect["load"] == "error":
        with pytest.raises(FormatError):
            add(path, tmp_path)
        return
    profile = add(path, tmp_path)
    result = profile.result
    executions = profile.table("Execution").to_pylist()
    kernels = [e for e in executions if e["kind"] == "exec"]
    slices = profile.table("Slice").to_pylist()
    events = profile.table("SystemProfileEvents").to_pylist()
    kinds = {row.kind: row.count for row in result.report}
    reported = sum(kinds.get(kind, 0) for kind in ("negative_duration", "unfinished", "stray"))
    clean = result.repaired + result.skipped == reported
    total = sum(s["end_ts"] - s["start_ts"] for s in slices)
    loaded = {"ok": clean, "repair": result.repaired > 0}.get(expect["load"], not clean)
    measured = {
        "load": expect["load"] if loaded else "not so",
        "events": result.stored,
        "kernels": len(kernels),
        "executions": len(executions),
        "memcpy": sum(e["kind"] == "memcpy" for e in executions),
        "slices": len(slices),
        "flows": kinds.get("arrows", 0),
        "kernel_us": sum(e["duration_ns"] for e in kernels) / 1000,
        "busy_us": result.device_busy_ns / 1000,
        "total_us": total / 1000,
        "linked": sum(e["op_event_id"] >= 0 for e in kernels),
        "negative_launch_delay": kinds.get("clock_skew"),
        "nesting_violations": kinds.get("nesting_violation"),
        "processes": result.processes,
        "unfinished": kinds.get("unfinished"),
        "stray": kinds.get("stray"),
        "union_ms": [e["duration_ns"] / 1e6 for e in executions],
        "delta_ns": max((e["start_ts"] for e in events), default=0) - min((e["start_ts"] for e in events), default=0),
        "depth": {events[s["event_id"]]["name"]: s["lane"] for s in slices},
        "dur": {e["name"]: e["duration_ns"] / 1000 for e in events},
    }
    bounds = {
        "events_min",
        "slices_min",
        "total_min_us",
        "span_us_max",
        "name_contains",
        "comm",
        "comm_us",
        "overlap_us",
    }
    for key, value in expect.items():
        if key not in bounds:
            assert measured[key] == value, key
    assert result.stored >= expect.get("events_min", 0)
    assert len(slices) >= expect.get("slices_min", 0)
    assert total / 1000 >= expect.get("total_min_us", 0)
    assert any(expect.get("name_contains", "") in e["name"] for e in events)
    if "span_us_max" in expect:
        assert max(s["end_ts"] for s in slices) - min(s["start_ts"] for s in slices) <= expect["span_us_max"] * 1000
    communication = [e for e in kernels if "ccl" in e["name"].lower()]
    assert len(communication) == expect.get("comm", len(communication))
