"""The baseline: a FLOPs/bytes roofline whose three numbers are fitted on the `calibrate` entries, and on them only.

time = fixed + max(flops / (peak * compute_efficiency), bytes / (bandwidth * memory_efficiency)), with each
generation's published peak and bandwidth per core. The fit minimises the mean |ln(predicted / published)|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Observation", "Roofline", "fit"]

#: Compute bound, memory bound, published, in nanoseconds.
Observation = tuple[float, float, float]


@dataclass(frozen=True)
class Roofline:
    """Fitted numbers: nanoseconds and fractions of the peaks."""

    fixed_ns: float = 15_000.0
    compute_efficiency: float = 1.0
    memory_efficiency: float = 1.0

    def time_ns(self, compute_ns: float, memory_ns: float) -> float:
        """Time of a workload whose bounds at peak are given."""
        return self.fixed_ns + max(compute_ns / self.compute_efficiency, memory_ns / self.memory_efficiency)


def fit(observations: Sequence[Observation]) -> Roofline:
    """The roofline closest to (compute bound, memory bound, published), all in nanoseconds.

    A coordinate search over a grid that halves its step, from the published peaks; the same every time. Without
    observations: the peaks themselves.
    """
    best = Roofline()
    if not observations:
        return best

    def error(roofline: Roofline) -> float:
        return sum(abs(math.log(roofline.time_ns(c, m) / published)) for c, m, published in observations)

    least, step = error(best), 2.0
    while step > 1.005:
        moved = False
        for factor in (step, 1 / step):
            for candidate in (
                Roofline(best.fixed_ns * factor, best.compute_efficiency, best.memory_efficiency),
                Roofline(best.fixed_ns, min(1.0, best.compute_efficiency * factor), best.memory_efficiency),
                Roofline(best.fixed_ns, best.compute_efficiency, min(1.0, best.memory_efficiency * factor)),
            ):
                value = error(candidate)
                if value < least - 1e-12:
                    best, least, moved = candidate, value, True
        if not moved:
            step = math.sqrt(step)
    return best
