"""Idle time of devices before each execution, with its cause where the file can tell: table Gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from neuronscope.readers import lanes, tracks
from neuronscope.readers.exact import Int64
from neuronscope.readers.keys import latest_row, pair_codes
from neuronscope.readers.narrow import Coded
from neuronscope.readers.tables import in_pieces, named_table
from neuronscope.readers.trace import DEVICE_ROLES
from neuronscope.readers.wording import gap_texts

if TYPE_CHECKING:
    from neuronscope.readers.model import Model

__all__ = ["Idle", "make", "pieces"]


@dataclass(frozen=True)
class Idle:
    """Executions that a gap precedes, in order of start: their rows, the end of the work before, and its event."""

    rows: Int64
    before: Int64
    previous: Int64


def make(model: Model) -> None:
    """Columns `gap_ns` and `gap_cause` of the executions, and where gaps are."""
    execution = model.execution.columns
    start, end = execution["start_ts"], execution["end_ts"]
    count = len(start)
    device = pair_codes(execution["process_id"], execution["device"])
    order = np.lexsort((start, device))
    before = np.full(count, -1, np.int64)
    before[order] = lanes.running_end(device[order], end[order])
    previous = np.full(count, -1, np.int64)
    previous[order] = latest_row(device[order], end[order], order)
    gap = np.where(before >= 0, np.maximum(start - before, 0), -1)
    if "gap_cause" in execution:  # recorded
        told = execution["gap_ns"]
        gap = np.where(before >= 0, np.where(told >= 0, told, gap), told)
    else:
        called = np.where(execution["enqueue_ts"] >= 0, execution["enqueue_ts"], execution["launch_ts"])
        late = (called >= 0) & (called > before)
        cause = np.where(before < 0, 0, np.where(late, 1, 2)).astype(np.int8)
        execution["gap_cause"] = Coded(model.keep(cause), ["first", "host_late", "unknown"])
    execution["gap_ns"] = model.keep(gap)
    rows = np.flatnonzero((gap > 0) & (before >= 0))
    rows = rows[np.argsort(start[rows], kind="stable")]
    previous = execution["event_id"][previous[rows]] if len(rows) else rows
    model.idle = Idle(model.keep(rows), model.keep(before[rows]), model.keep(previous))
    model.trace.scratch.forget()


def pieces(model: Model) -> Iterator[pa.Table]:
    """Table Gap: one row per gap and physical core whose track shows it; that of the execution's own event first."""
    idle, execution = model.idle, model.execution.columns
    index, following = _over_cores(model)
    track = tracks.track_of(model)

    def piece(low: int, high: int) -> pa.Table:
        at = index[low:high]
        rows, before = idle.rows[at], idle.before[at]
        start, gap, events = execution["start_ts"][rows], execution["gap_ns"][rows], following[low:high]
        called = np.where(
            execution["enqueue_ts"][rows] >= 0, execution["enqueue_ts"][rows], execution["launch_ts"][rows]
        )
        cause = execution["gap_cause"][rows]
        return named_table(
            "Gap",
            {
                "gap_id": np.arange(low, high),
                "start_ts": start - gap,
                "end_ts": start,
                "cause": Coded(cause.codes, ["unknown" if text == "first" else text for text in cause.texts]),
                "text": gap_texts(gap, cause, called, before, start),
                "previous_event_id": idle.previous[at],
                "next_event_id": events,
                "track_id": track(events),
                "rank": np.full(high - low, model.rank, np.int32),
            },
        )

    return in_pieces(len(index), piece, model.trace.scratch)


def _over_cores(model: Model) -> tuple[Int64, Int64]:
    """For each row of the table the gap and the event that follows it on the track."""
    ev, execution, rows = model.ev, model.execution.columns, model.idle.rows
    following = execution["event_id"][rows]
    if not model.trace.neuron or not (execution["physical_cores"] > 1).any():
        return np.arange(len(rows)), following
    hardware = ev.of(*DEVICE_ROLES)
    hardware = hardware[(ev.execution_id[hardware] >= 0) & (ev.pcore[hardware] >= 0)]
    hardware = hardware[np.argsort(ev.execution_id[hardware], kind="stable")]
    identity = execution["execution_id"][rows]
    low = np.searchsorted(ev.execution_id[hardware], identity)
    high = np.searchsorted(ev.execution_id[hardware], identity, "right")
    count = np.maximum(high - low, 1)
    index = np.repeat(np.arange(len(identity)), count)
    rank = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    found = (high > low)[index]
    events = np.where(found, hardware[np.minimum(low[index] + rank, len(hardware) - 1)], following[index])
    return index, events
