"""`Trace` → the tables of the store: ids, tracks and lanes, operator calls, links, executions, gaps, steps.

`build` lists the passes in order; each fills its part of `_Model`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.readers import lanes
from neuronscope.readers.arguments import Inputs, attributes, decode, emulator_facts, print_inputs, texts_of
from neuronscope.readers.attribution import contexts
from neuronscope.readers.exact import Int64, TextColumn
from neuronscope.readers.keys import codes_of, latest_row, lookup, lookup_sorted, match_arrows, pair_codes
from neuronscope.readers.narrow import narrow
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.tables import named_table
from neuronscope.readers.trace import DEVICE_ROLES, HOST_ROLES, TEXT_PID, Events, Role, Trace
from neuronscope.readers.wording import gap_texts, iso_time
from neuronscope.schema.published import arrow_schema

__all__ = ["Built", "build"]

Bools = npt.NDArray[np.bool_]

_STEP = re.compile(r"ProfilerStep#(\d+)$")
_ROWS_AT_ONCE = 65_536
_LAUNCH = re.compile(r"(?i)launch|memcpy|memset")
_GRAPH_LAUNCH = re.compile(r"(?i)graph_?launch")
_LAST_DEVICE = 2**31 - 1
_NO_WORK_TASKS = re.compile(r"(?i)event|notify|wait|record|placeholder|profiling|model_maintaince")


class Built:
    """The finished tables, and the figures of the ingest's result."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.device_slices = 0
        self.device_time_ns = 0
        self.device_busy_ns = 0
        self.processes = 0


Emit = Callable[[str, Iterator[pa.Table]], None]


def build(trace: Trace, emit: Emit) -> Built:
    """Make the tables of a trace.

    The one that is as large as the file goes to `emit` in pieces, early: its rows are known before any link is, and
    another thread can write it meanwhile. `trace.events` is used up.
    """
    model = _Model(trace)
    model.sort()
    model.assign_processes()
    emit("SystemProfileEvents", model.events_pieces())
    for step in (
        model.find_operators,
        model.find_steps,
        model.link_hosts,
        model.make_executions,
        model.place_executions,
        model.make_gaps,
        model.make_tracks,
        model.make_flows,
        model.end_steps,
    ):
        step()
    return model.finish()


