"""What an instruction or transfer of a device profile waited for, back to the start, and what waited for it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.events import cards

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["engine_chain"]

_STEPS = 24
_DOWNSTREAM = 50
_REASONS = {"semaphore": "semaphore", "dma_trigger": "DMA start", "in order": "in order on its engine or queue"}

_HOLDERS = """
SELECT e.id, e.end_ts, coalesce(f.dependency_type, '') AS kind
FROM Flow f JOIN SystemProfileEvents e ON e.id = f.in_id
WHERE f.out_id = $event AND f.in_table = 'SystemProfileEvents' AND f.out_table = 'SystemProfileEvents'
ORDER BY e.end_ts DESC, e.id LIMIT 1
"""

_BEFORE = """
SELECT p.event_id AS id, p.end_ts, 'in order' AS kind FROM Slice s JOIN Slice p ON p.track_id = s.track_id
WHERE s.event_id = $event AND p.start_ts < s.start_ts ORDER BY p.start_ts DESC LIMIT 1
"""

_WAITERS = f"""
SELECT out_id AS id, dependency_type AS kind FROM Flow
WHERE in_id = $event AND in_table = 'SystemProfileEvents' AND out_table = 'SystemProfileEvents'
ORDER BY out_id LIMIT {_DOWNSTREAM}
"""


def engine_chain(profile: Profile, identity: int) -> dict[str, Any]:
    """The chain of an engine's row, in the form of `neuronscope.analysis.chain.chain`.

    Upstream is the critical path: at each step what ended last of all the event waited for, at most 24 steps back.
    Downstream is everything that waited for the event itself.
    """
    path, kinds = [identity], {}
    while len(path) <= _STEPS:
        held = _holder(profile, path[-1])
        if held is None or held["id"] in path:
            break
        kinds[path[-1]] = held["kind"]
        path.append(held["id"])
    upstream = path[:0:-1]
    waiting = [row for row in profile.rows(_WAITERS, {"event": identity}) if row["id"] not in path]
    found = cards(profile, {*path, *(row["id"] for row in waiting)})
    waiting = [row for row in waiting if row["id"] in found]
    order = [event for event in upstream if event in found] + [identity] + [row["id"] for row in waiting]
    pairs = [*pairwise(order[: len(order) - len(waiting)]), *((identity, row["id"]) for row in waiting)]
    links = [
        {
            "from": str(first),
            "to": str(second),
            "wait_ns": max(found[second]["start"] - found[first]["end"], 0),
        }
        for first, second in pairs
    ]
    reasons = {event: _reason(kind) for event, kind in kinds.items()} | {
        row["id"]: _reason(row["kind"]) for row in waiting
    }
    waits = {link["to"]: link["wait_ns"] for link in links}
    return {
        "cause": str(order[0]),
        "events": [
            found[event] | {"wait_ns": waits.get(str(event), 0), "wait_reason": reasons.get(event, "")}
            for event in order
        ],
        "links": links,
        "upstream": [str(event) for event in upstream if event in found],
        "downstream": [str(row["id"]) for row in waiting],
    }


def _holder(profile: Profile, event: int) -> dict[str, Any] | None:
    """What an event waited for: of a waiting instruction the last to raise its semaphores, else what ended last."""
    held = profile.rows(_HOLDERS, {"event": event})
    before = profile.rows(_BEFORE, {"event": event})
    if not held or not before:
        return next(iter(held + before), None)
    told = profile.rows(
        "SELECT extra_attributes_json AS text FROM SystemProfileEvents WHERE id = $event", {"event": event}
    )
    arguments = json.loads(told[0]["text"] or "{}")
    if isinstance(arguments, dict) and isinstance(waited := arguments.get("wait_ns"), int):
        return held[0] if waited > 0 else before[0]
    return max(held[0], before[0], key=lambda row: row["end_ts"])


def _reason(kind: str | None) -> str:
    return _REASONS.get(kind or "", "")
