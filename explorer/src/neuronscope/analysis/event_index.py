"""Finds an event's neighbours without reading a table: its call, its callers, its executions, its flow.

Sorted arrays and binary search, kept beside the tables (`arrays.py`); the cost of one event doesn't grow with the
profile.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neuronscope.analysis.arrays import Arrays, kept_arrays, narrow, search

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["EventIndex"]

Ints = npt.NDArray[Any]


@dataclass(frozen=True)
class _Sorted:
    """Values by key, in order of the keys; a key may occur several times."""

    keys: Ints
    values: Ints

    def of(self, key: int) -> Ints:
        """All values of one key."""
        first, last = search(self.keys, [key, key + 1])
        return self.values[first:last]

    def first(self, keys: Ints, missing: int = -1) -> Ints:
        """The first value of each key, `missing` where it has none."""
        if not len(self.keys):
            return np.full(len(keys), missing, np.int64)
        at = np.minimum(search(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.values[at], missing)


def _sorted(name: str, keys: Ints, values: Ints) -> Arrays:
    """Keys and values in order of (key, value), as narrow as they go."""
    if len(keys) and min(keys.min(), values.min()) >= 0 and max(keys.max(), values.max()) < 2**31:
        pairs = keys.astype(np.int64)  # sorting pairs of 32 bits as one number takes a fraction of the time and memory
        pairs <<= 32
        pairs |= values
        pairs.sort()
        return {f"{name}_keys": (pairs >> 32).astype(np.int32), f"{name}_values": (pairs & 0x7FFFFFFF).astype(np.int32)}
    order = np.lexsort((values, keys))
    return {f"{name}_keys": narrow(keys[order]), f"{name}_values": narrow(values[order])}


class EventIndex:
    """Who is linked to whom in a profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        calls = kept_arrays(profile, "calls", ("HostOp",), lambda: _calls(profile))
        executions = kept_arrays(profile, "executions", ("Execution",), lambda: _executions(profile))
        flows = kept_arrays(profile, "flows", ("SystemProfileEvents",), lambda: _flows(profile))
        self._parent = _Sorted(calls["parent_keys"], calls["parent_values"])
        self._children = _Sorted(calls["children_keys"], calls["children_values"])
        self._kind = _Sorted(executions["kind_keys"], executions["kind_values"])
        self._launched = _Sorted(executions["launched_keys"], executions["launched_values"])
        self._flows = _Sorted(flows["flow_keys"], flows["flow_values"])
        self._members = _Sorted(flows["member_keys"], flows["member_values"])

    def are_calls(self, events: Ints) -> npt.NDArray[np.bool_]:
        """Which events are operator calls."""
        found: npt.NDArray[np.bool_] = self._parent.first(events, missing=-2) > -2
        return found

    def kinds(self, events: Ints) -> Ints:
        """Of each event 1: execution of a program or kernel, 0: copy or fill, -1: neither."""
        return self._kind.first(events)

    def enclosed_calls(self, event: int) -> list[int]:
        """The event and all operator calls inside it."""
        found, waiting = [event], [event]
        while waiting:
            inner = self._children.of(waiting.pop()).tolist()
            found += inner
            waiting += inner
        return found

    def launched_by(self, calls: Iterable[int]) -> list[int]:
        """Events of the executions that these calls launched."""
        parts = [self._launched.of(call) for call in calls]
        return np.concatenate(parts).tolist() if parts else []

    @functools.cached_property
    def _waits(self) -> tuple[_Sorted, _Sorted]:
        """What each row of an engine waited for, and what waited for it; made when a chain is asked for first."""
        found = kept_arrays(self._profile, "waits", ("Flow",), lambda: _waits(self._profile))
        return tuple(_Sorted(found[f"{name}_keys"], found[f"{name}_values"]) for name in ("for", "by"))  # type: ignore[return-value]

    def waited_for(self, event: int) -> Ints:
        """The events that arrows lead from to this one."""
        return self._waits[0].of(event)

    def waited_by(self, event: int) -> Ints:
        """The events that arrows lead to from this one."""
        return self._waits[1].of(event)

    def mates(self, event: int, limit: int) -> list[int]:
        """The events that share a flow with this one in its process, itself left out."""
        found: dict[int, None] = {}
        for flow in self._flows.of(event).tolist():
            mates = self._members.of(flow)[: limit + 1].tolist()
            found |= dict.fromkeys(mate for mate in mates if mate != event)
            if len(found) >= limit:
                break
        return list(found)[:limit]


def _waits(profile: Profile) -> Arrays:
    columns = profile.columns(
        "SELECT in_id, out_id FROM Flow WHERE in_table = 'SystemProfileEvents' AND out_table = 'SystemProfileEvents'"
    )
    held, waiting = columns["in_id"], columns["out_id"]
    return {**_sorted("for", waiting, held), **_sorted("by", held, waiting)}


def _calls(profile: Profile) -> Arrays:
    event, parent = profile.columns("SELECT event_id, parent_id FROM HostOp").values()
    inner = parent >= 0
    return {**_sorted("parent", event, parent), **_sorted("children", parent[inner], event[inner])}


def _executions(profile: Profile) -> Arrays:
    columns = profile.columns("SELECT event_id, op_event_id, (kind = 'exec')::BIGINT AS kind FROM Execution")
    event, op, kind = columns.values()
    linked = op >= 0
    return {**_sorted("kind", event, kind), **_sorted("launched", op[linked], event[linked])}


def _flows(profile: Profile) -> Arrays:
    """Flow ids mean something within their process only; each (flow, process) gets a number."""
    flows = (
        "SELECT id, unnest(flow_id) AS flow, instance_id, process_id FROM SystemProfileEvents WHERE len(flow_id) > 0"
    )
    facts = profile.rows(
        f"SELECT count(DISTINCT (instance_id, process_id)) AS processes, "
        f"count(*) FILTER (TRY_CAST(flow AS BIGINT) IS NULL) AS texts FROM ({flows})"
    )[0]
    # Ids are numbers as nearly every producer makes them; texts get numbers of their own first.
    flow = "flow::BIGINT" if not facts["texts"] else "dense_rank() OVER (ORDER BY flow)"
    process = "dense_rank() OVER (ORDER BY instance_id, process_id)" if facts["processes"] > 1 else "0"
    columns = profile.columns(f"SELECT id, {flow} AS flow, {process} AS process FROM ({flows})")
    event, number, owner = columns["id"], columns["flow"], columns["process"]
    del columns
    several = facts["processes"] > 1
    order = np.lexsort((number, owner)) if several else np.argsort(number, kind="stable")
    fresh = np.diff(number[order]) != 0
    if several:
        fresh |= np.diff(owner[order]) != 0
    number[order] = np.concatenate(([0], np.cumsum(fresh)))[: len(order)]
    return {**_sorted("flow", event, number), **_sorted("member", number, event)}
