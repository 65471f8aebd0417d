"""Idle time of device tracks, largest first, with its cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuronscope.analysis.answers import range_answer
from neuronscope.analysis.events import gap_card

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["CAUSES", "gaps", "idle_by_cause"]

CAUSES = {
    "host_late": "host late",
    "execution_gap": "the device's own gap between executions",
    "launch_latency": "launch latency",
    "sync": "waiting for a synchronization",
    "stream": "waiting for another stream",
    "unknown": "cause unknown",
}


def gaps(profile: Profile, limit: int = 100) -> list[dict[str, Any]]:
    """The largest gaps, each once: of an execution's physical cores only the first one's gap is listed."""
    rows = profile.rows(
        """
        SELECT Gap.* FROM Gap
        WHERE next_event_id IN (SELECT event_id FROM Execution) OR NOT EXISTS (SELECT 1 FROM Execution)
        ORDER BY end_ts - start_ts DESC, start_ts, gap_id LIMIT $limit
        """,
        {"limit": limit},
    )
    return [gap_card(profile, row) for row in rows]


def idle_by_cause(profile: Profile, selected: Range) -> list[dict[str, Any]]:
    """Idle time inside the span of a range by cause, largest first: `{cause, count, duration_ns}`; sums to the gaps."""
    return range_answer(profile, "idle_by_cause", selected)
