"""The NKI library's kernels: MLP and QKV for context encoding and token generation."""

from __future__ import annotations

import re

from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, launched, running
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.kernels import mlp_decode, mlp_prefill, mlp_prefill_time, qkv_decode

__all__ = ["NAME", "recognise"]

NAME = "MLP and QKV"

#: The library's words for the two kinds of kernels, and the field's.
CONTEXT_ENCODING = r"(?<![a-z])cte(?![a-z])|context|prefill"
TOKEN_GENERATION = r"(?<![a-z])tkg(?![a-z])|token|decod"

_NORMS = {
    "": "", "NO_NORM": "", "NONE": "", "RMS_NORM": "rms", "RMS_NORM_SKIP_GAMMA": "rms_plain", "LAYER_NORM": "layer",
}  # fmt: skip
_SCALES = {"": "", "NONE": "", "NO_QUANT": "", "ROW": "row", "STATIC": "static"}
_FUNCTIONS = {
    "SILU": "silu",
    "GELU": "gelu",
    "GELU_TANH_APPROX": "gelu",
    "RELU": "relu",
    "SWISH": "silu",
    "GELU_TANH": "gelu",
    "GELU_NEW": "gelu",
}


def recognise(entry: Entry) -> Case | None:
    """MLP and QKV kernels of the library."""
    workload = entry.workload.lower()
    kernel = re.search(r"(?<![a-z])(mlp|qkv)(?![a-z])", workload)
    if kernel is None or workload.startswith("model"):
        return None
    if re.search(TOKEN_GENERATION, workload):
        return _decode(entry) if kernel.group(1) == "mlp" else _qkv(entry)
    if re.search(CONTEXT_ENCODING, workload):
        if kernel.group(1) == "qkv":
            raise Skip("the library's QKV kernel for context encoding has no program here")
        return _prefill(entry)
    return None


def cores(entry: Entry, unstated: int = 1) -> int:
    """Physical cores that run it, LNC 1 or 2: a field, or named in the workload; `unstated` if the entry does not say.

    Raises:
        Skip: another number.
    """
    named = re.search(r"(?<![a-z])[lv]nc[ =_-]?(\d)", f"{entry.workload} {entry.measures}".lower())
    default = int(named.group(1)) if named and named.group(1) != "0" else unstated
    count = entry.number("vnc_degree", "lnc_degree", "lnc", "num_cores", default=default)
    if count > 2:
        raise Skip("more than two physical cores per logical one")
    return count


def norm(entry: Entry) -> str:
    """The normalization in the kernel's words.

    Raises:
        Skip: unknown.
    """
    name = entry.word("norm_type", "norm").upper()
    if name not in _NORMS:
        raise Skip(f"norm type {name} is unknown")
    return _NORMS[name]


def function(entry: Entry) -> str:
    """The activation function.

    Raises:
        Skip: unknown.
    """
    name = entry.word("act_fn_type", "act_fn", "activation", default="SiLU").upper()
    if name not in _FUNCTIONS:
        raise Skip(f"activation {name} is unknown")
    return _FUNCTIONS[name]


def quantization(entry: Entry) -> str:
    """How the weights are scaled: "" (none), "row" or "static".

    Raises:
        Skip: unknown.
    """
    name = entry.word("quantization_type", "quant_type").upper()
    if name not in _SCALES:
        raise Skip(f"quantization type {name} is unknown")
    return _SCALES[name]


def _widths(entry: Entry) -> tuple[int, int]:
    hidden = entry.number("hidden", "hidden_dim", "hidden_size")
    return hidden, entry.number("intermediate", "intermediate_size")


