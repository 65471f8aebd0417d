"""Attention: the NKI library's context-encoding kernel and the NKI samples' kernels."""

from __future__ import annotations

import re
from functools import partial

from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, launched, running
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.accuracy.families.library import cores
from benchmarks.kernels import attention_prefill, attention_samples, nkibench
from benchmarks.kernels.writer import BANK

__all__ = ["NAME", "recognise"]

NAME = "attention"
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def recognise(entry: Entry) -> Case | None:
    """Attention kernels."""
    workload = entry.workload.lower()
    if "attention_cte" in workload:
        return _prefill(entry)
    if (
        "sd attention" in workload
        or "sd_attention" in workload
        or re.match(r"flash attention (back|for)ward", workload)
    ):
        return _sample(entry, workload)
    if workload.startswith("nkibench") and "gqa_full" in workload:
        return _grouped(entry)
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


def _sample(entry: Entry, workload: str) -> Case:
    """The NKI samples' kernels, head after head on one core; flash attention is causal unless the entry says not."""
    if "autocomp" in workload or "host" in entry.measures:
        raise Skip("kernel found by a search, its program is not published in a usable form")
    heads = entry.number("bs", "batch", default=1) * entry.number("heads", "nheads", "h", default=1)
    length, width = entry.number("seq", "seqlen", "seqlen_q"), entry.number("d", "d_head")
    dtype = entry.element("bf16")
    if entry.number("seqlen_kv", "seqlen_k", default=length) != length:
        raise Skip("queries and keys of different length")
    if width > 128 or length % 128 or length > 1 << 17 or dtype not in _BYTES:
        raise Skip("head wider than 128, a length that is no multiple of 128, or a dtype the kernel lacks")
    flash = "flash" in workload
    if not flash and length > 8192:
        raise Skip("a row of scores does not fit the SBUF")
    causal = entry.flag("causal", default=entry.flag("use_causal_mask", default=flash))
    target = load_target(entry.target)
    back = "backward" in workload
    kernel = attention_samples.allocated if "alloc" in workload else attention_samples.small_head
    if flash:
        kernel = partial(attention_samples.backward if back else attention_samples.forward, causal=causal)
    pairs = _pairs(length, length, causal=causal, window=0)
    size = _BYTES[dtype] * length * width
    return Case(
        NAME, target.name, (10.0 if back else 4.0) * heads * pairs * width, float((8 if back else 4) * heads * size),
        "bf16", lambda: launched(target, heads * kernel(length, width, dtype, target)),
        key=("sample", "alloc" in workload, flash, back, heads, length, width, dtype, causal),
    )  # fmt: skip


def _grouped(entry: Entry) -> Case:
    batch, length, width = entry.number("B", default=1), entry.number("N"), entry.number("D")
    heads, caches = entry.number("QH"), entry.number("KH")
    if width > 128 or length % BANK or heads % caches or length > 1 << 14:
        raise Skip("head wider than 128, a length that is no multiple of 512, or heads that do not divide")
    target = load_target(entry.target)
    return Case(
        NAME, target.name, 4.0 * batch * heads * length * length * width,
        8.0 * batch * length * width * (heads + caches), "fp32",
        lambda: launched(target, nkibench.grouped_attention(length, batch * heads, width, target)),
        key=("gqa", batch, length, width, heads, caches),
    )  # fmt: skip
