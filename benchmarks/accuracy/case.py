"""`Case`: what a family makes of an entry, and how the time of a program becomes the time of an execution."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from neuroncore.targets import Target, load_target

from benchmarks.accuracy.entries import Entry

__all__ = [
    "FROM_HOST_BYTES_PER_SECOND",
    "TO_HOST_BYTES_PER_SECOND",
    "Case",
    "host_ns",
    "launched",
    "one_core",
    "running",
]

#: Copies between host and device, bytes per second, both from entries of the split "calibrate" (trn1): 33.6 MB to the
#: device in 4081 us (trnsci-h2d), 16.8 MB from it in 2994 us (trnsci-d2h).
FROM_HOST_BYTES_PER_SECOND = 33_554_432 / 4081e-6
TO_HOST_BYTES_PER_SECOND = 16_777_216 / 2994e-6

#: Physical cores that share an HBM stack, where it is not one (Trainium2 and 3: four stacks for eight cores).
CORES_PER_STACK = {"trn2": 2, "trn3": 2}


@dataclass(frozen=True)
class Case:
    """A workload that can be predicted.

    Attributes:
        family: name of its family in the report.
        target: name of the target.
        flops: multiplications and additions the workload needs, all cores together.
        bytes: bytes it must move between HBM and the cores, all cores together: operands once, results once.
        dtype: of the multiplications, for the roofline's peak.
        cores: physical cores that share the work.
        predict: time of what the entry measures, in nanoseconds. Equal `key` means equal time.
        how: where the time comes from, for the report.
        key: hashable parameters of the program, to run equal ones once.
        items: what a published rate counts per execution (tokens, images); 0 where the rate is of an unknown number
            of cores.
    """

    family: str
    target: str
    flops: float
    bytes: float
    dtype: str
    predict: Callable[[], float]
    cores: int = 1
    how: str = "own program"
    key: object = None
    items: int = 1

    def bounds_ns(self) -> tuple[float, float]:
        """Times at the peak of the Tensor Engines, and of the HBM, that share it."""
        target = load_target(self.target)
        compute = self.flops / self.cores / target.peak_flops_per_second(self.dtype)
        return compute * 1e9, self.bytes / self.cores / target.hbm_bytes_per_second * 1e9


def host_ns(given: float, returned: float) -> float:
    """Copying that many bytes to the device and back from it, in nanoseconds: part of a latency that the host sees."""
    return (given / FROM_HOST_BYTES_PER_SECOND + returned / TO_HOST_BYTES_PER_SECOND) * 1e9


def launched(target: Target, program_ns: float, *, executions: int = 1, profiled: bool = False) -> float:
    """Program time plus the launch cost of each execution, as its device time is published."""
    cost = target.launch_cost_profiled_ns if profiled else target.launch_cost_plain_ns
    return program_ns + cost * executions


def one_core(entry: Entry) -> bool:
    """Whether the entry says that one core did the work: a rate is then that of one execution after the other."""
    return re.search(r"\b(1|one|single)[ -](neuron)?core", entry.measures.lower()) is not None


def running(target: Target, cores: int) -> Target:
    """The target as a core sees it while `cores` of its HBM stack are busy: one alone has the whole stack's bandwidth.

    The target file gives a core's share with all cores busy. What a lone core moves is then bound by its DMA engines:
    the library's single-core decode kernels sustain more than the share.
    """
    idle = max(1, CORES_PER_STACK.get(target.name, 1) // cores)
    return replace(target, hbm_bytes_per_second=target.hbm_bytes_per_second * idle)
