"""Times of the NKI library's MLP for context encoding: which kernel plays, how long shards and tiles are continued."""

from __future__ import annotations

from neuroncore.targets import Target

from benchmarks.kernels.mlp_prefill import MlpPrefill, MlpPrefillKernel
from benchmarks.kernels.mlp_prefill_quantized import QuantizedMlpPrefillKernel
from benchmarks.kernels.writer import steady_ns

__all__ = ["time_ns"]


def time_ns(p: MlpPrefill, target: Target) -> float:
    """Program time of the slower core."""
    shards = p.shards()
    tile = 128 * p.subtiles
    if len(shards) == 1:
        whole, rest = divmod(shards[0], tile)
        if whole < 5:
            return _play(p, target, shards)
        full = steady_ns(lambda n: _play(p, target, [n * tile]), whole)
        return full + (_play(p, target, [tile + rest]) - _play(p, target, [tile]) if rest else 0)
    whole, rest = len(shards), shards[-1] != shards[0]
    full = steady_ns(lambda n: _play(p, target, shards[:1] * n), whole - rest)
    return full + (_play(p, target, [shards[0], shards[-1]]) - _play(p, target, shards[:1]) if rest else 0)


def _play(p: MlpPrefill, target: Target, shards: list[int]) -> float:
    kernel = (QuantizedMlpPrefillKernel if p.quantization else MlpPrefillKernel)(p, target)
    for rows in shards:
        kernel.shard(rows)
    return kernel.w.time_ns()
