"""Pooling: average pooling of the NKI samples and of the NKI tutorial."""

from __future__ import annotations

import re

from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, launched
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.kernels import pooling

__all__ = ["NAME", "recognise"]

NAME = "pooling"
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def recognise(entry: Entry) -> Case | None:
    """Average pooling in two dimensions."""
    workload = entry.workload.lower()
    if not re.search(r"(avg|average)_?\s?pool", workload):
        return None
    batch, channels = entry.number("N", "batch", default=1), entry.number("C", "channels")
    height, width = entry.number("H", "height"), entry.number("W", "width", default=entry.number("H", "height"))
    dtype = entry.element("fp32")
    if dtype not in _BYTES or height * width > 1 << 14 or batch * channels > 1 << 16:
        raise Skip("a plane that does not fit a partition twice, or a dtype the kernel lacks")
    if channels > 128 and channels % 128:
        raise Skip("channels are no multiple of a tile")
    target = load_target(entry.target)
    size = _BYTES[dtype]
    if "adaptive" in workload:
        out = (entry.number("out", "out_h"), entry.number("out_w", default=entry.number("out", "out_h")))
        if out[0] > height or out[1] > width:
            raise Skip("more windows than elements")
        windows = out[0] * out[1]
        return Case(
            NAME, target.name, float(batch * channels * height * width),
            float(size * batch * channels * (height * width + windows)), "fp32",
            lambda: launched(target, pooling.adaptive(batch, channels, height, width, out, dtype, target)),
            key=("adaptive", batch, channels, height, width, out, dtype),
        )  # fmt: skip
    pool = entry.number("pool", "pool_size", "k")
    if height % pool or width % pool:
        raise Skip("windows do not divide the plane")
    return Case(
        NAME, target.name, float(batch * channels * height * width),
        float(size * batch * channels * height * width * (1 + 1 / pool**2)), "fp32",
        lambda: launched(target, pooling.tutorial(batch * channels, height, width, pool, dtype, target)),
        key=("average", batch, channels, height, width, pool, dtype),
    )  # fmt: skip
