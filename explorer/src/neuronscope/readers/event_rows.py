"""Table SystemProfileEvents: every event in the order of the ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.readers.arguments import attributes_of
from neuronscope.readers.tables import in_pieces, named_table
from neuronscope.readers.trace import DEVICE_ROLES, Role

if TYPE_CHECKING:
    from neuronscope.readers.model import Model

__all__ = ["pieces"]

_SOURCES = ("framework", "runtime", "device", "neuron_rt", "neuron_hw")


def pieces(model: Model) -> Iterator[pa.Table]:
    """The table, some ten thousand rows at a time."""
    ev, neuron = model.ev, model.trace.neuron
    names = pa.array(model.names or [""])  # as they are now; later passes add others
    sources = pa.array(_SOURCES)
    instance = pa.array([model.trace.instance])
    source_of = np.zeros(len(Role), np.int32)
    device_of, there_of = np.zeros(len(Role), np.bool_), np.zeros(len(Role), np.bool_)
    source_of[[Role.RUNTIME, Role.OVERHEAD]] = 1
    source_of[[*DEVICE_ROLES, Role.DEVICE_ANNOTATION, Role.ENGINE]] = 4 if neuron else 2
    source_of[Role.NRT] = 3
    device_of[[*DEVICE_ROLES]] = True
    there_of[[*DEVICE_ROLES, Role.DRIVER, Role.NRT, Role.DEVICE_ANNOTATION, Role.ENGINE]] = True

    def piece(low: int, high: int) -> pa.Table:
        rows, count = slice(low, high), high - low
        role = ev.role[rows]
        link = np.where(ev.execution_id[rows] >= 0, ev.execution_id[rows], ev.correlation[rows])
        linked = link >= 0
        offsets = np.concatenate(([0], np.cumsum(linked))).astype(np.int32)
        flow = pa.ListArray.from_arrays(pa.array(offsets), pc.cast(pa.array(link[linked]), pa.string()))
        nc = np.where(ev.nc[rows] >= 0, ev.nc[rows], ev.device[rows])
        stream_id, pcore = ev.stream[rows], np.ascontiguousarray(ev.pcore[rows])
        stream = (role == Role.DRIVER) | (device_of[role] & (stream_id >= 0))
        start, end = ev.start[rows], ev.end[rows]
        table = named_table(
            "SystemProfileEvents",
            {
                "id": np.arange(low, high),
                "name": pa.DictionaryArray.from_arrays(model.name_code[rows].astype(np.int32), names),
                "start_ts": start,
                "end_ts": end,
                "duration_ns": end - start,
                "trace_event_source": pa.DictionaryArray.from_arrays(source_of[role], sources),
                "instance_id": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), instance),
                "process_id": model.process[rows],
                "thread_id": ev.tid[rows],
                "nc_idx": pa.array(nc, mask=~there_of[role] | (nc < 0)),
                "pcore_idx": pa.array(pcore, mask=pcore < 0),
                "flow_id": flow,
                "framework_stream_id": _printed(pa.array(stream_id, mask=~stream)),
                "extra_attributes_json": attributes_of(ev, low, high).cast(pa.string()),
            },
        )
        ev.args.forget()
        return table

    return in_pieces(len(ev), piece, model.trace.scratch)


def _printed(numbers: pa.Array) -> pa.DictionaryArray:
    """Whole numbers as texts, each printed once."""
    coded = numbers.dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(pa.string()))
