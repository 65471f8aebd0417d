"""The account of damaged events: in file = stored + skipped, repaired counted, the offset is the first one's.

Each case is one kind of damage between good events. Combined, compressed and repeated, the accounts must add up.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from neuronscope.formats.errors import FormatError
from neuronscope.store import Profile

Ingest = Callable[..., Profile]

OP = '{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":100,"dur":50,"args":{"External id":1}}'
CALL = (
    '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":110,"dur":5,'
    '"args":{"correlation":9}}'
)
KERNEL = (
    '{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":150,"dur":10,'
    '"args":{"device":0,"stream":7,"correlation":9}}'
)
GOOD = (OP, CALL, KERNEL)


def document(*events: str) -> str:
    return '{"schemaVersion":1,"traceEvents":[' + ",\n".join(events) + "]}"


def host(name: str, **fields: Any) -> str:
    return json.dumps({"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 120, "dur": 2} | fields)


def rows(profile: Profile) -> dict[str, tuple[int, int]]:
    return {row.kind: (row.count, row.offset) for row in profile.result.warnings}


# damage: kind in the report, event, events it is, of these stored, of these repaired
CASES: dict[str, tuple[str, str, int, int, int]] = {
    "no time": ("no_timestamp", '{"ph":"X","name":"n","pid":1,"tid":1,"dur":1}', 1, 0, 0),
    "time is a word": ("no_timestamp", host("n", ts="soon"), 1, 0, 0),
    "time is a list": ("no_timestamp", host("n", ts=[1]), 1, 0, 0),
    "instant without time": ("no_timestamp", '{"ph":"i","name":"n","pid":1,"tid":1}', 1, 0, 0),
    "arrow without time": ("no_timestamp", '{"ph":"s","id":4,"cat":"c","name":"n","pid":1,"tid":1}', 1, 0, 0),
    "begin without time": ("no_timestamp", '{"ph":"B","name":"n","pid":1,"tid":1}', 1, 0, 0),
    "begin without end": ("unfinished", '{"ph":"B","name":"n","pid":1,"tid":1,"ts":3}', 1, 1, 1),
    "end without begin": ("unmatched_pair", '{"ph":"e","id":3,"cat":"c","name":"n","pid":1,"tid":1,"ts":3}', 1, 0, 0),
    "duration is a word": ("no_duration", host("n", dur="long"), 1, 1, 1),
    "duration beyond 64 bits": ("no_duration", host("n", dur=1e30), 1, 1, 1),
    "duration of years": ("endless", host("n", dur=2_200_000_000_000_000), 1, 1, 1),
    "negative duration": ("negative_duration", host("n", dur=-5), 1, 1, 1),
    "unknown phase": ("unknown_phase", host("n", ph="q"), 1, 0, 0),
    "phase is a number": ("unknown_phase", host("n", ph=5), 1, 0, 0),
    "no phase": ("no_phase", '{"name":"n","ts":1}', 1, 0, 0),
    "fields of other names": ("no_phase", '{"Ph":"X","Name":"n","Ts":1}', 1, 0, 0),
    "null": ("not_an_event", "null", 1, 0, 0),
    "number": ("not_an_event", "17", 1, 0, 0),
    "list": ("not_an_event", "[1, [2]]", 1, 0, 0),
    "too deep": ("too_deep", host("n").replace('"dur": 2', '"args":' + '{"a":' * 1500 + "1" + "}" * 1500), 1, 0, 0),
    "unescaped quote": ("repaired", host("n").replace('"n"', '"n"n"'), 1, 1, 1),
    "raw newline": ("repaired", host("n").replace('"n"', '"n\nn"'), 1, 1, 1),
    "bare word": ("repaired", host("n", args={"x": 1}).replace(": 1}", ": nan}"), 1, 1, 1),
    "nanoseconds": ("nanosecond_times", host("n", ts=1_700_000_000_000_010_000, dur=5000), 1, 1, 1),
}


@pytest.mark.parametrize("place", [0, 1, 3], ids=["first", "middle", "last"])
@pytest.mark.parametrize("case", CASES)
def test_one_damaged_event_is_counted_where_it_stands(ingest: Ingest, case: str, place: int) -> None:
    kind, event, events, stored, repaired = CASES[case]
    text = document(*GOOD[:place], event, *GOOD[place:])
    result = ingest(text).result
    assert (result.events_in_file, result.stored, result.repaired) == (3 + events, 3 + stored, repaired)
    assert result.stored + result.skipped == result.events_in_file
    found = {row.kind: (row.count, row.offset) for row in result.warnings}
    assert found[kind] == (1, len(text[: text.index(event)].encode()))
    assert not {"no_closing_bracket", "truncated", "garbage"} & set(found)
    assert (result.device_slices, result.device_time_ns) == (1, 10_000)


@pytest.mark.parametrize("pair", list(itertools.islice(itertools.combinations(CASES, 2), 0, None, 12)), ids="+".join)
def test_damage_adds_up(ingest: Ingest, pair: tuple[str, str]) -> None:
    chosen = [CASES[name] for name in pair]
    events = [event for _, event, *_ in chosen]
    text = document(OP, *events, CALL, *events, KERNEL)
    result = ingest(gzip.compress(text.encode()), "trace.json.gz").result
    assert result.events_in_file == 3 + 2 * sum(case[2] for case in chosen)
    assert result.stored == 3 + 2 * sum(case[3] for case in chosen)
    assert result.repaired == 2 * sum(case[4] for case in chosen)
    assert result.stored + result.skipped == result.events_in_file
    assert result.device_time_ns == 10_000


def test_times_in_nanoseconds_are_read_as_such(ingest: Ingest) -> None:
    epoch = 1_700_000_000_000_000_000
    profile = ingest(
        [
            {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": epoch, "dur": 900},
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": epoch + 5, "dur": 1500},
        ]
    )
    (execution,) = profile.table("Execution").to_pylist()
    assert (execution["start_ts"], execution["duration_ns"]) == (epoch + 5, 1500)
    assert rows(profile)["nanosecond_times"][0] == profile.result.repaired == 2


def test_a_time_of_zero_among_absolute_times_does_not_stretch_the_timeline(ingest: Ingest) -> None:
    text = document(*(event.replace('"ts":', '"ts":1700000000000') for event in GOOD), host("n", ts=0, dur=0))
    profile = ingest(text)
    assert rows(profile)["zero_timestamp"] == (1, text.index('{"ph": "X", "name": "n"'))
    starts = profile.table("Slice")["start_ts"].to_pylist()
    assert max(starts) - min(starts) == 50_000
    assert "zero_timestamp" not in rows(ingest(document(*GOOD, host("n", ts=0))))  # a recording may begin at 0


def test_a_head_with_an_absolute_time_and_no_event_left_is_refused(ingest: Ingest) -> None:
    with pytest.raises(FormatError, match="none of its 1 event"):
        ingest('{"baseTimeNanoseconds": 1790000000000000000, "traceEvents": [{"ph": "X", "na')


def test_correlation_zero_links_nothing(ingest: Ingest) -> None:
    none = [event.replace('"correlation":9', '"correlation":0') for event in GOOD]
    profile = ingest(document(*none, none[1].replace("110", "115"), none[2].replace("150", "170")))
    assert profile.table("Execution")["op"].to_pylist() == ["", ""]
    assert rows(profile)["correlation_zero"][0] == 2
    assert "shared_correlation" not in rows(profile)


def test_what_another_writer_began_inside_a_damaged_event_is_kept(ingest: Ingest) -> None:
    text = document(*GOOD)[:-20] + document(*GOOD)
    result = ingest(text).result
    assert (result.events_in_file, result.stored, result.skipped) == (6, 5, 1)


def test_many_long_durations_do_not_overflow_the_sums(ingest: Ingest) -> None:
    many = [
        KERNEL.replace('"ts":150', f'"ts":{150 + i}').replace('"dur":10', '"dur":9000000000000') for i in range(2000)
    ]
    result = ingest(document(OP, *many)).result
    assert result.device_time_ns < 2**63
    assert {row.kind: row.count for row in result.warnings}["endless"] == 2000


def test_a_header_value_that_never_ends_does_not_hide_the_events(ingest: Ingest) -> None:
    result = ingest(document(*GOOD).replace('"traceEvents"', '"x":{,"traceEvents"')).result
    assert (result.stored, result.skipped) == (3, 0)
    assert any(row.kind == "damaged_header" for row in result.warnings)


def test_zeros_before_and_after_the_text_are_no_damage(ingest: Ingest) -> None:
    result = ingest(b"\0" * 512 + document(*GOOD).encode() + b"\0" * 512).result
    assert (result.stored, result.skipped, result.repaired) == (3, 0, 0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(document(*GOOD).encode())[:12], "hold nothing readable"),
        (gzip.compress(gzip.compress(document(*GOOD).encode())), "compressed twice"),
        (b'{"traceEvents": 5}', "traceEvents is no list"),
        (document('{"ph":"M","name":"process_name","pid":1,"args":{"name":"p"}}').encode(), "nothing to show"),
        (document("null", "null").encode(), "none of its 2 events"),
    ],
)
def test_why_nothing_could_be_kept(ingest: Ingest, content: bytes, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        ingest(content)


def test_ingest_json_has_the_keys_of_its_contract_and_no_others(ingest: Ingest) -> None:
    printed = ingest(document(*GOOD, "null")).result.as_json()
    assert list(printed) == [
        "format", "events_in_file", "stored", "repaired", "skipped", "device_slices", "device_time_ns",
        "device_busy_ns", "processes", "ranks", "warnings",
    ]  # fmt: skip
    assert [list(row) for row in printed["warnings"]] == [["kind", "count", "offset", "message"]]


def test_runtime_events_with_one_id_twice_pair_in_order(ingest: Ingest) -> None:
    def row(phase: str, at: int, **more: Any) -> dict[str, Any]:
        return {"event_type": "nc_exec_running", "phase": phase, "tracking_id": 7, "timestamp_ns": at, **more}

    events = [row("start", 100), row("start", 200), row("stop", 300), row("stop", 500), row("start", 600)]
    profile = ingest(json.dumps({"events": events}))
    assert (profile.result.events_in_file, profile.result.stored, profile.result.skipped) == (5, 4, 1)
    events[0]["event_type"] = events[2]["event_type"] = {"odd": ["id"]}
    assert ingest(json.dumps({"events": [events[1], *events]})).result.events_in_file == 6


def test_an_export_with_impossible_durations_says_so(ingest: Ingest) -> None:
    row = {"name": "nc_exec_running", "timestamp": 100, "exec_id": 1, "nc_idx": 0}
    exported = [row | {"duration": 50}, row | {"duration": -1, "exec_id": 2}, row | {"duration": 2**62, "exec_id": 3}]
    profile = ingest(json.dumps({"trace_event": exported}))
    assert (profile.result.device_time_ns, profile.result.repaired) == (50, 2)
    assert rows(profile)["negative_duration"][0] == 2


@pytest.mark.parametrize("sure", [True, False], ids=["parsed strictly", "mended"])
def test_members_of_an_event_that_no_column_holds_are_kept(ingest: Ingest, sure: bool) -> None:
    power = host("convolution", attr={"Power": "0x43"}, args={"External id": 7})
    bare = host("bare", tts=4.5)
    mark = '{"ph":"i","name":"mark","pid":1,"tid":1,"ts":121,"s":"t"}'
    begin, end = (host("pair", ph=phase, ts=at, args={"a": at}) for phase, at in (("B", 200), ("E", 230)))
    profile = ingest(document(*GOOD, power, bare, mark, begin, end, *(() if sure else ('{"ph":"X" "name":"odd"}',))))
    table = profile.table("SystemProfileEvents")
    kept = dict(
        zip(table["name"].to_pylist(), map(json.loads, table["extra_attributes_json"].to_pylist()), strict=True)
    )
    assert kept["convolution"] == {"event": {"attr": {"Power": "0x43"}}, "External id": 7}
    assert kept["bare"] == {"event": {"tts": 4.5}}
    assert kept["mark"] == {"event": {"s": "t"}}
    assert kept["pair"] == {"a": 230, "begin": {"a": 200}}
    assert kept["aten::mm"]["External id"] == 1


def test_rows_about_the_recording_are_no_process(ingest: Ingest, golden: Any) -> None:
    span = (
        '{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"PyTorch Profiler","ts":1,"dur":900}'
    )
    mark = '{"ph":"i","s":"g","name":"Record Window End","pid":"Traces","tid":"","ts":901}'
    for profile in (ingest(document(*GOOD, span, mark)), ingest(golden)):
        assert len(set(profile.table("SystemProfileEvents")["process_id"].to_pylist())) == 1
        assert profile.result.processes == 1
