"""Single events: cards for lists, and everything known about one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from neuronscope.analysis.device_view import device_profile_id, has_device_rows
from neuronscope.analysis.devices import peak_of
from neuronscope.analysis.stack_frames import stack_frames
from neuronscope.analysis.units import format_ns
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["UnknownEventError", "cards", "event_details", "executions_of", "flow_mates", "neighbour", "search"]

_ROLES = {
    "framework": "dispatch",
    "stream": "device interaction",
    "runtime": "runtime call",
    "device": "execution",
    "copy": "copy",
    "engine": "instruction",
}


class UnknownEventError(NeuronscopeError, KeyError):
    """No event with that id."""

    def __str__(self) -> str:
        return str(self.args[0])


def cards(profile: Profile, identities: Iterable[int]) -> dict[int, dict[str, Any]]:
    """EventCards (docs/http-api.md) by event id; ids that do not exist are left out."""
    wanted = np.array(list(dict.fromkeys(int(identity) for identity in identities)), np.int64)
    if not len(wanted):
        return {}
    timeline, index = profile.timeline, profile.event_index
    rows, calls, kinds = timeline.positions(wanted), index.are_calls(wanted), index.kinds(wanted)
    drawn = {
        identity: {
            "id": identity,
            "name": profile.names[timeline.name_id[row]],
            "op": profile.names[op] if (op := int(timeline.op_id[row])) >= 0 else "",
            "track_id": int(timeline.track[row]),
            "lane": int(timeline.lane[row]),
            "start_ts": int(timeline.start[row]) + profile.origin_ns,
            "duration_ns": int(timeline.duration[row]),
        }
        for identity, row in zip(wanted.tolist(), rows.tolist(), strict=True)
        if row >= 0
    }
    others = [identity for identity in wanted.tolist() if identity not in drawn]
    for row in profile.rows_with("SystemProfileEvents", "id", others, ("id", "name", "start_ts", "end_ts")):
        drawn[row["id"]] = row | {"duration_ns": row["end_ts"] - row["start_ts"]}
    found: dict[int, dict[str, Any]] = {}
    for identity, call, kind in zip(wanted.tolist(), calls.tolist(), kinds.tolist(), strict=True):
        if identity in drawn:
            found[identity] = _card(profile, drawn[identity], call, kind)
    return found


def _card(profile: Profile, row: Mapping[str, Any], call: bool, kind: int) -> dict[str, Any]:
    track = profile.tracks.get(row.get("track_id", -1), {})
    start = row["start_ts"] - profile.origin_ns
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "op": row.get("op") or row["name"],
        "track_id": row.get("track_id", -1),
        "lane": row.get("lane", 0),
        "lane_label": track.get("short", ""),
        "role": _role(row["name"], track.get("kind", ""), call, kind),
        "start": start,
        "end": start + row["duration_ns"],
        "duration_ns": row["duration_ns"],
    }


def _role(name: str, track_kind: str, call: bool, kind: int) -> str:
    if call:
        return "dispatch"
    if kind >= 0:
        return "execution" if kind else "copy"
    if track_kind == "framework":
        return "step" if name.startswith("ProfilerStep#") else "host call"
    if track_kind == "runtime" and "schedule" in name:
        return "schedule"
    return _ROLES.get(track_kind, "event")


def flow_mates(profile: Profile, identities: Iterable[int], limit: int = 2000) -> dict[int, list[int]]:
    """For each event the events of its process that share a flow id with it, itself included."""
    index = profile.event_index
    return {identity: [identity, *index.mates(identity, limit)] for identity in dict.fromkeys(map(int, identities))}


def executions_of(profile: Profile, identity: int, limit: int = 500) -> list[dict[str, Any]]:
    """Executions an event belongs to: its own, those it launched (operators: with enclosed calls), or its flow's."""
    index = profile.event_index
    launched = index.launched_by(index.enclosed_calls(identity))
    own = [identity] if index.kinds(np.array([identity]))[0] >= 0 else []
    events = list(dict.fromkeys([*own, *launched]))
    if not events:
        mates = [identity, *index.mates(identity, 2000)]
        kinds = index.kinds(np.array(mates, np.int64)).tolist()
        events = [mate for mate, kind in zip(mates, kinds, strict=True) if kind >= 0]
    if len(events) > limit:
        rows = profile.timeline.positions(np.array(events, np.int64))
        starts = np.where(rows >= 0, profile.timeline.start[np.maximum(rows, 0)], 0)
        events = [events[at] for at in np.argsort(starts, kind="stable")[:limit].tolist()]
    found = profile.rows_with("Execution", "event_id", events)
    return sorted(found, key=lambda row: (row["start_ts"], row["execution_id"]))[:limit]


def event_details(profile: Profile, identity: int) -> dict[str, Any]:
    """One event in full, as `GET /api/profiles/{p}/events/{id}` answers.

    Raises:
        UnknownEventError: no such event.
    """
    card = cards(profile, [identity]).get(identity)
    if card is None:
        raise UnknownEventError(f"profile {profile.name} has no event {identity}")
    raw = profile.rows_with("SystemProfileEvents", "id", [identity])[0]
    attributes = {
        key: value
        for key, value in raw.items()
        if value not in (None, [], "")
        and key not in ("id", "name", "start_ts", "end_ts", "duration_ns", "extra_attributes_json")
    }
    attributes |= _json_object(raw.get("extra_attributes_json"))
    if frames := stack_frames(profile, attributes.get("stack_frames")):
        attributes["stack_frames"] = frames
    executions = executions_of(profile, identity, limit=2)
    execution = _execution(profile, executions[0]) if len(executions) == 1 else None
    gap = None
    if executions and card["role"] in ("execution", "copy"):
        gap = next(iter(profile.rows_with("Gap", "next_event_id", [identity])), None)
    return card | {
        "execution": execution,
        "gap_before": gap_card(profile, gap) if gap else None,
        "attributes": attributes,
        "made_by": _made_by(profile, card),
        "markdown": _markdown(card, execution),
    }


