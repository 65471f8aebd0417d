"""Export for Perfetto's viewer: Chrome trace JSON, or Perfetto's own protobuf (`.pftrace`).

The protobuf messages written here are the few public ones a timeline needs (`perfetto/trace/trace_packet.proto`,
`track_event.proto`, `track_descriptor.proto`, `debug_annotation.proto`); the numbers below are their field numbers.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.grouping import Grouping, grouped_tracks
from neuronscope.analysis.tracks import Interval, Track, counters, device_tracks, flows, nested, tracks
from neuronscope.formats.attached import Output, head_packet, json_head

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["write_json", "write_protobuf"]


def _tracks(profile: Profile, grouping: Grouping | None) -> list[Track]:
    system = tracks(profile) if grouping is None else grouped_tracks(profile, grouping)
    return [*system, *device_tracks(profile)]


def write_json(profile: Profile, file: Output, facts: dict[str, str], grouping: Grouping | None = None) -> None:
    """Chrome trace events: a process per group, a thread per track; times in us since `baseTimeNanoseconds`.

    Tracks are those of the timeline, or as `grouping` says; `facts` say what the export is. The last member and the
    closing bracket are left to the caller.
    """
    origin = profile.origin_ns
    head = {"displayTimeUnit": "ns", "baseTimeNanoseconds": origin}
    file.write(b"{" + json_head(facts) + b", " + json.dumps(head)[1:-1].encode() + b', "traceEvents": [')
    first = True
    for event in _json_events(profile, origin, grouping):
        file.write((b"\n" if first else b",\n") + event.encode(errors="replace"))
        first = False
    file.write(b"\n],\n")


def _json_events(profile: Profile, origin: int, grouping: Grouping | None) -> Iterator[str]:
    where: dict[int, tuple[int, int, int]] = {}  # event → process, thread, start
    groups: dict[str, int] = {}
    thread = 0
    for track in _tracks(profile, grouping):
        if track.group not in groups:
            groups[track.group] = len(groups) + 1
            yield _metadata("process_name", groups[track.group], 0, {"name": track.group})
            yield _metadata("process_sort_index", groups[track.group], 0, {"sort_index": groups[track.group]})
        process, rows = groups[track.group], dict[int, int]()
        for row, slice_ in nested(track.intervals()):
            if row not in rows:
                thread += 1
                rows[row] = thread
                yield _metadata("thread_name", process, thread, {"name": _row_name(track.name, row)})
                yield _metadata("thread_sort_index", process, thread, {"sort_index": thread})
            if slice_.event_id >= 0:
                where[slice_.event_id] = process, rows[row], slice_.start
            text = f'{{"ph": "X", "name": {_text(slice_.name)}, "cat": "{track.kind}", '
            text += f'"pid": {process}, "tid": {rows[row]}, "ts": {_us(slice_.start - origin)}, '
            text += f'"dur": {_us(slice_.end - slice_.start)}'
            yield f'{text}, "args": {json.dumps(slice_.arguments, ensure_ascii=False)}}}'
    number = 0
    for flow in flows(profile):
        if flow.from_event in where and flow.to_event in where:
            number += 1
            for phase, event in (("s", flow.from_event), ("f", flow.to_event)):
                process, tid, start = where[event]
                binding = ', "bp": "e"' if phase == "f" else ""
                yield (
                    f'{{"ph": "{phase}", "id": {number}, "name": {_text(flow.kind or "flow")}, "cat": "flow", '
                    f'"pid": {process}, "tid": {tid}, "ts": {_us(start - origin)}{binding}}}'
                )
    for counter in counters(profile):
        process = groups.setdefault(counter.group, len(groups) + 1)
        for at, value in counter.samples:
            arguments = json.dumps({counter.unit: value})
            yield (
                f'{{"ph": "C", "name": {_text(counter.name)}, "pid": {process}, "ts": {_us(at - origin)}, '
                f'"args": {arguments}}}'
            )


def _metadata(name: str, process: int, thread: int, arguments: dict[str, Any]) -> str:
    values = {"ph": "M", "name": name, "pid": process, "tid": thread, "args": arguments}
    return json.dumps(values, ensure_ascii=False)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _us(nanoseconds: int) -> str:
    """Exact: microseconds with three decimals, never through a float."""
    sign, value = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    return f"{sign}{value // 1000}.{value % 1000:03d}"


def _row_name(name: str, row: int) -> str:
    return name if row == 0 else f"{name} (overlap {row})"


# Perfetto's protobuf

_SEQUENCE = 1
_BEGIN, _END, _COUNTER = 1, 2, 4


def write_protobuf(profile: Profile, file: Output, facts: dict[str, str], grouping: Grouping | None = None) -> None:
    """Perfetto's trace format; times are absolute nanoseconds. Tracks and facts as `write_json`."""
    file.write(head_packet(facts))
    out: dict[int, list[int]] = defaultdict(list)
    into: dict[int, list[int]] = defaultdict(list)
    for number, flow in enumerate(flows(profile), 1):
        out[flow.from_event].append(number)
        into[flow.to_event].append(number)
    groups: dict[str, int] = {}
    identity = 0

    def track_of(parent: int | None, name: str, counter: bool = False) -> int:
        nonlocal identity
        identity += 1
        # TrackDescriptor: uuid 1, name 2, parent_uuid 5, counter 8
        descriptor = _number(1, identity) + _bytes(2, name.encode(errors="replace"))
        if parent is not None:
            descriptor += _number(5, parent)
        if counter:
            descriptor += _bytes(8, b"")
        _packet(file, _bytes(60, descriptor))
        return identity

    def group_of(label: str) -> int:
        if label not in groups:
            groups[label] = track_of(None, label)
        return groups[label]

    for track in _tracks(profile, grouping):
        rows: dict[int, int] = {}
        open_: dict[int, list[int]] = defaultdict(list)
        for row, slice_ in nested(track.intervals()):
            if row not in rows:
                rows[row] = track_of(group_of(track.group), _row_name(track.name, row))
            ends = open_[row]
            while ends and ends[-1] <= slice_.start:
                _event(file, ends.pop(), _END, rows[row])
            _event(file, slice_.start, _BEGIN, rows[row], _slice_fields(slice_, track.kind, out, into))
            ends.append(slice_.end)
        for row, ends in open_.items():
            while ends:
                _event(file, ends.pop(), _END, rows[row])
    for counter in counters(profile):
        track_id = track_of(group_of(counter.group), f"{counter.name} ({counter.unit})", counter=True)
        for at, value in counter.samples:
            _event(file, at, _COUNTER, track_id, _tag(44, 1) + struct.pack("<d", value))  # double_counter_value 44


