"""Instructions and DMA transfers of a device profile as rows of the timeline: a track per engine and DMA queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.readers.exact import Int64
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import ArrowEnds, Events, Role, Trace, concat_events
from neuronscope.readers.track_labels import DMA_QUEUES

__all__ = ["add_engine_rows"]

#: Engines from the top, as the vendor's viewer has them; others follow in order of appearance.
_ENGINES = ("Tensor", "TensorMatrix", "Vector", "Scalar", "GpSimd", "Sync")
# Table, column of the track, column of the name, what a row says: key of the argument -> column.
_TABLES: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    (
        "Instruction",
        "engine",
        "opcode",
        {
            "op": "hlo_name",
            "source": "bir_debug_info_source_location",
            "nki_source": "nki_source_location",
            "stack_frames": "stack_frame_ids",
            "operands": "operands",
            "wait_ns": "evt_wait_time_ns",
            "flops": "raw_flops",
            "instruction": "id",
        },
    ),
    (
        "DmaPacketAggregated",
        "queue_name",
        "variable",
        {"op": "op", "from": "source", "to": "dest", "bytes": "transfer_bytes", "transfer": "id"},
    ),
)


def add_engine_rows(trace: Trace) -> None:
    """Draw what the engines and queues of the profile's device tables did, below its executions."""
    parts = [trace.events]
    for table, place, name, arguments in _TABLES:
        rows = trace.tables.get(table)
        if rows is None or not rows.num_rows:
            continue
        rows = rows.filter(pc.and_(pc.is_valid(rows["start_ts"]), pc.is_valid(rows["end_ts"])))
        if rows.num_rows:
            parts.append(_events(trace, rows, place, name, arguments, queues=table == "DmaPacketAggregated"))
    trace.events = concat_events([part for part in parts if len(part)] or parts[:1])
    trace.events_in_file += sum(len(part) for part in parts[1:])
    trace.arrows = _arrows(trace)


def _events(
    trace: Trace, rows: pa.Table, place: str, name: str, arguments: Mapping[str, str], *, queues: bool
) -> Events:
    count = rows.num_rows
    places = _codes(rows[place], "unknown")
    numbers = _numbers(places.dictionary.to_pylist(), queues)
    for text, number in numbers.items():
        trace.engine_names[number] = f"DMA {text}" if queues else text
    of_code = np.array([numbers[text] for text in places.dictionary.to_pylist()], np.int64)
    none, zero = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    start = np.asarray(rows["start_ts"].to_numpy(), np.int64)
    core, stream = _cores(rows), of_code[places.indices.to_numpy()]
    return Events(
        role=np.full(count, Role.ENGINE, np.int8),
        name=_codes(rows[name], "dma" if queues else "instruction"),
        category=pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([""])),
        start=start,
        end=np.maximum(np.asarray(rows["end_ts"].to_numpy(), np.int64), start),
        pid=zero,
        tid=_thread(core, stream),
        device=core,
        stream=stream,
        nc=core,
        pcore=none,
        correlation=none,
        external_id=none,
        execution_id=none,
        bytes=none,
        args=Texts.of(_json(rows, arguments)),
    )


def _numbers(names: list[str], queues: bool) -> dict[str, int]:
    """Stream number of each engine or queue, in drawing order."""
    if queues:
        return {name: DMA_QUEUES + number for number, name in enumerate(sorted(names))}
    listed = [*_ENGINES, *sorted(set(names) - set(_ENGINES))]
    return {name: listed.index(name) for name in names}


def _cores(rows: pa.Table) -> Int64:
    """Logical NeuronCore of each row, from the name of its device profile; 0 where it has none."""
    if "device_profile_name" not in rows.column_names:
        return np.zeros(rows.num_rows, np.int64)
    names = _codes(rows["device_profile_name"], "")
    ends = [name.rpartition("_vnc_")[2] for name in names.dictionary.to_pylist()]
    return np.array([int(end) if end.isdecimal() else 0 for end in ends], np.int64)[names.indices.to_numpy()]


def _thread(core: Int64, stream: Int64) -> Int64:
    """A number of each track, by which arrows find its rows; 0 is that of the executions."""
    return 1 + core * 10 * DMA_QUEUES + stream


