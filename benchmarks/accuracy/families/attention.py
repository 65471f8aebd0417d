"""Attention: the NKI library's context-encoding kernel and the NKI samples' kernels."""

from __future__ import annotations

from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, launched, running
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.accuracy.families.library import cores
from benchmarks.kernels import attention_prefill

__all__ = ["NAME", "recognise"]

NAME = "attention"
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def recognise(entry: Entry) -> Case | None:
    """Attention kernels."""
    workload = entry.workload.lower()
    if "attention_cte" in workload:
        return _prefill(entry)
    return None


def _pairs(queries: int, keys: int, *, causal: bool, window: int) -> float:
    """Query-key pairs that count."""
    if not causal:
        return float(queries * keys)
    offset = max(0, keys - queries)
    if window:
        return float(queries * min(window, keys))
    return queries * (offset + (min(queries, keys) + 1) / 2)


def _prefill(entry: Entry) -> Case:
    batch, queries, keys = entry.number("bs", "batch"), entry.number("seqlen_q"), entry.number("seqlen_kv", "seqlen_k")
    width, count = entry.number("d", "d_head"), cores(entry)
    kv_batch = entry.number("bs_kv", default=batch)
    dtype = entry.element("bf16")
    if width > 128 or dtype not in _BYTES:
        raise Skip("head wider than 128 or a dtype the kernel lacks")
    prior = entry.number("prior_len", default=0) if entry.shapes.get("prior_len") else 0
    window = entry.number("sliding_window") if entry.shapes.get("sliding_window") else 0
    p = attention_prefill.AttentionPrefill(
        count, batch, queries, keys, width, dtype, entry.flag("causal_mask"), window, prior, entry.flag("sink"),
        entry.flag("tp_q", default=True), entry.flag("tp_k"), entry.flag("tp_out"),
    )  # fmt: skip
    target = load_target(entry.target)
    pairs = _pairs(queries, keys, causal=p.causal, window=window) + queries * prior
    elements = 2 * batch * queries * width + 2 * kv_batch * (keys + prior) * width
    return Case(
        NAME,
        target.name,
        flops=4.0 * batch * pairs * width,
        bytes=float(elements * _BYTES[dtype]),
        dtype="bf16",
        predict=lambda: launched(target, attention_prefill.time_ns(p, running(target, count))),
        cores=count,
        key=p,
    )
