"""Idle time of devices before each execution, with its cause where the file can tell: table Gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from neuronscope.readers import lanes, tracks
from neuronscope.readers.exact import Int64
from neuronscope.readers.keys import pair_codes, stable_order
from neuronscope.readers.narrow import Coded, narrow
from neuronscope.readers.scratch import ranges
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
    execution, scratch = model.execution.columns, model.trace.scratch
    start = execution["start_ts"]
    before, previous = _work_before(model)
    told = execution["gap_ns"] if "gap_cause" in execution else None  # recorded
    gaps, causes = scratch.column(), scratch.column()
    found = [np.zeros(0, np.int64)]
    for low, high in ranges(len(start)):
        some = slice(low, high)
        ended, begins = before[some], start[some]
        gap = np.where(ended >= 0, np.maximum(begins - ended, 0), -1)
        if told is not None:
            gap = np.where((ended >= 0) & (told[some] < 0), gap, told[some])
        else:
            enqueued = execution["enqueue_ts"][some]
            called = np.where(enqueued >= 0, enqueued, execution["launch_ts"][some])
            late = (called >= 0) & (called > ended)
            causes.append(np.where(ended < 0, 0, np.where(late, 1, 2)).astype(np.int8))
        gaps.append(narrow(gap))
        found.append(low + np.flatnonzero((gap > 0) & (ended >= 0)))
        scratch.forget()
    if told is None:
        execution["gap_cause"] = Coded(causes.finish(), ["first", "host_late", "unknown"])
    execution["gap_ns"] = gaps.finish()
    rows = np.concatenate(found)
    begins = scratch.take(start, rows)
    if (begins[1:] < begins[:-1]).any():
        rows = rows[np.argsort(begins, kind="stable")]
    events = execution["event_id"][previous[rows]] if len(rows) else rows
    model.idle = Idle(model.keep(rows), model.keep(before[rows]), model.keep(events))
    scratch.forget()


def _work_before(model: Model) -> tuple[Int64, Int64]:
    """For each execution the latest end of those that began earlier on its device, and which that is; -1 none."""
    execution = model.execution.columns
    start, end, count = execution["start_ts"], execution["end_ts"], len(model.execution)
    device = narrow(pair_codes(execution["process_id"], execution["device"]))
    ordered = all((start[low + 1 : high + 1] >= start[low:high]).all() for low, high in ranges(max(count - 1, 0)))
    order = stable_order(device, int(device.max(initial=0)) + 1) if ordered else np.lexsort((start, device))
    before = np.full(count, -1, np.int64)
    previous = np.full(count, -1, order.dtype)
    for begin, past in lanes.groups_of(device[order]):
        latest, holder = np.zeros(0, np.int64), order[:0]  # end and row of the work that ends last so far
        for low, high in ranges(past - begin):
            rows = order[begin + low : begin + high]
            ends, held = np.concatenate((latest, end[rows])), np.concatenate((holder, rows))
            reach = np.maximum.accumulate(ends)
            leads = np.concatenate(([True], ends[1:] > reach[:-1]))
            by = held[np.maximum.accumulate(np.where(leads, np.arange(len(ends)), 0))]
            later = rows[1 - len(latest) :]  # all but the first of the device
            before[later], previous[later] = reach[:-1], by[:-1]
            latest, holder = reach[-1:], by[-1:]
            model.trace.scratch.forget()
    return before, previous


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
