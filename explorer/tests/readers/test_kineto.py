# ruff: noqa: E501 - rows of JSON stay on their line
"""torch.profiler traces of CUDA and others: links, attribution, gaps, lanes, steps, arrows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from neuronscope.store import Profile

Ingest = Callable[..., Profile]


def x(cat: str, name: str, ts: float, dur: float, pid: int = 100, tid: int = 100, **args: Any) -> dict[str, Any]:
    keys = {key.replace("_", " ") if key == "External_id" else key: value for key, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": keys}


def kernel(name: str, ts: float, dur: float, stream: int = 7, **args: Any) -> dict[str, Any]:
    return x("kernel", name, ts, dur, 0, stream, device=0, stream=stream, **args)


def rows(profile: Profile, table: str) -> list[dict[str, Any]]:
    return profile.table(table).to_pylist()  # type: ignore[no-any-return]


def edges(profile: Profile) -> set[tuple[str, str, str]]:
    query = """SELECT a.name AS source, b.name AS target, dependency_type AS kind FROM Flow
               JOIN SystemProfileEvents a ON a.id = in_id JOIN SystemProfileEvents b ON b.id = out_id"""
    return {(r["source"], r["target"], r["kind"]) for r in profile.sql(query).to_pylist()}


def kinds(profile: Profile) -> dict[str, int]:
    return {row.kind: row.count for row in profile.result.report}


def test_a_synthetic_trace_is_read_exactly(ingest: Ingest, synthetic: ModuleType, tmp_path: Path) -> None:
    expected = synthetic.write(tmp_path / "cuda.json.gz", steps=3, calls=20)
    profile = ingest(tmp_path / "cuda.json.gz")
    result = profile.result
    assert (result.format, result.events_in_file, result.stored, result.repaired, result.skipped) == (
        "torch.profiler trace",
        expected.events,
        expected.events,
        0,
        0,
    )
    assert (result.device_slices, result.device_time_ns) == (expected.kernels, expected.kernel_total_ns)
    assert result.device_busy_ns == expected.kernel_total_ns
    assert (result.processes, result.ranks, result.dropped) == (1, (0,), None)
    executions = rows(profile, "Execution")
    assert executions[-1]["end_ts"] - executions[0]["start_ts"] == expected.span_ns
    assert executions[0]["start_ts"] == synthetic.BASE_NS + synthetic.ORIGIN_US * 1000 + 109_000
    assert [e["op"] for e in executions[:3]] == ["aten::add_out", "aten::mm_out", "aten::mean_out"]
    assert executions[0]["shapes"] == "[4,512] x [512]"
    assert executions[0]["dtypes"] == "BFloat16 x BFloat16"
    assert [e["gap_cause"] for e in executions].count("host_late") == expected.host_late
    assert profile.info["label"] == "real · NVIDIA H100 80GB HBM3"
    assert profile.info["dropped"] == "unknown"


def test_ids_are_dense_and_in_order_of_start(ingest: Ingest, synthetic: ModuleType, tmp_path: Path) -> None:
    synthetic.write(tmp_path / "cuda.json", steps=2, calls=30)
    events = rows(ingest(tmp_path / "cuda.json"), "SystemProfileEvents")
    assert [e["id"] for e in events] == list(range(len(events)))
    starts = [e["start_ts"] for e in events]
    assert starts == sorted(starts)
    assert all(e["end_ts"] - e["start_ts"] == e["duration_ns"] for e in events)


def test_operator_launch_kernel_are_one_chain(ingest: Ingest) -> None:
    profile = ingest(
        [
            x("cpu_op", "aten::mm", 0, 50, External_id=1),
            x("cuda_runtime", "cudaLaunchKernel", 10, 5, External_id=1, correlation=9),
            kernel("gemm", 30, 20, External_id=1, correlation=9),
        ]
    )
    assert edges(profile) == {("aten::mm", "cudaLaunchKernel", "dispatch"), ("cudaLaunchKernel", "gemm", "launch")}
    (flow,) = [f for f in rows(profile, "Flow") if f["dependency_type"] == "launch"]
    assert (flow["in_table"], flow["out_table"], flow["gap_time"]) == (
        "SystemProfileEvents",
        "SystemProfileEvents",
        15_000,
    )


@pytest.mark.parametrize("ids", [{"External_id": 2}, {"correlation": 9}, {}], ids=["torch id", "correlation", "none"])
def test_device_time_is_attributed_by_torch_id_then_correlation(ingest: Ingest, ids: dict[str, int]) -> None:
    profile = ingest(
        [
            x("cpu_op", "aten::linear", 0, 50, External_id=1),
            x("cpu_op", "aten::addmm", 5, 40, External_id=2),
            x("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=9),
            kernel("gemm", 30, 20, **ids),
        ]
    )
    (execution,) = rows(profile, "Execution")
    if ids:
        assert execution["op"] == "aten::addmm"
        assert rows(profile, "SystemProfileEvents")[execution["op_event_id"]]["name"] == "aten::addmm"
    else:
        assert (execution["op"], execution["op_event_id"]) == ("", -1)


def test_self_time_excludes_enclosed_operators_and_is_never_negative(ingest: Ingest) -> None:
    profile = ingest(
        [
            x("cpu_op", "outer", 0, 50),
            x("python_function", "module.py(1): forward", 1, 48),
            x("cpu_op", "inner", 10, 20),
            x("cpu_op", "innermost", 12, 3),
            x("cpu_op", "short", 100, 10),
            x("cpu_op", "outlives", 105, 60),
        ]
    )
    ops = {op["name"]: op for op in rows(profile, "HostOp")}
    assert {name: op["self_cpu_ns"] for name, op in ops.items()} == {
        "outer": 30_000,
        "inner": 17_000,
        "innermost": 3_000,
        "short": 5_000,
        "outlives": 60_000,
    }
    assert ops["innermost"]["parent_id"] == ops["inner"]["event_id"]
    assert ops["outer"]["parent_id"] == -1
    assert kinds(profile)["nesting_violation"] == 1


def test_tracks_follow_the_default_grouping(ingest: Ingest) -> None:
    profile = ingest(
        [
            x("cpu_op", "aten::mm", 0, 50, External_id=1),
            x("cpu_op", "backward", 0, 50, tid=101),
            x("cpu_op", "backward2", 60, 50, tid=100),
            x("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=9),
            kernel("gemm", 30, 20, correlation=9),
            kernel("copy kernel", 30, 20, stream=20),
            x("gpu_user_annotation", "ProfilerStep#1", 30, 20, 0, 7),
            x("Trace", "PyTorch Profiler (0)", 0, 500),
        ]
    )
    tracks = rows(profile, "Track")
    assert [(t["short"], t["kind"]) for t in tracks] == [
        ("framework/TID:100", "framework"),
        ("framework/TID:101", "framework"),
        ("runtime/TID:100", "runtime"),
        ("device/0:Stream7", "device"),
        ("device/0:Stream20", "device"),
        ("device/0:Stream7 annotations", "stream"),
    ]
    assert {t["label"] for t in tracks} == {f"local/PID:100/{t['short']}" for t in tracks}
    assert [t["subtitle"] for t in tracks[:3]] == [
        "dispatch · host, measured",
        "host, measured",
        "runtime calls · host, measured",
    ]
    assert all(t["subtitle"].endswith("recorded") for t in tracks[3:])
    assert profile.result.device_time_ns == 40_000


def test_slices_are_sorted_and_do_not_overlap_in_a_lane(ingest: Ingest, synthetic: ModuleType, tmp_path: Path) -> None:
    synthetic.write(tmp_path / "cuda.json", steps=2, calls=30)
    slices = rows(ingest(tmp_path / "cuda.json"), "Slice")
    keys = [(s["track_id"], s["lane"], s["start_ts"]) for s in slices]
    assert keys == sorted(keys)
    for before, after in itertools.pairwise(slices):
        if (before["track_id"], before["lane"]) == (after["track_id"], after["lane"]):
            assert before["end_ts"] <= after["start_ts"]


def test_overlapping_kernels_of_one_stream_are_both_shown_and_busy_once(ingest: Ingest) -> None:
    profile = ingest([kernel("A", 3, 3.776), kernel("B", 5, 2)])
    assert (profile.result.device_time_ns, profile.result.device_busy_ns) == (5_776, 4_000)
    assert sorted(s["lane"] for s in rows(profile, "Slice")) == [0, 1]


def test_sub_microsecond_kernels_keep_their_nanoseconds(ingest: Ingest) -> None:
    text = ",".join(
        f'{{"ph":"X","cat":"kernel","name":"tiny","pid":0,"tid":7,"ts":{100 + i}.700,"dur":0.200,"args":{{"stream":7}}}}'
        for i in range(5)
    )
    result = ingest(f'{{"schemaVersion":1,"traceEvents":[{text}]}}').result
    assert (result.device_slices, result.device_time_ns) == (5, 1_000)


def test_gaps_name_a_late_host_only_where_the_launch_call_shows_it(ingest: Ingest) -> None:
    profile = ingest(
        [
            x("cuda_runtime", "cudaLaunchKernel", 0, 5, correlation=1),
            x("cuda_runtime", "cudaLaunchKernel", 6, 5, correlation=2),
            x("cuda_runtime", "cudaLaunchKernel", 255, 5, correlation=3),
            kernel("a", 10, 20, correlation=1),
            kernel("b", 32, 18, correlation=2),
            kernel("c", 262, 10, correlation=3),
            kernel("d", 280, 10),
        ]
    )
    assert [(g["end_ts"] - g["start_ts"], g["cause"], g["text"]) for g in rows(profile, "Gap")] == [
        (2_000, "unknown", "2 us idle: cause unknown (the launch call began 24 us before the previous end)"),
        (212_000, "host_late", "212 us idle: host late (next launch call began 205 us after)"),
        (8_000, "unknown", "8 us idle: cause unknown (no launch call in the file)"),
    ]
    assert [e["gap_ns"] for e in rows(profile, "Execution")] == [-1, 2_000, 212_000, 8_000]


def test_a_kernel_before_its_launch_stays_linked_and_is_reported(ingest: Ingest) -> None:
    profile = ingest(
        [x("cuda_driver", "cuLaunchKernelEx", 20, 12, correlation=1), kernel("nccl", 19.2, 90, correlation=1)]
    )
    assert ("cuLaunchKernelEx", "nccl", "launch") in edges(profile)
    assert kinds(profile)["clock_skew"] == 1


def test_shared_and_unused_correlation_ids_are_reported(ingest: Ingest) -> None:
    profile = ingest(
        [
            x("cuda_runtime", "hipLaunchKernel", 5, 2, correlation=1),
            x("cuda_runtime", "hipLaunchKernel", 8, 2, correlation=2),
            kernel("k_a", 20, 5, correlation=1),
            kernel("k_b", 30, 5, stream=8, correlation=1),
        ]
    )
    assert profile.result.device_time_ns == 10_000
    assert kinds(profile)["launch_without_kernel"] == 1
    assert kinds(profile)["shared_correlation"] == 1


def test_without_runtime_events_the_reader_says_so(ingest: Ingest) -> None:
    profile = ingest([kernel("a", 30, 10, correlation=1), kernel("b", 50, 5, correlation=2)])
    assert kinds(profile)["no_runtime_events"] == 1


def test_a_trace_of_the_host_alone_has_no_device_rows(ingest: Ingest) -> None:
    profile = ingest([x("cpu_op", "aten::mm", 0, 50)])
    assert (profile.result.device_slices, profile.info["label"]) == (0, "host only")
    assert profile.table("Execution").num_rows == 0


def test_the_schema_of_torch_1_8_gives_the_same(ingest: Ingest) -> None:
    kernel_row = {
        "ph": "X", "cat": "Kernel", "name": "sgemm", "pid": 0, "tid": "stream 7", "ts": 1615207264504980, "dur": 40,
        "args": {"device": 0, "stream": 7, "correlation": 5, "external id": 34},
    }  # fmt: skip
    launch = x("Runtime", "cudaLaunchKernel", 1615207264504960, 6, 29463, 0, correlation=5)
    op = x("Operator", "aten::mm", 1615207264504950, 30, 29463, 0, External_id=34)
    launch["tid"], op["tid"] = "3239786240", "29463"
    profile = ingest([kernel_row, launch, op])
    (execution,) = rows(profile, "Execution")
    assert (execution["op"], execution["device"], execution["stream_id"], execution["duration_ns"]) == (
        "aten::mm",
        0,
        7,
        40_000,
    )
    assert execution["start_ts"] == 1_615_207_264_504_980_000


def test_steps_end_with_their_device_work_and_the_last_one_without_work_is_partial(ingest: Ingest) -> None:
    profile = ingest(
        [
            x("Trace", "PyTorch Profiler (0)", 0, 1000),
            x("user_annotation", "ProfilerStep#4", 100, 100),
            x("cpu_op", "aten::mm", 110, 20, External_id=1),
            x("cuda_runtime", "cudaLaunchKernel", 115, 5, External_id=1, correlation=1),
            kernel("gemm", 150, 75, External_id=1, correlation=1),
            x("user_annotation", "ProfilerStep#5", 201, 100),
            x("cpu_op", "aten::mm", 210, 20, External_id=2),
            x("user_annotation", "ProfilerStep#6", 302, 5),
        ]
    )
    steps = rows(profile, "Step")
    assert [(s["number"], s["start_ts"], s["end_ts"], s["complete"]) for s in steps] == [
        (4, 100_000, 225_000, True),
        (5, 201_000, 301_000, True),
        (6, 302_000, 307_000, False),
    ]
    assert rows(profile, "Execution")[0]["step"] == 4
    assert [op["step"] for op in rows(profile, "HostOp")] == [4, 5]


def test_device_rows_belong_to_the_process_that_launched_them(ingest: Ingest) -> None:
    profile = ingest(
        [
            x("cuda_runtime", "cudaLaunchKernel", 0, 5, pid=100, correlation=1),
            x("cuda_runtime", "cudaLaunchKernel", 0, 5, pid=200, tid=200, correlation=2),
            kernel("a", 10, 5, correlation=1),
            kernel("b", 10, 5, stream=9, correlation=2),
        ]
    )
    assert [(e["name"], e["process_id"]) for e in rows(profile, "Execution")] == [("a", 100), ("b", 200)]
    assert profile.result.processes == 2


# Plain chrome traces


def test_parents_written_after_children_nest(ingest: Ingest) -> None:
    text = '[{"dur": 1222.31, "name": "child", "ph": "X", "tid": 2, "ts": 38538.161}, {"dur": 2490.403, "name": "parent", "ph": "X", "tid": 2, "ts": 37747.046}]'
    profile = ingest(text)
    names = {e["id"]: e["name"] for e in rows(profile, "SystemProfileEvents")}
    assert {names[s["event_id"]]: s["lane"] for s in rows(profile, "Slice")} == {"parent": 0, "child": 1}
    assert profile.result.format == "chrome trace"


def test_begin_and_end_rows_pair_per_thread_and_async_ones_per_name(ingest: Ingest) -> None:
    def row(ph: str, name: str, ts: int, **more: Any) -> dict[str, Any]:
        return {"ph": ph, "name": name, "cat": "c", "ts": ts, "pid": 1, "tid": 1, **more}

    profile = ingest(
        [
            row("B", "outer", 0), row("B", "inner", 2), row("E", "inner", 5), row("E", "outer", 9), row("E", "stray", 10),
            row("b", "one", 0, id="1"), row("e", "one", 3, id="1"), row("b", "two", 1, id="1"), row("e", "two", 4, id="1"),
            row("b", "open", 7, id="1"),
        ]
    )  # fmt: skip
    durations = {e["name"]: e["duration_ns"] for e in rows(profile, "SystemProfileEvents")}
    assert durations == {"outer": 9_000, "inner": 3_000, "one": 3_000, "two": 3_000, "open": 0}
    assert (profile.result.events_in_file, profile.result.repaired, profile.result.skipped) == (10, 1, 1)
    assert (kinds(profile)["unmatched_pair"], kinds(profile)["unfinished"]) == (1, 1)


def test_arrows_bind_by_id_of_any_type_and_dangling_ends_are_counted(ingest: Ingest) -> None:
    def flow(ph: str, ts: float, number: Any) -> dict[str, Any]:
        return {"ph": ph, "name": "f", "cat": "ipc", "ts": ts, "pid": 1, "tid": 1, "id": number}

    slices = [x("", "first", 0, 100, 1, 1), x("", "second", 200, 100, 1, 1), x("", "third", 400, 100, 1, 1)]
    profile = ingest(
        [
            *slices,
            flow("s", 99, "id42"), flow("t", 201, "id42"),
            flow("s", 250, "1747103412345678120"), flow("f", 450, "1747103412345678120"),
            flow("s", 260, "1747103412345678121"),
            flow("s", 20, 7), flow("f", 999, 7),
        ]
    )  # fmt: skip
    assert edges(profile) == {("first", "second", "ipc"), ("second", "third", "ipc")}
    assert kinds(profile)["unmatched_flow"] == 1
    assert kinds(profile)["unbound_flow"] == 1


def test_process_ids_above_32_bits_and_texts_are_processes(ingest: Ingest) -> None:
    first, second = x("", "a", 1, 5, 7168000000, 1), x("", "b", 1, 5, 0, 1)
    third = {**x("", "c", 1, 5), "pid": "CPU functions", "tid": 1}
    profile = ingest([first, second, third])
    groups = {t["group_label"] for t in rows(profile, "Track")}
    assert groups == {"local/PID:7168000000", "local/PID:0", "local/PID:CPU functions"}
    assert profile.result.processes == 3


def test_ascend_device_work_is_linked_by_its_arrows(ingest: Ingest) -> None:
    def arrow(ph: str, pid: int, tid: int, ts: str) -> dict[str, Any]:
        row = {"ph": ph, "bp": "e", "name": "torch_to_npu", "id": "1747103412345678120", "pid": pid, "tid": tid}
        return {**row, "ts": ts, "cat": "async_npu"}

    profile = ingest(
        [
            {"ph": "M", "name": "process_name", "pid": 4, "args": {"name": "Ascend Hardware"}},
            {**x("cpu_op", "aten::add", 0, 40.5, 2, 2), "ts": "1747103412345678.120"},
            {
                **x("", "Add_kernel", 0, 7.25, 4, 6),
                "ts": "1747103412345700.999",
                "args": {"Task Type": "AI_CORE", "Stream Id": 6},
            },
            arrow("s", 2, 2, "1747103412345678.120"),
            arrow("f", 4, 6, "1747103412345700.999"),
        ]
    )
    (execution,) = rows(profile, "Execution")
    (op,) = rows(profile, "HostOp")
    assert (execution["op"], execution["stream_id"], execution["device"]) == ("aten::add", 6, 0)
    assert execution["start_ts"] - op["start_ts"] == 22_879
    assert edges(profile) == {("aten::add", "Add_kernel", "launch")} or (
        "aten::add",
        "Add_kernel",
        "async_npu",
    ) in edges(profile)


def test_instants_counters_and_memory_rows_are_kept_for_queries(ingest: Ingest) -> None:
    memory = {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "s": "t",
        "pid": 1,
        "tid": 1,
        "ts": 5,
        "args": {"Bytes": 4},
    }
    counter = {"ph": "C", "name": "queue", "pid": 1, "tid": 1, "ts": 6, "args": {"depth": 2}}
    profile = ingest([x("cpu_op", "aten::mm", 0, 50), memory, counter])
    assert profile.table("Slice").num_rows == 1
    query = "SELECT name, extra_attributes_json->>'$.Bytes' AS b FROM SystemProfileEvents WHERE duration_ns = 0 ORDER BY name"
    assert profile.sql(query).to_pylist() == [{"name": "[memory]", "b": "4"}, {"name": "queue", "b": None}]
