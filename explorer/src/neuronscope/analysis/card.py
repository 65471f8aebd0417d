"""The profile card: what a page needs before the first tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuronscope.analysis.arrays import kept_facts
from neuronscope.analysis.device_view import Within
from neuronscope.analysis.operators import empty_text
from neuronscope.analysis.units import format_ns, plural

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["format_of", "health", "ingest_report", "made_by", "profile_card", "profile_line"]


_DULL = ("notes.trace_id", "notes.traceName")  # facts of the file that tell a reader nothing


def format_of(profile: Profile) -> str:
    """What the file was, and for an export of ours that it is one."""
    told = profile.info.get("format", "")
    exported = profile.info.get("exported_as")
    return f"{told}, exported by Neuronscope as {exported}" if exported else told


def made_by(profile: Profile) -> dict[str, Any]:
    """Who made the profile: badge text and notes."""
    info = profile.info
    emulated = profile.emulated
    label = info.get("label") or (
        "emulated" if emulated else "host only" if not profile.has_device_rows else "recorded"
    )
    notes = [
        f"{key.removeprefix('notes.')}: {value}" if "." in key else value
        for key, value in sorted(info.items())
        if key.startswith("notes") and value and key not in _DULL
    ]
    for key, value in sorted(info.items()):
        prefix, _, cost = key.partition(".")
        if prefix == "device_cost_ns" and value.isdigit():
            status = info.get(f"device_cost_status.{cost}", "of unknown origin")
            notes.append(f"{cost.replace('_', ' ')}: {format_ns(int(value))}, {status}")
    return {
        "label": label,
        "emulated": emulated,
        "target": info.get("target", ""),
        "model_version": info.get("model_version", ""),
        "launch_status": profile.launch_status,
        "notes": notes,
    }


def ingest_report(profile: Profile) -> dict[str, Any]:
    """Counts of events in the file, stored, repaired, skipped and dropped, with the rows behind them."""
    rows = profile.rows('SELECT kind, count, "offset", file, action, message FROM IngestReport')

    def count(key: str) -> int:
        text = profile.info.get(key, "")
        return (
            int(text)
            if text.isdigit()
            else sum(row["count"] for row in rows if row["kind"] == key and row["count"] > 0)
        )

    dropped = profile.info.get("dropped", "unknown")
    stored, skipped = count("stored"), count("skipped")
    return {
        "in_file": count("events_in_file") or stored + skipped,
        "stored": stored,
        "repaired": count("repaired"),
        "skipped": skipped,
        "dropped": int(dropped) if dropped.isdigit() else None,
        "rows": rows,
    }


def health(profile: Profile) -> dict[str, Any]:
    """The health chip. Clean: nothing skipped, repaired or dropped."""
    report = ingest_report(profile)
    slices = profile.rows("SELECT count(*) AS n FROM Slice")[0]["n"]
    dropped = report["dropped"]
    parts = [plural(slices, "slice")]
    if report["skipped"]:
        parts.append(f"{report['skipped']:,} skipped")
    if report["repaired"]:
        parts.append(f"{report['repaired']:,} repaired")
    parts.append("dropped: unknown (the format does not record drops)" if dropped is None else f"{dropped:,} dropped")
    return {key: report[key] for key in ("in_file", "stored", "repaired", "skipped", "dropped")} | {
        "clean": not (report["skipped"] or report["repaired"] or dropped),
        "text": " · ".join(parts),
    }


def profile_line(profile: Profile) -> dict[str, Any]:
    """One entry of `GET /api/profiles`."""
    return {
        "id": profile.id,
        "name": profile.name,
        "format": format_of(profile),
        "made_by": made_by(profile),
        "health": health(profile),
        "span_ns": profile.span_ns,
    }


def profile_card(profile: Profile) -> dict[str, Any]:
    """The card of `GET /api/profiles/{p}`; of a large profile it is worked out once and kept beside the tables."""
    kept: dict[str, Any] = kept_facts(profile, "card", tuple(profile.tables), lambda: _profile_card(profile))
    named = {"id": profile.id, "name": profile.name, "path": str(profile.source or profile.info.get("path", ""))}
    outer = {"profile": profile.outer, "event": str(profile.event)} if isinstance(profile, Within) else None
    return kept | named | {"outer": outer}


def _profile_card(profile: Profile) -> dict[str, Any]:
    origin = profile.origin_ns
    selected = profile.default_range
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in profile.rows("SELECT * FROM Track ORDER BY track_id"):
        groups.setdefault(row["group_label"], []).append(
            {
                "id": row["track_id"],
                "label": row["label"],
                "short": row["short"],
                "kind": row["kind"],
                "subtitle": row["subtitle"],
                "provenance": row["provenance"],
                "lanes": row["lanes"],
                "physical_core": row["physical_core"] if row["physical_core"] >= 0 else None,
            }
        )
    return profile_line(profile) | {
        "path": str(profile.source or profile.info.get("path", "")),
        "origin_ns": str(origin),
        "steps": [
            {"name": step.name, "start": step.start - origin, "end": step.end - origin, "complete": step.complete}
            for step in profile.steps
        ],
        "default_range": {
            "start": selected.start - origin,
            "end": selected.end - origin,
            "text": f"{selected.text} · show all" if selected.step >= 0 and len(profile.steps) > 1 else selected.text,
        },
        "groups": [{"label": label, "tracks": tracks} for label, tracks in groups.items()],
        "names": [row["name"] for row in profile.rows("SELECT name FROM Name ORDER BY name_id")],
        "facts": list(profile.summary().facts),
        "empty": empty_text(profile),
    }
