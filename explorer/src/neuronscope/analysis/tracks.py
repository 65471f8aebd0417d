"""The timeline as plain tracks of slices, flows and counters: what an export to another viewer needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["Counter", "Flow", "Interval", "Track", "counters", "device_tracks", "flows", "nested", "tracks"]

_BATCH = 50_000


class Interval(NamedTuple):
    """One slice; times absolute, in ns. `event_id` is -1 for rows of device profiles, which no flow names."""

    start: int
    end: int
    name: str
    event_id: int
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Track:
    """A track of the system timeline, or of a device profile's engine or DMA queue."""

    group: str
    name: str
    kind: str
    _profile: Profile
    _query: str
    _parameters: dict[str, Any]

    def intervals(self) -> Iterator[Interval]:
        """Slices by start, of equal starts the longest first."""
        table = self._profile.query(self._query, self._parameters)
        for batch in table.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                start, end, name, identity = (row.pop(key) for key in ("start_ts", "end_ts", "name", "event_id"))
                kept = {key: value for key, value in row.items() if value not in (None, "", -1)}
                yield Interval(start, end, name, identity, kept)


@dataclass(frozen=True)
class Counter:
    """A value over time: `samples` are (time in ns, value)."""

    group: str
    name: str
    unit: str
    samples: list[tuple[int, float]]


class Flow(NamedTuple):
    """An arrow between the slices of two events."""

    from_event: int
    to_event: int
    kind: str


_SLICES = """
SELECT s.start_ts, s.end_ts, n.name, s.event_id, CASE WHEN o.name <> n.name THEN o.name END AS op,
       x.launch_ns, x.program_ns, nullif(x.estimated_ns, 0) AS estimated_ns, x.shapes, x.dtypes,
       x.module_path AS module, x.source, x.neff, x.gap_cause
FROM Slice s JOIN Name n USING (name_id) LEFT JOIN Name o ON o.name_id = s.op_id
LEFT JOIN Execution x ON x.event_id = s.event_id
WHERE s.track_id = $track ORDER BY s.start_ts, s.end_ts DESC, s.event_id
"""

_INSTRUCTIONS = """
SELECT start_ts, end_ts, coalesce(opcode, 'instruction') AS name, -1 AS event_id, operands, hlo_name,
       coalesce(nki_source_location, bir_debug_info_source_location) AS source, evt_wait_time_ns AS wait_ns
FROM Instruction WHERE coalesce(pcore_idx, -1) = $core AND engine = $row ORDER BY start_ts, end_ts DESC
"""

_TRANSFERS = """
SELECT start_ts, end_ts, coalesce(variable, queue_name, 'dma') AS name, -1 AS event_id, transfer_bytes AS bytes,
       source, dest, op
FROM DmaPacketAggregated WHERE coalesce(pcore_idx, -1) = $core AND queue_name = $row ORDER BY start_ts, end_ts DESC
"""


def tracks(profile: Profile) -> list[Track]:
    """Tracks of the system timeline in drawing order."""
    return [
        Track(row["group_label"], row["short"], row["kind"], profile, _SLICES, {"track": row["track_id"]})
        for row in profile.rows("SELECT track_id, group_label, short, kind FROM Track ORDER BY track_id")
    ]


def device_tracks(profile: Profile) -> list[Track]:
    """Engines and DMA queues of each physical core."""
    if profile.rows("SELECT 1 FROM Track WHERE kind = 'engine' LIMIT 1"):
        return []  # a device profile alone: its engines and queues are tracks of the timeline
    found = []
    for table, column, kind, query in (
        ("Instruction", "engine", "engine", _INSTRUCTIONS),
        ("DmaPacketAggregated", "queue_name", "queue", _TRANSFERS),
    ):
        rows = profile.rows(
            f"SELECT DISTINCT coalesce(pcore_idx, -1) AS core, {column} AS row FROM {table} "
            f"WHERE {column} IS NOT NULL ORDER BY ALL"
        )
        found += [
            Track(
                f"device profile, physical core {row['core']}" if row["core"] >= 0 else "device profile",
                row["row"],
                kind,
                profile,
                query,
                row,
            )
            for row in rows
        ]
    return found


def flows(profile: Profile) -> Iterator[Flow]:
    """Arrows between events of the system timeline, in order of their cause."""
    table = profile.query(
        "SELECT in_id, out_id, dependency_type FROM Flow "
        "WHERE in_table = 'SystemProfileEvents' AND out_table = 'SystemProfileEvents' ORDER BY in_id, out_id"
    )
    for batch in table.to_batches(max_chunksize=_BATCH):
        for first, second, kind in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Flow(first, second, kind or "")


def counters(profile: Profile) -> Iterator[Counter]:
    """Host CPU and memory, and HBM throughput of device profiles."""
    sources = (
        ("host", "'CPU ' || cpu_id", "%", "CpuUsage", "util_percent"),
        ("host", "'memory used'", "bytes", "HostMemUsage", "used_bytes"),
        (
            "device profile",
            "'HBM throughput, physical core ' || pcore_idx",
            "bytes/s",
            "HbmUsage",
            "current_throughput",
        ),
    )
    for group, label, unit, table, value in sources:
        rows = profile.rows(
            f"SELECT {label} AS label, list(timestamp ORDER BY timestamp) AS times, "
            f"list({value} ORDER BY timestamp) AS samples FROM {table} WHERE {value} IS NOT NULL GROUP BY label "
            "ORDER BY label"
        )
        for row in rows:
            samples = [(int(at), float(number)) for at, number in zip(row["times"], row["samples"], strict=True)]
            yield Counter(group, row["label"], unit, samples)


def nested(intervals: Iterable[Interval]) -> Iterator[tuple[int, Interval]]:
    """Each slice with the number of the row it nests on: 0 where it lies inside what is open there or after it.

    Viewers need slices of one row to nest; one that outlives the slice it began in goes to the next row.
    """
    rows: list[list[int]] = []
    for interval in intervals:
        for number, stack in enumerate(rows):
            while stack and stack[-1] <= interval.start:
                stack.pop()
            if not stack or interval.end <= stack[-1]:
                stack.append(interval.end)
                yield number, interval
                break
        else:
            rows.append([interval.end])
            yield len(rows) - 1, interval
