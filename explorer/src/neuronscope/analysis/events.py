"""Single events: cards for lists, and everything known about one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.devices import peak_of
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
}

_CARDS = """
SELECT e.id, e.name, e.start_ts, e.end_ts, e.trace_event_source AS source, s.track_id, s.lane, t.short, t.kind,
       t.provenance, n.name AS op, s.estimated, h.event_id IS NOT NULL AS host_op,
       x.kind AS work
FROM SystemProfileEvents e
LEFT JOIN Slice s ON s.event_id = e.id
LEFT JOIN Track t USING (track_id)
LEFT JOIN Name n ON n.name_id = s.op_id
LEFT JOIN HostOp h ON h.event_id = e.id
LEFT JOIN Execution x ON x.event_id = e.id
"""


class UnknownEventError(NeuronscopeError, KeyError):
    """No event with that id."""

    def __str__(self) -> str:
        return str(self.args[0])


def cards(profile: Profile, identities: Iterable[int]) -> dict[int, dict[str, Any]]:
    """EventCards (docs/http-api.md) by event id; ids that do not exist are left out."""
    wanted = [int(identity) for identity in identities]
    if not wanted:
        return {}
    found: dict[int, dict[str, Any]] = {}
    for row in profile.rows(f"{_CARDS} WHERE e.id IN (SELECT unnest($ids::BIGINT[]))", {"ids": wanted}):
        found.setdefault(row["id"], _card(profile, row))
    return found


def _card(profile: Profile, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "op": row["op"] or row["name"],
        "track_id": row["track_id"] if row["track_id"] is not None else -1,
        "lane": row["lane"] if row["lane"] is not None else 0,
        "lane_label": row["short"] or "",
        "role": _role(row),
        "start": row["start_ts"] - profile.origin_ns,
        "end": row["end_ts"] - profile.origin_ns,
        "duration_ns": row["end_ts"] - row["start_ts"],
    }


def _role(row: Mapping[str, Any]) -> str:
    if row["host_op"]:
        return "dispatch"
    if row["work"] is not None:
        return "execution" if row["work"] == "exec" else "copy"
    if row["kind"] == "framework":
        return "step" if row["name"].startswith("ProfilerStep#") else "host call"
    if row["kind"] == "runtime" and "schedule" in row["name"]:
        return "schedule"
    return _ROLES.get(row["kind"] or "", "event")


def flow_mates(profile: Profile, identities: Iterable[int], limit: int = 2000) -> dict[int, list[int]]:
    """For each event the events of its process that share a flow id with it, itself included."""
    wanted = [int(identity) for identity in identities]
    if not wanted:
        return {}
    _index_flows(profile)
    rows = profile.rows(
        """
        SELECT DISTINCT mine.id AS id, other.id AS mate
        FROM _event_flow mine JOIN _event_flow other USING (flow, instance_id, process_id)
        WHERE mine.id IN (SELECT unnest($ids::BIGINT[]))
        LIMIT $limit
        """,
        {"ids": wanted, "limit": limit},
    )
    found: dict[int, list[int]] = {identity: [identity] for identity in wanted}
    for row in rows:
        if row["mate"] != row["id"]:
            found[row["id"]].append(row["mate"])
    return found


def _index_flows(profile: Profile) -> None:
    profile.create_once(
        "_event_flow",
        "SELECT unnest(flow_id) AS flow, instance_id, process_id, id FROM SystemProfileEvents "
        "WHERE len(flow_id) > 0 ORDER BY flow",
    )


def executions_of(profile: Profile, identity: int, limit: int = 500) -> list[dict[str, Any]]:
    """Executions an event belongs to: its own, those it launched (operators: with enclosed calls), or its flow's."""
    rows = profile.rows(
        """
        WITH RECURSIVE calls AS (
            SELECT $id::BIGINT AS event_id
            UNION
            SELECT HostOp.event_id FROM HostOp JOIN calls ON HostOp.parent_id = calls.event_id
        )
        SELECT * FROM Execution WHERE event_id = $id OR op_event_id IN (SELECT event_id FROM calls)
        ORDER BY start_ts LIMIT $limit
        """,
        {"id": identity, "limit": limit},
    )
    if rows:
        return rows
    mates = flow_mates(profile, [identity]).get(identity, [])
    return profile.rows(
        "SELECT * FROM Execution WHERE event_id IN (SELECT unnest($ids::BIGINT[])) ORDER BY start_ts LIMIT $limit",
        {"ids": mates, "limit": limit},
    )


def event_details(profile: Profile, identity: int) -> dict[str, Any]:
    """One event in full, as `GET /api/profiles/{p}/events/{id}` answers.

    Raises:
        UnknownEventError: no such event.
    """
    card = cards(profile, [identity]).get(identity)
    if card is None:
        raise UnknownEventError(f"profile {profile.name} has no event {identity}")
    raw = profile.rows("SELECT * FROM SystemProfileEvents WHERE id = $id", {"id": identity})[0]
    attributes = {
        key: value
        for key, value in raw.items()
        if value not in (None, [], "")
        and key not in ("id", "name", "start_ts", "end_ts", "duration_ns", "extra_attributes_json")
    }
    attributes |= _json_object(raw.get("extra_attributes_json"))
    executions = executions_of(profile, identity, limit=2)
    execution = _execution(profile, executions[0]) if len(executions) == 1 else None
    gap = None
    if executions and card["role"] in ("execution", "copy"):
        gap = next(iter(profile.rows("SELECT * FROM Gap WHERE next_event_id = $id", {"id": identity})), None)
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
    program = profile.rows(
        """
        SELECT (SELECT value FROM ProfileInfo WHERE key = 'program.' || $neff || '.instructions') AS instructions,
               (SELECT value FROM ProfileInfo WHERE key = 'program.' || $neff || '.dma_transfers') AS dma_transfers
        """,
        {"neff": row["neff"]},
    )[0]
    split = row["launch_ns"] >= 0
    origin = profile.origin_ns
    return {
        "execution_id": str(row["execution_id"]),
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
        "instructions": int(program["instructions"]) if program["instructions"] else None,
        "dma_transfers": int(program["dma_transfers"]) if program["dma_transfers"] else None,
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
            "launch": "calibrated" if split else None,
            "program": "estimated" if row["estimated_ns"] > 0 else row["provenance"],
        },
    }


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
    if card["role"] in ("execution", "copy"):
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