def _slice_fields(slice_: Interval, kind: str, out: dict[int, list[int]], into: dict[int, list[int]]) -> bytes:
    """TrackEvent: categories 22, name 23, debug_annotations 4, flow_ids 47, terminating_flow_ids 48."""
    fields = _bytes(22, kind.encode()) + _bytes(23, slice_.name.encode(errors="replace"))
    for key, value in slice_.arguments.items():
        # DebugAnnotation: name 10, int_value 4, string_value 6
        said = _number(4, value) if isinstance(value, int) else _bytes(6, str(value).encode(errors="replace"))
        fields += _bytes(4, _bytes(10, key.encode()) + said)
    if slice_.event_id >= 0:
        fields += b"".join(_tag(47, 1) + struct.pack("<Q", number) for number in out.get(slice_.event_id, ()))
        fields += b"".join(_tag(48, 1) + struct.pack("<Q", number) for number in into.get(slice_.event_id, ()))
    return fields


def _event(file: Output, at: int, kind: int, track: int, fields: bytes = b"") -> None:
    """TracePacket: timestamp 8, track_event 11 {type 9, track_uuid 11, …}."""
    _packet(file, _number(8, max(at, 0)) + _bytes(11, _number(9, kind) + _number(11, track) + fields))


def _packet(file: Output, fields: bytes) -> None:
    """Trace: packet 1; TracePacket: trusted_packet_sequence_id 10."""
    file.write(_bytes(1, fields + _number(10, _SEQUENCE)))


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are written in two's complement
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    return _tag(field, 0) + _varint(value)


def _bytes(field: int, data: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(data)) + data
