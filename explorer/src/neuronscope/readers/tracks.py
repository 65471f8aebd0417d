"""Rows of the timeline in the Default grouping, lanes inside them and slices on them: tables Track, Slice, Name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.index.arrays import LEAST_ROWS
from neuronscope.index.slices import SliceIndex
from neuronscope.readers import lanes
from neuronscope.readers.exact import Int64
from neuronscope.readers.keys import Numbering, lookup_sorted, stable_order
from neuronscope.readers.narrow import Coded, constant, narrow
from neuronscope.readers.scratch import ranges
from neuronscope.readers.tables import in_pieces, named_table
from neuronscope.readers.trace import DEVICE_ROLES, HOST_ROLES, Role
from neuronscope.readers.track_labels import Place, Section, track_table

if TYPE_CHECKING:
    from neuronscope.readers.model import Emit, MakeRoom, Model

__all__ = ["make", "track_of"]

_NOT_DRAWN = (Role.SPAN, Role.INSTANT)
_STACKED = (Section.FRAMEWORK, Section.RUNTIME, Section.OVERHEAD, Section.NRT)  # lanes are depths of nesting
_BY_THREAD = (Section.FRAMEWORK, Section.RUNTIME, Section.OVERHEAD, Section.ASYNC)
_SECTIONS = {
    Role.RUNTIME: Section.RUNTIME,
    Role.OVERHEAD: Section.OVERHEAD,
    Role.ASYNC: Section.ASYNC,
    Role.DRIVER: Section.STREAM,
    Role.NRT: Section.NRT,
    Role.DEVICE_ANNOTATION: Section.DEVICE_NOTES,
    Role.ENGINE: Section.ENGINES,
    **dict.fromkeys(DEVICE_ROLES, Section.HARDWARE),
}


@dataclass(frozen=True)
class _Drawn:
    """Slices in the order of their table: event rows and lanes; how many each track has; lanes of the deepest."""

    rows: Int64
    lane: Int64
    counts: Int64
    depth: int


def make(model: Model, emit: Emit, room: MakeRoom) -> None:
    """Find the tracks, give every slice a lane, and begin to write the slices."""
    places = _place(model)
    main_threads = _main_threads(model)
    listed = sorted(places.seen, key=lambda key: _drawing_order(model, _place_of(key), main_threads))
    number = np.full(len(places.seen) + 1, -1, np.int32)  # of a track by its code; the last one for what isn't drawn
    number[[places.seen[key] for key in listed]] = np.arange(len(listed))
    model.track_number = number
    by_track = _by_track(model, [places.seen[key] for key in listed])
    rows, lane = model.trace.scratch.column(), model.trace.scratch.column()
    depth, counts = [], []
    crossing: list[Int64] = [np.zeros(0, np.int64)]
    overlapping: list[Int64] = [np.zeros(0, np.int64)]
    for key, events in zip(listed, by_track, strict=True):
        column, nest, free = model.trace.scratch.column(), lanes.Nest(), lanes.Lanes()
        for low, high in ranges(len(events)):
            some = events[low:high]
            start, end = model.ev.start[some], model.ev.end[some]
            column.append(narrow(nest.next(start, end)[0] if key[1] in _STACKED else free.next(start, end)))
            model.trace.scratch.forget()
        of_track = column.finish()
        crossing += [events[some] for some in nest.crossing]
        depth.append(int(of_track.max()) + 1)
        counts.append(len(events))
        if depth[-1] > 1 and key[1] == Section.HARDWARE:
            overlapping.append(events[np.flatnonzero(of_track)])
        if depth[-1] > 1:
            order = stable_order(of_track, depth[-1])
            for low, high in ranges(len(order)):
                rows.append(events[order[low:high]])
                lane.append(of_track[order[low:high]])
        else:
            rows.append(events)
            lane.append(of_track)
    crossed = np.concatenate(crossing)
    model.note(
        "nesting_violation",
        len(crossed),
        "host interval ends after the one it began in; both are shown in full",
        "host intervals end after the one they began in; both are shown in full",
        crossed,
    )
    overlapped = np.concatenate(overlapping)
    rest = "device time is more than busy time"
    model.note(
        "overlapping",
        len(overlapped),
        f"device slice begins before the one before it on its stream has ended; both are counted, so {rest}",
        f"device slices begin before the one before them on their stream has ended; all are counted, so {rest}",
        overlapped,
    )
    drawn = _Drawn(rows.finish(), lane.finish(), np.array(counts, np.int64), max(depth, default=0))
    model.built.slices = len(drawn.rows)
    emit("Slice", _slices(model, drawn, room))
    found = [(_place_of(key), lanes_in) for key, lanes_in in zip(listed, depth, strict=True)]
    model.tables["Track"] = track_table(model.trace, model.main_pid, model.rank, found, main_threads)
    model.trace.scratch.forget()


def _place_of(key: tuple[int, ...]) -> Place:
    process, section, first, second = key
    return Place(process, Section(section), first, second)


def track_of(model: Model) -> Callable[[Int64], Int64]:
    """Gives the track of events, -1 for those that are not drawn."""
    return lambda rows: model.track_number[model.track_code[rows]]


def _place(model: Model) -> Numbering:
    """Code of every event's track, into `model.track_code`: -1 for what isn't drawn."""
    ev, neuron = model.ev, model.trace.neuron
    section_of = np.full(len(Role), Section.FRAMEWORK, np.int8)
    for kind, section in _SECTIONS.items():
        section_of[kind] = section
    if neuron:
        section_of[Role.MEMCPY] = Section.TRANSFERS
    codes, numbering = model.trace.scratch.column(), Numbering()
    by_thread = np.isin(section_of, _BY_THREAD)  # roles
    by_thread[[*_NOT_DRAWN]] = False
    thread, role = np.nonzero((model.thread_roles > 0) & by_thread)
    tid = np.array([tid for _, tid in model.threads], np.int64)
    of_thread = np.full(model.owner.shape, -1, np.int64)
    of_thread[thread, role] = numbering.codes(
        model.owner[thread, role], section_of[role], tid[thread], constant(-1, len(thread))
    )
    of_thread = narrow(of_thread.ravel())
    there_of = ~by_thread  # few events of most traces
    there_of[[*_NOT_DRAWN]] = False
    for low, high in ranges(len(ev)):
        roles = ev.role[low:high]
        code = of_thread[model.thread[low:high].astype(np.int32) * len(Role) + roles]
        there = low + np.flatnonzero(there_of[roles])
        if neuron:  # "neuron capture", a marker without extent
            there = there[(ev.role[there] != Role.DEVICE_ANNOTATION) | (ev.end[there] > ev.start[there])]
        if len(there):
            sections = section_of[ev.role[there]]
            on_device = numbering.codes(model.process[there], sections, *_on_device(model, there, sections))
            code = code.astype(np.int64)
            code[there - low] = on_device
        codes.append(narrow(code))
    model.track_code = codes.finish()
    return numbering


def _on_device(model: Model, rows: Int64, section: npt.NDArray[np.int8]) -> tuple[Int64, Int64]:
    """What tells tracks of devices apart: device or core, stream or physical core."""
    ev = model.ev
    hardware = section == Section.HARDWARE
    nc, stream = ev.nc[rows], ev.stream[rows]
    first = np.where(section == Section.STREAM, stream, ev.device[rows])
    on_core = hardware & (nc >= 0)
    engines = section == Section.ENGINES
    first = np.where((section == Section.NRT) | (section == Section.TRANSFERS) | engines | on_core, nc, first)
    second = np.where(hardware | engines | (section == Section.DEVICE_NOTES), stream, -1)
    second = np.where(on_core, ev.pcore[rows], second)
    if model.trace.neuron:
        second = np.where(hardware & (nc < 0), -1, second)
    return first, second


def _drawing_order(model: Model, place: Place, main_threads: Mapping[int, int]) -> tuple[Any, ...]:
    """Main process first; sections in their order; the main thread before the others."""
    beside = place.section <= Section.RUNTIME and place.first != main_threads.get(place.process)
    return place.process != model.main_pid, place.process, place.section.order, beside, place.first, place.second


def _by_track(model: Model, codes: list[int]) -> Iterator[Int64]:
    """Event rows of each track, in order of start."""
    count = int(model.track_code.max(initial=-1)) + 1
    rows = stable_order(model.track_code, count)
    sizes = np.zeros(count, np.int64)
    for low, high in ranges(len(model.track_code)):
        sizes += np.bincount(model.track_code[low:high].astype(np.int64) + 1, minlength=count + 1)[1:]
    ends = np.cumsum(sizes)
    return (rows[ends[code] - sizes[code] : ends[code]] for code in codes)


def _main_threads(model: Model) -> dict[int, int]:
    """Per process the thread with most operator calls."""
    roles = [Role.OP] if model.thread_roles[:, Role.OP].any() else [*HOST_ROLES]
    counts: Counter[tuple[int, int]] = Counter()
    for role in roles:
        for at in np.flatnonzero(model.thread_roles[:, role]).tolist():
            counts[int(model.owner[at, role]), model.threads[at][1]] += int(model.thread_roles[at, role])
    found: dict[int, tuple[int, int]] = {}
    for (process, thread), count in sorted(counts.items()):
        if process not in found or count > found[process][0]:
            found[process] = count, thread
    return {process: thread for process, (_, thread) in found.items()}


def _slices(model: Model, drawn: _Drawn, room: MakeRoom) -> Iterator[pa.Table]:
    """Table Slice in pieces, and of a long one the index on the way; makes table Name."""
    ev, rows = model.ev, drawn.rows
    of_executions = _of_executions(model) if model.trace.neuron else None

    def operator_names(events: Int64) -> Int64:
        op = model.op_of[events]
        codes = np.where(op >= 0, model.name_code[op], model.name_code[events])
        if of_executions is not None:
            codes = np.where(of_executions.op[events] >= 0, of_executions.op[events], codes)
        return codes

    executed = [_texts_in(model.execution.columns[name]) for name in ("name", "op")]
    for name in dict.fromkeys(name for texts in executed for name in texts):
        model.code_of(name)
    used = np.zeros(len(model.names), np.bool_)
    last, origin, shortest, longest = 0, 2**62, 2**62, 0
    for low, high in ranges(len(rows)):
        events = rows[low:high]
        used[model.name_code[events]] = True
        used[operator_names(events)] = True
        start = ev.start[events]
        duration = ev.end[events] - start
        last, origin = max(last, int(events.max())), min(origin, int(start.min()))
        shortest, longest = min(shortest, int(duration.min())), max(longest, int(duration.max()))
        model.trace.scratch.forget()
    listed = dict.fromkeys(np.flatnonzero(used).tolist())
    listed.update({model.code_of(name): None for texts in executed for name in texts if name})
    dense = np.zeros(len(model.names) + 1, np.int64)
    dense[list(listed)] = np.arange(len(listed))
    names = [model.names[code] for code in listed]
    model.tables["Name"] = named_table("Name", {"name_id": np.arange(len(listed)), "name": names})
    ends = np.cumsum(drawn.counts)
    index = None
    if len(rows) >= LEAST_ROWS:
        launches = 0 if of_executions is None else int(of_executions.launch.max())
        limits = {
            "event_id": (0, last),
            "track": (0, len(ends) - 1),
            "lane": (0, drawn.depth - 1),
            "duration": (shortest, longest),
            "name_id": (0, len(listed) - 1),
            "op_id": (0, len(listed) - 1),
            "launch_ns": (0, launches),
            "estimated": (0, int(of_executions is not None and of_executions.estimated.any())),
        }
        index = SliceIndex(room("timeline", ("Slice",)), limits, len(rows))

    def piece(low: int, high: int) -> pa.Table:
        events = rows[low:high]
        launch, estimated = constant(0, high - low), np.zeros(high - low, np.bool_)
        if of_executions is not None:
            launch, estimated = of_executions.launch[events], of_executions.estimated[events]
        start, end = ev.start[events], ev.end[events]
        columns = {
            "event_id": events,
            "track_id": np.searchsorted(ends, np.arange(low, high), "right"),
            "lane": drawn.lane[low:high],
            "start_ts": start,
            "end_ts": end,
            "name_id": dense[model.name_code[events]],
            "op_id": dense[operator_names(events)],
            "launch_ns": launch,
            "estimated": estimated,
        }
        if index is not None:
            times = {"start": start - origin, "duration": end - start, "track": columns["track_id"]}
            index.append({**columns, **times})
            if high == len(rows):
                index.finish()
        return named_table("Slice", columns)

    return in_pieces(len(rows), piece, model.trace.scratch)


def _texts_in(column: Coded) -> list[str]:
    """Distinct texts of a column in order of appearance."""
    codes, first = np.unique(column.codes, return_index=True)
    return list(dict.fromkeys(column.texts[code] for code in codes[np.argsort(first)].tolist()))


@dataclass(frozen=True)
class _OfExecutions:
    """What our emulator's executions say of each event: code of the operator (-1 none), launch cost, estimate."""

    op: Int64
    launch: Int64
    estimated: npt.NDArray[np.bool_]


def _of_executions(model: Model) -> _OfExecutions:
    ev, execution = model.ev, model.execution.columns
    found = _OfExecutions(np.full(len(ev), -1, np.int64), np.zeros(len(ev), np.int64), np.zeros(len(ev), np.bool_))
    identity = execution["execution_id"]
    order = np.argsort(identity, kind="stable")
    owned = np.flatnonzero((ev.execution_id >= 0) & ~np.isin(ev.role, _NOT_DRAWN))
    at = lookup_sorted(identity[order], order, ev.execution_id[owned])
    owned, at = owned[at >= 0], at[at >= 0]
    names: Coded = execution["op"]
    code_of = {name: model.code_of(name) for name in _texts_in(names)}
    codes = np.array([code_of.get(name, -1) for name in names.texts] or [-1], np.int64)
    named = ~names.equal("")[at]
    found.op[owned[named]] = codes[names.codes[at[named]]]
    hardware = np.isin(ev.role[owned], DEVICE_ROLES)
    found.launch[owned[hardware]] = np.maximum(execution["launch_ns"], 0)[at[hardware]]
    found.estimated[owned[hardware]] = (execution["estimated_ns"] > 0)[at[hardware]]
    return found
