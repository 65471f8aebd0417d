"""JSON of Neuron tools that is no chrome trace: system profile exports and the runtime's own event lists.

Forms: ``{"trace_event": [{name, timestamp, duration, exec_id, device_core_idx, nc_idx, …}]}`` (an export) and
``{"events": [{event_type, phase: start|stop, tracking_id, timestamp_ns, data: {…}}]}`` (fetched from the runtime).
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from neuronscope.readers import json_events, source
from neuronscope.readers.exact import LONGEST_NS, MAX_NS, int64
from neuronscope.readers.instances import apart, several_instances
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.salvage import extent
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import Events, Role, Trace

__all__ = ["read_if_neuron"]

_HARDWARE = ("nc_exec_running", "cc_running", "cc_exec_barrier")
_HEAD_BYTES = 4096
_MARKS = (b'"trace_event"', b'"events"', b'"mem_usage"', b'"data_version"', b'"tracking_id"')
_LIST = re.compile(rb'"(trace_event|events)"\s*:\s*\[')
_NEXT_ROW = re.compile(rb"\}\s*,\s*\{")


def read_if_neuron(path: Path) -> Trace | None:
    """The trace when the file has one of the two forms, else None."""
    head = source.head(path, _HEAD_BYTES)[:_HEAD_BYTES]
    if not any(
        key in head for key in (b'"trace_event"', b'"events"', b'"mem_usage"', b'"data_version"', b'"tracking_id"')
    ):
        return None
    loaded = json_events.load(path)
    data = bytes(loaded.data)
    damage: list[IngestWarning] = []
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        document, offset = _salvaged(data)
        text = "the JSON is damaged or cut short; its rows are read one by one"
        damage.append(IngestWarning("damaged_json", 1, offset, "", "partial", text))
    if isinstance(document, list) and b'"tracking_id"' in head:
        document = {"events": document}
    if not isinstance(document, dict):
        return None
    trace: Trace | None = None
    events = document.get("events")
    if isinstance(document.get("trace_event"), list):
        trace = _export(document["trace_event"], data)
    elif isinstance(events, list) and any(isinstance(row, dict) and "event_type" in row for row in events[:100]):
        trace = _runtime(events, data)
    if trace is not None:
        for kind, fault in loaded.faults.items():
            damage.append(IngestWarning(kind, fault.count, fault.offset, "", "partial", fault.detail))
        trace.report[:0] = damage
    return trace


def _salvaged(data: bytes) -> tuple[dict[str, list[Any]], int]:
    """The rows of the document's list that can be read, None for each that can't, and where the first of these is."""
    found = _LIST.search(data)
    if found is None:
        return {}, -1
    rows: list[Any] = []
    first, at = -1, found.end()
    while (begin := data.find(b"{", at)) >= 0 and b"]" not in data[at:begin]:
        end = extent(data, begin)
        try:
            rows.append(msgspec.json.decode(data[begin:end]) if end else None)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            rows.append(None)
        if rows[-1] is None:
            first = begin if first < 0 else first
            following = _NEXT_ROW.search(data, begin + 1)
            end = following.start() + 1 if following else len(data)
        at = end or len(data)
    return {found[1].decode(): rows}, first if first >= 0 else len(data)


def _export(rows: list[Any], data: bytes) -> Trace:
    good: list[tuple[dict[str, Any], int, int]] = []
    bad, mended = list[int](), list[int]()
    for number, row in enumerate(rows):
        scale = _UNITS.get(str(row.get("timestamp_unit") or "ns"), 0) if isinstance(row, dict) else 0
        start = _time(row.get("timestamp"), scale, -1) if scale else -1
        if 0 <= start <= MAX_NS:
            length = _time(row.get("duration"), scale, 0)
            if not 0 <= length <= LONGEST_NS:
                mended.append(number)
                length = 0
            good.append((row, start, start + length))
        else:
            bad.append(number)
    report = [_skipped(bad, "without a time", rows, data)] if bad else []
    if mended:
        text = f"{len(mended)} rows with a negative or impossible duration: shown with none"
        place = _place(rows, mended, data)
        report.append(IngestWarning("negative_duration", len(mended), place, "", "repaired", text))
    trace = _trace(good)
    trace.format, trace.skipped = "neuron-explorer JSON export", len(bad)
    trace.report += report
    trace.events_in_file, trace.bytes_read, trace.repaired = len(rows), len(data), len(mended)
    return trace


_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


def _time(value: Any, scale: int, missing: int) -> int:
    """A time in ns, given in units of `scale` ns."""
    if scale == 1 and isinstance(value, int | str):
        return int64(value, missing)
    try:
        return int64(int(Decimal(str(value)) * scale), missing)
    except (ArithmeticError, ValueError):
        return missing


def _runtime(rows: list[Any], data: bytes) -> Trace:
    waiting: dict[tuple[str, str], list[int]] = {}
    good: list[tuple[dict[str, Any], int, int]] = []
    stray, bad, odd = list[int](), list[int](), list[int]()
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or not 0 <= int64(row.get("timestamp_ns"), -1) <= MAX_NS:
            bad.append(number)
            continue
        key = (str(row.get("event_type")), str(row.get("tracking_id")))
        if row.get("phase") == "start":
            waiting.setdefault(key, []).append(number)
        elif row.get("phase") == "stop":
            if not waiting.get(key):
                stray.append(number)
                continue
            begin = rows[waiting[key].pop(0)]
            held = begin.get("data")
            merged = {**(held if isinstance(held, dict) else {}), **begin, "name": begin.get("event_type")}
            merged.pop("data", None)
            good.append((merged, int64(begin["timestamp_ns"]), int64(row["timestamp_ns"])))
        else:
            odd.append(number)
    unfinished = sorted(number for listed in waiting.values() for number in listed)
    report = []
    if bad:
        report.append(_skipped(bad, "without a time", rows, data))
    if odd:
        report.append(_skipped(odd, "that neither start nor stop something", rows, data))
    if unfinished:
        text = f"{len(unfinished)} runtime events started and did not stop (unfinished); left out"
        place = _place(rows, unfinished, data)
        report.append(IngestWarning("unfinished", len(unfinished), place, "", "skipped", text))
    if stray:
        text = f"{len(stray)} runtime events stopped without a start (stray); left out"
        report.append(IngestWarning("stray", len(stray), _place(rows, stray, data), "", "skipped", text))
    trace = _trace(good)
    trace.format, trace.skipped = "Neuron runtime events", len(bad) + len(odd) + len(stray) + len(unfinished)
    trace.report += report
    trace.events_in_file, trace.bytes_read = len(rows), len(data)
    trace.facts["unfinished_executions"] = str(len(unfinished))
    return trace


def _role(row: dict[str, Any], name: str) -> Role:
    """What a row is: by its source where it has one, else by its name."""
    source = row.get("trace_event_source")
    if source in ("neuron_hw", "device"):
        return Role.MEMCPY if "memcpy" in name.lower() else Role.DEVICE
    if source == "framework":
        return Role.OP if "::" in name else Role.HOST
    return Role.DEVICE if name in _HARDWARE else Role.NRT


def _skipped(numbers: list[int], what: str, rows: list[Any], data: bytes) -> IngestWarning:
    text = f"{len(numbers)} rows {what} left out"
    return IngestWarning("skipped", len(numbers), _place(rows, numbers, data), "", "skipped", text)


def _place(rows: list[Any], numbers: list[int], data: bytes) -> int:
    """The byte where the first of some rows begins; -1 where rows before it are no objects."""
    found = _LIST.search(data)
    at = found.end() if found else data.find(b"[") + 1
    if not all(isinstance(row, dict) for row in rows[: numbers[0] + 1]):
        return -1
    for _ in range(numbers[0]):
        end = extent(data, data.find(b"{", at))
        if end is None:
            return -1
        at = end
    return data.find(b"{", at)


def _trace(rows: list[tuple[dict[str, Any], int, int]]) -> Trace:
    """The rows (fields, start, end) as a trace; the caller adds format and counts."""

    def ids(*keys: str) -> Any:
        return np.array([next((int64(r[k]) for k in keys if k in r), -1) for r, _, _ in rows], np.int64)

    names = [str(row.get("name", "")) for row, _, _ in rows]
    roles = np.array([_role(row, name) for (row, _, _), name in zip(rows, names, strict=True)], np.int8)
    nc = ids("nc_idx", "lnc_idx")
    execution = ids("exec_id")
    instances = [str(row.get("instance_id") or "") for row, _, _ in rows]
    pid = np.array(apart(np.maximum(ids("process_id"), 0), instances), np.int64)
    args = [msgspec.json.encode(row) for row, _, _ in rows]
    none = np.full(len(rows), -1, np.int64)
    events = Events(
        role=roles,
        name=pa.array(names, pa.string()).dictionary_encode(),
        category=pa.array([""] * len(rows), pa.string()).dictionary_encode(),
        start=np.array([start for _, start, _ in rows], np.int64),
        end=np.array([max(start, end) for _, start, end in rows], np.int64),
        pid=pid,
        tid=np.maximum(ids("thread_id"), 0),
        device=nc,
        stream=none,
        nc=np.maximum(nc, 0),
        pcore=ids("device_core_idx", "pcore_idx"),
        correlation=none,
        external_id=none,
        execution_id=execution,
        bytes=none,
        args=Texts.of(pa.array(args, pa.binary())),
    )
    several = several_instances(instances)
    return Trace(
        format="",
        events=events,
        events_in_file=len(rows),
        bytes_read=0,
        facts={"device_name": "AWS Neuron"},
        instance=next(filter(None, instances), "local"),
        report=[several] if several else [],
        neuron=True,
    )
