"""Parts of a profile that an analysis can be about: steps and ranges of time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RANGE_ARGUMENTS", "Range", "Step"]

RANGE_ARGUMENTS = (
    "(range_start := $range_start::BIGINT, range_end := $range_end::BIGINT, range_step := $range_step::BIGINT)"
)
"""Call of a range macro of `sql/` with `Range.parameters`."""


@dataclass(frozen=True)
class Step:
    """A profiler step; times absolute, in ns."""

    number: int
    name: str
    start: int
    end: int
    complete: bool


@dataclass(frozen=True)
class Range:
    """A part of a profile: half open, absolute ns; `step` >= 0 selects by step number rather than by time."""

    start: int
    end: int
    step: int = -1
    text: str = ""

    @property
    def parameters(self) -> dict[str, int]:
        """The arguments of every range macro in `analysis/sql`."""
        return {"range_start": self.start, "range_end": self.end, "range_step": self.step}