def _json_object(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {"extra_attributes_json": text}
    return value if isinstance(value, dict) else {"extra_attributes_json": text}


def _known(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def _execution(profile: Profile, row: Mapping[str, Any]) -> dict[str, Any]:
    read, written = _known(row["bytes_read"]), _known(row["bytes_written"])
    peak = peak_of(profile)
    moved = None if read is None or written is None else read + written
    split = row["launch_ns"] >= 0
    origin = profile.origin_ns
    return {
        "execution_id": str(row["execution_id"]),
        "device_profile": device_profile_id(profile, row["execution_id"]) if has_device_rows(profile, row) else None,
        "event_id": str(row["event_id"]),
        "op_event_id": str(row["op_event_id"]) if row["op_event_id"] >= 0 else None,
        "launch_ns": _known(row["launch_ns"]),
        "program_ns": _known(row["program_ns"]),
        "estimated_ns": row["estimated_ns"],
        "queue_ns": max(row["start_ts"] - row["enqueue_ts"], 0) if row["enqueue_ts"] >= 0 else None,
        "enqueued": row["enqueue_ts"] - origin if row["enqueue_ts"] >= 0 else None,
        "bytes_read": read,
        "bytes_written": written,
        "bytes_at_hbm_peak_ns": peak.time_for_bytes(moved) if peak and moved is not None else None,
        "flops": _known(row["flops"]),
        "neff": row["neff"] or None,
        "instructions": _program_count(profile, row["neff"], "instructions"),
        "dma_transfers": _program_count(profile, row["neff"], "dma_transfers"),
        "op": row["op"] or None,
        "overload": row["overload"] or None,
        "shapes": row["shapes"],
        "dtypes": row["dtypes"],
        "module": row["module_path"],
        "source": row["source"],
        "step": row["step"],
        "physical_cores": row["physical_cores"],
        "gap_cause": row["gap_cause"],
        "provenance": {
            "launch": profile.launch_status if split else None,
            "program": "estimated" if row["estimated_ns"] > 0 else row["provenance"],
        },
    }


def _program_count(profile: Profile, neff: str, what: str) -> int | None:
    text = profile.info.get(f"program.{neff}.{what}")
    return int(text) if text else None


def gap_card(profile: Profile, row: Mapping[str, Any]) -> dict[str, Any]:
    """A gap as the HTTP interface gives it; times relative to the origin."""
    origin = profile.origin_ns
    return {
        "id": str(row["gap_id"]),
        "track_id": row["track_id"],
        "start": row["start_ts"] - origin,
        "end": row["end_ts"] - origin,
        "duration_ns": row["end_ts"] - row["start_ts"],
        "cause": row["cause"],
        "text": row["text"],
        "previous_event": str(row["previous_event_id"]),
        "next_event": str(row["next_event_id"]),
    }


def _made_by(profile: Profile, card: Mapping[str, Any]) -> str:
    label = profile.info.get("label", "")
    version = profile.info.get("model_version", "")
    if not profile.emulated:
        return label
    if card["role"] in ("execution", "copy", "instruction"):
        return f"{label} · model {version}" if version else label
    return "measured on this machine's host"


def _markdown(card: Mapping[str, Any], execution: Mapping[str, Any] | None) -> str:
    cells = [card["name"], card["op"], card["lane_label"], format_ns(card["duration_ns"]), f"{card['start']} ns"]
    if execution and execution["launch_ns"] is not None and card["role"] == "execution":
        about = "≈ " if execution["estimated_ns"] else ""
        cells.append(
            f"launch {format_ns(execution['launch_ns'])}, engines and DMA {about}{format_ns(execution['program_ns'])}"
        )
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def neighbour(profile: Profile, identity: int, direction: str) -> dict[str, Any] | None:
    """Card of the next or previous slice in the event's lane, None at its end.

    Raises:
        UnknownEventError: no such event on the timeline.
    """
    if profile.timeline.position(identity) is None:
        raise UnknownEventError(f"profile {profile.name} has no slice of event {identity}")
    other = profile.timeline.neighbour(identity, 1 if direction == "next" else -1)
    return cards(profile, [other])[other] if other is not None else None


def search(profile: Profile, text: str, limit: int) -> tuple[int, list[dict[str, Any]]]:
    """Slices whose name or operator contains `text` (any case), or matches `/regular expression/`, by start.

    Returns:
        Number of all hits, and the first `limit` as cards.

    Raises:
        duckdb.Error: a bad regular expression.
    """
    if len(text) > 1 and text.startswith("/") and text.endswith("/"):
        condition, value = "regexp_matches(name, $text)", text[1:-1]
    else:
        condition, value = "contains(lower(name), lower($text))", text
    names = f"SELECT name_id FROM Name WHERE {condition}"
    hits = f"FROM Slice WHERE name_id IN ({names}) OR op_id IN ({names})"
    total = profile.rows(f"SELECT count(*) AS n {hits}", {"text": value})[0]["n"]
    rows = profile.rows(
        f"SELECT event_id {hits} ORDER BY start_ts, event_id LIMIT $limit", {"text": value, "limit": limit}
    )
    found = cards(profile, [row["event_id"] for row in rows])
    return total, [found[row["event_id"]] for row in rows if row["event_id"] in found]
