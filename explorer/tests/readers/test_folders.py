"""Folders as tools leave them: which files of them are the profile, and of which rank or host each is."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from neuronscope.formats.errors import FormatError
from neuronscope.store import Profile

Ingest = Callable[..., Profile]

KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2,
          "args": {"device": 0, "stream": 7}}  # fmt: skip
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [KERNEL]})
JAX = gzip.compress(
    json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "name": "f"}]}).encode()
)


@pytest.fixture
def lay(tmp_path: Path) -> Callable[..., Path]:
    """A folder with these files."""

    def write(**files: str | bytes) -> Path:
        for name, content in files.items():
            path = tmp_path / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / "in"

    return write


RANKS: dict[str, tuple[dict[str, str], tuple[int, ...]]] = {
    "names": ({"rank0.json": TRACE, "rank1.json": TRACE}, (0, 1)),
    "upper case": ({"RANK_2.json": TRACE, "RANK_5.json": TRACE}, (2, 5)),
    "workers": ({"worker0.pt.trace.json": TRACE, "worker1.pt.trace.json": TRACE}, (0, 1)),
    "folders": ({"rank_0/trace.json": TRACE, "rank_1/trace.json": TRACE, "settings.json": "{}"}, (0, 1)),
    "Ascend": (
        {
            "a_ascend_pt/profiler_info_0.json": "{}",
            "a_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json": TRACE,
            "b_ascend_pt/profiler_info_1.json": "{}",
            "b_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json": TRACE,
        },
        (0, 1),
    ),
}


@pytest.mark.parametrize("case", RANKS)
def test_ranks_are_found_where_tools_tell_them(ingest: Ingest, lay: Callable[..., Path], case: str) -> None:
    files, ranks = RANKS[case]
    result = ingest(lay(**files)).result
    assert (result.ranks, result.events_in_file, result.device_time_ns) == (ranks, 2, 4_000)


@pytest.mark.parametrize("whole", [True, False])
def test_ranks_of_which_only_instants_are_left_open(ingest: Ingest, lay: Callable[..., Path], whole: bool) -> None:
    instant = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 7}
    rest = json.dumps({"schemaVersion": 1, "traceEvents": [instant]})
    result = ingest(lay(**{"rank0.json": TRACE if whole else rest, "rank1.json": rest})).result
    assert (result.ranks, result.events_in_file, result.stored) == ((0, 1), 2, 2)
    assert result.device_time_ns == (2_000 if whole else 0)


def test_settings_above_a_trace_do_not_hide_it(ingest: Ingest, lay: Callable[..., Path]) -> None:
    output = "h_1_ascend_pt/ASCEND_PROFILER_OUTPUT"
    files = {f"{output}/trace_view.json": TRACE, "h_1_ascend_pt/profiler_info.json": '{"config": {}}',
             f"{output}/kernel_details.csv": "Name,Start Time(us)\na,1\n"}  # fmt: skip
    assert ingest(lay(**files)).result.device_slices == 1


def test_hosts_of_a_jax_run_are_one_profile_and_its_copy_is_left(ingest: Ingest, lay: Callable[..., Path]) -> None:
    run = "plugins/profile/2026_01_01"
    one = ingest(
        lay(**{f"{run}/h1.trace.json.gz": JAX, f"{run}/perfetto_trace.json.gz": JAX, f"{run}/h1.xplane.pb": b"\n"})
    )
    assert (one.result.events_in_file, one.result.warnings) == (1, ())
    both = ingest(lay(**{f"{run}/h2.trace.json.gz": JAX}))
    assert (both.result.events_in_file, both.result.ranks) == (2, ())
    assert {row["group_label"].split("/")[0] for row in both.table("Track").to_pylist()} == {"h1", "h2"}


def test_two_captures_of_one_process_are_not_mixed(ingest: Ingest, lay: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match="2 profiles in it"):
        ingest(lay(**{f"host_123.{at}.pt.trace.json": TRACE for at in (1700000000000, 1700000001000)}))


ROW = {"name": "nc_exec_running", "timestamp": 1000, "duration": 300, "exec_id": 1, "device_core_idx": 0, "nc_idx": 0,
       "instance_id": "i-1", "process_id": "7"}  # fmt: skip


@pytest.mark.parametrize("other", [{"instance_id": "i-2"}, {"process_id": "8"}], ids=["instance", "process"])
def test_executions_of_other_machines_and_processes_are_their_own(ingest: Ingest, other: dict[str, Any]) -> None:
    result = ingest(json.dumps({"trace_event": [ROW, {**ROW, **other, "timestamp": 1100}]})).result
    assert (result.device_slices, result.device_time_ns, result.processes) == (2, 600, 2)
    assert ("several_instances" in {row.kind for row in result.warnings}) == ("instance_id" in other)


def test_times_of_an_export_may_have_another_unit(ingest: Ingest) -> None:
    row = {**ROW, "timestamp": 1.5, "duration": 0.3, "timestamp_unit": "us"}
    profile = ingest(json.dumps({"trace_event": [row]}))
    (execution,) = profile.table("Execution").to_pylist()
    assert (execution["start_ts"], execution["duration_ns"]) == (1_500, 300)


def test_runtime_events_may_be_a_bare_list(ingest: Ingest) -> None:
    start = {
        "event_type": "nc_exec_running",
        "phase": "start",
        "tracking_id": 1,
        "timestamp_ns": 100,
        "data": {"exec_id": 1},
    }
    result = ingest(json.dumps([start, {**start, "phase": "stop", "timestamp_ns": 700}])).result
    assert (result.format, result.device_time_ns) == ("Neuron runtime events", 600)


def test_a_compressed_table_of_rocprof_opens(ingest: Ingest) -> None:
    text = '"Kind","Kernel_Name","Start_Timestamp","End_Timestamp"\n"KERNEL_DISPATCH","axpy",1000,1700\n'
    assert ingest(gzip.compress(text.encode()), "kernels.csv.gz").result.device_time_ns == 700
