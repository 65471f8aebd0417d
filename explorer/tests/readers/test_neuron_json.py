"""JSON of Neuron tools: an execution on two physical cores counts once, for the time any of them ran."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from neuronscope.store import Profile

Ingest = Callable[..., Profile]


def test_an_export_counts_the_union_over_cores(ingest: Ingest) -> None:
    def row(start: int, duration: int, execution: int, core: int) -> dict[str, Any]:
        return {
            "name": "nc_exec_running", "timestamp": start, "duration": duration, "timestamp_unit": "ns",
            "exec_id": execution, "device_core_idx": core, "lnc_idx": 0, "nc_idx": 0, "process_id": "2",
        }  # fmt: skip

    events = [row(100, 200, 1, 4), row(200, 200, 1, 5), row(2100, 100, 2, 4), row(2400, 100, 2, 5)]
    profile = ingest(json.dumps({"trace_event": events}))
    assert profile.result.format == "neuron-explorer JSON export"
    executions = profile.table("Execution").to_pylist()
    assert [(e["execution_id"], e["duration_ns"], e["physical_cores"]) for e in executions] == [
        (1, 300, 2),
        (2, 200, 2),
    ]
    assert (profile.result.device_time_ns, profile.result.device_busy_ns) == (500, 500)
    assert [t["short"] for t in profile.table("Track").to_pylist()] == ["neuron_hw/NC0:4", "neuron_hw/NC0:5"]


def test_runtime_events_pair_by_tracking_id_and_loose_ends_are_reported(ingest: Ingest) -> None:
    def row(phase: str, tracking: int, at: int, execution: int, core: int) -> dict[str, Any]:
        data = {"exec_id": execution, "device_core_idx": core}
        return {
            "event_type": "nc_exec_running",
            "phase": phase,
            "tracking_id": tracking,
            "nc_idx": 0,
            "timestamp_ns": at,
            "data": data,
        }

    events = [
        row("start", 1, 1000, 1, 4), row("start", 2, 1100, 1, 5),
        row("stop", 1, 1400, 1, 4), row("stop", 2, 1600, 1, 5),
        row("start", 3, 2000, 2, 4), row("stop", 9, 2500, 7, 4),
    ]  # fmt: skip
    profile = ingest(json.dumps({"events": events, "data_version": 2}))
    (execution,) = profile.table("Execution").to_pylist()
    assert (execution["duration_ns"], execution["physical_cores"]) == (600, 2)
    assert {w.kind: w.count for w in profile.result.warnings} == {"unfinished": 1, "stray": 1}
    assert (profile.result.events_in_file, profile.result.stored, profile.result.skipped) == (6, 4, 2)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_damaged_export_shows_the_rows_that_can_be_read(ingest: Ingest, pack: Callable[[bytes], bytes]) -> None:
    row = {"name": "nc_exec_running", "duration": 50, "nc_idx": 0}
    rows = [json.dumps(row | {"timestamp": 100 * i, "exec_id": i}) for i in range(1, 6)]
    rows[1] = rows[1].replace('"duration": 50', '"duration": nan}')
    text = '{"trace_event": [' + ",\n".join(rows)
    profile = ingest(pack(text[:-10].encode()), "system_profile.json")
    result = profile.result
    assert (result.format, result.events_in_file, result.stored, result.skipped) == (
        *("neuron-explorer JSON export", 5, 3, 2),
    )
    assert result.device_time_ns == 150
    (damage,) = [warning for warning in result.warnings if warning.kind == "damaged_json"]
    assert damage.offset == text.index(rows[1])


def test_findings_say_where_the_first_row_is(ingest: Ingest) -> None:
    row = {"name": "nc_exec_running", "timestamp": 1, "duration": 5, "exec_id": 1, "nc_idx": 0}
    text = json.dumps({"trace_event": [row, {**row, "duration": -1, "exec_id": 2}, {"name": "lost"}]})
    found = {w.kind: w.offset for w in ingest(text).result.warnings}
    assert found["negative_duration"] == text.index('{"name"', text.index('{"name"') + 1)
    assert found["skipped"] == text.index('{"name": "lost"}')
    event = {"event_type": "nc_exec_running", "phase": "start", "tracking_id": 1, "timestamp_ns": 100}
    events = [
        event,
        {**event, "phase": "stop", "timestamp_ns": 300},
        {**event, "tracking_id": 2},
        {**event, "phase": "?"},
    ]
    text = json.dumps({"events": events})
    found = {w.kind: w.offset for w in ingest(text).result.warnings}
    assert found["unfinished"] == text.index(json.dumps(events[2]))
    assert found["skipped"] == text.index(json.dumps(events[3]))


def test_a_table_of_rocprof_says_where_the_first_odd_row_is(ingest: Ingest) -> None:
    head = '"Kind","Kernel_Name","Start_Timestamp","End_Timestamp"\r\n'
    good, odd = '"KERNEL_DISPATCH","ä\n<1>",1000,1700\r\n', '"KERNEL_DISPATCH","k",2000,1700\r\n'
    result = ingest("\ufeff" + head + good + odd, "kernels.csv").result
    (row,) = [row for row in result.warnings if row.kind == "negative_duration"]
    assert row.offset == len(("\ufeff" + head + good).encode())
