"""What a reader says about a file: its format before reading, its counts after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Progress = Callable[[str, float], None]
"""Called as ``progress(stage, fraction)``; stage is one of `STAGES`, fraction 0..1 of the whole."""

STAGES = ("read", "parse", "link", "write")


@dataclass(frozen=True)
class IngestWarning:
    """One row of the `IngestReport` table: a kind of thing that happened, how often, where first.

    Attributes:
        kind: stored | merged | repaired | skipped | dropped | unmatched_flow | negative_duration | ...
        count: events, -1 unknown.
        offset: byte offset of the first one in the (decompressed) file, -1 none.
        file: file name.
        action: what was done.
        message: one line for the user.
    """

    kind: str
    count: int
    offset: int
    file: str
    action: str
    message: str


@dataclass(frozen=True)
class IngestResult:
    """What one ingest found and wrote.

    Attributes:
        format: "neuronscope session" | "torch.profiler trace" | "chrome trace" | ...
        source: the path that was read (of several sessions: the one taken).
        events_in_file: events found, whatever became of them; stored + skipped.
        stored: events kept in the profile (as slice, instant, arrow end or metadata), merged ones included.
        merged: of those, rows that repeat an event of another file of the session.
        repaired: of those, events whose text or times had to be mended.
        skipped: events lost; each has a row in `report`.
        dropped: events lost before the file was written; None where the format can't tell.
        device_slices: executions, kernels and copies, each counted once.
        device_time_ns: sum of their durations.
        device_busy_ns: union of their intervals per device, summed over devices.
        processes: host processes.
        ranks: distributed ranks found, empty when the file names none.
        report: every row of `IngestReport`.
        tables: rows per written Parquet table.
        bytes_read: decompressed bytes.
    """

    format: str
    source: Path
    events_in_file: int
    stored: int
    merged: int
    repaired: int
    skipped: int
    dropped: int | None
    device_slices: int
    device_time_ns: int
    device_busy_ns: int
    processes: int
    ranks: tuple[int, ...]
    report: tuple[IngestWarning, ...]
    tables: Mapping[str, int] = field(default_factory=dict)
    bytes_read: int = 0

    @property
    def warnings(self) -> tuple[IngestWarning, ...]:
        """Rows of the report that a user should look at: everything that is not plain bookkeeping."""
        return tuple(row for row in self.report if row.kind not in BOOKKEEPING)

    def as_json(self) -> dict[str, Any]:
        """The dictionary printed by `neuronscope ingest --json`."""
        return {
            "format": self.format,
            "events_in_file": self.events_in_file,
            "stored": self.stored,
            "repaired": self.repaired,
            "skipped": self.skipped,
            "device_slices": self.device_slices,
            "device_time_ns": self.device_time_ns,
            "device_busy_ns": self.device_busy_ns,
            "processes": self.processes,
            "ranks": list(self.ranks),
            "warnings": [
                {"kind": w.kind, "count": w.count, "offset": w.offset, "message": w.message} for w in self.warnings
            ],
        }


BOOKKEEPING = frozenset(
    {
        *("stored", "slices", "instants", "counters", "metadata", "flow_ends", "merged", "arrows", "filler"),
        "graph_launches",
    }
)
