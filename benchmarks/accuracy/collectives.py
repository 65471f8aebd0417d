"""Collectives by their roofline: a start, a step per algorithm round, and the bytes each rank moves over the links.

The numbers come from the two published runs that may be fitted: nccom-test all-reduce of 2 ranks, fp32, 58 us at 1 KiB
and 18.93 ms at 1 GiB (tools/neuron-sys-tools/nccom-test.rst L623, L633; `calibrate` split). Their generation is not
stated. A call inside a program that has started already pays no start of its own host call; the publication does not
separate the two, so the whole floor is taken.
"""

from __future__ import annotations

import math

__all__ = ["FLOOR_NS", "LINK_BYTES_PER_NS", "collective_ns"]

FLOOR_NS = 58_000.0
#: Bytes a rank sends per ns: 1 GiB in 18.93 ms less the floor; an all-reduce moves 2 (n - 1) / n of the bytes.
LINK_BYTES_PER_NS = (1 << 30) / (18_930_000.0 - FLOOR_NS)

_MOVED = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "permute": 1.0, "all_to_all": 1.0}


def collective_ns(kind: str, ranks: int, size: float) -> float:
    """Time of one collective of `size` bytes (all ranks' result for all_gather) among `ranks`.

    Raises:
        KeyError: an unknown kind.
    """
    if ranks < 2:
        return 0.0
    moved = _MOVED[kind] * size * (ranks - 1) / ranks if kind != "permute" else size
    assert math.isfinite(moved)
    return FLOOR_NS + moved / LINK_BYTES_PER_NS
