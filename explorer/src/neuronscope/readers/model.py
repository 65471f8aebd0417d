"""`Trace` → the tables of the store: ids, tracks and lanes, operator calls, links, executions, gaps, steps.

`build` lists the passes in order; each fills its part of the `Model`. A pass looks at some rows at once (`ranges`) and
puts what is as long as the trace into `Model.keep`, so that memory does not grow with the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.index.arrays import Room
from neuronscope.readers import event_rows, executions, flows, gaps, lanes, tracks
from neuronscope.readers.exact import Int64
from neuronscope.readers.executions import Execution
from neuronscope.readers.flows import Links
from neuronscope.readers.gaps import Idle
from neuronscope.readers.keys import Numbering, lookup_sorted, stable_order
from neuronscope.readers.narrow import narrow
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.scratch import CHUNK_ROWS, ranges
from neuronscope.readers.tables import in_pieces, named_table
from neuronscope.readers.trace import DEVICE_ROLES, HOST_ROLES, TEXT_PID, Role, Trace
from neuronscope.readers.wording import iso_time

__all__ = ["Built", "Emit", "MakeRoom", "Model", "build"]

_STEP = re.compile(r"ProfilerStep#(\d+)$")
_STRONG = (Role.OP, Role.RUNTIME, Role.DISPATCH, Role.ANNOTATION, Role.NRT)
_LAST_DEVICE = 2**31 - 1
ON_DEVICE = (*DEVICE_ROLES, Role.DRIVER, Role.DEVICE_ANNOTATION, Role.ENGINE)
NOT_DRAWN = (Role.SPAN, Role.INSTANT)


class Built:
    """The small finished tables, and the figures of the ingest's result."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.slices = 0
        self.device_slices = 0
        self.device_time_ns = 0
        self.device_busy_ns = 0
        self.processes = 0


Emit = Callable[[str, Iterator[pa.Table]], None]
MakeRoom = Callable[[str, tuple[str, ...]], Room]


def build(trace: Trace, emit: Emit, room: MakeRoom) -> Built:
    """Make the tables of a trace.

    Those that are as large as the file go to `emit` in pieces, early: another thread can write one while the next is
    made. Indexes over some of them are made in a `room` meanwhile. `trace.events` is used up.
    """
    model = Model(trace)
    emit("SystemProfileEvents", event_rows.pieces(model))
    model.find_steps()
    model.find_operators()
    emit("HostOp", model.host_operators())
    model.link_hosts()
    executions.make(model)
    executions.place(model)
    gaps.make(model)
    emit("Execution", executions.pieces(model))
    tracks.make(model, emit, room)
    emit("Gap", gaps.pieces(model))
    emit("Flow", flows.pieces(model))
    model.end_steps()
    return model.finish()


