"""Arrows between events: those of the file, and those that ids give: table Flow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from neuronscope.readers import lanes
from neuronscope.readers.exact import Int64
from neuronscope.readers.keys import codes_of, distinct, groups, lookup_sorted, match_arrows, stable_order
from neuronscope.readers.narrow import Coded, narrow
from neuronscope.readers.scratch import CHUNK_ROWS, ranges
from neuronscope.readers.tables import named_table
from neuronscope.readers.trace import DEVICE_ROLES, ArrowEnds, Role

if TYPE_CHECKING:
    from neuronscope.readers.model import Model

__all__ = ["Links", "links", "pieces"]

_BY_LAUNCH = ("ac2g", "async", "launch")  # kinds of arrows that say what correlation ids say too
_UNBOUND = (Role.SPAN, Role.INSTANT, Role.ASYNC)
_TABLE_ROWS = 65_536


@dataclass(frozen=True)
class Links:
    """Arrows of the file as event rows, -1 where no slice is; without those that correlation ids already give."""

    tail: Int64
    head: Int64
    kind: Coded


@dataclass(frozen=True)
class _Edges:
    """Arrows of one kind between event rows."""

    source: Int64
    target: Int64
    kind: str


def pieces(model: Model) -> Iterator[pa.Table]:
    """Table Flow."""
    edges = _neuron_chain(model) if model.trace.neuron else _launches(model)
    found = links(model)
    if found is not None:
        keep = (found.tail >= 0) & (found.head >= 0) & (found.tail != found.head)
        for code, name in enumerate(found.kind.texts):
            here = np.flatnonzero(keep & (found.kind.codes == code))
            edges.append(_edges(model, found.tail[here], found.head[here], name))
    model.links = None
    of_events = _tables(model, [some for some in edges if len(some.source)])
    inside = model.trace.tables.pop("Flow", None)  # between rows of device profiles, made by their reader
    return map(_coded, itertools.chain(of_events, [] if inside is None else [inside]))


def _coded(table: pa.Table) -> pa.Table:
    """The same rows with texts as dictionaries: every piece of the table has the same columns."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(index, field.name, table.column(index).dictionary_encode())
    return table


def _tables(model: Model, edges: list[_Edges]) -> Iterator[pa.Table]:
    """Each pair of events once, in their order; of several kinds the first."""
    ev = model.ev
    names = pa.array([some.kind for some in edges], pa.string())
    for some in _by_source(edges):
        source = np.concatenate([edges[kind].source[rows] for kind, rows in some]).astype(np.int64)
        target = np.concatenate([edges[kind].target[rows] for kind, rows in some]).astype(np.int64)
        kinds = np.concatenate([np.full(len(rows), kind, np.int32) for kind, rows in some])
        _, first = np.unique(source * len(ev) + target, return_index=True)
        source, target, kinds = source[first], target[first], kinds[first]
        for low, high in ranges(len(first), _TABLE_ROWS):
            begins, ends = source[low:high], target[low:high]
            table = pa.array(["SystemProfileEvents"])
            constant = pa.DictionaryArray.from_arrays(np.zeros(high - low, np.int32), table)
            yield named_table(
                "Flow",
                {
                    "in_id": begins,
                    "out_id": ends,
                    "in_table": constant,
                    "out_table": constant,
                    "dependency_type": names.take(pa.array(kinds[low:high])),
                    "gap_time": ev.start[ends] - ev.end[begins],
                },
            )


