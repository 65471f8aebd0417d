"""The NKI library's kernels: MLP and QKV for context encoding and token generation."""

from __future__ import annotations

from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, launched, running
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.kernels import mlp_decode, mlp_prefill, qkv_decode

__all__ = ["NAME", "recognise"]

NAME = "MLP and QKV"

_NORMS = {
    "": "", "NO_NORM": "", "NONE": "", "RMS_NORM": "rms", "RMS_NORM_SKIP_GAMMA": "rms_plain", "LAYER_NORM": "layer",
}  # fmt: skip
_FUNCTIONS = {"SILU": "silu", "GELU": "gelu", "GELU_TANH_APPROX": "gelu", "RELU": "relu", "SWISH": "silu"}


def recognise(entry: Entry) -> Case | None:
    """MLP and QKV kernels of the library."""
    workload = entry.workload.lower()
    if "mlp_cte" in workload:
        return _prefill(entry)
    if "mlp_tkg" in workload:
        return _decode(entry)
    if "qkv_tkg" in workload:
        return _qkv(entry)
    return None


def cores(entry: Entry) -> int:
    """Physical cores that run it: LNC 1 or 2.

    Raises:
        Skip: another number.
    """
    count = entry.number("vnc_degree", "lnc_degree", "lnc", default=1)
    if count > 2:
        raise Skip("more than two physical cores per logical one")
    return count


def norm(entry: Entry) -> str:
    """The normalization in the kernel's words.

    Raises:
        Skip: unknown.
    """
    name = entry.word("norm_type").upper()
    if name not in _NORMS:
        raise Skip(f"norm type {name} is unknown")
    return _NORMS[name]


def function(entry: Entry) -> str:
    """The activation function.

    Raises:
        Skip: unknown.
    """
    name = entry.word("act_fn_type", "SiLU").upper()
    if name not in _FUNCTIONS:
        raise Skip(f"activation {name} is unknown")
    return _FUNCTIONS[name]


def _prefill(entry: Entry) -> Case:
    rows = entry.number("batch", default=1) * entry.number("seqlen", "seq")
    hidden, intermediate = entry.number("hidden", "hidden_dim"), entry.number("intermediate")
    if hidden % 128:
        raise Skip("hidden size is no multiple of 128")
    quantized = entry.word("quantization_type", "NONE").upper() not in ("NONE", "")
    p = mlp_prefill.MlpPrefill(
        cores(entry), rows, hidden, intermediate, norm(entry), entry.flag("fused_add"), entry.flag("store_add"),
        not entry.flag("skip_gate"), entry.flag("gate_bias") and not entry.flag("skip_gate"), entry.flag("up_bias"),
        entry.flag("down_bias"), entry.flag("norm_bias"), quantized, function(entry),
    )  # fmt: skip
    projections = 2 + p.gate
    target = load_target(entry.target)
    return Case(
        NAME,
        target.name,
        flops=2.0 * rows * hidden * intermediate * projections,
        bytes=float(
            hidden * intermediate * projections * (1 if quantized else 2)
            + 2 * rows * hidden * (2 + p.fused_add + p.store_add)
        ),
        dtype="fp8_e4m3" if quantized else "bf16",
        predict=lambda: launched(target, mlp_prefill.time_ns(p, running(target, p.cores))),
        cores=p.cores,
        key=p,
    )


def _decode(entry: Entry) -> Case:
    tokens = entry.number("batch", default=1) * entry.number("seqlen", "seq", default=1)
    hidden, intermediate = entry.number("hidden", "hidden_dim"), entry.number("intermediate")
    count = cores(entry)
    if hidden % (128 * count) or tokens > 128:
        raise Skip("hidden size is no multiple of 128 per core, or more than 128 tokens")
    scales = {"NONE": "", "": "", "ROW": "row", "STATIC": "static"}.get(entry.word("quant_type", "NONE").upper())
    if scales is None:
        raise Skip("quantization type is unknown")
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
    tokens = entry.number("batch", default=1) * entry.number("seqlen", "seq", default=1)
    hidden, columns = entry.number("hidden_dim", "hidden"), entry.number("fused_qkv_dim")
    count = cores(entry)
    if hidden % (128 * count) or tokens > 128:
        raise Skip("hidden size is no multiple of 128 per core, or more than 128 tokens")
    quantized = entry.word("quantization_type", "NONE").upper() not in ("NONE", "")
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
