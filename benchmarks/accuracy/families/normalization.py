"""Normalizations: the walk-through's RMSNorm, op by op in eager mode, fused, compiled; all through the compiler."""

from __future__ import annotations

import re

from neuroncore.graph import TensorSpec
from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, launched
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.graphs import rms_norm_programs

__all__ = ["NAME", "recognise"]

NAME = "normalization"


def recognise(entry: Entry) -> Case | None:
    """RMSNorm ops."""
    workload = entry.workload.lower()
    if "rmsnorm" not in workload and "rms_norm" not in workload:
        return None
    if "nki" in workload or "qkv" in workload:
        return None
    shape = entry.shapes.get("x")
    if not isinstance(shape, list) or len(shape) != 2 or not all(isinstance(s, int) and 0 < s < 1 << 20 for s in shape):
        raise Skip("RMSNorm without the shape of x")
    op = re.search(r"aten::(\w+)", workload)
    kind = op.group(1) if op else "fused" if "fused" in workload else "compiled" if "compile" in workload else ""
    rows, columns = shape
    spec = TensorSpec((rows, columns), entry.element("bf16"), (columns, 1))
    target = load_target(entry.target)
    profiled = "device time" in entry.measures
    small = kind in ("add", "rsqrt")
    elements = rows if small else rows * columns
    calls = entry.extra.get("calls", 1)
    if not isinstance(calls, int) or not 0 < calls <= 1000:
        raise Skip("calls is no positive integer")

    def predict() -> float:
        programs = rms_norm_programs(kind, spec, target.name)
        if not programs:
            raise Skip(f"RMSNorm op {kind or 'of no name'} is unknown")
        total = sum(programs) / len(programs) * (calls if op else len(programs))
        return launched(target, total, executions=calls if op else 1, profiled=profiled)

    return Case(
        NAME,
        target.name,
        float(elements * (calls if op else 4)),
        2.0 * elements * (2 * calls if op else 3),
        "fp32",
        predict,
        how="the compiler's programs",
        key=(kind, rows, columns, calls, profiled),
    )