class Model:
    """Columns of the profile in the order of their ids, growing pass by pass."""

    execution: Execution
    idle: Idle
    thread: Int64  # code of each event's thread
    threads: list[tuple[int, int]]  # (pid, tid) by code
    thread_roles: Int64  # events by code of the thread and role
    owner: Int64  # process of the events of a thread and role; device work may belong to another
    process: Int64  # of each event
    several: bool  # more than one process launches work
    op_of: Int64  # operator call each event belongs to (event row), -1 none
    track_code: Int64  # of each event's track, -1 for what isn't drawn
    track_number: npt.NDArray[np.int32]  # of a track by its code

    def __init__(self, trace: Trace) -> None:
        """Ids are rows in order of start; of equal starts the longest first, so that parents precede children."""
        self.trace = trace
        self.built = Built()
        self.tables = self.built.tables
        self.rank = trace.ranks[0] if len(trace.ranks) == 1 else -1
        ev = self.ev = trace.events = trace.events if trace.ordered else trace.events.sorted_by_start()
        self.names: list[str] = ev.name.dictionary.to_pylist()
        self.name_code = ev.name.indices.to_numpy()
        self._name_index = {name: code for code, name in enumerate(self.names)}
        self.ascend = "Ascend Hardware" in trace.process_names.values()
        self.links: Links | None = None  # arrows of the file, once they are asked for
        self._check_devices()
        self._assign_processes()

    def keep(self, values: npt.NDArray[np.signedinteger]) -> Int64:
        """The same numbers where they cost little memory; not to be changed any more."""
        kept = self.trace.scratch.kept(narrow(values))
        if len(values) > CHUNK_ROWS:  # what they were made from was as long
            self.trace.scratch.forget()
        return kept

    def _check_devices(self) -> None:
        """Leave out numbers that no device has."""
        for column in ("device", "nc", "pcore"):
            values = getattr(self.ev, column)
            if values.dtype.itemsize > 4 and (beyond := (values > _LAST_DEVICE) | (values < -1)).any():
                object.__setattr__(self.ev, column, np.where(beyond, -1, values))
                self.note(
                    "impossible_device",
                    int(beyond.sum()),
                    f"event has a {column} number beyond 32 bits, which is left out",
                    f"events have {column} numbers beyond 32 bits, which are left out",
                    np.flatnonzero(beyond),
                )

    # Processes and threads

    def _assign_processes(self) -> None:
        """Host process of every row; device rows carry a device number instead and belong to who launched them."""
        ev = self.ev
        threads, numbering = self.trace.scratch.column(), Numbering()
        counts = np.zeros((0, len(Role)), np.int64)  # rows of each thread and role
        for low, high in ranges(len(ev)):
            codes = numbering.codes(ev.pid[low:high], ev.tid[low:high])
            threads.append(narrow(codes))
            counts = np.pad(counts, ((0, len(numbering.seen) - len(counts)), (0, 0)))
            counts += np.bincount(codes * len(Role) + ev.role[low:high], minlength=counts.size).reshape(counts.shape)
        self.thread = threads.finish()
        self.threads = [(key[0], key[1]) for key in numbering.seen]  # (pid, tid) by code
        pid_of = np.array([pid for pid, _ in self.threads], np.int64)
        strong_roles = [role for role in _STRONG if not (self.ascend and role == Role.RUNTIME)]
        working: Counter[int] = Counter()
        for pid, rows in zip(pid_of.tolist(), counts[:, strong_roles].sum(axis=1).tolist(), strict=True):
            working[pid] += rows
        pids = sorted(pid for pid, rows in working.items() if rows)
        self.main_pid = max(pids, key=lambda pid: working[pid]) if pids else -1
        owner = np.repeat(pid_of[:, None], len(Role), axis=1)
        if pids:
            owner[:, ON_DEVICE] = self.main_pid
            owner[~np.isin(pid_of, pids), Role.PYTHON] = self.main_pid
            # Kineto's rows about the recording ("Spans", "Traces") name no process: their text pid is negative.
            owner[np.ix_(pid_of <= TEXT_PID, np.array(NOT_DRAWN))] = self.main_pid
            if self.ascend:
                owner[:, Role.RUNTIME] = self.main_pid
        self.thread_roles, self.owner = counts, owner
        self.several = len(pids) > 1
        self.process = self._owners(narrow(owner.ravel()))
        shown = np.isin(np.arange(len(Role)), NOT_DRAWN, invert=True)
        on_host = shown & np.isin(np.arange(len(Role)), (*ON_DEVICE, Role.OVERHEAD), invert=True)
        hosts, drawn = ({*owner[(counts > 0) & roles].tolist()} for roles in (on_host, shown))
        self.built.processes = len(hosts or drawn)
        self.trace.scratch.forget()

    def _owners(self, owner: Int64) -> Int64:
        """The process of every row: of its thread and role, or, where there are several, of who launched it."""
        ev, column = self.ev, self.trace.scratch.column()
        launch_ids, launch_pids = self._launching() if self.several else (np.zeros(0, np.int64), np.zeros(0, np.int64))
        for low, high in ranges(len(ev)):
            found = owner[self.thread[low:high].astype(np.int32) * len(Role) + ev.role[low:high]]
            if len(launch_ids):
                there = np.isin(ev.role[low:high], ON_DEVICE) & (ev.correlation[low:high] >= 0)
                rows = np.flatnonzero(there)
                at = lookup_sorted(launch_ids, np.arange(len(launch_ids)), ev.correlation[low:high][rows])
                found = found.astype(np.int64)
                found[rows[at >= 0]] = launch_pids[at[at >= 0]]
                found = narrow(found)
            column.append(found)
        return column.finish()

    def _launching(self) -> tuple[Int64, Int64]:
        """Correlation ids of launch calls in order, and their processes."""
        ev = self.ev
        launches = self.launches()
        order = np.argsort(ev.correlation[launches], kind="stable")
        return ev.correlation[launches][order], ev.pid[launches][order]

    def launches(self) -> Int64:
        """Rows of host calls that may have launched device work."""
        rows = self.ev.of(Role.RUNTIME, Role.DISPATCH)
        return rows[self.ev.correlation[rows] >= 0]

    # Steps and operators

    def find_steps(self) -> None:
        """ProfilerStep#N ranges of the host."""
        codes = {code: int(match[1]) for code, name in enumerate(self.names) if (match := _STEP.match(name))}
        found = np.zeros(0, np.int64)
        if codes:
            rows = self.ev.of(*HOST_ROLES)
            found = rows[np.isin(self.name_code[rows], list(codes))]
        self.step_rows = found
        self.step_number = np.array([codes[int(code)] for code in self.name_code[found]], np.int64)
        self.step_names = [self.names[int(code)] for code in self.name_code[found]]

    def step_at(self, at: Int64) -> Int64:
        """Number of the step that is open at the given times, -1 outside."""
        if not len(self.step_rows):
            return np.broadcast_to(np.int64(-1), len(at))
        start, end = self.ev.start[self.step_rows], self.ev.end[self.step_rows]
        row = np.searchsorted(start, at, "right") - 1
        inside = (row >= 0) & (at <= end[row])
        return np.where(inside, self.step_number[row], -1)

    def find_operators(self) -> None:
        """Operator calls, their parents and self time."""
        ev = self.ev
        in_order = ev.of(Role.OP)
        order = stable_order(self.thread[in_order], len(self.threads))
        rows = self.op_rows = self.keep(in_order[order])  # by thread, like the nesting
        in_order = self.op_in_order = self.keep(in_order)
        thread = self.trace.scratch.take(self.thread, rows)
        parent = np.full(len(rows), -1, order.dtype)
        own, above = np.zeros(len(rows), np.int64), np.empty(len(rows), order.dtype)
        for begin, stop in lanes.groups_of(thread):
            nest = lanes.Nest(begin)
            for low, high in ranges(stop - begin):
                some = rows[begin + low : begin + high]
                start, end = ev.start[some], ev.end[some]
                up = nest.next(start, end)[1]
                parent[begin + low : begin + high] = up
                inner = np.flatnonzero(up >= 0)
                up = up[inner]
                # Less what the calls inside take.
                np.subtract.at(own, order[up], np.minimum(end[inner], ev.end[rows[up]]) - start[inner])
                self.trace.scratch.forget()
        for low, high in ranges(len(rows)):
            some, at, up = rows[low:high], order[low:high], parent[low:high]
            own[at] = np.maximum(ev.end[some] - ev.start[some] + own[at], 0)
            above[at] = np.where(up >= 0, rows[up], -1)
        self.op_self, self.op_parent, self.op_nesting = self.keep(own), self.keep(above), self.keep(parent)
        self.op_bounds = {self.threads[int(thread[low])]: (low, high) for low, high in lanes.groups_of(thread)}
        self.op_of = np.full(len(ev), -1, np.int32 if len(ev) < 2**31 else np.int64)
        self.op_of[rows] = rows
        external = ev.external_id[in_order]
        by_external = np.argsort(external, kind="stable")
        self._op_external, self._op_by_external = self.keep(external[by_external]), self.keep(in_order[by_external])

    def host_operators(self) -> Iterator[pa.Table]:
        """Table HostOp."""
        ev = self.ev
        names = pa.array(self.names)

        def piece(low: int, high: int) -> pa.Table:
            rows = self.op_in_order[low:high]
            start = ev.start[rows]
            return named_table(
                "HostOp",
                {
                    "event_id": rows,
                    "parent_id": self.op_parent[low:high],
                    "name": pa.DictionaryArray.from_arrays(self.name_code[rows].astype(np.int32), names),
                    "thread_id": ev.tid[rows],
                    "start_ts": start,
                    "end_ts": ev.end[rows],
                    "self_cpu_ns": self.op_self[low:high],
                    "external_id": ev.external_id[rows],
                    "step": self.step_at(start),
                    "rank": np.full(len(rows), self.rank, np.int32),
                },
            )

        return in_pieces(len(self.op_in_order), piece, self.trace.scratch)

    def operator_by_external(self, external: Int64) -> Int64:
        """Row of the operator call with the given torch id, -1 none."""
        found = lookup_sorted(self._op_external, self._op_by_external, external)
        return np.where(external > 0, found, -1)

    def parent_operator(self, rows: Int64) -> Int64:
        """Row of the operator call around each operator call, -1 none and for -1."""
        if not len(self.op_in_order):
            return np.full(len(rows), -1, np.int64)
        at = np.minimum(np.searchsorted(self.op_in_order, rows), len(self.op_in_order) - 1)
        return np.where((rows >= 0) & (self.op_in_order[at] == rows), self.op_parent[at], -1)

    def operator_enclosing(self, rows: Int64) -> Int64:
        """Innermost operator call that is open on the row's thread when the row starts, -1 none."""
        ev, ops = self.ev, self.op_rows
        found = np.full(len(rows), -1, np.int64)
        thread = self.thread[rows]
        for code in np.unique(thread).tolist():
            key = self.threads[code]
            if key not in self.op_bounds and self.ascend:
                key = (self.main_pid, key[1])
            if key not in self.op_bounds:
                continue
            low, high = self.op_bounds[key]
            here = np.flatnonzero(thread == code)
            start, end = ev.start[ops[low:high]], ev.end[ops[low:high]]
            inner = lanes.enclosing_in(self.op_nesting[low:high], start, end, ev.start[rows[here]], low)
            found[here] = np.where(inner >= 0, ops[low + inner], -1)
        return found

    def link_hosts(self) -> None:
        """Host calls → the operator call that made them: by torch id, else by nesting."""
        ev = self.ev
        calls = ev.of(Role.RUNTIME, Role.DISPATCH, Role.DRIVER, Role.NRT, Role.HOST)
        op = self.operator_by_external(ev.external_id[calls])
        nested = np.flatnonzero((op < 0) & (ev.role[calls] != Role.DRIVER))
        op[nested] = self.operator_enclosing(calls[nested])
        self.op_of[calls] = op
        self.trace.scratch.forget()

    # Names

    def code_of(self, name: str) -> int:
        """Code of a name, made when new."""
        code = self._name_index.get(name)
        if code is None:
            code = self._name_index[name] = len(self.names)
            self.names.append(name)
        return code

    # Steps and the end

    def end_steps(self) -> None:
        """Steps end with the last of their device work; the recording's first and last may be cut."""
        ev, rows = self.ev, self.step_rows
        if not len(rows):
            return
        end = ev.end[rows].copy()
        step = self.execution.columns["step"]
        numbers, where = np.unique(self.step_number, return_inverse=True)
        known = np.flatnonzero(step >= 0)
        at = np.searchsorted(numbers, step[known])
        last = np.full(len(numbers), -(2**62), np.int64)
        np.maximum.at(last, at, self.execution.columns["end_ts"][known])
        end = np.maximum(end, last[where])
        complete = np.ones(len(rows), np.bool_)
        if self.trace.recording:
            complete &= (ev.start[rows] > self.trace.recording[0]) & (ev.end[rows] <= self.trace.recording[1])
        seen: set[int] = set()
        for low, high in ranges(len(self.op_in_order)):
            seen.update(np.unique(self.step_at(ev.start[self.op_in_order[low:high]])).tolist())
        busy = np.isin(self.step_number, list(seen))
        if len(rows) > 1 and busy[:-1].any() and not busy[-1]:
            complete[-1] = False  # opened by the last step() and closed by stop()
        self.tables["Step"] = named_table(
            "Step",
            {
                "number": self.step_number,
                "name": self.step_names,
                "start_ts": ev.start[rows],
                "end_ts": end,
                "complete": complete,
                "rank": np.full(len(rows), self.rank, np.int32),
            },
        )

    def finish(self) -> Built:
        """The small tables that are left."""
        ev = self.ev
        if self.trace.file_rows is not None:
            self.tables["OtherEvent"] = self.trace.file_rows.others(self.rank)
        first, last = 2**62, -(2**62)
        for low, high in ranges(len(ev)):
            drawn = ~np.isin(ev.role[low:high], NOT_DRAWN)
            first = min(first, int(ev.start[low:high][drawn].min(initial=first)))
            last = max(last, int(ev.end[low:high][drawn].max(initial=last)))
        if first <= last:
            self.tables["SystemProfileMetadata"] = named_table(
                "SystemProfileMetadata",
                {
                    "first_ts": [iso_time(first)],
                    "last_ts": [iso_time(last)],
                    "first_ts_ns": [str(first)],
                    "last_ts_ns": [str(last)],
                    "ntff_version": [0],
                    "hbm_capacity_bytes": [0],
                },
            )
        return self.built

    def note(self, kind: str, count: int, one: str, many: str, rows: Int64 | None = None, offset: int = -1) -> None:
        """Report a kind of event once; the text goes on after the count.

        Args:
            kind: of the report's row.
            count: how many.
            one: the text for one.
            many: the text for more.
            rows: events it is about; the row tells where the first of them stands in the file.
            offset: where that is, when it is known already.
        """
        if count > 0:
            text = f"1 {one}" if count == 1 else f"{count:,} {many}"
            if rows is not None and self.trace.file_rows is not None:
                names = [self.names[code] for code in self.name_code[rows].tolist()]
                offset = self.trace.file_rows.offset_of(np.asarray(self.ev.start[rows], np.int64), names)
            self.trace.report.append(IngestWarning(kind, int(count), offset, "", "kept", text))