def _arrows(trace: Trace) -> ArrowEnds | None:
    """The arrows inside the device profile as ends of arrows on the timeline's rows."""
    inside = trace.tables.get("Flow")
    if inside is None or not inside.num_rows:
        return None
    where: dict[str, tuple[Int64, Int64, Int64]] = {}  # ids in order, starts, tracks
    for table, place, _, _ in _TABLES:
        rows = trace.tables.get(table)
        if rows is None or not rows.num_rows or rows["id"].null_count or rows["start_ts"].null_count:
            continue
        places = _codes(rows[place], "unknown")
        numbers = _numbers(places.dictionary.to_pylist(), table == "DmaPacketAggregated")
        of_code = np.array([numbers[text] for text in places.dictionary.to_pylist()], np.int64)
        ids = np.asarray(rows["id"].to_numpy(), np.int64)
        order = np.argsort(ids, kind="stable")
        track = _thread(_cores(rows), of_code[places.indices.to_numpy()])
        where[table] = ids[order], np.asarray(rows["start_ts"].to_numpy(), np.int64)[order], track[order]
    ends = [_found(inside[f"{side}_table"], inside[f"{side}_id"], where) for side in ("in", "out")]
    known = (ends[0][1] >= 0) & (ends[1][1] >= 0)
    count = int(known.sum())
    if not count:
        return None
    kinds = _codes(inside["dependency_type"], "dependency").filter(pa.array(known))
    return ArrowEnds(
        phase=np.repeat(np.array([0, 2], np.int8), count),
        key=np.tile(np.arange(count), 2),
        kind=pa.DictionaryArray.from_arrays(np.tile(kinds.indices.to_numpy(), 2), kinds.dictionary),
        ts=np.concatenate([end[0][known] for end in ends]),
        pid=np.zeros(2 * count, np.int64),
        tid=np.concatenate([end[1][known] for end in ends]),
        number=np.full(2 * count, -1, np.int64),
    )


def _found(
    tables: pa.ChunkedArray, ids: pa.ChunkedArray, where: Mapping[str, tuple[Int64, Int64, Int64]]
) -> tuple[Int64, Int64]:
    """Start and track of rows named by table and id; -1 where there is none."""
    coded, wanted = _codes(tables, ""), np.asarray(ids.fill_null(-1).to_numpy(), np.int64)
    start, track = np.full(len(wanted), -1, np.int64), np.full(len(wanted), -1, np.int64)
    for code, name in enumerate(coded.dictionary.to_pylist()):
        if name not in where:
            continue
        known, starts, tracks = where[name]
        here = np.flatnonzero(coded.indices.to_numpy() == code)
        at = np.minimum(np.searchsorted(known, wanted[here]), len(known) - 1)
        same = known[at] == wanted[here]
        start[here[same]], track[here[same]] = starts[at[same]], tracks[at[same]]
    return start, track


def _codes(column: pa.ChunkedArray, missing: str) -> pa.DictionaryArray:
    """A text column as one dictionary array without nulls."""
    plain = column.cast(pa.string()).fill_null(missing).combine_chunks()
    return plain.dictionary_encode()


def _json(rows: pa.Table, arguments: Mapping[str, str]) -> pa.Array:
    """The arguments of each row as a JSON object; nulls and empty texts are left out."""
    parts: list[Any] = []
    for key, column in arguments.items():
        if column not in rows.column_names:
            continue
        values = rows[column]
        if pa.types.is_integer(values.type):
            texts = values.cast(pa.string())
        else:
            coded = _codes(values, "")
            quoted = [json.dumps(text, ensure_ascii=False) if text else None for text in coded.dictionary.to_pylist()]
            texts = pa.chunked_array([pa.array(quoted, pa.string()).take(coded.indices)])
        parts.append(pc.binary_join_element_wise(f'"{key}":', texts, "").combine_chunks())
    if not parts:
        return pa.array([b""] * rows.num_rows, pa.binary())
    joined = pc.binary_join_element_wise(*parts, ",", null_handling="skip")
    return pc.binary_join_element_wise("{", joined, "}", "").cast(pa.binary())
