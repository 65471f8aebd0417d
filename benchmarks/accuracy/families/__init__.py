"""The families of workloads: each module says of an entry whether it knows it and makes a `Case` of it.

`recognise(entry)` of a family module returns a `Case`, returns None when the workload is not of its family, and raises
`Skip` when it is but can't be predicted.
"""

from __future__ import annotations

import re
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
    early = _no_workload(entry)
    if early:
        return "other", Skip(early)
    for module in FAMILIES:
        try:
            case = module.recognise(entry)
        except Skip as skip:
            return skip.family or module.NAME, skip
        except Exception as error:  # a fault of a family may cost its entry, never the report
            return module.NAME, Skip(f"fault of the family: {type(error).__name__}")
        if case is not None:
            return case.family, case
    return "other", Skip(_why(entry))


def _no_workload(entry: Entry) -> str:
    """Why an entry that a family would claim by its words is none of its workloads."""
    workload = entry.workload.lower()
    if re.match(r"nkibench (?!baseline)", workload) and "silu" not in workload:
        # Of the kernels that an optimizer found only the one for SiLU has a program here.
        return "kernel found by a search, its program is not published in a usable form"
    if re.search(r"one instruction|single instruction", entry.measures.lower()):
        return "a single instruction"
    return ""


#: Workloads that are no kernel or model of a family, by a pattern of what ran or of what was timed.
_OTHERS = (
    (r"double-row", "a kernel whose block sizes are not stated"),
    (r"^collective|nccom", "a collective on its own, its ranks' placement is not stated"),
    (r"(?<!no )host|client|wall|dispatch|enqueue|transfer|gap between", "the host's time, not the device's"),
    (r"interval|_load$|^(memset|matmul|ldweights|activate|tensor_tensor|dma)\b.*\d", "a single instruction"),
)


def _why(entry: Entry) -> str:
    for pattern, reason in _OTHERS:
        if re.search(pattern, entry.workload.lower()) or re.search(pattern, entry.measures.lower()):
            return reason
    return "workload of no family"
