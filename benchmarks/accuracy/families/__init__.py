"""The families of workloads: each module says of an entry whether it knows it and makes a `Case` of it.

`recognise(entry)` of a family module returns a `Case`, returns None when the workload is not of its family, and raises
`Skip` when it is but can't be predicted.
"""

from __future__ import annotations

from types import ModuleType

from benchmarks.accuracy.case import Case
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.accuracy.families import (
    attention,
    convolution,
    elementwise,
    library,
    matmul,
    models,
    normalization,
    pooling,
    scan,
)

__all__ = ["FAMILIES", "recognise"]

#: In the order they are asked.
FAMILIES: tuple[ModuleType, ...] = (
    library, attention, pooling, convolution, elementwise, matmul, normalization, models, scan,
)  # fmt: skip


def recognise(entry: Entry) -> tuple[str, Case | Skip]:
    """The entry's family and what it makes of it; family "other" if none knows it."""
    for module in FAMILIES:
        try:
            case = module.recognise(entry)
        except Skip as skip:
            return module.NAME, skip
        if case is not None:
            return case.family, case
    return "other", Skip("workload of no family")
