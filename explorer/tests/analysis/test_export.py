"""Profiles written for other tools, read back by independent means."""

import gzip
import json

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from neuronscope.analysis.export import ExportError, export
from neuronscope.analysis.filter import FilterError, filtered
from neuronscope.analysis.library import open_profile
from neuronscope.analysis.profile import Profile
from neuronscope.analysis.tracks import Interval, nested


@pytest.fixture
def profile(build_tables, rmsnorm):
    tables = build_tables(rmsnorm)
    return Profile("naive", tables)


@pytest.fixture(scope="module")
def trace_message():
    """Perfetto's messages as their public definition numbers them, as far as we write them."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="perfetto_subset.proto", package="p", syntax="proto2")
    kinds = {"u64": field.TYPE_UINT64, "i64": field.TYPE_INT64, "fixed": field.TYPE_FIXED64, "str": field.TYPE_STRING,
             "double": field.TYPE_DOUBLE, "u32": field.TYPE_UINT32}  # fmt: skip
    messages = {
        "Trace": [("packet", 1, "TracePacket", True)],
        "TracePacket": [
            ("timestamp", 8, "u64", False), ("sequence", 10, "u32", False), ("event", 11, "TrackEvent", False),
            ("track", 60, "TrackDescriptor", False),
        ],
        "TrackDescriptor": [
            ("uuid", 1, "u64", False), ("name", 2, "str", False), ("parent", 5, "u64", False),
            ("counter", 8, "CounterDescriptor", False),
        ],
        "CounterDescriptor": [],
        "TrackEvent": [
            ("annotations", 4, "DebugAnnotation", True), ("type", 9, "u32", False), ("track_uuid", 11, "u64", False),
            ("categories", 22, "str", True), ("name", 23, "str", False), ("double_value", 44, "double", False),
            ("flow_ids", 47, "fixed", True), ("terminating_flow_ids", 48, "fixed", True),
        ],
        "DebugAnnotation": [
            ("int_value", 4, "i64", False), ("string_value", 6, "str", False), ("name", 10, "str", False),
        ],
    }  # fmt: skip
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for label, number, kind, repeated in fields:
            added = message.field.add(name=label, number=number)
            added.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            added.type = kinds.get(kind, field.TYPE_MESSAGE)
            if kind not in kinds:
                added.type_name = f".p.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Trace"))


def slices_of(trace):
    """(track, start, end, name) of every slice, ends matched to begins as Perfetto does: last in, first out."""
    open_, found = {}, []
    for packet in trace.packet:
        if packet.HasField("event") and packet.event.type in (1, 2):
            stack = open_.setdefault(packet.event.track_uuid, [])
            if packet.event.type == 1:
                stack.append((packet.timestamp, packet.event.name))
            else:
                start, name = stack.pop()
                found.append((packet.event.track_uuid, start, packet.timestamp, name))
    assert not any(open_.values())
    return found


def expected(profile):
    rows = profile.rows("SELECT start_ts, end_ts, name FROM Slice JOIN Name USING (name_id)")
    return sorted((row["start_ts"], row["end_ts"], row["name"]) for row in rows)


def test_pftrace_holds_every_slice(profile, trace_message, tmp_path):
    target = tmp_path / "a.pftrace"
    export(profile, "perfetto", target)
    trace = trace_message.FromString(target.read_bytes())
    assert sorted((start, end, name) for _, start, end, name in slices_of(trace)) == expected(profile)
    names = {packet.track.name for packet in trace.packet if packet.HasField("track")}
    assert {"i-emulated/PID:1", "framework/TID:0", "neuron_hw/NC0:4"} <= names
    launches = [
        annotation.int_value
        for packet in trace.packet
        for annotation in packet.event.annotations
        if annotation.name == "launch_ns"
    ]
    assert launches == [385_000] * 6


def test_pftrace_of_a_session_has_flows_counters_and_the_device_profile(trace_message, golden, tmp_path):
    target = tmp_path / "a.pftrace"
    export(golden, "perfetto", target)
    packets = trace_message.FromString(target.read_bytes()).packet
    starts = {number for packet in packets for number in packet.event.flow_ids}
    ends = {number for packet in packets for number in packet.event.terminating_flow_ids}
    flows = golden.rows("SELECT count(*) AS n FROM Flow WHERE in_table = out_table")[0]["n"]
    assert len(starts) == flows and starts == ends
    assert [packet.event.double_value for packet in packets if packet.event.type == 4]
    engines = {row["engine"] for row in golden.rows("SELECT DISTINCT engine FROM Instruction")}
    assert engines and engines <= {packet.track.name for packet in packets}


def test_chrome_json_is_exact_and_opens_again(golden, tmp_path):
    target = tmp_path / "a.json.gz"
    export(golden, "perfetto", target)
    document = json.loads(gzip.decompress(target.read_bytes()), parse_float=str)
    base = document["baseTimeNanoseconds"]

    def ns(text):
        whole, _, part = text.partition(".")
        return int(whole) * 1000 + int(part)

    found = [
        event for event in document["traceEvents"] if event["ph"] == "X" and event["cat"] not in ("engine", "queue")
    ]
    assert sorted((base + ns(e["ts"]), base + ns(e["ts"]) + ns(e["dur"]), e["name"]) for e in found) == expected(golden)
    phases = [event["ph"] for event in document["traceEvents"]]
    assert phases.count("s") == phases.count("f") > 0 and phases.count("C") > 0
    again = open_profile(target, data_path=tmp_path / "data")
    assert again.span_ns >= golden.span_ns


def test_parquet_opens_again_with_the_same_numbers(golden, tmp_path):
    target = tmp_path / "tables"
    export(golden, "parquet", target)
    again = open_profile(target)
    assert again.tables == golden.tables
    assert again.summary().to_dict() | {"name": ""} == golden.summary().to_dict() | {"name": ""}
    with pytest.raises(ExportError, match="not an empty folder"):
        export(golden, "parquet", target)


def test_json_lists_every_event(golden, tmp_path):
    target = tmp_path / "system_profile.json"
    export(golden, "json", target)
    document = json.loads(target.read_text())
    assert len(document["trace_event"]) == golden.rows("SELECT count(*) AS n FROM SystemProfileEvents")[0]["n"]
    assert len(document["cpu_util"]) == 2 and len(document["mem_usage"]) == 2 and len(document["Instruction"]) == 6


def test_a_failed_export_leaves_what_was_there(profile, tmp_path, monkeypatch):
    target = tmp_path / "a.json"
    target.write_text("before")

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr("neuronscope.analysis.perfetto.write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        export(profile, "perfetto", target)
    assert target.read_text() == "before" and [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_unknown_ending_is_refused(profile, tmp_path):
    with pytest.raises(ExportError, match=r"\.pftrace or \.json"):
        export(profile, "perfetto", tmp_path / "a.txt")


def test_slices_that_do_not_nest_go_to_another_row():
    times = {"a": (0, 10), "b": (2, 5), "c": (4, 12), "d": (10, 11)}
    slices = [Interval(start, end, name, -1, {}) for name, (start, end) in times.items()]
    assert [(row, one.name) for row, one in nested(slices)] == [(0, "a"), (0, "b"), (1, "c"), (0, "d")]


def test_filters(golden):
    assert filtered(golden) is golden
    no_device = filtered(golden, device=False)
    assert "Instruction" not in no_device.tables and no_device.has_device_rows
    no_host = filtered(golden, system=False)
    assert {row["kind"] for row in no_host.rows("SELECT DISTINCT kind FROM Track")} == {"device", "copy"}
    assert "CpuUsage" not in no_host.tables
    without = filtered(golden, event_types=["^nc_exec_running"])
    assert not without.rows("SELECT 1 FROM SystemProfileEvents WHERE name = 'nc_exec_running'")
    hardware = filtered(golden, event_types=["hardware"])
    sources = {row["s"] for row in hardware.rows("SELECT DISTINCT trace_event_source AS s FROM SystemProfileEvents")}
    assert sources == {"framework", "neuron_hw"}
    assert filtered(golden, cores=[0]).rows("SELECT count(*) AS n FROM Execution") == golden.rows(
        "SELECT count(*) AS n FROM Execution"
    )
    with pytest.raises(FilterError, match="no events of NeuronCore 9; it has: 0"):
        filtered(golden, cores=[9])
    with pytest.raises(FilterError, match="i-emulated00c0ffee"):
        filtered(golden, instances=["i-other"])
