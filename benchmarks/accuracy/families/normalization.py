"""Normalizations: the walk-through's RMSNorm, through the compiler, and the NKI samples' fused kernels."""

from __future__ import annotations

import re

from neuroncore.graph import TensorSpec
from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, launched, running
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.accuracy.families.library import cores
from benchmarks.graphs import rms_norm_programs
from benchmarks.kernels import norm_samples

__all__ = ["NAME", "recognise"]

NAME = "normalization"


def recognise(entry: Entry) -> Case | None:
    """RMSNorm ops."""
    workload = entry.workload.lower()
    if not re.search(r"rms[ _-]?norm", workload) or workload.startswith(("model", "nkibench")):
        return None
    if "quant" in workload:
        return _quantized(entry)
    if "qkv" in workload:
        return _projection(entry)
    if "nki" in workload:
        return None
    shape = next((v for v in map(entry.get, ("x", "shape", "input")) if v is not None), None)
    if not isinstance(shape, list) or len(shape) != 2 or not all(isinstance(s, int) and 0 < s < 1 << 20 for s in shape):
        raise Skip("RMSNorm without the shape of x")
    op = re.search(r"aten::(\w+)", workload)
    kind = op.group(1) if op else "compiled" if "compile" in workload else "fused" if "fused" in workload else ""
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
        4.0 * elements * (calls if op else 1),
        "fp32",
        predict,
        how="the compiler's programs",
        key=(kind, rows, columns, calls, profiled),
    )


def _projection(entry: Entry) -> Case:
    tokens = entry.number("b", "batch", "bs", default=1) * entry.number("seq", "seqlen", "seq_len")
    hidden, columns = entry.number("dim", "hidden", "hidden_dim"), entry.number("d_head", "n", "fused_qkv_dim")
    dtype = entry.element("bf16")
    if dtype not in ("bf16", "fp16", "fp32") or hidden % 128 or hidden > 8192 or columns > 4096:
        raise Skip("sizes are no multiples of a tile, or weights that do not fit the SBUF")
    size = 4 if dtype == "fp32" else 2
    target = load_target(entry.target)
    return Case(
        NAME, target.name, 2.0 * tokens * hidden * columns,
        float(size * (tokens * hidden + hidden * columns + tokens * columns)), dtype,
        lambda: launched(target, norm_samples.projection(tokens, hidden, columns, dtype, target)),
        key=("rmsnorm qkv", tokens, hidden, columns, dtype),
    )  # fmt: skip


def _quantized(entry: Entry) -> Case:
    count = cores(entry)
    tokens = entry.number("batch", "bs", default=1) * entry.number("seqlen", "seq", "seq_len")
    hidden = entry.number("hidden", "hidden_dim", "hidden_size")
    if hidden > 1 << 14 or tokens < count:
        raise Skip("a row that does not fit a partition, or fewer rows than cores")
    norm, bound = not entry.flag("quant_only"), entry.get("lower_bound")
    clipped = isinstance(bound, (int, float)) and bound > 0
    target = load_target(entry.target)
    share = -(-tokens // count)
    return Case(
        NAME, target.name, 6.0 * tokens * hidden, 3.0 * tokens * hidden, "fp32",
        lambda: launched(
            target, norm_samples.quantized(share, hidden, running(target, count), norm=norm, clipped=clipped)
        ),
        cores=count, key=("rmsnorm quant", share, hidden, norm, clipped, count),
    )  # fmt: skip
