"""What takes the most device time: operators, kernels, modules, regions, source lines, stacks, … of a range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.answers import range_answer

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["ATTRIBUTES", "Top", "top"]

ATTRIBUTES = ("operator", "kernel", "module", "region", "source", "stack", "step", "rank", "device", "category")


@dataclass(frozen=True)
class Top:
    """Rows of `analysis/sql/work_by.sql`, largest device time first; `device_time_ns` is that of the whole range."""

    by: str
    rows: tuple[dict[str, Any], ...]
    total_rows: int
    device_time_ns: int
    selected: Range

    def to_dict(self) -> dict[str, Any]:
        """Everything, exact, for JSON."""
        return {
            "by": self.by,
            "range": {"text": self.selected.text, "step": self.selected.step},
            "device_time_ns": self.device_time_ns,
            "total_rows": self.total_rows,
            "rows": list(self.rows),
        }


def top(profile: Profile, by: str = "operator", limit: int = 20, selected: Range | None = None) -> Top:
    """The largest rows of a range (default: the last complete step).

    Args:
        profile: whose work.
        by: one of `ATTRIBUTES`.
        limit: how many rows; the others still count in the shares.
        selected: what part of the profile.

    Raises:
        ValueError: `by` is none of `ATTRIBUTES`.
    """
    if by not in ATTRIBUTES:
        raise ValueError(f"by={by!r}: one of {', '.join(ATTRIBUTES)}")
    selected = selected or profile.default_range
    rows = range_answer(profile, "work_by", selected, f"'{by}'")
    return Top(by, tuple(rows[:limit]), len(rows), sum(row["device_time_ns"] for row in rows), selected)
