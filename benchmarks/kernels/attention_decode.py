"""Attention of one new token per sequence over its cache, on one core: keys and values stream from HBM once.

Keys lie on the partitions: scores of 128 keys and all queries of a head are one product, exp is one instruction over
all of them, sums over the partitions are products with ones, and the result accumulates in PSUM.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroncore.targets import Target

from benchmarks.kernels.writer import Writer, chunks, steady_ns

__all__ = ["AttentionDecode", "time_ns"]


@dataclass(frozen=True)
class AttentionDecode:
    """`heads` caches of `keys` entries of `width` per sequence, `queries` query heads on each."""

    sequences: int
    heads: int
    queries: int
    keys: int
    width: int


def time_ns(p: AttentionDecode, target: Target) -> float:
    """Program time."""
    return steady_ns(lambda n: _play(p, n, target), p.sequences * p.heads, first=2, second=4)


def _play(p: AttentionDecode, count: int, target: Target) -> float:
    w = Writer("attention_decode", target)
    queries = w.hbm("q", p.width, p.queries * count, "bf16")
    keys, values = w.hbm("k", p.width, p.keys, "bf16"), w.hbm("v", p.keys, p.width, "bf16")
    out = w.hbm("out", p.width, p.queries * count, "bf16", "output")
    step = min(p.keys, 4096)
    q = w.sbuf(p.queries * count, "bf16", p.width)
    w.dma(q, queries.rows(0, p.width), "qQ")
    k_tiles, v_tiles = w.ring(3, step, "bf16", p.width), w.ring(3, -(-step // 128) * p.width, "bf16")
    weights = w.ring(2, -(-step // 128) * p.queries, "bf16")
    ones = w.sbuf(128, "bf16")
    results, sums = w.ring(2, p.queries, "fp32", p.width), w.ring(2, p.queries, "fp32", p.width)
    scores, outputs, totals = w.banks(0, 4), w.banks(4, 2), w.banks(6, 2)
    for i in range(count):
        output = outputs.take().columns(0, p.queries, (0, p.width))
        total = totals.take().columns(0, p.queries, (0, p.width))
        for start, size in chunks(p.keys, step):
            key, value = k_tiles.take(), v_tiles.take()
            w.dma(key.columns(0, size), keys.rows(0, p.width, (start, start + size)), "qK")
            blocks = chunks(size, 128)
            whole = size // 128
            if whole:
                w.dma(
                    value.access(None, ((p.width, whole), (1, p.width))),
                    values.access(
                        128, ((p.width, whole), (1, p.width)), offset=start * p.width,
                        partition_stride=whole * p.width,
                    ),
                    "qV",
                )  # fmt: skip
            if size % 128:
                rest = value.columns(whole * p.width, (whole + 1) * p.width, (0, size % 128))
                w.dma(rest, values.rows(start + whole * 128, size % 128), "qV")
            bank, weight = scores.take(), weights.take()
            for j, (a, n) in enumerate(blocks):
                part = bank.columns(j * p.queries, (j + 1) * p.queries, (0, n))
                w.matmul(part, key.columns(a, a + n), q.columns(i * p.queries, (i + 1) * p.queries), first=True)
            used = len(blocks) * p.queries
            w.activate(weight.columns(0, used), bank.columns(0, used), "exp", scale=0.1)
            for j, (_, n) in enumerate(blocks):
                part = weight.columns(j * p.queries, (j + 1) * p.queries, (0, n))
                first = start == 0 and j == 0
                w.matmul(output, value.columns(j * p.width, (j + 1) * p.width, (0, n)), part, first=first)
                w.matmul(total, ones.columns(0, p.width, (0, n)), part, first=first)
        result, inverse = results.take(), sums.take()
        w.emit("reciprocal", dst=inverse, data=total)
        w.emit("tensor_tensor", dst=result, data1=output, data2=inverse, op="multiply")
        w.dma(
            out.access(p.width, ((1, p.queries),), offset=i * p.queries, partition_stride=p.queries * count),
            result,
            "qOut",
            "Scalar",
        )
    return w.time_ns()
