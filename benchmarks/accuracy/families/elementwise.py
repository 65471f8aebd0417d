"""Elementwise kernels and copies: vector and tensor addition, copies, transposes, NKIBench's elementwise kernels."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from neuroncore.targets import load_target
from neuroncore.timing import simulate

from benchmarks.accuracy.case import Case, launched
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.kernels import nkibench
from benchmarks.kernels.vector import streamed_ns, transpose, vector_add
from benchmarks.kernels.writer import steady_ns

__all__ = ["NAME", "recognise"]

NAME = "elementwise"
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def recognise(entry: Entry) -> Case | None:
    """Vector and tensor addition, copies, transposes, SiLU, AdamW, rotary embedding."""
    workload = entry.workload.lower()
    if re.search(r"(?<![a-z])(vector|vec)[ _-]?add|(?<![a-z])vadd", workload):
        return _vector_add(entry)
    if re.search(r"(?<![a-z])tensor[ _-]?add(?!.*single instruction)", workload) and entry.shapes:
        return _tensor_add(entry)
    if re.search(r"(?<![a-z])(stream|streaming|hbm|tensor|memory|dram)[ _-]?copy|(?<![a-z])memcpy", workload):
        return None if re.search(r"host", f"{workload} {entry.measures.lower()}") else _copy(entry)
    if re.match(r"(nki |cs149 )?transpose\b(?!.*matmul)", workload):
        return _transpose(entry)
    if workload.startswith("nkibench"):
        for name, program in (("silu", _silu), ("adamw", _adamw), ("rope", _rope)):
            if re.search(rf"\b{name}", workload):
                return program(entry)
    return None


def _vector_add(entry: Entry) -> Case:
    """[rows, columns] tiles: "ROW_CHUNK=r" takes r rows of one column; a FREE_DIM, or a bare number, 128 rows of it."""
    n = entry.number("n", "elements")
    words = {k.upper(): v for k, v in re.findall(r"(row_chunk|free_dim) ?= ?(\d+)", entry.workload.lower())}
    words.update({k: str(entry.number(k)) for k in ("ROW_CHUNK", "FREE_DIM") if entry.get(k) is not None})
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
    if entry.element("fp32") != "fp32":
        raise Skip("a dtype the kernel lacks")
    target = load_target(entry.target)
    if min(8, n // (rows * columns)) * columns * 12 > target.sbuf_usable_bytes_per_partition:
        raise Skip("a tile that does not fit a partition")

    def program(tiles: int) -> float:
        return simulate(vector_add(tiles * rows * columns, rows, columns), target).program_ns

    def predict() -> float:
        return launched(target, steady_ns(program, n // (rows * columns), first=64, second=128))

    return Case(NAME, target.name, float(n), 12.0 * n, "fp32", predict, key=("vadd", n, rows, columns))


def _elements(entry: Entry) -> int:
    """Elements of the tensor: its shape, a count, or rows and columns.

    Raises:
        Skip: none stated.
    """
    shape = next((v for v in map(entry.get, ("shape", "x", "a", "n", "size")) if v is not None), None)
    if isinstance(shape, list):
        if not shape or not all(isinstance(s, int) and 0 < s < 1 << 40 for s in shape):
            raise Skip("a shape of no positive integers")
        return math.prod(shape)
    if shape is None and entry.get("M") is not None:
        return entry.number("M") * entry.number("N")
    return entry.number("n", "elements", "size", "numel")


def _streamed(entry: Entry, operands: int, columns: int) -> Case:
    """[128, columns] tiles: `operands` loads, their sum if there are two, a store."""
    dtype = entry.element("bf16")
    if dtype not in _BYTES:
        raise Skip("a dtype the kernel lacks")
    size, elements = _BYTES[dtype], _elements(entry)
    if elements > 1 << 34:
        raise Skip("a tensor over 16 billion elements")
    columns = max(1, min(columns, -(-elements // 128)))
    target = load_target(entry.target)

    def program(tiles: int) -> float:
        return streamed_ns(tiles, columns, operands, dtype, target)

    return Case(
        NAME, target.name, float((operands - 1) * elements), float((operands + 1) * size * elements), "fp32",
        lambda: launched(target, steady_ns(program, -(-elements // (128 * columns)), first=16, second=32)),
        key=("streamed", elements, columns, operands, dtype),
    )  # fmt: skip


def _tensor_add(entry: Entry) -> Case:
    """The NKI tutorial's addition: tiles of 128 by 512."""
    return _streamed(entry, 2, 512)


def _copy(entry: Entry) -> Case:
    """HBM to SBUF and back in tiles of 128 by 2048; a size in bytes counts as elements of one."""
    if entry.get("bytes") is not None:
        entry = replace(entry, shapes={"n": -(-entry.number("bytes") // 4)}, dtype="fp32")
    return _streamed(entry, 1, 2048)


def _transpose(entry: Entry) -> Case:
    """One tile of 128 by 128 after the other."""
    shape = next((v for v in map(entry.get, ("n", "shape", "x")) if v is not None), None)
    if shape is None and entry.get("M") is not None:
        shape = [entry.number("M"), entry.number("N")]
    elif isinstance(shape, int):
        shape = [shape, shape]
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


def _sides(entry: Entry) -> tuple[int, int]:
    if entry.element("fp32") != "fp32":
        raise Skip("a dtype the kernel lacks")
    return entry.number("M"), entry.number("N")


def _silu(entry: Entry) -> Case:
    m, n = _sides(entry)
    target = load_target(entry.target)
    best = "best" in entry.workload.lower()
    return Case(
        NAME, target.name, 4.0 * m * n, 8.0 * m * n, "fp32",
        lambda: launched(target, nkibench.silu(m, n, target, wide=best)), key=("silu", m, n, best),
    )  # fmt: skip


def _adamw(entry: Entry) -> Case:
    m, n = _sides(entry)
    target = load_target(entry.target)
    return Case(
        NAME, target.name, 14.0 * m * n, 20.0 * m * n, "fp32", lambda: launched(target, nkibench.adamw(m, n, target)),
        key=("adamw", m, n),
    )  # fmt: skip


def _rope(entry: Entry) -> Case:
    width, length = entry.number("D"), entry.number("B", default=1) * entry.number("H") * entry.number("N")
    if width > 128 or width % 2 or entry.element("fp32") != "fp32":
        raise Skip("a head wider than 128 or of odd width, or a dtype the kernel lacks")
    target = load_target(entry.target)
    elements = width * length
    return Case(
        NAME, target.name, 3.0 * elements, 12.0 * elements, "fp32",
        lambda: launched(target, nkibench.rope(width, length, target)), key=("rope", width, length),
    )  # fmt: skip
