"""Attention: the NKI library's context-encoding kernel and the NKI samples' kernels."""

from __future__ import annotations

import re
from functools import partial

from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, launched, running
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.accuracy.families.library import CONTEXT_ENCODING, TOKEN_GENERATION, cores
from benchmarks.kernels import attention_decode, attention_prefill, attention_samples, nkibench
from benchmarks.kernels.writer import BANK

__all__ = ["NAME", "recognise"]

NAME = "attention"
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def recognise(entry: Entry) -> Case | None:
    """Attention kernels."""
    workload = entry.workload.lower()
    if workload.startswith("model") or not re.search(r"attention|attn|(?<![a-z])gqa(?![a-z])", workload):
        return None
    if workload.startswith("nkibench"):
        return _grouped(entry) if re.search(r"(?<![a-z])gqa", workload) else None
    if re.search(r"(?<![a-z])sd[ _]|stable diffusion|flash", workload):
        return _sample(entry, workload)
    if re.search(CONTEXT_ENCODING, workload):
        return _prefill(entry)
    if re.search(TOKEN_GENERATION, workload):
        return _decode(entry)
    return None


def _pairs(queries: int, keys: int, *, causal: bool, window: int) -> float:
    """Query-key pairs that count."""
    if not causal:
        return float(queries * keys)
    if window:
        return float(queries * min(window, keys))
    square = min(queries, keys)
    return square * (square + 1) / 2 + (queries - square) * keys


def _prefill(entry: Entry) -> Case:
    batch, queries = entry.number("bs", "batch", default=1), entry.number("seqlen_q", "seqlen", "seq")
    keys = entry.number("seqlen_kv", "seqlen_k", default=queries)
    width, count = entry.number("d", "d_head", "head_dim"), cores(entry)
    kv_batch = entry.number("bs_kv", default=batch)
    dtype = entry.element("bf16")
    if width > 128 or dtype not in _BYTES:
        raise Skip("head wider than 128 or a dtype the kernel lacks")
    prior = entry.number("prior_len") if entry.get("prior_len") else 0
    window = entry.number("sliding_window") if entry.get("sliding_window") else 0
    causal = entry.flag("causal_mask", default=entry.flag("causal"))
    p = attention_prefill.AttentionPrefill(
        count, batch, queries, keys, width, dtype, causal, window, prior, entry.flag("sink"),
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


def _decode(entry: Entry) -> Case:
    """A new token per sequence over its cache; grouped queries share a cache."""
    sequences, queries = entry.number("bs", "batch", default=1), entry.number("q_head", "q_heads", "heads", default=1)
    active = entry.number("s_active", "seqlen_q", default=1)
    keys = entry.number("s_prior", "curr_sprior", "full_sprior", "seqlen_kv", "seqlen_k", "seqlen", "seq")
    width, caches = entry.number("d", "d_head", "head_dim"), entry.number("kv_heads", default=1)
    count = cores(entry)
    if width > 128 or queries % caches or queries // caches * active > 512 or entry.element("bf16") != "bf16":
        raise Skip("head wider than 128, queries that do not fit a PSUM bank, or a dtype the kernel lacks")
    if sequences * caches > 1 << 16 or keys > 1 << 20:
        raise Skip("a cache over a million tokens, or over 65536 of them")
    if -(-keys // 128) * (queries // caches) * active > 1 << 14:
        raise Skip("scores that do not fit the SBUF")
    # Two cores halve the caches, or the keys of a single one.
    whole = sequences * caches >= count
    share = (-(-sequences * caches // count), keys) if whole else (sequences * caches, -(-keys // count))
    p = attention_decode.AttentionDecode(share[0], 1, queries // caches * active, share[1], width)
    target = load_target(entry.target)
    return Case(
        NAME, target.name, 4.0 * sequences * queries * active * keys * width,
        4.0 * sequences * width * (caches * keys + queries * active), "bf16",
        lambda: launched(target, attention_decode.time_ns(p, running(target, count))), cores=count,
        key=("decode", p, count),
    )  # fmt: skip


def _sample(entry: Entry, workload: str) -> Case:
    """The NKI samples' kernels, head after head on one core; flash attention is causal unless the entry says not."""
    if "autocomp" in workload or "host" in entry.measures:
        raise Skip("kernel found by a search, its program is not published in a usable form")
    heads = entry.number("bs", "batch", default=1) * entry.number("heads", "nheads", "num_heads", "h", default=1)
    length, width = entry.number("seq", "seqlen", "seq_len", "seqlen_q"), entry.number("d", "d_head", "head_dim")
    dtype = entry.element("bf16")
    keys = entry.number("seqlen_kv", "seqlen_k", "seq_kv", "seq_k", default=length)
    if keys != length and "flash" not in workload:
        raise Skip("queries and keys of different length")
    if width > 128 or length % 128 or keys % 128 or max(length, keys) > 1 << 17 or dtype not in _BYTES:
        raise Skip("head wider than 128, a length that is no multiple of 128, or a dtype the kernel lacks")
    flash, allocated = "flash" in workload, "alloc" in workload
    if not flash and length > 8192:
        raise Skip("a row of scores does not fit the SBUF")
    causal = entry.flag("causal", default=entry.flag("use_causal_mask", default=flash))
    target = load_target(entry.target)
    back = re.search(r"backward|bwd", workload) is not None
    kernel = attention_samples.allocated if allocated else attention_samples.small_head
    if flash:
        kernel = partial(attention_samples.backward if back else attention_samples.forward, causal=causal, keys=keys)
    pairs = _pairs(length, keys, causal=causal, window=0)
    size = _BYTES[dtype] * (length + keys) / 2 * width
    return Case(
        NAME, target.name, (10.0 if back else 4.0) * heads * pairs * width, float((8 if back else 4) * heads * size),
        "bf16", lambda: launched(target, heads * kernel(length, width, dtype, target)),
        key=("sample", allocated, flash, back, heads, length, keys, width, dtype, causal),
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
