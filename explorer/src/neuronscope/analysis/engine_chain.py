"""What an instruction or transfer of a device profile waited for, back to the start, and what waited for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronscope.analysis.events import cards

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["engine_chain"]

_STEPS = 24
_DOWNSTREAM = 50
_REASONS = {"semaphore": "semaphore", "dma_trigger": "DMA start", "in order": "in order on its engine or queue"}


def engine_chain(profile: Profile, identity: int) -> dict[str, Any]:
    """The chain of an engine's row, in the form of `neuronscope.analysis.chain.chain`.

    Upstream is the critical path: at each step what ended last of all the event waited for, at most 24 steps back.
    Downstream is everything that waited for the event itself.
    """
    path = [identity]
    in_order: set[int] = set()  # those that waited for nothing but the row before
    while len(path) <= _STEPS:
        held, ordered = _holder(profile, path[-1])
        if held is None or held in path:
            break
        if ordered:
            in_order.add(path[-1])
        path.append(held)
    upstream = path[:0:-1]
    waiting = [event for event in profile.event_index.waited_by(identity)[:_DOWNSTREAM].tolist() if event not in path]
    kinds = _kinds(profile, [*pairwise(path[::-1]), *((identity, event) for event in waiting)])
    kinds |= dict.fromkeys(in_order, "in order")
    found = cards(profile, {*path, *waiting})
    waiting = [event for event in waiting if event in found]
    order = [event for event in upstream if event in found] + [identity, *waiting]
    pairs = [*pairwise(order[: len(order) - len(waiting)]), *((identity, event) for event in waiting)]
    links = [
        {
            "from": str(first),
            "to": str(second),
            "wait_ns": max(found[second]["start"] - found[first]["end"], 0),
        }
        for first, second in pairs
    ]
    reasons = {event: _REASONS.get(kind, "") for event, kind in kinds.items()}
    waits = {link["to"]: link["wait_ns"] for link in links}
    return {
        "cause": str(order[0]),
        "events": [
            found[event] | {"wait_ns": waits.get(str(event), 0), "wait_reason": reasons.get(event, "")}
            for event in order
        ],
        "links": links,
        "upstream": [str(event) for event in upstream if event in found],
        "downstream": [str(event) for event in waiting],
    }


def _holder(profile: Profile, event: int) -> tuple[int | None, bool]:
    """What an event waited for, and whether only because it lies before it on the same engine or queue.

    Of a waiting instruction it is the last to raise its semaphores, else what ended last.
    """
    timeline = profile.timeline
    held = profile.event_index.waited_for(event)
    at = timeline.positions(np.asarray(held, np.int64)) if len(held) else np.zeros(0, np.int64)
    held, at = held[at >= 0], at[at >= 0]
    last = None
    if len(held):
        ends = timeline.start[at].astype(np.int64) + timeline.duration[at]
        last = int(np.lexsort((held, -ends))[0])
    own = timeline.position(event)
    before = timeline.before(own) if own is not None else None
    if before is None:
        return (None if last is None else int(held[last])), False
    neighbour = int(timeline.event_id[before])
    if last is None:
        return neighbour, True
    told = profile.rows_with("SystemProfileEvents", "id", [event], ("extra_attributes_json",))
    arguments = json.loads(told[0]["extra_attributes_json"] or "{}")
    if isinstance(arguments, dict) and isinstance(waited := arguments.get("wait_ns"), int):
        return (int(held[last]), False) if waited > 0 else (neighbour, True)
    ended = int(timeline.start[before]) + int(timeline.duration[before])
    return (int(held[last]), False) if int(ends[last]) >= ended else (neighbour, True)


def _kinds(profile: Profile, pairs: Sequence[tuple[int, int]]) -> dict[int, str]:
    """Of each pair of events that an arrow joins the second one, and the arrow's kind."""
    ends = sorted({second for _, second in pairs})
    rows = profile.rows_with("Flow", "out_id", ends, ("in_id", "out_id", "in_table", "dependency_type"))
    known = {
        (row["in_id"], row["out_id"]): row["dependency_type"] or ""
        for row in rows
        if row["in_table"] == "SystemProfileEvents"
    }
    return {second: known[first, second] for first, second in pairs if (first, second) in known}
