"""The dependency chain of an event: operator call → device interaction → runtime call → execution, and the waits."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.engine_chain import engine_chain
from neuronscope.analysis.events import UnknownEventError, cards, executions_of, flow_mates
from neuronscope.analysis.units import format_ns, plural

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["chain"]

_RANK = {
    "dispatch": 0,
    "step": 0,
    "host call": 1,
    "device interaction": 2,
    "schedule": 3,
    "runtime call": 3,
    "copy": 4,
    "execution": 4,
}
_LAST = 4
_LIMIT = 400  # a step's worth of kernels is a list, not a chain


def chain(profile: Profile, identity: int) -> dict[str, Any]:
    """What caused an event and what it caused, as `GET …/events/{id}/chain` answers.

    A link's wait runs from the end of its first event to the start of the second, or, where the second starts while the
    first still runs, from start to start. An operator that launched several executions has one chain with several ends.

    Raises:
        UnknownEventError: no such event.
    """
    own = cards(profile, [identity]).get(identity)
    if own is None:
        raise UnknownEventError(f"profile {profile.name} has no event {identity}")
    if own["role"] == "instruction":
        return engine_chain(profile, identity)
    executions = executions_of(profile, identity, _LIMIT)
    mates = flow_mates(profile, [row["event_id"] for row in executions] or [identity])
    members = {identity} | {mate for group in mates.values() for mate in group}
    members |= {row["op_event_id"] for row in executions if row["op_event_id"] >= 0}
    found = cards(profile, members)
    order: list[int] = []
    links: list[dict[str, Any]] = []
    reasons: dict[int, str] = {}
    groups: list[tuple[dict[str, Any] | None, list[int]]] = [
        (row, [row["op_event_id"], *mates[row["event_id"]]]) for row in executions
    ] or [(None, list(members))]
    for execution, group in groups:
        events = sorted({event for event in group if event in found}, key=lambda event: _key(found[event]))
        order += [event for event in events if event not in order]
        links += _links(found, events)
        if execution is not None:
            reasons |= _reasons(profile, execution, found, events)
    if identity not in order:  # an outer call, or a call without device work
        links += [_link(own, found[order[0]])] if order else []
        order.insert(0, identity)
    waits = {link["to"]: link["wait_ns"] for link in links}
    rank = _rank(own)
    same_group = _group_of(groups, identity, order)
    return {
        "cause": str(order[0]),
        "events": [
            found[event] | {"wait_ns": waits.get(str(event), 0), "wait_reason": reasons.get(event, "")}
            for event in order
        ],
        "links": links,
        "upstream": [str(event) for event in order if event in same_group and _rank(found[event]) < rank],
        "downstream": [
            str(event)
            for event in order
            if event != identity and (_rank(found[event]) > rank if event in same_group else rank == 0)
        ],
    }


def _rank(card: dict[str, Any]) -> int:
    return _RANK.get(card["role"], 1)


def _key(card: dict[str, Any]) -> tuple[int, int, int]:
    return _rank(card), card["start"], int(card["id"])


def _group_of(groups: list[tuple[Any, list[int]]], identity: int, order: list[int]) -> set[int]:
    """The events of the executions the selected event takes part in."""
    mine = {event for _, group in groups if identity in group for event in group}
    return mine or set(order)


def _link(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    apart = second["start"] - first["end"]
    wait = apart if apart >= 0 else max(second["start"] - first["start"], 0)
    return {"from": first["id"], "to": second["id"], "wait_ns": wait}


def _links(found: dict[int, dict[str, Any]], events: list[int]) -> list[dict[str, Any]]:
    """One arrow per step down; the physical cores of an execution all hang on the event before them."""
    before = [event for event in events if _rank(found[event]) < _LAST]
    links = [_link(found[a], found[b]) for a, b in pairwise(before)]
    if before:
        links += [_link(found[before[-1]], found[event]) for event in events if _rank(found[event]) == _LAST]
    return links


def _reasons(
    profile: Profile, execution: dict[str, Any], found: dict[int, dict[str, Any]], events: list[int]
) -> dict[int, str]:
    if execution["enqueue_ts"] < 0:
        return {}
    waited = execution["start_ts"] - execution["enqueue_ts"]
    if waited <= 0:
        return {}
    # The times stand in the text, so that DuckDB skips row groups by them.
    ahead = profile.rows(
        f"""
        SELECT count(*) AS n FROM Execution
        WHERE device = $device AND process_id = $process_id
          AND start_ts < {int(execution["start_ts"])} AND end_ts > {int(execution["enqueue_ts"])}
        """,
        execution,
    )[0]["n"]
    if ahead:
        text = f"queued {format_ns(waited)} behind {plural(ahead, 'execution')}"
        waiting = "wait for the device"
    else:
        text = ""
        waiting = {"launch_latency": "launch latency", "execution_gap": "gap between executions"}.get(
            execution["gap_cause"], "launch latency"
        )
    reasons = {}
    for event in events:
        role = found[event]["role"]
        if role in ("execution", "copy"):
            reasons[event] = waiting
        elif role == "device interaction" and text:
            reasons[event] = text
    return reasons
