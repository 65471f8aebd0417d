"""Figures of merit over predictions: median |ln(predicted/published)|, mean relative error, pairs ranked right."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Point", "Score", "pairs", "score"]

#: A pair counts when its FLOPs and its bytes are within this factor, and its published times differ by this much.
ALIKE = 2.0
DIFFERENT = 1.15


@dataclass(frozen=True)
class Point:
    """One entry: its work and its times in nanoseconds."""

    flops: float
    bytes: float
    published_ns: float
    predicted_ns: float


@dataclass(frozen=True)
class Score:
    """Figures of merit; None where nothing is to be measured.

    Attributes:
        median_abs_log_error: median of |ln(predicted / published)|.
        mean_abs_error: mean of |predicted / published - 1|.
        pairs_ordered: share of comparable pairs ranked right; a tie counts half.
        pairs: number of comparable pairs.
    """

    median_abs_log_error: float | None
    mean_abs_error: float | None
    pairs_ordered: float | None
    pairs: int


def pairs(points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """(slower, faster) pairs of comparable work whose published times differ."""
    found = []
    for i, a in enumerate(points):
        for b in points[i + 1 :]:
            slow, fast = (a, b) if a.published_ns >= b.published_ns else (b, a)
            if (
                slow.published_ns > DIFFERENT * fast.published_ns
                and _alike(a.flops, b.flops)
                and _alike(a.bytes, b.bytes)
            ):
                found.append((slow, fast))
    return found


def _alike(a: float, b: float) -> bool:
    return max(a, b) <= ALIKE * min(a, b)


def _ranked(slow: Point, fast: Point) -> float:
    if math.isclose(slow.predicted_ns, fast.predicted_ns, rel_tol=1e-9):
        return 0.5
    return float(slow.predicted_ns > fast.predicted_ns)


def score(groups: Sequence[Sequence[Point]]) -> Score:
    """Figures over all points; pairs are taken within each group only."""
    points = [point for group in groups for point in group]
    found = [pair for group in groups for pair in pairs(group)]
    if not points:
        return Score(None, None, None, 0)
    return Score(
        statistics.median(abs(math.log(p.predicted_ns / p.published_ns)) for p in points),
        statistics.fmean(abs(p.predicted_ns / p.published_ns - 1) for p in points),
        statistics.fmean(_ranked(slow, fast) for slow, fast in found) if found else None,
        len(found),
    )
