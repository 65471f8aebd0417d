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
from neuronscope.readers.trace import Events, Role, Trace, concat_events
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
    core = _cores(rows)
    return Events(
        role=np.full(count, Role.ENGINE, np.int8),
        name=_codes(rows[name], "dma" if queues else "instruction"),
        category=pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([""])),
        start=start,
        end=np.maximum(np.asarray(rows["end_ts"].to_numpy(), np.int64), start),
        pid=zero,
        tid=zero,
        device=core,
        stream=of_code[places.indices.to_numpy()],
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
