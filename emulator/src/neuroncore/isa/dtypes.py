"""Hardware number formats: sizes, and conversion between stored bits and float32 without torch.

At every interface a bf16 or fp8 array is a numpy array of its *bit patterns* (`uint16`, `uint8`); every other dtype
is the numpy dtype of the same meaning. `from_float32` and `to_float32` convert with round to nearest, ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["DTYPE_BYTES", "FLOAT_DTYPES", "INT_DTYPES", "STORAGE", "from_float32", "to_float32"]

Array = npt.NDArray[Any]

#: Size in bytes of every dtype name (the same names as `neuroncore.graph.DTYPE_BYTES`).
DTYPE_BYTES = {
    "fp32": 4, "bf16": 2, "fp16": 2, "fp64": 8, "fp8_e4m3": 1, "fp8_e5m2": 1,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "bool": 1,
    "complex64": 8, "complex128": 16,
}  # fmt: skip

#: Floating dtypes the engines compute on.
FLOAT_DTYPES = ("fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2")
#: Integer dtypes the engines compute on.
INT_DTYPES = ("int8", "int16", "int32", "uint8", "uint16", "uint32", "bool")

#: numpy dtype that holds each dtype; bit patterns for bf16 and fp8.
STORAGE: dict[str, np.dtype[Any]] = {
    "fp32": np.dtype(np.float32), "bf16": np.dtype(np.uint16), "fp16": np.dtype(np.float16),
    "fp64": np.dtype(np.float64),
    "fp8_e4m3": np.dtype(np.uint8), "fp8_e5m2": np.dtype(np.uint8),
    "int8": np.dtype(np.int8), "int16": np.dtype(np.int16), "int32": np.dtype(np.int32), "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8), "uint16": np.dtype(np.uint16), "uint32": np.dtype(np.uint32),
    "bool": np.dtype(np.bool_),
    "complex64": np.dtype(np.complex64), "complex128": np.dtype(np.complex128),
}  # fmt: skip


def _fp8_values(exponent_bits: int, mantissa_bits: int, *, finite: bool) -> npt.NDArray[np.float32]:
    """All 256 values of an 8-bit float; `finite` formats have no infinities and a single NaN per sign."""
    bits = np.arange(256)
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1)
    fraction = (bits & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    top = (1 << exponent_bits) - 1
    with np.errstate(over="ignore"):
        value = np.where(
            exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent.astype(float) - bias)
        )
    if finite:
        value = np.where((bits & 0x7F) == 0x7F, np.nan, value)
    else:
        value = np.where(exponent == top, np.where(fraction == 0, np.inf, np.nan), value)
    return np.where(bits & 0x80, -value, value).astype(np.float32)


# The OCP encodings, as torch's float8_e4m3fn and float8_e5m2.
_FP8 = {"fp8_e4m3": _fp8_values(4, 3, finite=True), "fp8_e5m2": _fp8_values(5, 2, finite=False)}


def to_float32(array: Array, dtype: str) -> npt.NDArray[np.float32]:
    """Stored bits of `dtype` as float32 (integers above 2**24 round, as on the engines)."""
    if dtype == "fp32":
        return np.asarray(array, np.float32)
    if dtype == "bf16":
        return (np.asarray(array).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype in _FP8:
        return _FP8[dtype][np.asarray(array)]
    return np.asarray(array).astype(np.float32)


def from_float32(values: npt.ArrayLike, dtype: str) -> Array:
    """Float32 values stored as `dtype`: nearest even for floats; integers round to nearest even and saturate."""
    x = np.asarray(values, np.float32)
    if dtype == "fp32":
        return x
    if dtype == "bf16":
        bits = x.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        nan = np.isnan(x)
        return np.where(nan, np.uint32(0x7FC0) | (bits >> np.uint32(16)) & np.uint32(0x8000), rounded).astype(np.uint16)
    if dtype in _FP8:
        return _round_fp8(x, dtype)
    if dtype == "bool":
        return x != 0
    storage = STORAGE[dtype]
    if storage.kind in "iu":
        info = np.iinfo(storage)
        clean = np.nan_to_num(np.rint(x.astype(np.float64)), nan=0.0, posinf=float(info.max), neginf=float(info.min))
        return np.clip(clean, info.min, info.max).astype(storage)
    with np.errstate(over="ignore"):
        return x.astype(storage)


def _round_fp8(x: npt.NDArray[np.float32], dtype: str) -> Array:
    """Nearest fp8, ties to even; beyond the largest value: infinity (e5m2) or the largest (e4m3), as torch."""
    table = _FP8[dtype]
    positive = table[:128]
    finite = positive[np.isfinite(positive)].astype(np.float64)
    magnitude = np.abs(x.astype(np.float64))
    high = np.clip(np.searchsorted(finite, magnitude), 0, len(finite) - 1)
    low = np.maximum(high - 1, 0)
    with np.errstate(invalid="ignore"):
        up, down = np.abs(finite[high] - magnitude), np.abs(magnitude - finite[low])
    code = np.where((up < down) | ((up == down) & (high % 2 == 0)), high, low)
    if dtype == "fp8_e5m2":  # past the last finite value by half a step or more
        code = np.where(magnitude >= finite[-1] + (finite[-1] - finite[-2]) / 2, len(finite), code)
    else:
        code = np.where(magnitude > finite[-1], len(finite) - 1, code)
    code = np.where(np.isnan(x), 0x7F, code)
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)
