"""Device work, each piece once: rows of a trace or our emulator's records → columns of table Execution."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.readers import flows, lanes
from neuronscope.readers.arguments import emulator_facts, input_texts, print_inputs, texts_of
from neuronscope.readers.attribution import contexts
from neuronscope.readers.exact import Int64
from neuronscope.readers.keys import codes_of, combined, distinct, lookup, lookup_sorted, pair_codes
from neuronscope.readers.narrow import Coded, constant
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.scratch import ranges
from neuronscope.readers.tables import in_pieces, named_table
from neuronscope.readers.trace import DEVICE_ROLES, Role

if TYPE_CHECKING:
    from neuronscope.readers.model import Model

__all__ = ["Execution", "make", "pieces", "place"]

_ROWS_AT_ONCE = 65_536
_LAUNCH = re.compile(r"(?i)launch|memcpy|memset")
_GRAPH_LAUNCH = re.compile(r"(?i)graph_?launch")
_NO_WORK_TASKS = re.compile(r"(?i)event|notify|wait|record|placeholder|profiling|model_maintaince")


@dataclass
class Execution:
    """Pieces of device work in order of start.

    Attributes:
        columns: those of table Execution.
        launch_of: event row of the host call that launched each, -1 unknown.
    """

    launch_of: Int64
    columns: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.launch_of)


_PROVENANCE = ["recorded", "simulated", "estimated", "bound"]


def _provenance(estimated: Int64, bound: Coded) -> Int64:
    """Code in `_PROVENANCE` of simulated executions: an estimate counts before a bound."""
    named = np.asarray([bool(text) for text in bound.texts] or [False])[bound.codes]
    return np.where(estimated > 0, 2, np.where(named, 3, 1))


def make(model: Model) -> None:
    """Find the executions, the calls that launched them and the operator calls they belong to."""
    recorded = model.trace.executions
    if recorded is not None and recorded.num_rows:
        execution, busy = _recorded(model, recorded), None
    else:
        execution, busy = _of_rows(model)
    model.execution = execution
    columns = execution.columns
    if busy is None:
        device = pair_codes(columns["process_id"], columns["device"])
        busy = device, columns["start_ts"], columns["end_ts"]
    model.built.device_slices = len(execution)
    model.built.device_time_ns = int(columns["duration_ns"].sum(dtype=np.int64))
    model.built.device_busy_ns = lanes.busy_ns(*busy)
    model.trace.scratch.forget()


def pieces(model: Model) -> Iterator[pa.Table]:
    """Table Execution."""
    execution = model.execution

    def piece(low: int, high: int) -> pa.Table:
        some = slice(low, high)
        rank = np.full(high - low, model.rank, np.int32)
        return named_table(
            "Execution", {**{name: held[some] for name, held in execution.columns.items()}, "rank": rank}
        )

    return in_pieces(len(execution), piece, model.trace.scratch)


def place(model: Model) -> None:
    """Module, region, source line and stack of the calls that launched device work, where the file has none."""
    execution = model.execution
    op = execution.columns["op_event_id"]
    direct = model.trace.neuron or not len(model.ev)
    call = op if direct else np.where(execution.launch_of >= 0, execution.launch_of, op)
    forward = _forward_of(model, op)
    scratch = model.trace.scratch
    found = contexts(model.ev, model.thread, model.names, model.name_code, call, forward, scratch)
    for column, texts in found.items():
        held = execution.columns.get(column)
        placed = texts if held is None else held.or_else(texts)
        execution.columns[column] = Coded(model.keep(placed.codes), placed.texts)
    model.trace.scratch.forget()


def _forward_of(model: Model, op: Int64) -> Int64:
    """The forward operator of each backward operator call, by fwdbwd arrows to it or to a call around it."""
    found = np.full(len(op), -1, np.int64)
    links = flows.links(model)
    if links is None or not len(op):
        return found
    keep = links.kind.equal("fwdbwd") & (links.tail >= 0) & (links.head >= 0)
    if not keep.any():
        return found
    tail, head = links.tail[keep], links.head[keep]
    order = np.argsort(head, kind="stable")
    last = np.append(head[order][1:] != head[order][:-1], True)
    head, tail = head[order][last], tail[order][last]
    at = np.array(op, np.int64)
    while (open_ := (at >= 0) & (found < 0)).any():
        found[open_] = lookup_sorted(head, tail, at[open_])
        at = model.parent_operator(np.where(found < 0, at, -1))
    return found


def _of_rows(model: Model) -> tuple[Execution, tuple[Int64, Int64, Int64] | None]:
    """Kernels, copies and fills of a trace; rows of our emulator carry their split in the arguments.

    Also what keeps devices busy (device, start, end) where executions don't tell it.
    """
    ev, neuron, keep = model.ev, model.trace.neuron, model.keep
    rows = ev.of(*DEVICE_ROLES)
    if model.ascend and len(rows):
        kinds = texts_of(ev, rows, "Task Type")
        rows = rows[np.array([not _NO_WORK_TASKS.search(kind) for kind in kinds], np.bool_)]
    if neuron and not len(rows):
        rows = ev.of(Role.DRIVER)  # correlate_device_time=False: no execution rows
    count = len(rows)
    launches = model.launches()
    launch_of = keep(_launch_rows(model, rows, launches))
    op = model.operator_by_external(ev.external_id[rows])
    op = np.where(op >= 0, op, np.where(launch_of >= 0, model.op_of[launch_of], -1))
    op = keep(np.where(op >= 0, op, _operator_by_arrow(model, rows)))
    model.op_of[rows] = op
    drivers = ev.of(Role.DRIVER)
    drivers = drivers[ev.execution_id[drivers] >= 0]
    enqueue: Int64 = constant(-1, count)
    if len(drivers):
        enqueued = lookup(ev.execution_id[drivers], drivers, ev.execution_id[rows])
        enqueue = np.where(enqueued >= 0, ev.start[enqueued], -1)
    facts = emulator_facts(ev, rows) if neuron else {}
    none = constant(-1, count)
    launch_ns, program_ns = facts.get("launch_ns", none), facts.get("program_ns", none)
    take = model.trace.scratch.take
    start, end = keep(take(ev.start, rows)), keep(take(ev.end, rows))
    if neuron:
        behind = (ev.role[rows] == Role.DRIVER) & (launch_ns >= 0) & (program_ns >= 0)
        start = np.where(behind, end - launch_ns - program_ns, start)
    shapes, dtypes = _operator_inputs(model, op)
    role = ev.role[rows]
    kind = np.where(role == Role.MEMCPY, 1, np.where(role == Role.MEMSET, 2, 0)).astype(np.int8)
    host_at = np.where(op >= 0, ev.start[op], start if not neuron else ev.start[rows]) if count else start
    host_at = np.where(launch_of >= 0, ev.start[launch_of], host_at) if count else start
    estimated = facts.get("estimated_ns", constant(0, count))
    duration = end - start
    cores: npt.NDArray[np.int32] = np.broadcast_to(np.int32(1), count)
    busy = None
    if neuron and count and (ev.pcore[rows] >= 0).any():
        busy = pair_codes(model.process[rows], ev.nc[rows]), start, end
        first, end, duration, cores = _over_cores(model, rows, start, end)
        facts = {}
        rows, count, start, op, kind = rows[first], len(first), start[first], op[first], kind[first]
        enqueue, shapes, dtypes, host_at = enqueue[first], shapes[first], dtypes[first], host_at[first]
        launch_of = launch_of[first]
        none = constant(-1, count)
        launch_ns, program_ns, estimated = none, none, constant(0, count)
    names = [name.removeprefix("nc_exec_running ") for name in model.names] or [""]
    empty = Coded.same("", count)
    op_code = np.where(op >= 0, model.name_code[op], len(names)) if count else np.zeros(0, np.int8)
    numbered = ev.execution_id[rows]
    usable = neuron and (numbered >= 0).all() and len(distinct(numbered)) == count
    copied = keep(np.where(kind == 0, -1, ev.bytes[rows]))
    estimated = np.maximum(estimated, 0)
    sure = np.where(launch_ns >= 0, _provenance(estimated, facts.get("bound", empty)), 0)
    execution = Execution(launch_of)
    execution.columns = {
        "execution_id": keep(numbered if usable else np.arange(1, count + 1, dtype=np.int64)),
        "event_id": rows,
        "op_event_id": op,
        "kind": Coded(kind, ["exec", "memcpy", "memset"]),
        "name": Coded(keep(model.name_code[rows]), names),
        "op": Coded(keep(op_code), [*names, ""]),
        "overload": facts.get("overload", empty),
        "neff": facts.get("neff", empty),
        "device": keep(ev.device[rows]),
        "stream_id": keep(ev.stream[rows]),
        "process_id": keep(model.process[rows]),
        "correlation": keep(ev.correlation[rows]),
        "launch_ts": keep(_launched(model, launch_of)),
        "enqueue_ts": enqueue,
        "start_ts": start,
        "end_ts": end,
        "duration_ns": keep(duration),
        "launch_ns": launch_ns,
        "program_ns": program_ns,
        "estimated_ns": estimated,
        "bytes_read": copied,
        "bytes_written": copied,
        "flops": none,
        "shapes": facts.get("shapes", shapes),
        "dtypes": facts.get("dtypes", dtypes),
        "module_path": facts.get("module", empty),
        "source": facts.get("source", empty),
        "step": keep(model.step_at(host_at)),
        "physical_cores": cores,
        "provenance": Coded(keep(sure), _PROVENANCE),
    }
    _note_launches(model, rows, launches, launch_of)
    return execution, busy


def _launched(model: Model, launch_of: Int64) -> Int64:
    """When the call that launched each execution began, -1 unknown."""
    if not len(model.ev):
        return np.full(len(launch_of), -1, np.int64)
    return np.where(launch_of >= 0, model.ev.start[launch_of], -1)


def _over_cores(
    model: Model, rows: Int64, start: Int64, end: Int64
) -> tuple[Int64, Int64, Int64, npt.NDArray[np.int32]]:
    """Rows of one execution on several physical cores as one: first row, end, union of its rows' time, cores.

    Rows are in order of start; groups come in the order of their first rows. An execution's duration is the time
    any of its cores ran, which is less than its extent when they did not overlap.
    """
    ev = model.ev
    alone = np.where(ev.execution_id[rows] >= 0, -1, rows)
    key = codes_of(model.process[rows], ev.nc[rows], ev.execution_id[rows], alone)
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


def _launch_rows(model: Model, rows: Int64, launches: Int64) -> Int64:
    """The host call that launched each device row, by correlation id; -1 unknown."""
    ev = model.ev
    found = np.full(len(rows), -1, np.int32 if len(ev) < 2**31 else np.int64)
    if not len(launches) or not len(rows):
        return found
    if not model.several:
        key = ev.correlation[launches]
        order = np.argsort(key, kind="stable")
        key, launches = key[order], launches[order]
        for low, high in ranges(len(rows)):
            wanted = ev.correlation[rows[low:high]]
            found[low:high] = np.where(wanted >= 0, lookup_sorted(key, launches, wanted), -1)
            model.trace.scratch.forget()
        return found
    # Of several calls with one id the row's own process decides, then the last one to begin before the device row.
    key = combined(
        np.concatenate((model.process[launches], model.process[rows])),
        np.concatenate((ev.correlation[launches], ev.correlation[rows])),
    )
    linked = lookup(key[: len(launches)], launches, key[len(launches) :])
    return np.where(ev.correlation[rows] >= 0, linked, -1)


def _operator_by_arrow(model: Model, rows: Int64) -> Int64:
    """Operator at the tail of an arrow that ends on a device row (Ascend and others without correlation ids)."""
    found = np.full(len(rows), -1, np.int64)
    links = flows.links(model)
    if links is None or not len(rows):
        return found
    at = np.minimum(np.searchsorted(rows, links.head), len(rows) - 1)
    keep = (rows[at] == links.head) & (links.tail >= 0)
    owner = model.op_of[links.tail[keep]]
    at = at[keep]
    found[at[owner >= 0]] = owner[owner >= 0]
    return found


def _operator_inputs(model: Model, op: Int64) -> tuple[Coded, Coded]:
    """Printed shapes and types of the operators' inputs, where the trace recorded them."""
    args = model.ev.args
    linked = distinct(op[op >= 0])
    shapes: dict[str, int] = {"": 0}
    types: dict[str, int] = {"": 0}
    codes = np.zeros((2, len(linked) + 1), np.int32)  # the last one for work without an operator
    for low in range(0, len(linked), _ROWS_AT_ONCE):
        some = linked[low : low + _ROWS_AT_ONCE]
        dims, kinds = (column.dictionary_encode() for column in input_texts(args.read(some)))
        dim_texts, kind_texts = dims.dictionary.to_pylist(), kinds.dictionary.to_pylist()
        pairs = dims.indices.to_numpy().astype(np.int64) * len(kind_texts) + kinds.indices.to_numpy()
        present, where = np.unique(pairs, return_inverse=True)
        printed = [
            print_inputs(dim_texts[pair // len(kind_texts)], kind_texts[pair % len(kind_texts)])
            for pair in present.tolist()
        ]
        table = [(shapes.setdefault(a, len(shapes)), types.setdefault(b, len(types))) for a, b in printed]
        codes[:, low : low + len(some)] = np.array(table, np.int32).T[:, where]
        args.forget()
    at = np.where(op >= 0, np.searchsorted(linked, op), len(linked))
    return Coded(model.keep(codes[0][at]), list(shapes)), Coded(model.keep(codes[1][at]), list(types))


def _note_launches(model: Model, rows: Int64, launches: Int64, launch_of: Int64) -> None:
    ev, names = model.ev, model.names
    if len(launches):
        launch, counts = np.unique(launch_of[launch_of >= 0], return_counts=True)
        launching = np.array([bool(_LAUNCH.search(name)) for name in names], np.bool_)
        calls = launches[launching[model.name_code[launches]]]
        idle = calls[lookup_sorted(launch, launch, calls) < 0]
        rest = "no device work in the file"
        model.note("launch_without_kernel", len(idle), f"launch call has {rest}", f"launch calls have {rest}", idle)
        graph = np.array([bool(_GRAPH_LAUNCH.search(name)) for name in names], np.bool_)[model.name_code[launch]]
        graphs = int(graph.sum())
        model.note("graph_launches", graphs, "launch of a whole graph", "launches of whole graphs")
        rest = "shared by several kernels, none of them launched by a graph"
        shared = launch[(counts > 1) & ~graph]
        model.note(
            "shared_correlation", len(shared), f"correlation id is {rest}", f"correlation ids are {rest}", shared
        )
        skew = rows[ev.start[rows] < _launched(model, launch_of)]
        rest = "host and device clocks differ"
        model.note(
            "clock_skew",
            len(skew),
            f"kernel begins before its launch call does: {rest}",
            f"kernels begin before their launch calls do: {rest}",
            skew,
        )
    elif len(rows) and not model.trace.neuron:
        calls_there = bool(len(ev.of(Role.RUNTIME, Role.DISPATCH)))
        why = "no runtime event is linked to device work" if calls_there else "no runtime events"
        text = f"{why}: launch statistics and host-late gaps are unknown"
        model.trace.report.append(IngestWarning("no_runtime_events", 1, -1, "", "kept", text))


def _recorded(model: Model, table: pa.Table) -> Execution:
    """Executions as our emulator recorded them."""
    ev = model.ev
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
        held = ev.of(*roles)
        held = held[ev.execution_id[held] >= 0]
        first = lookup(ev.execution_id[held], held, identity)
        if roles is DEVICE_ROLES:
            values, counts = np.unique(ev.execution_id[held], return_counts=True)
            cores = lookup_sorted(values, counts.astype(np.int64), identity).clip(0).astype(np.int32)
        rows = np.where(rows >= 0, rows, first)
    op = model.operator_by_external(column["external_id"].astype(np.int64))
    launches = ev.of(Role.DISPATCH)
    launches = launches[ev.execution_id[launches] >= 0]
    launch_of = lookup(ev.execution_id[launches], launches, identity)
    op = np.where(op >= 0, op, np.where(launch_of >= 0, model.op_of[launch_of], -1))
    order = np.argsort(identity, kind="stable")
    owned = np.flatnonzero(ev.execution_id >= 0)
    at = lookup_sorted(identity[order], order, ev.execution_id[owned])
    belongs = (at >= 0) & (model.op_of[owned] < 0)
    model.op_of[owned[belongs]] = op[at[belongs]]
    start, end = column["start_ns"].astype(np.int64), column["end_ns"].astype(np.int64)
    estimated = column["estimated_ns"].astype(np.int64)
    # The runtime copies, and torch counts no device time for it; a CUDA copy is device work.
    kind = np.array(["host_copy" if k.startswith("memcpy") else k for k in text["kind"]], object)
    named = np.where(text["overload"] != "", text["overload"], np.where(text["op"] != "", text["op"], text["kind"]))
    step = column["step"].astype(np.int64)
    launched = np.where(launch_of >= 0, ev.start[launch_of], column["enqueue_ns"].astype(np.int64))
    is_exec = kind == "exec"
    execution = Execution(launch_of)
    execution.columns = {
        "execution_id": identity,
        "event_id": rows,
        "op_event_id": op,
        "kind": Coded.of(kind),
        "name": Coded.of(named),
        "op": Coded.of(np.where((text["op"] == "") & (op >= 0), _names_of(model, op), text["op"])),
        "overload": Coded.of(text["overload"]),
        "neff": Coded.of(text["neff"]),
        "device": column["nc_idx"].astype(np.int64),
        "stream_id": column["stream_id"].astype(np.int64),
        "process_id": np.full(len(identity), model.main_pid, np.int64),
        "correlation": column["correlation"].astype(np.int64),
        "launch_ts": _launched(model, launch_of),
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
        "shapes": Coded.of(text["shapes"]),
        "dtypes": Coded.of(text["dtypes"]),
        "module_path": Coded.of(text["module_path"]),
        "source": Coded.of(text["source"]),
        "step": np.where(step >= 0, step, model.step_at(launched)),
        "physical_cores": cores,
        "provenance": Coded(
            _provenance(estimated, Coded.of(text.get("bound", np.full(len(identity), "", object)))).astype(np.int8),
            _PROVENANCE,
        ),
        "gap_ns": column["gap_ns"].astype(np.int64),
        "gap_cause": Coded.of(text["gap_cause"]),
    }
    return execution


def _names_of(model: Model, rows: Int64) -> npt.NDArray[Any]:
    """Names of events, empty where the row is -1."""
    names = np.array([*model.names, ""], object)
    if not len(model.ev):
        return names[rows * 0 - 1]
    return names[np.where(rows >= 0, model.name_code[rows], len(model.names))]


def _is_text(table: pa.Table, name: str) -> bool:
    kind = table.schema.field(name).type
    return pa.types.is_dictionary(kind) or pa.types.is_string(kind)