def _by_source(edges: list[_Edges]) -> Iterator[list[tuple[int, Int64]]]:
    """Rows of each kind in ranges of sources, each later than the one before, so that few are looked at at once."""
    count = sum(len(some.source) for some in edges)
    parts = max(-(-count // CHUNK_ROWS), 1)
    sample = np.sort(np.concatenate([some.source[::64] for some in edges])) if count else np.zeros(0, np.int64)
    limits = np.unique(sample[np.arange(1, parts) * len(sample) // parts]) if parts > 1 else sample[:0]
    bounds = [-1, *limits.tolist(), 2**62]
    for low, high in itertools.pairwise(bounds):
        if not count:
            return
        yield [(kind, np.flatnonzero((some.source > low) & (some.source <= high))) for kind, some in enumerate(edges)]


def _edges(model: Model, source: Int64, target: Int64, kind: str) -> _Edges:
    """Arrows between event rows; those without one of the ends are left out."""
    keep = (source >= 0) & (target >= 0)
    return _Edges(model.keep(source[keep]), model.keep(target[keep]), kind)


def _launches(model: Model) -> list[_Edges]:
    """Operator → launch call → device work."""
    launch_of, executed = model.execution.launch_of, model.execution.columns["event_id"]
    launched = np.flatnonzero(launch_of >= 0)
    calls = distinct(launch_of[launched])
    found = [
        _edges(model, launch_of[launched], executed[launched], "launch"),
        _edges(model, model.op_of[calls], calls, "dispatch"),
    ]
    op = model.execution.columns["op_event_id"]
    direct = np.flatnonzero((launch_of < 0) & (op >= 0))
    found.append(_edges(model, op[direct], executed[direct], "launch"))
    return found


def _neuron_chain(model: Model) -> list[_Edges]:
    """Operator → dispatch → device interaction → schedule → execution on each physical core, by execution id."""
    ev = model.ev
    known = ev.execution_id >= 0
    schedules = np.array(["schedule" in name for name in model.names[: len(ev.name.dictionary)]] or [False], np.bool_)
    levels = (
        ((Role.DISPATCH,), "dispatch"),
        ((Role.DRIVER,), "device interaction"),
        ((Role.NRT,), "schedule"),
        (DEVICE_ROLES, "execution"),
    )
    identity = np.unique(ev.execution_id[known])
    last = np.full(len(identity), -1, np.int64)
    found = []
    for roles, kind in levels:
        rows = ev.of(*roles)
        rows = rows[known[rows]]
        if not len(rows):
            continue
        at = np.searchsorted(identity, ev.execution_id[rows])
        previous = last[at]
        found.append(_edges(model, np.where(previous >= 0, previous, model.op_of[rows]), rows, kind))
        # Of several runtime calls of one execution the schedule call leads on.
        leads = schedules[model.name_code[rows]] if Role.NRT in roles else np.ones(len(rows), np.bool_)
        last[at[~leads]] = rows[~leads]
        last[at[leads]] = rows[leads]
    return found


def links(model: Model) -> Links | None:
    """Arrows of the file; found once, and reported."""
    ends = model.trace.arrows
    if model.links is None and ends is not None:
        model.links = _linked(model, ends)
    return model.links if model.links is None or len(model.links.tail) else None


def _linked(model: Model, ends: ArrowEnds) -> Links:
    matched = dangling = 0
    alone: list[Int64] = []  # ends of arrows without another end
    covered = _covered(model)
    names = ends.kind.dictionary.to_pylist()
    kinds = ends.kind.indices.to_numpy()
    by_launch = np.array([name in _BY_LAUNCH for name in names], np.bool_)
    nothing = np.zeros(0, np.int64)
    pairs: list[tuple[Int64, Int64, Int64]] = [(nothing, nothing, nothing)]
    for rows in _by_key(ends):
        kind = kinds[rows]
        group = groups(kind, ends.key[rows])
        tail, head, lone = match_arrows(group, ends.ts[rows], ends.phase[rows])
        matched, dangling = matched + len(tail), dangling + lone
        if lone:
            alone.append(np.delete(rows, np.concatenate((tail, head))))
        number = ends.number[rows[tail]]
        skip = by_launch[kind[tail]] & (number >= 0)
        skip[skip] = lookup_sorted(covered, covered, number[skip]) >= 0
        tail, head = tail[~skip], head[~skip]
        if not len(tail):
            continue
        identity = codes_of(ends.key[rows])
        first = np.full(int(identity.max(initial=0)) + 1, len(ends), np.int64)  # where an id occurs first in the file
        np.minimum.at(first, identity, rows)
        pairs.append((rows[tail], rows[head], first[identity[tail]]))
    tail, head, first = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    order = np.lexsort((first, kinds[tail], ends.ts[tail] > ends.ts[head]))
    tail, head = tail[order], head[order]
    model.note("arrows", matched, "arrow between slices", "arrows between slices")
    model.note(
        "unmatched_flow",
        dangling,
        "end of an arrow has no other end; no arrow is drawn for it",
        "ends of arrows have no other end; no arrow is drawn for them",
        offset=_kept(model, ends, np.concatenate(alone) if alone else nothing),
    )
    bound = _bind(model, ends, np.concatenate((tail, head)))
    bound_tail, bound_head = bound[: len(tail)], bound[len(tail) :]
    unbound = (bound_tail < 0) | (bound_head < 0)
    model.note(
        "unbound_flow",
        int(unbound.sum()),
        "arrow begins or ends where no slice is; it is not drawn",
        "arrows begin or end where no slice is; they are not drawn",
        offset=_kept(model, ends, np.concatenate((tail[unbound], head[unbound]))),
    )
    model.trace.scratch.forget()
    return Links(model.keep(bound_tail), model.keep(bound_head), Coded(narrow(kinds[tail]), names))


def _kept(model: Model, ends: ArrowEnds, rows: Int64) -> int:
    """Keep ends that are in no arrow as rows of their own; where the first of them stands in the file."""
    if model.trace.file_rows is None or ends.row is None or not len(rows):
        return -1
    in_file = np.asarray(ends.row[rows], np.int64)
    model.trace.file_rows.keep(in_file)
    return model.trace.file_rows.offset(in_file)


def _covered(model: Model) -> Int64:
    """Correlation ids of device work, in order."""
    rows = model.ev.of(*DEVICE_ROLES, Role.DRIVER)
    return model.keep(distinct(model.ev.correlation[rows]))


def _by_key(ends: ArrowEnds) -> Iterator[Int64]:
    """Rows of arrow ends in parts, all ends of one arrow in one."""
    parts = max(-(-len(ends) // CHUNK_ROWS), 1)
    for part in range(parts):
        if parts == 1:
            yield np.arange(len(ends))
        else:
            yield np.concatenate(
                [low + np.flatnonzero(ends.key[low:high] % parts == part) for low, high in ranges(len(ends))]
            )


def _bind(model: Model, ends: ArrowEnds, asked: Int64) -> Int64:
    """The innermost slice of the file's thread at the time of each of the arrow ends, -1 none."""
    ev = model.ev
    found = np.full(len(asked), -1, np.int64)
    if not len(asked):
        return found
    code_of = {key: code for code, key in enumerate(model.threads)}
    pid, tid, ts = (np.asarray(column[asked]).astype(np.int64) for column in (ends.pid, ends.tid, ends.ts))
    local = codes_of(pid, tid)
    _, first = np.unique(local, return_index=True)
    listed = [code_of.get((int(pid[at]), int(tid[at])), -1) for at in first.tolist()]
    thread = np.array(listed, np.int64)[local]
    wanted = np.zeros(len(model.threads) + 1, np.bool_)
    wanted[thread[thread >= 0]] = True
    codes = model.trace.scratch.column()
    for low, high in ranges(len(ev)):
        here = wanted[model.thread[low:high]] & ~np.isin(ev.role[low:high], _UNBOUND)
        codes.append(narrow(np.where(here, model.thread[low:high], -1)))
    of_slices = codes.finish()
    rows = stable_order(of_slices, len(model.threads))
    for low, high in lanes.groups_of(of_slices[rows]):
        some = rows[low:high]
        of_thread = np.flatnonzero(thread == int(of_slices[some[0]]))
        start, end = model.trace.scratch.take(ev.start, some), model.trace.scratch.take(ev.end, some)
        nesting = lanes.nest(np.broadcast_to(np.int8(0), len(some)), start, end)
        inner = lanes.enclosing_in(nesting.parent, start, end, ts[of_thread])
        found[of_thread] = np.where(inner >= 0, some[inner], -1)
    return found
