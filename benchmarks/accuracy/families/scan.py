"""State-space scans: the NKI tutorial's fused Mamba and its sweep over lengths."""

from __future__ import annotations

import re

from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, launched
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.kernels import scan

__all__ = ["NAME", "recognise"]

NAME = "state-space scans"


def recognise(entry: Entry) -> Case | None:
    """Mamba kernels in NKI."""
    workload = entry.workload.lower()
    if not re.search(r"mamba|(?<![a-z])(ssm|selective scan|state[- ]space)", workload) or workload.startswith("model"):
        return None
    if "nkibench" in workload:
        return _case(entry, scan.Scan(1, 1, entry.number("C"), entry.number("M"), entry.number("S")))
    version = re.search(r"\bv(?:ersion )?(\d)\b", workload)
    if "nki" not in workload or version is None:
        raise Skip("a scan that is not one of the tutorial's kernels")
    number = int(version.group(1))
    if number not in (1, 2, 3):
        raise Skip(f"scan version {number} is unknown")
    p = scan.Scan(
        number, entry.number("batch", "bs", default=1), entry.number("ch", "channels"),
        entry.number("seq", "seq_len", "seqlen"), entry.number("state", "state_size", default=16),
    )  # fmt: skip
    return _case(entry, p)


def _case(entry: Entry, p: scan.Scan) -> Case:
    if p.channels % 128 or p.length % 512 or p.length > 1 << 14 or p.states > 256:
        raise Skip("channels or length are no multiples of a tile, or a length over 16384")
    target = load_target(entry.target)
    elements = p.batch * p.channels * p.length
    small = p.batch * 2 * p.states * p.length + p.channels * p.states
    return Case(
        NAME, target.name, 7.0 * elements * p.states, 4.0 * (3 * elements + small), "fp32",
        lambda: launched(target, scan.time_ns(p, target)), key=p,
    )  # fmt: skip
