"""Tracks of the system timeline grouped by the user's choice of columns, as for a Perfetto export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.tracks import Track
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["PRIMARY", "SECONDARY", "Grouping", "GroupingError", "grouped_tracks", "grouping_of"]

_COLUMNS = {  # key: column of SystemProfileEvents, how a value is labelled
    "instance_id": ("instance_id", ""),
    "process_id": ("process_id", "PID:"),
    "thread_id": ("thread_id", "TID:"),
    "lnc_idx": ("nc_idx", "NC:"),
    "worker_gid": ("worker_gid", "worker:"),
}
PRIMARY = ("instance_id", "process_id")
SECONDARY = ("worker_gid", "lnc_idx", "thread_id")
"""What Neuron Explorer takes when nobody says."""


class GroupingError(NeuronscopeError, ValueError):
    """A key that nothing can be grouped by."""


@dataclass(frozen=True)
class Grouping:
    """Keys of the groups, and of the rows within a group."""

    primary: tuple[str, ...] = PRIMARY
    secondary: tuple[str, ...] = SECONDARY


def grouping_of(primary: str | None, secondary: str | None) -> Grouping | None:
    """From lists as `instance_id,process_id`; None when neither is given.

    Raises:
        GroupingError: an unknown or repeated key.
    """
    if primary is None and secondary is None:
        return None
    keys = [key for key in _COLUMNS if key != "worker_gid"]
    first = PRIMARY if primary is None else _keys(primary, keys, "primary")
    second = SECONDARY if secondary is None else _keys(secondary, list(_COLUMNS), "secondary")
    return Grouping(first, tuple(key for key in second if key not in first))


def _keys(text: str, allowed: list[str], which: str) -> tuple[str, ...]:
    given = tuple(part.strip() for part in text.split(",") if part.strip())
    wrong = [key for key in given if key not in allowed]
    if wrong or len(set(given)) < len(given) or not given:
        raise GroupingError(f"--system-trace-{which}-group {text}: give keys of {', '.join(allowed)}, each once")
    return given


def grouped_tracks(profile: Profile, grouping: Grouping) -> list[Track]:
    """A track per combination of the keys' values that has slices, in the order of the values."""
    keys = (*grouping.primary, *grouping.secondary)
    columns = [_COLUMNS[key][0] for key in keys]
    selected = ", ".join(f"e.{column} AS k{number}" for number, column in enumerate(columns))
    found = profile.rows(
        f"SELECT {selected}, min(e.start_ts) AS first FROM SystemProfileEvents e "
        "WHERE e.id IN (SELECT event_id FROM Slice) GROUP BY ALL ORDER BY ALL"
    )
    matches = " AND ".join(f"e.{column} IS NOT DISTINCT FROM $k{number}" for number, column in enumerate(columns))
    query = f"""
    SELECT e.start_ts, e.end_ts, e.name, e.id AS event_id, x.op, x.launch_ns, x.program_ns,
           nullif(x.estimated_ns, 0) AS estimated_ns, x.shapes, x.dtypes, x.module_path AS module, x.source, x.neff,
           x.gap_cause
    FROM SystemProfileEvents e LEFT JOIN Execution x ON x.event_id = e.id
    WHERE e.id IN (SELECT event_id FROM Slice) AND {matches} ORDER BY e.start_ts, e.end_ts DESC, e.id
    """
    at = len(grouping.primary)
    tracks = []
    for row in found:
        values = [row[f"k{number}"] for number in range(len(keys))]
        group = _label(grouping.primary, values[:at]) or "all"
        name = _label(grouping.secondary, values[at:]) or "events"
        tracks.append(Track(group, name, "group", profile, query, {f"k{n}": value for n, value in enumerate(values)}))
    return tracks


def _label(keys: tuple[str, ...], values: list[Any]) -> str:
    named = zip(keys, values, strict=True)
    return " / ".join(f"{_COLUMNS[key][1]}{value}" for key, value in named if value not in (None, "", -1))
