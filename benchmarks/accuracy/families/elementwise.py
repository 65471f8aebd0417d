"""Elementwise kernels and copies: CS149's vector addition and NKIBench's elementwise kernels."""

from __future__ import annotations

import re

from neuroncore.targets import load_target
from neuroncore.timing import simulate

from benchmarks.accuracy.case import Case, launched
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.kernels import nkibench
from benchmarks.kernels.vector import transpose, vector_add
from benchmarks.kernels.writer import steady_ns

__all__ = ["NAME", "recognise"]

NAME = "elementwise"
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def recognise(entry: Entry) -> Case | None:
    """Vector addition, SiLU, AdamW, rotary embedding."""
    workload = entry.workload.lower()
    if workload.startswith("vector add"):
        return _vector_add(entry)
    if workload.startswith("transpose") or re.fullmatch(r"nki transpose( kernel)?", workload):
        return _transpose(entry)
    if workload.startswith("nkibench"):
        for name, program in (("silu", _silu), ("adamw", _adamw), ("rope", _rope)):
            if re.search(rf"\b{name}", workload):
                return program(entry)
    return None


def _vector_add(entry: Entry) -> Case:
    """[rows, columns] tiles: "ROW_CHUNK=r" takes r rows of one column; a FREE_DIM, or a bare number, 128 rows of it."""
    n = entry.number("n", "elements")
    words = dict(re.findall(r"(ROW_CHUNK|FREE_DIM)=(\d+)", entry.workload))
    words.update({k: str(v) for k, v in entry.shapes.items() if k in ("ROW_CHUNK", "FREE_DIM")})
    number = re.search(r"(\d+)\s*$", entry.workload)
    if "ROW_CHUNK" in words:
        rows, columns = int(words["ROW_CHUNK"]), 1
    elif "naive" in entry.workload:
        rows, columns = 1, 1
    elif "FREE_DIM" in words or number:
        rows, columns = 128, int(words.get("FREE_DIM") or (number.group(1) if number else 0))
    elif "floor" in entry.workload:
        rows, columns = 128, n // 128
    else:
        raise Skip("vector add without its tile shape")
    if not (0 < rows <= 128 and columns > 0 and n % (rows * columns) == 0):
        raise Skip("tiles do not divide the vector")
    target = load_target(entry.target)

    def program(tiles: int) -> float:
        return simulate(vector_add(tiles * rows * columns, rows, columns), target).program_ns

    def predict() -> float:
        return launched(target, steady_ns(program, n // (rows * columns), first=64, second=128))

    return Case(NAME, target.name, float(n), 12.0 * n, "fp32", predict, key=("vadd", n, rows, columns))


def _transpose(entry: Entry) -> Case:
    """One tile of 128 by 128 after the other."""
    shape = entry.shapes.get("n", entry.shapes.get("shape"))
    if not isinstance(shape, list) or len(shape) != 2 or not all(isinstance(s, int) for s in shape):
        raise Skip("transpose without its shape")
    rows, columns = shape
    dtype = entry.element("fp32")
    if rows % 128 or columns % 128 or not 0 < rows <= 1 << 15 or not 0 < columns <= 1 << 15 or dtype not in _BYTES:
        raise Skip("sizes are no multiples of a tile, or a dtype the kernel lacks")
    target = load_target(entry.target)

    def program(tiles: int) -> float:
        return simulate(transpose(128, 128 * tiles, dtype), target).program_ns

    return Case(
        NAME, target.name, 0.0, 2.0 * _BYTES[dtype] * rows * columns, "fp32",
        lambda: launched(target, steady_ns(program, rows * columns // 128**2, first=16, second=32)),
        key=("transpose", rows, columns, dtype),
    )  # fmt: skip


def _silu(entry: Entry) -> Case:
    m, n = entry.number("M"), entry.number("N")
    target = load_target(entry.target)
    best = "best" in entry.workload.lower()
    return Case(
        NAME, target.name, 4.0 * m * n, 8.0 * m * n, "fp32",
        lambda: launched(target, nkibench.silu(m, n, target, wide=best)), key=("silu", m, n, best),
    )  # fmt: skip


def _adamw(entry: Entry) -> Case:
    m, n = entry.number("M"), entry.number("N")
    target = load_target(entry.target)
    return Case(
        NAME, target.name, 14.0 * m * n, 20.0 * m * n, "fp32", lambda: launched(target, nkibench.adamw(m, n, target)),
        key=("adamw", m, n),
    )  # fmt: skip


def _rope(entry: Entry) -> Case:
    width, length = entry.number("D"), entry.number("B", default=1) * entry.number("H") * entry.number("N")
    if width > 128:
        raise Skip("head wider than 128")
    target = load_target(entry.target)
    elements = width * length
    return Case(
        NAME, target.name, 3.0 * elements, 12.0 * elements, "fp32",
        lambda: launched(target, nkibench.rope(width, length, target)), key=("rope", width, length),
    )  # fmt: skip
