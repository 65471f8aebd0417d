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
    """Pooling in two dimensions by equal windows (a maximum costs what a sum does), or adaptive by windows of any."""
    workload = entry.workload.lower()
    if workload.startswith("model") or not re.search(r"(avg|average|max)[a-z]*[_ ]?pool", workload):
        return None
    batch, channels = entry.number("N", "batch", "bs", default=1), entry.number("C", "channels", default=128)
    height = entry.number("H", "height", "size")
    width = entry.number("W", "width", default=height)
    dtype = entry.element("fp32")
    if dtype not in _BYTES or height * width > 1 << 14 or batch * channels > 1 << 16:
        raise Skip("a plane that does not fit a partition twice, or a dtype the kernel lacks")
    if channels > 128 and channels % 128:
        raise Skip("channels are no multiple of a tile")
    target = load_target(entry.target)
    size = _BYTES[dtype]
    if "adaptive" in workload:
        rows = entry.number("out", "out_h", "output_size")
        out = (rows, entry.number("out_w", default=rows))
        if out[0] > height or out[1] > width:
            raise Skip("more windows than elements")
        windows = out[0] * out[1]
        return Case(
            NAME, target.name, float(batch * channels * height * width),
            float(size * batch * channels * (height * width + windows)), "fp32",
            lambda: launched(target, pooling.adaptive(batch, channels, height, width, out, dtype, target)),
            key=("adaptive", batch, channels, height, width, out, dtype),
        )  # fmt: skip
    pool = entry.number("pool", "pool_size", "k", "kernel", "kernel_size")
    if entry.number("stride", default=pool) != pool or height % pool or width % pool:
        raise Skip("windows that overlap or do not divide the plane")
    return Case(
        NAME, target.name, float(batch * channels * height * width),
        float(size * batch * channels * height * width * (1 + 1 / pool**2)), "fp32",
        lambda: launched(target, pooling.tutorial(batch * channels, height, width, pool, dtype, target)),
        key=("average", batch, channels, height, width, pool, dtype),
    )  # fmt: skip
