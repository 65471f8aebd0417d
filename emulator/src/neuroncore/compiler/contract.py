"""Splitting long contractions: a product whose K is too long for SBUF becomes a sum of products."""

from __future__ import annotations

from dataclasses import replace

from neuroncore.compiler.ir import Buffer, Contract, Map, Module, Prim
from neuroncore.compiler.views import View, contiguous
from neuroncore.graph import DTYPE_BYTES

__all__ = ["split_contractions"]

#: Bytes of a row of K from which on a product is split, and those of a part: A's rows, their transposes and a block of
#: B that is wide enough to be worth turning A for lie in SBUF at once (`product.py`).
_MOST_BYTES = 24_576
_PART_BYTES = 16_384
#: Parts begin where a load of what is to be turned does.
_STEP = 2048


def split_contractions(module: Module) -> Module:
    """Long contractions in parts: each adds its product to the fp32 sum of those before, the last one rounds."""
    buffers = list(module.buffers)
    prims: list[Prim] = []

    def temporary(like: View) -> View:
        buffers.append(Buffer(f"t{len(buffers)}", "temp", "fp32", like.elements))
        return View(len(buffers) - 1, like.shape, contiguous(like.shape))

    for prim in module.prims:
        if not isinstance(prim, Contract):
            prims.append(prim)
            continue
        k = prim.a.shape[-1]
        size = DTYPE_BYTES[module.buffers[prim.a.buffer].dtype]
        if k * size <= _MOST_BYTES:
            prims.append(prim)
            continue
        length = max(_STEP, _PART_BYTES // size // _STEP * _STEP)
        total: View | None = None
        for start in range(0, k, length):
            stop = min(k, start + length)
            a = prim.a.slice(len(prim.a.shape) - 1, start, stop)
            b = prim.b.slice(len(prim.b.shape) - 2, start, stop)
            part = temporary(prim.out)
            prims.append(replace(prim, a=a, b=b, out=part))
            if total is not None:
                out = prim.out if stop == k else temporary(prim.out)
                prims.append(Map("add", (part, total), out, prim.op, prim.source))
                part = out
            total = part
    return replace(module, buffers=tuple(buffers), prims=tuple(prims))