class _Model:
    """Columns of the profile in the order of their ids, growing pass by pass."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.edges: list[tuple[Int64, Int64, str]] = []
        self.built = Built()
        self.tables = self.built.tables
        self.rank = trace.ranks[0] if len(trace.ranks) == 1 else -1
        self.busy: tuple[Int64, Int64, Int64] | None = None  # device, start, end of what keeps devices busy

    # Order, processes, operators

    def sort(self) -> None:
        """Ids are rows in order of start; of equal starts the longest first, so that parents precede children."""
        trace = self.trace
        ev = self.ev = trace.events = trace.events if trace.ordered else trace.events.sorted_by_start()
        for column in ("device", "nc", "pcore"):
            values = getattr(ev, column)
            if values.dtype.itemsize > 4 and (beyond := (values > _LAST_DEVICE) | (values < -1)).any():
                object.__setattr__(ev, column, np.where(beyond, -1, values))
                self.note(
                    "impossible_device",
                    int(beyond.sum()),
                    f"event has a {column} number beyond 32 bits, which is left out",
                    f"events have {column} numbers beyond 32 bits, which are left out",
                )
        self.ids = np.arange(len(ev), dtype=np.int64)
        self.host = np.isin(ev.role, [*HOST_ROLES])
        self.device = np.isin(ev.role, [*DEVICE_ROLES])
        self.names: list[str] = ev.name.dictionary.to_pylist()
        self.name_code = ev.name.indices.to_numpy().astype(np.int64)
        self.name_index = {name: code for code, name in enumerate(self.names)}

    def assign_processes(self) -> None:
        """Host process of every row; device rows carry a device number instead and belong to who launched them."""
        ev = self.ev
        strong = np.isin(ev.role, (Role.OP, Role.RUNTIME, Role.DISPATCH, Role.ANNOTATION, Role.NRT))
        if self._is_ascend():
            strong &= ev.role != Role.RUNTIME
        pids, counts = np.unique(ev.pid[strong], return_counts=True)
        self.main_pid = int(pids[counts.argmax()]) if len(pids) else -1
        process = ev.pid.copy()
        on_device = self.device | np.isin(ev.role, (Role.DRIVER, Role.DEVICE_ANNOTATION))
        if len(pids):
            process[on_device] = self.main_pid
            strays = (ev.role == Role.PYTHON) & ~np.isin(ev.pid, pids)
            process[strays] = self.main_pid
            # Kineto's rows about the recording ("Spans", "Traces") name no process: a text pid has a negative number.
            process[np.isin(ev.role, (Role.SPAN, Role.INSTANT)) & (ev.pid <= TEXT_PID)] = self.main_pid
            if self._is_ascend():
                process[ev.role == Role.RUNTIME] = self.main_pid
        if len(pids) > 1:
            launches = np.flatnonzero((ev.correlation >= 0) & np.isin(ev.role, (Role.RUNTIME, Role.DISPATCH)))
            rows = np.flatnonzero(on_device & (ev.correlation >= 0))
            launch = lookup(ev.correlation[launches], launches, ev.correlation[rows])
            process[rows[launch >= 0]] = ev.pid[launch[launch >= 0]]
        self.process = process
        drawn = ~np.isin(ev.role, (Role.SPAN, Role.INSTANT))
        hosts = drawn & ~on_device & (ev.role != Role.OVERHEAD)
        self.built.processes = len(np.unique(process[hosts if hosts.any() else drawn]))

    def _is_ascend(self) -> bool:
        return "Ascend Hardware" in self.trace.process_names.values()

    def find_operators(self) -> None:
        """Operator calls, their parents and self time."""
        ev = self.ev
        rows = np.flatnonzero(ev.role == Role.OP)
        thread = pair_codes(ev.pid[rows], ev.tid[rows])
        order = np.argsort(thread, kind="stable")
        rows, thread = rows[order], thread[order]
        start, end = ev.start[rows], ev.end[rows]
        self.op_rows = rows
        self.op_nesting = lanes.nest(thread, start, end)
        parent = self.op_nesting.parent
        inner = np.flatnonzero(parent >= 0)
        overlap = np.minimum(end[inner], end[parent[inner]]) - start[inner]
        children = np.bincount(parent[inner], weights=overlap, minlength=len(rows)).astype(np.int64)
        self.op_self = np.maximum(end - start - children, 0)
        self.op_parent = np.where(parent >= 0, rows[parent], -1)
        self.op_bounds = {
            (int(ev.pid[rows[low]]), int(ev.tid[rows[low]])): (low, high) for low, high in lanes.groups_of(thread)
        }
        self.op_of = np.full(len(ev), -1, np.int64)  # operator call each event belongs to (event row)
        self.op_of[rows] = rows
        by_external = np.argsort(ev.external_id[rows], kind="stable")
        self.op_external = ev.external_id[rows][by_external]
        self.op_by_external = rows[by_external]

    def operator_by_external(self, external: Int64) -> Int64:
        """Row of the operator call with the given torch id, -1 none."""
        found = lookup_sorted(self.op_external, self.op_by_external, external)
        return np.where(external > 0, found, -1)

    def operator_enclosing(self, rows: Int64) -> Int64:
        """Innermost operator call that is open on the row's thread when the row starts, -1 none."""
        ev = self.ev
        thread = pair_codes(ev.pid[rows], ev.tid[rows])
        found = np.full(len(rows), -1, np.int64)
        values, first = np.unique(thread, return_index=True)
        for value, at in zip(values.tolist(), first.tolist(), strict=True):
            key = (int(ev.pid[rows[at]]), int(ev.tid[rows[at]]))
            if key not in self.op_bounds and self._is_ascend():
                key = (self.main_pid, key[1])
            if key not in self.op_bounds:
                continue
            here = np.flatnonzero(thread == value)
            group = np.zeros(len(here), np.int64)
            ops = self.op_rows
            stacks = lanes.Stacks(self.op_nesting, {0: self.op_bounds[key]}, ev.start[ops], ev.end[ops])
            inner = lanes.enclosing(stacks, group, ev.start[rows[here]])
            found[here] = np.where(inner >= 0, ops[inner] if len(ops) else -1, -1)
        return found

    def find_steps(self) -> None:
        """ProfilerStep#N ranges of the host, and the step of each host event by its start."""
        codes = {code: int(match[1]) for code, name in enumerate(self.names) if (match := _STEP.match(name))}
        rows = np.flatnonzero(np.isin(self.name_code, list(codes)) & (self.host)) if codes else np.zeros(0, np.int64)
        self.step_rows = rows
        self.step_number = np.array([codes[int(code)] for code in self.name_code[rows]], np.int64)
        self.step_names = [self.names[int(code)] for code in self.name_code[rows]]

    def step_at(self, at: Int64) -> Int64:
        """Number of the step that is open at the given times, -1 outside."""
        if not len(self.step_rows):
            return np.full(len(at), -1, np.int64)
        start, end = self.ev.start[self.step_rows], self.ev.end[self.step_rows]
        row = np.searchsorted(start, at, "right") - 1
        inside = (row >= 0) & (at <= end[row])
        return np.where(inside, self.step_number[row], -1)

    def link_hosts(self) -> None:
        """Host calls → the operator call that made them: by torch id, else by nesting."""
        ev = self.ev
        calls = np.flatnonzero(np.isin(ev.role, (Role.RUNTIME, Role.DISPATCH, Role.DRIVER, Role.NRT, Role.HOST)))
        op = self.operator_by_external(ev.external_id[calls])
        nested = np.flatnonzero((op < 0) & (ev.role[calls] != Role.DRIVER))
        op[nested] = self.operator_enclosing(calls[nested])
        self.op_of[calls] = op

    # Device work

    def make_executions(self) -> None:
        if self.trace.executions is not None and self.trace.executions.num_rows:
            self._recorded_executions(self.trace.executions)
        else:
            self._executions_of_rows()
        execution = self.execution
        self.built.device_slices = len(execution["start_ts"])
        self.built.device_time_ns = int(execution["duration_ns"].sum())
        if self.busy is None:
            device = pair_codes(execution["process_id"], execution["device"])
            self.busy = device, execution["start_ts"], execution["end_ts"]
        self.built.device_busy_ns = lanes.busy_ns(*self.busy)

    def _executions_of_rows(self) -> None:
        """Kernels, copies and fills of a trace; rows of our emulator carry their split in the arguments."""
        ev = self.ev
        rows = np.flatnonzero(self.device)
        if self._is_ascend() and len(rows):
            kinds = texts_of(ev, rows, "Task Type")
            rows = rows[np.array([not _NO_WORK_TASKS.search(kind) for kind in kinds], np.bool_)]
        if self.trace.neuron and not len(rows):
            rows = np.flatnonzero(ev.role == Role.DRIVER)  # correlate_device_time=False: no execution rows
        count = len(rows)
        launches = np.flatnonzero((ev.correlation >= 0) & np.isin(ev.role, (Role.RUNTIME, Role.DISPATCH)))
        self.launch_of = self._launch_rows(rows, launches)
        op = self.operator_by_external(ev.external_id[rows])
        by_launch = np.where(self.launch_of >= 0, self.op_of[self.launch_of], -1)
        op = np.where(op >= 0, op, by_launch)
        op = np.where(op >= 0, op, self._operator_by_arrow(rows))
        self.op_of[rows] = op
        drivers = np.flatnonzero((ev.role == Role.DRIVER) & (ev.execution_id >= 0))
        enqueued = lookup(ev.execution_id[drivers], drivers, ev.execution_id[rows])
        enqueue = np.where(enqueued >= 0, ev.start[enqueued], -1) if len(drivers) else np.full(count, -1, np.int64)
        facts = emulator_facts(ev, rows) if self.trace.neuron else {}
        none = np.full(count, -1, np.int64)
        launch_ns, program_ns = facts.get("launch_ns", none), facts.get("program_ns", none)
        start, end = ev.start[rows].copy(), ev.end[rows]
        behind = (ev.role[rows] == Role.DRIVER) & (launch_ns >= 0) & (program_ns >= 0)
        start = np.where(behind, end - launch_ns - program_ns, start)
        shapes, dtypes = self._operator_inputs(op)
        empty = np.array([""] * count, object)
        kind = np.array(["exec", "memcpy", "memset"], object)[
            np.select([ev.role[rows] == Role.MEMCPY, ev.role[rows] == Role.MEMSET], [1, 2], 0)
        ]
        host_at = np.where(
            self.launch_of >= 0, ev.start[self.launch_of], np.where(op >= 0, ev.start[op], ev.start[rows])
        )
        estimated = facts.get("estimated_ns", np.zeros(count, np.int64))
        duration = end - start
        cores = np.ones(count, np.int32)
        if self.trace.neuron and count and (ev.pcore[rows] >= 0).any():
            self.busy = pair_codes(self.process[rows], ev.nc[rows]), start, end
            first, end, duration, cores = self._over_cores(rows, start, end)
            kept = rows[first]
            facts = {}
            rows, count, start, op, kind = kept, len(kept), start[first], op[first], kind[first]
            enqueue, shapes, dtypes, host_at = enqueue[first], shapes[first], dtypes[first], host_at[first]
            self.launch_of = self.launch_of[first]
            empty, none = empty[:count], none[:count]
            launch_ns, program_ns, estimated = none, none, np.zeros(count, np.int64)
        names = np.array([name.removeprefix("nc_exec_running ") for name in self.names], object)
        numbered = ev.execution_id[rows]
        usable = self.trace.neuron and (numbered >= 0).all() and len(np.unique(numbered)) == count
        copied = np.where(kind == "exec", -1, ev.bytes[rows])
        self.execution: dict[str, Any] = {
            "execution_id": numbered if usable else np.arange(1, count + 1, dtype=np.int64),
            "event_id": rows,
            "op_event_id": op,
            "kind": kind,
            "name": names[self.name_code[rows]] if count else empty,
            "op": np.where(op >= 0, names[self.name_code[op]], "") if count else empty,
            "overload": facts.get("overload", empty),
            "neff": facts.get("neff", empty),
            "device": ev.device[rows],
            "stream_id": ev.stream[rows],
            "process_id": self.process[rows],
            "correlation": ev.correlation[rows],
            "launch_ts": self._launched(),
            "enqueue_ts": enqueue,
            "start_ts": start,
            "end_ts": end,
            "duration_ns": duration,
            "launch_ns": launch_ns,
            "program_ns": program_ns,
            "estimated_ns": np.maximum(estimated, 0),
            "bytes_read": copied,
            "bytes_written": copied,
            "flops": none,
            "shapes": facts.get("shapes", shapes),
            "dtypes": facts.get("dtypes", dtypes),
            "module_path": facts.get("module", empty),
            "source": facts.get("source", empty),
            "step": self.step_at(host_at),
            "physical_cores": cores,
            "provenance": np.where(
                launch_ns >= 0, np.where(estimated > 0, "estimated", "simulated"), "recorded"
            ).astype(object),
        }
        self.executed_rows = rows
        self._note_launches(rows, launches)

    def _over_cores(self, rows: Int64, start: Int64, end: Int64) -> tuple[Int64, Int64, Int64, npt.NDArray[np.int32]]:
        """Rows of one execution on several physical cores as one: first row, end, union of its rows' time, cores.

        Rows are in order of start; groups come in the order of their first rows. An execution's duration is the time
        any of its cores ran, which is less than its extent when they did not overlap.
        """
        ev = self.ev
        alone = np.where(ev.execution_id[rows] >= 0, -1, rows)
        key = codes_of(np.stack((self.process[rows], ev.nc[rows], ev.execution_id[rows], alone)))
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        order = np.lexsort((start, group))
        before = lanes.running_end(group[order], end[order])
        begin = np.where(before < 0, start[order], np.maximum(start[order], before))
        union = np.bincount(group[order], weights=np.maximum(end[order] - begin, 0)).astype(np.int64)
        last = np.full(len(first), -(2**62), np.int64)
        np.maximum.at(last, group, end)
        cores = np.bincount(group).astype(np.int32)
        by_start = np.argsort(first, kind="stable")
        return first[by_start], last[by_start], union[by_start], cores[by_start]

    def _launch_rows(self, rows: Int64, launches: Int64) -> Int64:
        """The host call that launched each device row, by correlation id; -1 unknown."""
        ev = self.ev
        if not len(launches) or not len(rows):
            return np.full(len(rows), -1, np.int64)
        # Of several calls with one id the row's own process decides, then the last one to begin before the device row.
        key = pair_codes(
            np.concatenate((self.process[launches], self.process[rows])),
            np.concatenate((ev.correlation[launches], ev.correlation[rows])),
        )
        found = lookup(key[: len(launches)], launches, key[len(launches) :])
        return np.where(ev.correlation[rows] >= 0, found, -1)

    def _operator_by_arrow(self, rows: Int64) -> Int64:
        """Operator at the tail of an arrow that ends on a device row (Ascend and others without correlation ids)."""
        found = np.full(len(rows), -1, np.int64)
        links = self.arrow_links()
        if links is None or not len(rows):
            return found
        tail, head, _ = links
        keep = np.isin(head, rows) & (tail >= 0)
        tail, head = tail[keep], head[keep]
        owner = self.op_of[tail]
        keep = owner >= 0
        at = np.searchsorted(rows, head[keep])
        found[at] = owner[keep]
        return found

    def _operator_inputs(self, op: Int64) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Printed shapes and types of the operators' inputs, where the trace recorded them."""
        count = len(op)
        shapes = np.array([""] * count, object)
        dtypes = np.array([""] * count, object)
        linked = np.unique(op[op >= 0])
        if not len(linked):
            return shapes, dtypes
        printed_shapes: list[Any] = []
        printed_types: list[Any] = []
        for low in range(0, len(linked), _ROWS_AT_ONCE):
            some = linked[low : low + _ROWS_AT_ONCE]
            decoded = decode(self.ev.args.read(some).to_pylist(), Inputs)
            dims = TextColumn.join([item.dims for item in decoded]).binary().dictionary_encode()
            types = TextColumn.join([item.types for item in decoded]).binary().dictionary_encode()
            texts, kinds = dims.dictionary.to_pylist(), types.dictionary.to_pylist()
            pairs = dims.indices.to_numpy().astype(np.int64) * len(kinds) + types.indices.to_numpy()
            distinct, where = np.unique(pairs, return_inverse=True)
            printed = [print_inputs(texts[pair // len(kinds)], kinds[pair % len(kinds)]) for pair in distinct.tolist()]
            printed_shapes.append(np.array([shape for shape, _ in printed], object)[where])
            printed_types.append(np.array([kind for _, kind in printed], object)[where])
            self.ev.args.forget()
        at = np.searchsorted(linked, op)
        known = op >= 0
        shapes[known] = np.concatenate(printed_shapes)[at[known]]
        dtypes[known] = np.concatenate(printed_types)[at[known]]
        return shapes, dtypes

    def _note_launches(self, rows: Int64, launches: Int64) -> None:
        ev = self.ev
        known = self.launch_of[self.launch_of >= 0]
        if len(launches):
            launching = np.array([bool(_LAUNCH.search(name)) for name in self.names], np.bool_)
            idle = launches[launching[self.name_code[launches]] & ~np.isin(launches, known)]
            rest = "no device work in the file"
            self.note("launch_without_kernel", len(idle), f"launch call has {rest}", f"launch calls have {rest}")
            launch, counts = np.unique(known, return_counts=True)
            graph = np.array([bool(_GRAPH_LAUNCH.search(name)) for name in self.names], np.bool_)
            graphs = launch[graph[self.name_code[launch]]]
            self.note("graph_launches", len(graphs), "launch of a whole graph", "launches of whole graphs")
            rest = "shared by several kernels, none of them launched by a graph"
            shared = int(((counts > 1) & ~np.isin(launch, graphs)).sum())
            self.note("shared_correlation", shared, f"correlation id is {rest}", f"correlation ids are {rest}")
            skew = int((ev.start[rows] < np.where(self.launch_of >= 0, ev.start[self.launch_of], -1)).sum())
            rest = "host and device clocks differ"
            self.note(
                "clock_skew",
                skew,
                f"kernel begins before its launch call does: {rest}",
                f"kernels begin before their launch calls do: {rest}",
            )
        elif len(rows) and not self.trace.neuron:
            calls = bool(np.isin(ev.role, (Role.RUNTIME, Role.DISPATCH)).any())
            why = "no runtime event is linked to device work" if calls else "no runtime events"
            text = f"{why}: launch statistics and host-late gaps are unknown"
            self.trace.report.append(IngestWarning("no_runtime_events", 1, -1, "", "kept", text))

    def _recorded_executions(self, table: pa.Table) -> None:
        """Executions as our emulator recorded them."""
        ev = self.ev
        table = table.sort_by([("start_ns", "ascending"), ("execution_id", "ascending")])
        column = {name: table[name].to_numpy() for name in table.column_names if not _is_text(table, name)}
        text = {
            name: np.array(table[name].cast(pa.string()).to_pylist(), object)
            for name in table.column_names
            if _is_text(table, name)
        }
        identity = column["execution_id"].astype(np.int64)
        rows = np.full(len(identity), -1, np.int64)
        cores = np.zeros(len(identity), np.int32)
        for roles in (DEVICE_ROLES, (Role.NRT,), (Role.DRIVER,), (Role.DISPATCH,)):
            held = np.flatnonzero(np.isin(ev.role, [*roles]) & (ev.execution_id >= 0))
            first = lookup(ev.execution_id[held], held, identity)
            if roles is DEVICE_ROLES:
                values, counts = np.unique(ev.execution_id[held], return_counts=True)
                cores = lookup_sorted(values, counts.astype(np.int64), identity).clip(0).astype(np.int32)
            rows = np.where(rows >= 0, rows, first)
        op = self.operator_by_external(column["external_id"].astype(np.int64))
        launches = np.flatnonzero((ev.role == Role.DISPATCH) & (ev.execution_id >= 0))
        self.launch_of = lookup(ev.execution_id[launches], launches, identity)
        op = np.where(op >= 0, op, np.where(self.launch_of >= 0, self.op_of[self.launch_of], -1))
        order = np.argsort(identity, kind="stable")
        owned = np.flatnonzero(ev.execution_id >= 0)
        at = lookup_sorted(identity[order], order, ev.execution_id[owned])
        belongs = (at >= 0) & (self.op_of[owned] < 0)
        self.op_of[owned[belongs]] = op[at[belongs]]
        start, end = column["start_ns"].astype(np.int64), column["end_ns"].astype(np.int64)
        estimated = column["estimated_ns"].astype(np.int64)
        # The runtime copies, and torch counts no device time for it; a CUDA copy is device work.
        kind = np.array(["host_copy" if k.startswith("memcpy") else k for k in text["kind"]], object)
        named = np.where(text["overload"] != "", text["overload"], np.where(text["op"] != "", text["op"], text["kind"]))
        step = column["step"].astype(np.int64)
        launched = np.where(self.launch_of >= 0, ev.start[self.launch_of], column["enqueue_ns"].astype(np.int64))
        is_exec = kind == "exec"
        self.execution = {
            "execution_id": identity,
            "event_id": rows,
            "op_event_id": op,
            "kind": kind,
            "name": named,
            "op": np.where((text["op"] == "") & (op >= 0), self._names_of(op), text["op"]),
            "overload": text["overload"],
            "neff": text["neff"],
            "device": column["nc_idx"].astype(np.int64),
            "stream_id": column["stream_id"].astype(np.int64),
            "process_id": np.full(len(identity), self.main_pid, np.int64),
            "correlation": column["correlation"].astype(np.int64),
            "launch_ts": self._launched(),
            "enqueue_ts": column["enqueue_ns"].astype(np.int64),
            "start_ts": start,
            "end_ts": end,
            "duration_ns": end - start,
            "launch_ns": np.where(is_exec, column["launch_ns"], -1).astype(np.int64),
            "program_ns": np.where(is_exec, column["program_ns"], -1).astype(np.int64),
            "estimated_ns": estimated,
            "bytes_read": column["bytes_read"].astype(np.int64),
            "bytes_written": column["bytes_written"].astype(np.int64),
            "flops": column["flops"].astype(np.int64),
            "shapes": text["shapes"],
            "dtypes": text["dtypes"],
            "module_path": text["module_path"],
            "source": text["source"],
            "step": np.where(step >= 0, step, self.step_at(launched)),
            "physical_cores": cores,
            "provenance": np.where(estimated > 0, "estimated", "simulated").astype(object),
            "gap_ns": column["gap_ns"].astype(np.int64),
            "gap_cause": text["gap_cause"],
        }
        self.executed_rows = rows

    def _names_of(self, rows: Int64) -> npt.NDArray[Any]:
        """Names of events, empty where the row is -1."""
        names = np.array([*self.names, ""], object)
        return (
            names[np.where(rows >= 0, self.name_code[rows], len(self.names))] if len(self.ev) else names[rows * 0 - 1]
        )

    def place_executions(self) -> None:
        """Module, region, source line and stack of the calls that launched device work, where the file has none."""
        execution = self.execution
        op = execution["op_event_id"]
        call = op if self.trace.neuron or not len(self.ev) else np.where(self.launch_of >= 0, self.launch_of, op)
        found = contexts(self.ev, self.names, self.name_code, call, self._forward_of(op))
        for column, texts in found.items():
            held = execution.get(column)
            execution[column] = texts if held is None else np.where(held == "", texts, held)

    def _forward_of(self, op: Int64) -> Int64:
        """The forward operator of each backward operator call, by fwdbwd arrows to it or to a call around it."""
        found = np.full(len(op), -1, np.int64)
        links = self.arrow_links()
        if links is None or not len(op):
            return found
        tail, head, kind = links
        keep = (kind == "fwdbwd") & (tail >= 0) & (head >= 0)
        if not keep.any():
            return found
        parent_of = np.full(len(self.ev), -1, np.int64)
        parent_of[self.op_rows] = self.op_parent
        forward = np.full(len(self.ev), -1, np.int64)
        forward[head[keep]] = tail[keep]
        at = op.copy()
        while (open_ := (at >= 0) & (found < 0)).any():
            found[open_] = forward[at[open_]]
            at = np.where(at >= 0, parent_of[at], -1)
        return found

    def _launched(self) -> Int64:
        """When the call that launched each execution began, -1 unknown."""
        if not len(self.ev):
            return np.full(len(self.launch_of), -1, np.int64)
        return np.where(self.launch_of >= 0, self.ev.start[self.launch_of], -1)

    def make_gaps(self) -> None:
        """Idle time before each execution on its device, with its cause where the file can tell."""
        execution = self.execution
        start, end = execution["start_ts"], execution["end_ts"]
        count = len(start)
        device = pair_codes(execution["process_id"], execution["device"])
        order = np.lexsort((start, device))
        before = np.full(count, -1, np.int64)
        before[order] = lanes.running_end(device[order], end[order])
        previous = np.full(count, -1, np.int64)
        previous[order] = latest_row(device[order], end[order], order)
        gap = np.where(before >= 0, np.maximum(start - before, 0), -1)
        launched = execution["launch_ts"]
        enqueued = execution["enqueue_ts"]
        if "gap_cause" in execution:  # recorded
            gap = np.where(
                before >= 0, np.where(execution["gap_ns"] >= 0, execution["gap_ns"], gap), execution["gap_ns"]
            )
            cause = execution["gap_cause"]
        else:
            called = np.where(enqueued >= 0, enqueued, launched)
            late = (called >= 0) & (called > before)
            cause = np.where(before < 0, "first", np.where(late, "host_late", "unknown")).astype(object)
            execution["gap_cause"] = cause
        execution["gap_ns"] = gap
        rows = np.flatnonzero((gap > 0) & (before >= 0))
        rows = rows[np.argsort(start[rows], kind="stable")]
        self.gap_rows = rows
        called = np.where(enqueued >= 0, enqueued, launched)
        self.gap = {
            "gap_id": np.arange(len(rows), dtype=np.int64),
            "start_ts": start[rows] - gap[rows],
            "end_ts": start[rows],
            "cause": np.where(cause[rows] == "first", "unknown", cause[rows]),
            "text": gap_texts(gap[rows], cause[rows], called[rows], before[rows], start[rows]),
            "previous_event_id": execution["event_id"][previous[rows]] if len(rows) else rows,
            "next_event_id": execution["event_id"][rows],
        }

    # Tracks

    def make_tracks(self) -> None:
        """Rows of the Default grouping, lanes inside them, and the timeline."""
        ev = self.ev
        role = ev.role
        neuron = self.trace.neuron
        drawn = ~np.isin(role, (Role.SPAN, Role.INSTANT))
        section = np.full(len(ev), _FRAMEWORK, np.int64)
        section[role == Role.RUNTIME] = _RUNTIME
        section[role == Role.OVERHEAD] = _OVERHEAD
        section[role == Role.ASYNC] = _ASYNC
        section[role == Role.DRIVER] = _STREAM
        section[role == Role.NRT] = _NRT
        section[self.device] = _HARDWARE
        section[role == Role.DEVICE_ANNOTATION] = _DEVICE_NOTES
        section[(role == Role.MEMCPY) & neuron] = _TRANSFERS
        first = np.where(np.isin(section, (_FRAMEWORK, _RUNTIME, _OVERHEAD, _ASYNC)), ev.tid, ev.device)
        second = np.where(np.isin(section, (_HARDWARE, _DEVICE_NOTES)), ev.stream, -1)
        first = np.where(section == _STREAM, ev.stream, first)
        second = np.where(section == _TRANSFERS, -1, second)
        first = np.where(
            (section == _NRT) | (section == _TRANSFERS) | ((section == _HARDWARE) & (ev.nc >= 0)), ev.nc, first
        )
        second = np.where((section == _HARDWARE) & (ev.nc >= 0), ev.pcore, second)
        if neuron:
            second = np.where((section == _HARDWARE) & (ev.nc < 0), -1, second)
            empty = (role == Role.DEVICE_ANNOTATION) & (ev.end <= ev.start)
            drawn &= ~empty  # "neuron capture", a marker without extent
        rows = np.flatnonzero(drawn)
        rank = (self.process[rows] != self.main_pid).astype(np.int64)
        keys = np.stack((rank, self.process[rows], section[rows], first[rows], second[rows]))
        codes = codes_of(keys)
        values, where, code = np.unique(codes, return_index=True, return_inverse=True)
        described = [tuple(int(k) for k in keys[:, at]) for at in where.tolist()]
        main_thread = self._main_threads(rows)
        order = sorted(
            range(len(values)),
            key=lambda i: (
                described[i][0],
                described[i][1],
                _ORDER[described[i][2]],
                described[i][3] != main_thread.get(described[i][1]) if described[i][2] <= _RUNTIME else False,
                described[i][3],
                described[i][4],
            ),
        )
        number = np.zeros(len(values), np.int64)
        number[order] = np.arange(len(order))
        track = number[code] if len(rows) else np.zeros(0, np.int64)
        ordered = np.argsort(track, kind="stable")
        rows, track = rows[ordered], track[ordered]
        start, end = ev.start[rows], ev.end[rows]
        stacked = np.array(
            [described[i][2] in (_FRAMEWORK, _RUNTIME, _OVERHEAD, _NRT) for i in order] or [True], np.bool_
        )
        lane = np.zeros(len(rows), np.int64)
        hosted = np.flatnonzero(stacked[track])
        nesting = lanes.nest(track[hosted], start[hosted], end[hosted])
        lane[hosted] = nesting.depth
        beside = np.flatnonzero(~stacked[track])
        lane[beside] = lanes.free_lanes(track[beside], start[beside], end[beside])
        self.note(
            "nesting_violation",
            nesting.violations,
            "host interval ends after the one it began in; both are shown in full",
            "host intervals end after the one they began in; both are shown in full",
        )
        self.track_of = np.full(len(ev), -1, np.int64)
        self.track_of[rows] = track
        self._slices(rows, track, lane)
        depth = np.zeros(len(order), np.int64)
        np.maximum.at(depth, track, lane + 1)
        self.tables["Track"] = self._track_table([described[i] for i in order], depth, main_thread)

    def _main_threads(self, rows: Int64) -> dict[int, int]:
        """Per process the thread with most operator calls."""
        ev = self.ev
        ops = self.op_rows if len(self.op_rows) else rows[self.host[rows]]
        found: dict[int, int] = {}
        for pid in np.unique(self.process[ops]).tolist():
            threads, counts = np.unique(ev.tid[ops[self.process[ops] == pid]], return_counts=True)
            found[pid] = int(threads[counts.argmax()])
        return found

    def _track_table(self, described: list[tuple[int, ...]], depth: Int64, main_thread: Mapping[int, int]) -> pa.Table:
        trace = self.trace
        emulated = trace.facts.get("emulated") == "true"
        fixed_host = trace.facts.get("host_model") == "fixed"
        rows = []
        for index, (_, pid, section, first, second) in enumerate(described):
            main = section != _FRAMEWORK or main_thread.get(pid) == first
            short, kind, subtitle = self._track_label(section, pid, first, second, main)
            group = f"{trace.instance}/PID:{trace.process_labels.get(pid, pid)}"
            device = kind in ("device", "copy")
            provenance = "emulated" if fixed_host else "measured"
            if device:
                provenance = "emulated" if emulated else "recorded"
            if section == _STREAM and emulated:
                provenance = "emulated"
            rows.append(
                {
                    "track_id": index,
                    "label": f"{group}/{short}",
                    "short": short,
                    "group_label": group,
                    "kind": kind,
                    "subtitle": subtitle,
                    "provenance": provenance,
                    "lanes": int(depth[index]),
                    "physical_core": second if section == _HARDWARE and trace.neuron else -1,
                    "rank": self.rank,
                }
            )
        return pa.Table.from_pylist(rows, schema=arrow_schema("Track"))

    def _track_label(self, section: int, pid: int, first: int, second: int, main: bool) -> tuple[str, str, str]:
        """Short name, kind, and a subtitle that says what the lane holds and where its times come from.

        `main`: of a framework lane, whether its thread is the one that dispatches most.
        """
        trace = self.trace
        emulated = trace.facts.get("emulated") == "true"
        simulated = "emulated" if emulated else "recorded"
        timed = "fixed costs" if trace.facts.get("host_model") == "fixed" else "measured"
        host = f"host, {timed}"
        if section == _FRAMEWORK:
            thread = re.sub(r"^thread \d+ \((.*)\)$", r"\1", trace.thread_names.get((pid, first), ""))
            parts = ("dispatch" if main else thread, trace.process_names.get(pid, "") if pid != self.main_pid else "")
            return f"framework/TID:{first}", "framework", " · ".join(p for p in (*parts, host) if p)
        if section == _RUNTIME:
            return f"runtime/TID:{first}", "runtime", f"runtime calls · {host}"
        if section == _OVERHEAD:
            return f"overhead/TID:{first}", "runtime", f"the profiler's own time · {host}"
        if section == _ASYNC:
            return f"async/TID:{first}", "framework", f"belongs to no thread · {host}"
        if section == _STREAM:  # begins when the host enqueued, ends with the execution
            return f"framework/Stream:{first}", "stream", f"enqueue {timed} · end {simulated}"
        if section == _TRANSFERS:
            return f"neuron_hw/NC{first}:transfers", "copy", f"copies from and to the host · {simulated}"
        if section == _NRT:
            return f"neuron_rt/NC:{first}", "runtime", f"runtime calls · {host}"
        if section == _DEVICE_NOTES:
            return f"device/{first}:Stream{second} annotations", "stream", f"host ranges on the device · {simulated}"
        if trace.neuron:
            core = f":{second}" if second >= 0 else ""
            return f"neuron_hw/NC{first}{core}", "device", f"executions · {simulated}"
        name = trace.facts.get("device_name", "")
        return f"device/{first}:Stream{second}", "device", " · ".join(p for p in (name, "recorded") if p)

    def _slices(self, rows: Int64, track: Int64, lane: Int64) -> None:
        ev, execution = self.ev, self.execution
        place = track * (int(lane.max(initial=0)) + 1) + lane  # rows are in order of start already
        order = np.argsort(narrow(place), kind="stable")
        rows, track, lane = rows[order], track[order], lane[order]
        launch = np.zeros(len(ev), np.int64)
        estimated = np.zeros(len(ev), np.bool_)
        op_name = np.where(self.op_of >= 0, self.name_code[self.op_of], self.name_code) if len(ev) else self.name_code
        if self.trace.neuron:
            identity = execution["execution_id"]
            by_id = np.argsort(identity, kind="stable")
            owned = np.flatnonzero((ev.execution_id >= 0) & ~np.isin(ev.role, (Role.SPAN, Role.INSTANT)))
            at = lookup_sorted(identity[by_id], by_id, ev.execution_id[owned])
            owned, at = owned[at >= 0], at[at >= 0]
            codes = np.array([self.code_of(name) for name in execution["op"]] or [0], np.int64)
            named = execution["op"][at] != ""
            op_name[owned[named]] = codes[at[named]]
            hardware = self.device[owned]
            launch[owned[hardware]] = np.maximum(execution["launch_ns"], 0)[at[hardware]]
            estimated[owned[hardware]] = (execution["estimated_ns"] > 0)[at[hardware]]
        for name in (*dict.fromkeys(execution["name"]), *dict.fromkeys(execution["op"])):
            self.code_of(name)
        codes = np.concatenate((self.name_code[rows], op_name[rows]))
        listed = dict.fromkeys(np.unique(codes).tolist())
        listed.update({self.code_of(n): None for n in dict.fromkeys(execution["name"]) if n})
        listed.update({self.code_of(n): None for n in dict.fromkeys(execution["op"]) if n})
        dense = np.zeros(len(self.names) + 1, np.int64)
        dense[list(listed)] = np.arange(len(listed))
        self.tables["Name"] = named_table(
            "Name",
            {
                "name_id": np.arange(len(listed)),
                "name": [self.names[code] for code in listed],
            },
        )
        self.tables["Slice"] = named_table(
            "Slice",
            {
                "event_id": rows,
                "track_id": track,
                "lane": lane,
                "start_ts": ev.start[rows],
                "end_ts": ev.end[rows],
                "name_id": dense[self.name_code[rows]],
                "op_id": dense[op_name[rows]],
                "launch_ns": launch[rows],
                "estimated": estimated[rows],
            },
        )

    def code_of(self, name: str) -> int:
        """Code of a name, made when new."""
        code = self.name_index.get(name)
        if code is None:
            code = self.name_index[name] = len(self.names)
            self.names.append(name)
        return code

    # Arrows

    def make_flows(self) -> None:
        ev = self.ev
        if self.trace.neuron:
            self._neuron_chain()
        else:
            launched = np.flatnonzero(self.launch_of >= 0)
            self.edge(self.launch_of[launched], self.executed_rows[launched], "launch")
            calls = np.unique(self.launch_of[launched])
            self.edge(self.op_of[calls], calls, "dispatch")
            direct = np.flatnonzero((self.launch_of < 0) & (self.execution["op_event_id"] >= 0))
            if len(direct):
                self.edge(self.execution["op_event_id"][direct], self.executed_rows[direct], "launch")
        links = self.arrow_links()
        if links is not None:
            tail, head, kind = links
            keep = (tail >= 0) & (head >= 0) & (tail != head)
            for name in dict.fromkeys(kind[keep]):
                here = keep & (kind == name)
                self.edge(tail[here], head[here], name)
        edges = [(a, b, k) for a, b, k in self.edges if len(a)]
        if not edges:
            return
        source = np.concatenate([e[0] for e in edges])
        target = np.concatenate([e[1] for e in edges])
        kind = np.concatenate([np.full(len(e[0]), i) for i, e in enumerate(edges)])
        _, first = np.unique(source * len(ev) + target, return_index=True)
        source, target, kind = source[first], target[first], kind[first]
        names = pa.array([e[2] for e in edges])
        constant = pa.DictionaryArray.from_arrays(np.zeros(len(source), np.int32), pa.array(["SystemProfileEvents"]))
        self.tables["Flow"] = named_table(
            "Flow",
            {
                "in_id": source,
                "out_id": target,
                "in_table": constant,
                "out_table": constant,
                "dependency_type": names.take(pa.array(kind)),
                "gap_time": ev.start[target] - ev.end[source],
            },
        )

    def edge(self, source: Int64, target: Int64, kind: str) -> None:
        """Add edges between event rows; those without a source are left out."""
        keep = (source >= 0) & (target >= 0)
        self.edges.append((source[keep], target[keep], kind))

    def _neuron_chain(self) -> None:
        """Operator → dispatch → device interaction → schedule → execution on each physical core, by execution id."""
        ev = self.ev
        known = ev.execution_id >= 0
        names = np.array(["schedule" in name for name in self.names[: len(ev.name.dictionary)]] or [False], np.bool_)
        previous: Int64 | None = None
        ops = self.op_of
        levels = (
            (Role.DISPATCH, "dispatch"),
            (Role.DRIVER, "device interaction"),
            (Role.NRT, "schedule"),
            (Role.DEVICE, "execution"),
        )
        identity = np.unique(ev.execution_id[known])
        last = np.full(len(identity), -1, np.int64)
        for role, kind in levels:
            here = (np.isin(ev.role, [*DEVICE_ROLES]) if role == Role.DEVICE else ev.role == role) & known
            rows = np.flatnonzero(here)
            if not len(rows):
                continue
            at = np.searchsorted(identity, ev.execution_id[rows])
            previous = last[at]
            source = np.where(previous >= 0, previous, ops[rows])
            self.edge(source, rows, kind)
            # Of several runtime calls of one execution the schedule call leads on.
            rank = names[self.name_code[rows]] if role == Role.NRT else np.ones(len(rows), np.bool_)
            last[at[~rank]] = rows[~rank]
            last[at[rank]] = rows[rank]

    def arrow_links(self) -> tuple[Int64, Int64, npt.NDArray[Any]] | None:
        """Arrows of the file as (tail row, head row, kind), without those that correlation ids already give."""
        if hasattr(self, "_links"):
            return self._links
        self._links: tuple[Int64, Int64, npt.NDArray[Any]] | None = None
        ends = self.trace.arrows
        if ends is None:
            return None
        pair_tail, pair_head, dangling = match_arrows(ends.key, ends.ts, ends.phase)
        self.note("arrows", len(pair_tail), "arrow between slices", "arrows between slices")
        self.note(
            "unmatched_flow",
            dangling,
            "end of an arrow has no other end; no arrow is drawn for it",
            "ends of arrows have no other end; no arrow is drawn for them",
        )
        covered = self.ev.correlation[self.device | (self.ev.role == Role.DRIVER)]
        covered = np.unique(covered[covered >= 0])
        names = np.array(ends.kind.dictionary.to_pylist(), object)
        by_launch = np.array([name in ("ac2g", "async", "launch") for name in names], np.bool_)
        codes = ends.kind.indices.to_numpy()[pair_tail]
        skip = by_launch[codes] & np.isin(ends.number[pair_tail], covered)
        pair_tail, pair_head, codes = pair_tail[~skip], pair_head[~skip], codes[~skip]
        if not len(pair_tail):
            return None
        bound = self._bind(
            np.concatenate((ends.pid[pair_tail], ends.pid[pair_head])),
            np.concatenate((ends.tid[pair_tail], ends.tid[pair_head])),
            np.concatenate((ends.ts[pair_tail], ends.ts[pair_head])),
        )
        tail, head = bound[: len(pair_tail)], bound[len(pair_tail) :]
        lost = int(((tail < 0) | (head < 0)).sum())
        self.note(
            "unbound_flow",
            lost,
            "arrow begins or ends where no slice is; it is not drawn",
            "arrows begin or end where no slice is; they are not drawn",
        )
        self._links = (tail, head, names[codes])
        return self._links

    def _bind(self, pid: Int64, tid: Int64, ts: Int64) -> Int64:
        """The innermost slice of the file's thread at each time, -1 none."""
        ev = self.ev
        rows = np.flatnonzero(~np.isin(ev.role, (Role.SPAN, Role.INSTANT, Role.ASYNC)))
        group = pair_codes(np.concatenate((ev.pid[rows], pid)), np.concatenate((ev.tid[rows], tid)))
        asked, group = group[len(rows) :], group[: len(rows)]
        if not len(rows):
            return np.full(len(ts), -1, np.int64)
        order = np.argsort(group, kind="stable")
        rows, group = rows[order], group[order]
        start, end = ev.start[rows], ev.end[rows]
        nesting = lanes.nest(group, start, end)
        bounds = {int(group[low]): (low, high) for low, high in lanes.groups_of(group)}
        found = lanes.enclosing(lanes.Stacks(nesting, bounds, start, end), asked, ts)
        return np.where(found >= 0, rows[found], -1)

    # Steps and the end

    def end_steps(self) -> None:
        """Steps end with the last of their device work; the recording's first and last may be cut."""
        ev, rows = self.ev, self.step_rows
        if not len(rows):
            return
        end = ev.end[rows].copy()
        step = self.execution["step"]
        for index, number in enumerate(self.step_number.tolist()):
            work = self.execution["end_ts"][step == number]
            if len(work):
                end[index] = max(int(end[index]), int(work.max()))
        complete = np.ones(len(rows), np.bool_)
        if self.trace.recording:
            complete &= (ev.start[rows] > self.trace.recording[0]) & (ev.end[rows] <= self.trace.recording[1])
        busy = np.isin(self.step_number, np.unique(self.step_at(ev.start[self.op_rows])))
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
        ev, execution = self.ev, self.execution
        if len(execution["start_ts"]):
            ranks = np.full(len(execution["start_ts"]), self.rank, np.int32)
            self.tables["Execution"] = named_table("Execution", {**execution, "rank": ranks})
        if len(self.gap_rows):
            self.tables["Gap"] = self._gap_table()
        rows = self.op_rows
        if len(rows):
            order = np.argsort(rows, kind="stable")
            names = pa.array(self.names)
            self.tables["HostOp"] = named_table(
                "HostOp",
                {
                    "event_id": rows[order],
                    "parent_id": self.op_parent[order],
                    "name": pa.DictionaryArray.from_arrays(self.name_code[rows[order]].astype(np.int32), names),
                    "thread_id": ev.tid[rows[order]],
                    "start_ts": ev.start[rows[order]],
                    "end_ts": ev.end[rows[order]],
                    "self_cpu_ns": self.op_self[order],
                    "external_id": ev.external_id[rows[order]],
                    "step": self.step_at(ev.start[rows[order]]),
                    "rank": np.full(len(rows), self.rank, np.int32),
                },
            )
        drawn = ~np.isin(ev.role, (Role.SPAN, Role.INSTANT))
        if len(ev):
            first, last = int(ev.start[drawn].min(initial=2**62)), int(ev.end[drawn].max(initial=-(2**62)))
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

    def _gap_table(self) -> pa.Table:
        """One row per gap and physical core whose track shows it; that of the execution's own event comes first."""
        ev, execution = self.ev, self.execution
        gap = self.gap
        following = gap["next_event_id"]
        if self.trace.neuron and (execution["physical_cores"] > 1).any():
            hardware = np.flatnonzero(self.device & (ev.execution_id >= 0) & (ev.pcore >= 0))
            hardware = hardware[np.argsort(ev.execution_id[hardware], kind="stable")]
            identity = execution["execution_id"][self.gap_rows]
            low = np.searchsorted(ev.execution_id[hardware], identity)
            high = np.searchsorted(ev.execution_id[hardware], identity, "right")
            count = np.maximum(high - low, 1)
            index = np.repeat(np.arange(len(identity)), count)
            rank = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
            found = (high > low)[index]
            events = np.where(found, hardware[np.minimum(low[index] + rank, len(hardware) - 1)], following[index])
            gap = {
                name: value[index] if isinstance(value, np.ndarray) else value.take(pa.array(index))
                for name, value in gap.items()
            }
            gap["gap_id"] = np.arange(len(index), dtype=np.int64)
            gap["next_event_id"] = events
            following = events
        return named_table(
            "Gap",
            {
                **gap,
                "track_id": self.track_of[following],
                "rank": np.full(len(following), self.rank, np.int32),
            },
        )

    def events_pieces(self) -> Iterator[pa.Table]:
        """SystemProfileEvents in the order of the ids, some ten thousand rows at a time."""
        names = pa.array(self.names or [""])  # as they are now; later passes add others
        sources = pa.array(["framework", "runtime", "device", "neuron_rt", "neuron_hw"])
        instance = pa.array([self.trace.instance])
        ev = self.ev
        return (self._events_piece(ev, rows, names, sources, instance) for rows in ev.args.pieces())

    def _events_piece(
        self, ev: Events, rows: slice, names: pa.Array, sources: pa.Array, instance: pa.Array
    ) -> pa.Table:
        count = rows.stop - rows.start
        role, device = ev.role[rows], self.device[rows]
        source = np.zeros(count, np.int32)
        source[np.isin(role, (Role.RUNTIME, Role.OVERHEAD))] = 1
        source[device | (role == Role.DEVICE_ANNOTATION)] = 4 if self.trace.neuron else 2
        source[role == Role.NRT] = 3
        link = np.where(ev.execution_id[rows] >= 0, ev.execution_id[rows], ev.correlation[rows])
        linked = link >= 0
        offsets = np.concatenate(([0], np.cumsum(linked))).astype(np.int32)
        flow = pa.ListArray.from_arrays(pa.array(offsets), pc.cast(pa.array(link[linked]), pa.string()))
        on_device = device | np.isin(role, (Role.DRIVER, Role.NRT, Role.DEVICE_ANNOTATION))
        nc = np.where(ev.nc[rows] >= 0, ev.nc[rows], ev.device[rows])
        stream_id, pcore = ev.stream[rows], np.ascontiguousarray(ev.pcore[rows])
        stream = np.isin(role, (Role.DRIVER,)) | (device & (stream_id >= 0))
        start, end = ev.start[rows], ev.end[rows]
        table = named_table(
            "SystemProfileEvents",
            {
                "id": self.ids[rows],
                "name": pa.DictionaryArray.from_arrays(self.name_code[rows].astype(np.int32), names),
                "start_ts": start,
                "end_ts": end,
                "duration_ns": end - start,
                "trace_event_source": pa.DictionaryArray.from_arrays(source, sources),
                "instance_id": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), instance),
                "process_id": self.process[rows],
                "thread_id": ev.tid[rows],
                "nc_idx": pa.array(nc, mask=~on_device | (nc < 0)),
                "pcore_idx": pa.array(pcore, mask=pcore < 0),
                "flow_id": flow,
                "framework_stream_id": pc.cast(pa.array(stream_id, mask=~stream), pa.string()).dictionary_encode(),
                "extra_attributes_json": attributes(
                    ev.category.slice(rows.start, count), ev.args.read(np.arange(rows.start, rows.stop))
                ).cast(pa.string()),
            },
        )
        ev.args.forget()
        return table

    def note(self, kind: str, count: int, one: str, many: str) -> None:
        """Report a kind of event once; the text goes on after the count."""
        if count > 0:
            text = f"1 {one}" if count == 1 else f"{count:,} {many}"
            self.trace.report.append(IngestWarning(kind, int(count), -1, "", "kept", text))


_FRAMEWORK, _RUNTIME, _OVERHEAD, _ASYNC, _STREAM, _NRT, _HARDWARE, _TRANSFERS, _DEVICE_NOTES = range(9)
_ORDER = {
    _FRAMEWORK: 0,
    _ASYNC: 1,
    _STREAM: 2,
    _RUNTIME: 3,
    _OVERHEAD: 4,
    _NRT: 5,
    _HARDWARE: 6,
    _TRANSFERS: 7,
    _DEVICE_NOTES: 8,
}


def _is_text(table: pa.Table, name: str) -> bool:
    kind = table.schema.field(name).type
    return pa.types.is_dictionary(kind) or pa.types.is_string(kind)
