"""What of a trace file is neither slice nor instant stays to be had, and findings say where in the file they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from neuronscope.store import Profile

Ingest = Callable[..., Profile]


def x(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, **more}


def kernel(name: str, ts: float, correlation: int, dur: float = 5) -> dict[str, Any]:
    ids = {"correlation": correlation, "device": 0, "stream": 7}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": ids}


def call(ts: float, correlation: int) -> dict[str, Any]:
    return x("cudaLaunchKernel", ts, 3, cat="cuda_runtime", args={"correlation": correlation})


def arrow(phase: str, number: Any, ts: float, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "id": number, "cat": "dep", "name": "dep", "pid": 1, "tid": 1, "ts": ts, **more}


def others(profile: Profile) -> list[tuple[str, str, Any]]:
    rows = [row for row in profile.table("OtherEvent").to_pylist() if row["kind"] != "head"]
    return [(row["phase"], row["name"], json.loads(row["arguments"] or "null")) for row in rows]


def test_metadata_keeps_all_it_says(ingest: Ingest) -> None:
    rows = [
        {"ph": "M", "name": "process_labels", "pid": 1, "tid": 0, "args": {"labels": "GPU 0"}},
        {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 3, "args": {"sort_index": 7}},
        {"ph": "M", "name": "num_cpus", "cat": "__metadata", "pid": 1, "tid": 0, "ts": 0, "args": {"number": 64}},
    ]
    found = others(ingest([x("a", 1, 2), *rows]))
    assert found == [(row["ph"], row["name"], row["args"]) for row in rows]


def test_the_head_of_the_file_is_kept_in_full(ingest: Ingest) -> None:
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "H100", "numSms": 132}],
        "mine": {"lr": [0.1, None]},
    }
    profile = ingest(json.dumps({**head, "traceEvents": [x("a", 1, 2)], "after": "ü"}))
    rows = profile.table("OtherEvent").to_pylist()
    assert {row["name"]: json.loads(row["arguments"]) for row in rows} == {**head, "after": "ü"}
    assert {row["kind"] for row in rows} == {"head"}


def test_arrows_keep_their_arguments_and_ends_without_another_are_listed(ingest: Ingest) -> None:
    events = [
        x("a", 1, 2), x("b", 10, 2),
        arrow("s", 1, 1, args={"bytes": 512}), arrow("f", 1, 10),
        arrow("s", 2, 1), arrow("f", 3, 10),
    ]  # fmt: skip
    profile = ingest(events)
    assert others(profile) == [("s", "dep", {"bytes": 512}), ("s", "dep", None), ("f", "dep", None)]
    assert profile.table("OtherEvent")["identity"].to_pylist() == ["", "1", "2", "3"]  # schemaVersion, then the ends
    assert profile.table("Flow").num_rows == 1


def test_every_stored_event_is_somewhere(ingest: Ingest) -> None:
    events = [x("a", 1, 2), x("b", 10, 2), arrow("s", 1, 1), arrow("f", 1, 10), arrow("s", 9, 1), arrow("s", 5, 500),
              arrow("f", 5, 900), {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
              {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 4}]  # fmt: skip
    profile = ingest(events)
    arrows = profile.table("Flow").num_rows
    held = profile.table("SystemProfileEvents").num_rows + len(others(profile)) + 2 * arrows
    assert held == profile.result.stored == len(events)


@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
def test_counters_and_other_marks_tell_their_phase(ingest: Ingest, many: bool) -> None:
    marks = [
        {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 4},
        {"ph": "C", "name": "memory", "pid": 1, "tid": 1, "ts": 5, "args": {"MB": 3}},
        {"ph": "n", "cat": "io", "name": "half way", "id": 1, "pid": 1, "tid": 1, "ts": 6},
        {"ph": "O", "name": "object", "id": "0x1", "pid": 1, "tid": 1, "ts": 7, "args": {"snapshot": {}}},
    ]
    profile = ingest([x("a", 1, 2), *marks, *(marks[1:2] * 3000 if many else [])])
    table = profile.table("SystemProfileEvents")
    texts = zip(table["name"].to_pylist(), map(json.loads, table["extra_attributes_json"].to_pylist()), strict=True)
    assert dict(texts) == {
        "a": {"category": "cpu_op"},
        "mark": {},
        "memory": {"ph": "C", "MB": 3},
        "half way": {"category": "io", "ph": "n"},
        "object": {"ph": "O", "snapshot": {}},
    }


# kind of the finding: events, which of them it is about
FOUND = {
    "unmatched_flow": ([x("a", 1, 2), arrow("s", 4, 1)], 1),
    "unbound_flow": ([x("a", 1, 2), arrow("s", 4, 500), arrow("f", 4, 900)], 1),
    "nesting_violation": ([x("inner", 20, 60), x("outer", 10, 50)], 0),
    "launch_without_kernel": ([call(5, 2), call(1, 1), kernel("k", 9, 1)], 0),
    "shared_correlation": ([kernel("k", 9, 1), kernel("k", 19, 1), call(1, 1)], 2),
    "overlapping": ([kernel("b", 12, 1), call(1, 1), kernel("a", 9, 1)], 0),
    "clock_skew": ([call(10, 1), kernel("same", 30, 3), kernel("same", 8, 1), call(20, 3)], 2),
}


@pytest.mark.parametrize("kind", FOUND)
def test_a_finding_after_linking_says_where_it_is(ingest: Ingest, kind: str) -> None:
    events, which = FOUND[kind]
    texts = [json.dumps(event) for event in events]
    text = '{"schemaVersion": 1, "traceEvents": [' + ",\n".join(texts) + "]}"
    (row,) = [row for row in ingest(text).result.warnings if row.kind == kind]
    assert row.offset == text.index(",\n".join(texts[which:]))


@pytest.mark.parametrize("first", [0, 1_700_000_000_000_000])
def test_the_offset_is_that_of_the_first_in_the_file(ingest: Ingest, first: int) -> None:
    events = [call(first + 100 + i, 50 - i) for i in range(20)] + [call(first + 1, 99), kernel("k", first + 9, 99)]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events})
    (row,) = [row for row in ingest(text).result.warnings if row.kind == "launch_without_kernel"]
    assert (row.count, row.offset) == (20, text.index(json.dumps(events[0])))


def async_pair(name: str, low: float, high: float, pid: int = 1, **ids: Any) -> list[dict[str, Any]]:
    row = {"cat": "io", "name": name, "pid": pid, "tid": 1, **ids}
    return [{"ph": "b", "ts": low, **row}, {"ph": "e", "ts": high, **row}]


def durations(profile: Profile) -> list[tuple[int, int]]:
    table = profile.table("SystemProfileEvents")
    return sorted(zip(table["start_ts"].to_pylist(), table["duration_ns"].to_pylist(), strict=True))


def test_local_async_ids_hold_in_their_process_and_global_ones_everywhere(ingest: Ingest) -> None:
    local = async_pair("r", 1, 10, id2={"local": "0x1"}) + async_pair("r", 2, 4, pid=2, id2={"local": "0x1"})
    assert durations(ingest(local)) == [(1000, 9000), (2000, 2000)]
    begin, end = async_pair("r", 1, 10, id2={"global": "0x1"})
    profile = ingest([begin, {**end, "pid": 2}])
    assert durations(profile) == [(1000, 9000)]
    assert not profile.result.warnings


def test_async_ids_of_different_scopes_are_different(ingest: Ingest) -> None:
    one, two = async_pair("r", 1, 10, id="1", scope="a"), async_pair("r", 2, 5, id="1", scope="b")
    assert durations(ingest([*one, *two])) == [(1000, 9000), (2000, 3000)]
