"""One profile's figures for a comparison: totals, operators, the terms of its span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.devices import Peak, peak_of
from neuronscope.analysis.gaps import idle_by_cause
from neuronscope.analysis.operators import Operators, totals_of

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["Compared", "measure"]


@dataclass(frozen=True)
class Compared:
    """One profile's numbers over its selected range."""

    profile: Profile
    selected: Range
    totals: dict[str, Any]
    operators: Operators
    peak: Peak | None
    host_late_ns: int

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.profile.name

    @property
    def bytes_at_peak_ns(self) -> int | None:
        """Time to move the range's bytes at HBM peak, None when bytes or peak are unknown."""
        moved = self.totals["bytes_moved"]
        return None if self.peak is None or moved is None else self.peak.time_for_bytes(moved)

    def terms_in_span(self, split: bool) -> dict[str, int]:
        """The terms of the span, in ns; they sum to it."""
        totals = self.totals
        if split:
            return {
                "launches": totals["launch_in_span"],
                "engines and DMA": totals["work_in_span"],
                "gaps": totals["gaps_ns"],
            }
        return {"device busy": totals["busy_ns"], "gaps": totals["gaps_ns"]}

    def to_row(self) -> dict[str, Any]:
        """The row `neuronscope compare --json` prints (issue 2, section 6)."""
        totals = self.totals
        split = totals["split"]
        return {
            "name": self.name,
            "device_time_ns": totals["device_time_ns"],
            "span_ns": totals["span_ns"],
            "self_cpu_ns": self.operators.total.self_cpu_ns,
            "executions": totals["executions"],
            "launch_ns": totals["launch_ns"] if split else None,
            "program_ns": totals["program_ns"] if split else None,
            "gaps_ns": totals["gaps_ns"],
            "bytes_moved": totals["bytes_moved"],
            "ops": [
                {
                    "name": row.name,
                    "calls": row.calls,
                    "self_cpu_ns": row.self_cpu_ns,
                    "device_time_ns": row.device_time_ns,
                    "launch_ns": row.launch_ns,
                    "program_ns": row.program_ns,
                    "estimated_ns": row.estimated_ns,
                }
                for row in self.operators.with_device_time
            ],
        }


def measure(profile: Profile) -> Compared:
    """The figures of the last complete step, or of everything where there is none."""
    selected = profile.default_range
    late = sum(row["duration_ns"] for row in idle_by_cause(profile, selected) if row["cause"] == "host_late")
    return Compared(
        profile, selected, totals_of(profile, selected), profile.operators(selected), peak_of(profile), late
    )
