"""How long a logical core takes whose physical cores divide a program between them."""

from __future__ import annotations

from dataclasses import dataclass

from neuroncore.isa.cores import Divided
from neuroncore.targets import Target
from neuroncore.timing.simulate import simulate

__all__ = ["CORE_BARRIER_NS", "DividedTime", "divided_time"]

#: Until every core knows that the others have arrived: a semaphore of its own and one of another core. No public
#: number: the estimate of reference/hw/isa.json, core_barrier.
CORE_BARRIER_NS = 2000


@dataclass(frozen=True)
class DividedTime:
    """Nanoseconds.

    Attributes:
        sections: of each section, of each core that takes part.
        barriers: how many barriers there are.
        program_ns: all of it: the slowest core of each section, and the barriers.
    """

    sections: tuple[tuple[int, ...], ...]
    barriers: int
    program_ns: int


def divided_time(divided: Divided, target: Target) -> DividedTime:
    """Time a divided program. Each core has its own engines, DMA engines and share of HBM bandwidth.

    Raises:
        DeadlockError: a program's waits are never satisfied.
    """
    sections = tuple(tuple(simulate(p, target).program_ns for p in section.programs) for section in divided.sections)
    barriers = sum(len(section.programs) > 1 for section in divided.sections)
    return DividedTime(sections, barriers, sum(map(max, sections)) + barriers * CORE_BARRIER_NS)