def _prefill(entry: Entry) -> Case:
    rows = entry.number("batch", "bs", default=1) * entry.number("seqlen", "seq", "seq_len")
    hidden, intermediate = (
        entry.number("hidden", "hidden_dim", "hidden_size"),
        entry.number("intermediate", "intermediate_size"),
    )
    if hidden % 128:
        raise Skip("hidden size is no multiple of 128")
    scales = quantization(entry)
    if scales and (norm(entry) or any(entry.flag(f"{name}_bias") for name in ("gate", "up", "down", "norm"))):
        raise Skip("8-bit weights with a norm or a bias have no program here")
    p = mlp_prefill.MlpPrefill(
        cores(entry), rows, hidden, intermediate, norm(entry), entry.flag("fused_add"), entry.flag("store_add"),
        not entry.flag("skip_gate"), entry.flag("gate_bias") and not entry.flag("skip_gate"), entry.flag("up_bias"),
        entry.flag("down_bias"), entry.flag("norm_bias"), scales, function(entry),
    )  # fmt: skip
    projections = 2 + p.gate
    target = load_target(entry.target)
    return Case(
        NAME,
        target.name,
        flops=2.0 * rows * hidden * intermediate * projections,
        bytes=float(
            hidden * intermediate * projections * (1 if scales else 2)
            + 2 * rows * hidden * (2 + p.fused_add + p.store_add)
        ),
        dtype="fp8_e4m3" if scales else "bf16",
        predict=lambda: launched(target, mlp_prefill_time.time_ns(p, running(target, p.cores))),
        cores=p.cores,
        key=p,
    )


def _decode(entry: Entry) -> Case:
    tokens = entry.number("batch", "bs", default=1) * entry.number("seqlen", "seq", "seq_len", default=1)
    hidden, intermediate = (
        entry.number("hidden", "hidden_dim", "hidden_size"),
        entry.number("intermediate", "intermediate_size"),
    )
    count = cores(entry)
    if hidden % (128 * count) or tokens > 128:
        raise Skip("hidden size is no multiple of 128 per core, or more than 128 tokens")
    scales = quantization(entry)
    gate = not (entry.flag("skip_gate_proj") or entry.flag("skip_gate"))
    p = mlp_decode.MlpDecode(
        count, tokens, hidden, intermediate, norm(entry), entry.flag("fused_add"), entry.flag("store_add"), gate,
        entry.flag("gate_bias") and gate, entry.flag("up_bias"), entry.flag("down_bias"), scales,
        entry.flag("col_tiling_gate_up"), entry.flag("col_tiling_down"), entry.flag("down_opt_layout"), function(entry),
    )  # fmt: skip
    target = load_target(entry.target)
    weights = hidden * intermediate * (2 + gate)
    return Case(
        NAME,
        target.name,
        flops=2.0 * tokens * weights,
        bytes=float(weights * (1 if scales else 2) + 2 * tokens * hidden * (2 + p.fused_add + p.store_add)),
        dtype="bf16",
        predict=lambda: launched(target, mlp_decode.time_ns(p, running(target, count))),
        cores=count,
        key=p,
    )


def _qkv(entry: Entry) -> Case:
    tokens = entry.number("batch", "bs", default=1) * entry.number("seqlen", "seq", "seq_len", default=1)
    hidden, columns = entry.number("hidden_dim", "hidden", "hidden_size"), entry.number("fused_qkv_dim", "qkv_dim")
    count = cores(entry)
    if hidden % (128 * count) or tokens > 128:
        raise Skip("hidden size is no multiple of 128 per core, or more than 128 tokens")
    quantized = bool(quantization(entry))
    p = qkv_decode.QkvDecode(
        count, tokens, hidden, columns, norm(entry), entry.flag("fused_add"), entry.flag("qkv_bias"), quantized
    )
    target = load_target(entry.target)
    return Case(
        NAME,
        target.name,
        flops=2.0 * tokens * hidden * columns,
        bytes=float(
            hidden * columns * (1 if quantized else 2) + 2 * tokens * (hidden * (4 if p.fused_add else 1) + columns)
        ),
        dtype="bf16",
        predict=lambda: launched(target, qkv_decode.time_ns(p, running(target, count))),
        cores=count,
        key=p,
    )
