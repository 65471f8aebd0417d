"""The golden session directory, read without torch; and what its damage or absence of files leaves."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from neuronscope.formats import container
from neuronscope.readers import detect
from neuronscope.store import Profile, Store

Ingest = Callable[..., Profile]


def rows(profile: Profile, table: str) -> list[dict[str, Any]]:
    return profile.table(table).to_pylist()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def profile(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return Store(tmp_path_factory.mktemp("store")).add(golden)


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Path:
    """A session directory that a test may change."""
    shutil.copytree(golden, tmp_path / "out")
    (directory,) = (tmp_path / "out").glob("*/*")
    return directory


def test_the_checked_in_session_is_what_its_script_writes(
    make_session: ModuleType, golden: Path, tmp_path: Path
) -> None:
    make_session.main(tmp_path)
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    checked_in = {p.relative_to(golden): p.read_bytes() for p in golden.rglob("*") if p.is_file()}
    assert written.keys() == checked_in.keys()
    assert [str(p) for p in written if written[p] != checked_in[p]] == []
    assert sum(len(data) for data in checked_in.values()) < 200_000


def test_session_parent_and_output_folder_find_the_same_session(golden: Path) -> None:
    (parent,) = golden.iterdir()
    (directory,) = parent.iterdir()
    assert {detect(path).source for path in (golden, parent, directory)} == {directory}


def test_every_event_is_accounted_for(profile: Profile) -> None:
    result = profile.result
    assert (result.format, result.stored, result.repaired, result.skipped, result.dropped) == (
        "neuronscope session",
        result.events_in_file,
        0,
        0,
        0,
    )
    assert result.merged == 6  # kernel rows of trace.json
    assert result.warnings == ()


def test_lanes_are_those_of_the_walk_through(profile: Profile) -> None:
    prefix = "i-emulated00c0ffee/PID:4121"
    assert [(t["label"], t["kind"], t["provenance"], t["physical_core"]) for t in rows(profile, "Track")] == [
        (f"{prefix}/framework/TID:4121", "framework", "measured", -1),
        (f"{prefix}/framework/Stream:0", "stream", "emulated", -1),
        (f"{prefix}/neuron_rt/NC:0", "runtime", "measured", -1),
        (f"{prefix}/neuron_hw/NC0:4", "device", "emulated", 4),
        (f"{prefix}/neuron_hw/NC0:5", "device", "emulated", 5),
        (f"{prefix}/neuron_hw/NC0:transfers", "copy", "emulated", -1),
    ]


def test_an_execution_is_counted_once_though_two_cores_run_it(profile: Profile, make_session: ModuleType) -> None:
    executions = [e for e in rows(profile, "Execution") if e["kind"] == "exec"]
    calls = make_session.CALLS
    assert [(e["op"], e["program_ns"], e["estimated_ns"], e["physical_cores"]) for e in executions] == [
        (c.op, c.program_ns, c.estimated_ns, 2) for c in calls
    ]
    assert all(e["duration_ns"] == e["launch_ns"] + e["program_ns"] == e["end_ts"] - e["start_ts"] for e in executions)
    assert profile.result.device_time_ns == sum(385_000 + c.program_ns for c in calls) + make_session.COPY_NS
    assert profile.result.device_busy_ns == profile.result.device_time_ns
    running = [e for e in rows(profile, "SystemProfileEvents") if e["name"] == "nc_exec_running"]
    assert [e["pcore_idx"] for e in running] == [4, 5] * 6
    assert [e["provenance"] for e in executions].count("estimated") == 1


def test_facts_of_the_launch_come_through(profile: Profile) -> None:
    first = rows(profile, "Execution")[0]
    assert (first["shapes"], first["dtypes"], first["module_path"], first["source"], first["step"]) == (
        "[4,512] x [4,512]",
        "bf16 x bf16",
        "norm",
        "naive.py:17",
        3,
    )
    assert (first["bytes_read"], first["bytes_written"], first["flops"], first["overload"]) == (
        8192,
        4096,
        2048,
        "aten::mul.Tensor",
    )
    op = rows(profile, "SystemProfileEvents")[first["op_event_id"]]
    assert (op["name"], op["trace_event_source"]) == ("aten::mul", "framework")


def test_the_chain_leads_from_the_operator_to_both_cores(profile: Profile) -> None:
    events = {e["id"]: e for e in rows(profile, "SystemProfileEvents")}
    first = rows(profile, "Execution")[0]
    after: dict[int, list[int]] = {}
    for flow in rows(profile, "Flow"):
        after.setdefault(flow["in_id"], []).append(flow["out_id"])
        assert flow["gap_time"] == events[flow["out_id"]]["start_ts"] - events[flow["in_id"]]["end_ts"]
    level, chain = [first["op_event_id"]], []
    while level:
        chain.append([(events[i]["name"], events[i]["trace_event_source"]) for i in level])
        level = sorted(itertools.chain.from_iterable(after.get(i, []) for i in level))
    assert chain == [
        [("aten::mul", "framework")],
        [("aten::mul.Tensor", "framework")],
        [("aten::mul.Tensor", "framework")],
        [("nrta_execute_schedule", "neuron_rt")],
        [("nc_exec_running", "neuron_hw")] * 2,
    ]
    assert {tuple(e["flow_id"]) for e in events.values() if e["name"] == "nc_exec_running"} == {
        (str(i),) for i in range(101, 107)
    }


def test_the_scalars_copy_has_its_own_chain_and_lane(profile: Profile, make_session: ModuleType) -> None:
    (copied,) = [e for e in rows(profile, "Execution") if e["kind"] == "host_copy"]
    assert (copied["op"], copied["duration_ns"], copied["bytes_written"]) == ("aten::add", make_session.COPY_NS, 2)
    event = rows(profile, "SystemProfileEvents")[copied["event_id"]]
    assert (event["name"], event["start_ts"]) == ("memcpy_h2d", copied["start_ts"])


def test_gaps_come_with_the_recorded_cause_once_per_core(profile: Profile) -> None:
    gaps = rows(profile, "Gap")
    assert {(g["end_ts"] - g["start_ts"], g["cause"], g["text"]) for g in gaps} == {
        (11_500, "execution_gap", "11.5 us idle: fixed gap between two executions")
    }
    tracks = {t["track_id"]: t["short"] for t in rows(profile, "Track")}
    shown = [tracks[g["track_id"]] for g in gaps]
    assert (shown.count("neuron_hw/NC0:4"), shown.count("neuron_hw/NC0:5")) == (5, 5)
    assert rows(profile, "Execution")[0]["gap_cause"] == "first"


def test_slices_carry_the_launch_split_and_the_estimate_mark(profile: Profile) -> None:
    query = """SELECT short, launch_ns, estimated, n.name AS op FROM Slice JOIN Track USING (track_id)
               JOIN Name n ON n.name_id = op_id WHERE kind = 'device' ORDER BY short, start_ts"""
    found = profile.sql(query).to_pylist()
    assert [f["launch_ns"] for f in found] == [385_000] * 12
    assert [f["estimated"] for f in found] == [False, False, True, False, False, False] * 2
    assert [f["op"] for f in found[:6]] == [
        "aten::mul",
        "aten::mean",
        "aten::add",
        "aten::rsqrt",
        "aten::mul",
        "aten::mul",
    ]


def test_a_timeline_of_the_first_file_version_opens(ingest: Ingest, copy: Path, golden: Path, profile: Profile) -> None:
    (timeline,) = copy.rglob("*.ntff")
    timeline.write_bytes((golden.parent / "version_1.ntff").read_bytes())
    old = ingest(copy)
    assert not [row for row in old.result.report if row.kind == "unreadable_file"]
    columns = ("start_ts", "end_ts", "engine", "opcode", "raw_flops")
    assert [[r[c] for c in columns] for r in rows(old, "Instruction")] == [
        [r[c] for c in columns] for r in rows(profile, "Instruction")
    ]


def test_device_tables_lay_each_program_at_its_executions(profile: Profile, make_session: ModuleType) -> None:
    instructions = rows(profile, "Instruction")
    starts = [when["start"] + 385_000 + 1_500 for when in make_session.timeline()]
    assert [i["start_ts"] for i in instructions] == starts
    assert {(i["engine"], i["opcode"], i["duration_ns"], i["evt_wait_time_ns"]) for i in instructions} == {
        ("Vector", "tensor_tensor", 300, 1_400)
    }
    transfers = rows(profile, "DmaPacketAggregated")
    assert len(transfers) == 12
    assert transfers[0]["queue_type"] == "input"
    assert transfers[0]["completion"] - transfers[0]["start_ts"] == 1_000
    assert [e["row_count"] for e in rows(profile, "ExecutionInfo")] == [1] * 6
    assert len(rows(profile, "DeviceProfileList")) == 6
    (metadata,) = rows(profile, "Metadata")
    assert (metadata["num_physical_cores"], metadata["is_simulation"], metadata["profile_schema_version"]) == (
        2,
        True,
        "7.4.0",
    )


def test_host_samples_are_kept(profile: Profile) -> None:
    assert [(r["cpu_id"], r["util_percent"]) for r in rows(profile, "CpuUsage")] == [("0", 50.0), ("average", 25.0)]
    assert {r["used_percent"] for r in rows(profile, "HostMemUsage")} == {6.25}


def test_the_profile_says_what_made_it(profile: Profile) -> None:
    wanted = {
        "label": "emulated · trn2",
        "emulated": "true",
        "target": "trn2",
        "target_hash": "0123456789abcdef",
        "dropped": "0",
        "lnc": "2",
        "host_model": "measured",
        "device_cost_ns.launch_cost": "385000",
        "device_cost_status.launch_latency": "estimated",
    }
    assert {key: profile.info.get(key) for key in wanted} == wanted


def test_the_schema_describes_every_written_table(profile: Profile) -> None:
    described: dict[str, list[str]] = {}
    for row in rows(profile, "SchemaFields"):
        described.setdefault(row["table_name"], []).append(row["field_name"])
    assert described.keys() == profile.tables().keys()
    for name in profile.tables():
        assert profile.table(name).column_names == described[name]


def test_the_step_holds_its_device_work(profile: Profile, make_session: ModuleType) -> None:
    (step,) = rows(profile, "Step")
    assert (step["number"], step["complete"]) == (3, True)
    assert step["end_ts"] >= make_session.timeline()[-1]["end"]


def test_trace_json_alone_gives_the_same_executions(ingest: Ingest, copy: Path, profile: Profile) -> None:
    alone = ingest(copy / "trace.json")
    keys = (
        "execution_id",
        "op",
        "overload",
        "neff",
        "start_ts",
        "end_ts",
        "launch_ns",
        "program_ns",
        "estimated_ns",
        "shapes",
        "step",
    )
    expected = [{key: e[key] for key in keys} for e in rows(profile, "Execution") if e["kind"] == "exec"]
    assert [{key: e[key] for key in keys} for e in rows(alone, "Execution")] == expected
    assert alone.info["label"] == "emulated · trn2"
    costs = {key: value for key, value in profile.info.items() if key.startswith("device_cost")}
    assert costs and {key: alone.info.get(key) for key in costs} == costs
    assert [t["short"] for t in rows(alone, "Track")] == ["framework/TID:4121", "framework/Stream:0", "neuron_hw/NC0"]
    assert alone.table("Flow").num_rows > 18


def test_without_execution_rows_the_device_interaction_gives_the_times(
    ingest: Ingest, copy: Path, profile: Profile
) -> None:
    document = json.loads((copy / "trace.json").read_text())
    document["traceEvents"] = [e for e in document["traceEvents"] if e.get("cat") != "kernel"]
    folded = ingest(json.dumps(document))
    times = [(e["start_ts"], e["end_ts"]) for e in rows(profile, "Execution") if e["kind"] == "exec"]
    found = [(e["start_ts"], e["end_ts"]) for e in rows(folded, "Execution")]
    assert len(found) == len(times)
    # json.loads made floats of the times, so a quarter of a microsecond may be lost; the split is exact.
    assert all(abs(a - b) < 300 for pair in zip(found, times, strict=True) for a, b in zip(*pair, strict=True))
    assert [e["launch_ns"] for e in rows(folded, "Execution")] == [385_000] * 6


def test_a_session_without_trace_json_still_has_its_device(ingest: Ingest, copy: Path) -> None:
    (copy / "trace.json").unlink()
    profile = ingest(copy)
    executions = rows(profile, "Execution")
    assert next(e["op"] for e in executions if e["kind"] == "exec") == "aten::mul"
    assert {t["kind"] for t in rows(profile, "Track")} == {"runtime", "device", "copy"}
    assert profile.result.merged == 0


def test_a_session_recorded_with_device_alone_is_found_and_says_what_made_it(ingest: Ingest, copy: Path) -> None:
    for name in ("trace_info.pb", "ntrace.pb", "cpu_util.pb", "host_mem.pb"):
        (copy / name).unlink()
    profile = ingest(copy.parents[1])
    assert (profile.info["format"], profile.info["target"]) == ("neuronscope session", "trn2")
    assert sum(e["kind"] == "exec" for e in rows(profile, "Execution")) == 6
    assert rows(profile, "Instruction")


def test_one_physical_core_per_logical_core_gives_one_hardware_lane(ingest: Ingest, copy: Path) -> None:
    read = container.read(copy / "ntrace.pb")
    events = read.tables["events"]
    one = events.filter([core != 5 for core in events["pcore_idx"].to_pylist()])
    facts = dataclasses.replace(read.session, lnc=1)
    container.write(copy / "ntrace.pb", "ntrace", facts, {"executions": read.tables["executions"], "events": one})
    profile = ingest(copy)
    assert [t["short"] for t in rows(profile, "Track") if t["kind"] == "device"] == ["neuron_hw/NC0:4"]
    executions = [e for e in rows(profile, "Execution") if e["kind"] == "exec"]
    assert (len(executions), {e["physical_cores"] for e in executions}) == (6, {1})


def test_lost_events_are_said(ingest: Ingest, copy: Path) -> None:
    for name in ("trace_info.pb", "ntrace.pb"):
        read = container.read(copy / name)
        facts = dataclasses.replace(read.session, dropped_events={0: 5, 1: 2}, unfinished_executions=3)
        container.write(copy / name, read.kind, facts, read.tables)
    result = ingest(copy).result
    assert result.dropped == 7
    assert {w.kind: w.count for w in result.warnings} == {"dropped": 7, "unfinished_executions": 3}


def test_a_damaged_file_is_named_and_the_rest_is_shown(ingest: Ingest, copy: Path) -> None:
    (copy / "profile_nc_0_session_7.ntff").write_bytes(b"\x00garbage")
    (copy / "cpu_util.pb").write_bytes(b"")
    profile = ingest(copy)
    assert profile.result.device_slices == 7
    assert profile.table("Instruction").num_rows == 0
    assert {w.file for w in profile.result.warnings if w.kind == "unreadable_file"} == {
        "profile_nc_0_session_7.ntff",
        "cpu_util.pb",
    }


def test_a_foreign_session_shows_its_trace_and_what_to_run(ingest: Ingest, copy: Path) -> None:
    for path in copy.iterdir():
        if path.name != "trace.json":
            path.write_bytes(b"\x0a\x03foo\x12\x03bar")
    profile = ingest(copy)
    (row,) = [w for w in profile.result.warnings if w.kind == "foreign_session"]
    assert "neuron-explorer view -d" in row.message
    assert profile.result.device_slices == 6


def test_of_several_sessions_the_newest_is_taken_and_said(ingest: Ingest, copy: Path) -> None:
    newer = copy.parent / "20260928_130000_000000"
    shutil.copytree(copy, newer)
    profile = ingest(copy.parent.parent)
    assert profile.source == newer.resolve()
    (row,) = profile.result.warnings
    assert (row.kind, row.count) == ("several_sessions", 1)
    assert copy.name in row.message
