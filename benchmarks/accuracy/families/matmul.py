"""Matrix multiplications: the NKI tutorials' versions, NKIBench's baselines, torch.matmul through the compiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from neuroncore.isa import Program
from neuroncore.targets import Target, load_target
from neuroncore.timing import simulate

from benchmarks.accuracy.case import Case, launched
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.kernels import nkibench
from benchmarks.kernels.matmul import matmul_blocked, matmul_hoisted, matmul_tiled
from benchmarks.kernels.writer import steady_ns

__all__ = ["NAME", "TUTORIAL_BYTES_PER_SECOND", "recognise"]

NAME = "matmul"
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}

#: What all DMA engines together move on trn1 in the matmul tutorial of SDK 2.26 and before. Calibrated on its version
#: "tiled" (tut-matmul-trn1-tiled: 51.8 ms for the 5.37 GB that it loads tile by tile; `benchmarks/calibrate.py`). The
#: same code takes 20.99 ms with a later compiler (autocomp gemm step 0), which is the target file's rate.
TUTORIAL_BYTES_PER_SECOND = 1.045e11

_VERSIONS = {
    "tiled": "tiled", "v2": "tiled", "hoist_load": "hoisted", "hoist_loads": "hoisted", "hoisted": "hoisted",
    "v3": "hoisted",
    "block_free": "block_free", "block_free_dimension": "block_free", "v4": "block_free",
    "fully_optimized": "blocked", "fully_optimised": "blocked", "blocked": "blocked", "v5": "blocked",
}  # fmt: skip


def recognise(entry: Entry) -> Case | None:
    """Products of two dense matrices, alone or with a norm fused."""
    workload = entry.workload.lower()
    if workload.startswith("nkibench"):
        return _nkibench(entry, workload)
    if workload.startswith("model") or not re.search(r"matmul|matrix multipl|(?<![a-z])gemm(?![a-z])", workload):
        return None
    if re.search(r"without device wait|enqueue|dispatch", f"{workload} {entry.measures.lower()}"):
        raise Skip("host's time to enqueue, nothing of the device in it")
    if re.search(r"(?<![a-z])mx|double.?row|collective|blockwise|all.?gather", workload) or _host_wall(entry):
        return None
    step = re.search(r"autocomp.*step (\d+)", workload)
    if step:
        if step.group(1) != "0":
            raise Skip("kernel found by a search, its program is not published in a usable form")
        return _tutorial(entry, "tiled", old=False)
    version = next((v for v in re.findall(r"[a-z]+(?:[_ -][a-z]+)*\d?|v\d", workload) if _version(v)), None)
    tutorial = re.search(r"tutorial|guide", workload)
    if tutorial and version is None:
        found = re.search(r"version (\w+)|matmul (\w+)", workload)
        raise Skip(f"matmul version {next((g for g in found.groups() if g), '') if found else ''} is unknown")
    # A compiled product and the one that its authors call fully optimised: blocked in all three dimensions as the
    # tutorial's last version.
    return _tutorial(entry, version or "fully_optimized", old=bool(tutorial) and entry.target in ("trn1", "inf2"))


def _host_wall(entry: Entry) -> bool:
    """Whether the host's time is all there is: copies, dispatch and, per call, no amortisation."""
    measures = entry.measures.lower()
    return re.search(r"(?<!no )host|wall", measures) is not None and "device wait" not in measures


def _version(words: str) -> str | None:
    """The kind of a version that some words end in, with any separators."""
    plain = re.sub(r"[ -]", "_", words)
    return next((kind for name, kind in _VERSIONS.items() if plain == name or plain.endswith(f"_{name}")), None)


def _sizes(entry: Entry) -> tuple[int, int, int]:
    if "d0" in entry.shapes:
        return entry.number("d0"), entry.number("d1"), entry.number("d2")
    if entry.get("M") is None and entry.get("n") is not None:
        return (entry.number("n"),) * 3
    return entry.number("M", "m"), entry.number("K", "k"), entry.number("N", "n")


def _case(entry: Entry, m: int, k: int, n: int, dtype: str, predict: Callable[[], float], key: object) -> Case:
    size = _BYTES[dtype]
    target = load_target(entry.target)
    return Case(NAME, target.name, 2.0 * m * k * n, float(size * (m * k + k * n + m * n)), dtype, predict, key=key)


def _tutorial(entry: Entry, version: str, *, old: bool) -> Case:
    kind = _version(version)
    assert kind is not None
    m, k, n = _sizes(entry)
    dtype = entry.element("bf16")
    if dtype not in _BYTES or m % 128 or k % 128 or n % 512:
        raise Skip("sizes are no multiples of a tile, or a dtype the kernel lacks")
    target = load_target(entry.target)
    if old:
        rate = TUTORIAL_BYTES_PER_SECOND / target.dma_engines
        target = replace(target, dma_engine_bytes_per_second=rate)
    return _case(
        entry, m, k, n, dtype, lambda: launched(target, tutorial_ns(kind, m, k, n, dtype, target)),
        (kind, m, k, n, dtype, old),
    )  # fmt: skip


def tutorial_ns(kind: str, m: int, k: int, n: int, dtype: str, target: Target) -> float:
    """Program time of one of the tutorial's versions; long outer loops are continued at their steady pace."""

    def run(program: Program) -> float:
        return simulate(program, target).program_ns

    if kind == "tiled":
        return steady_ns(lambda c: run(matmul_tiled(128, k, 512 * c, dtype)), m // 128 * (n // 512), first=4, second=8)
    if kind == "hoisted":
        return steady_ns(lambda c: run(matmul_hoisted(128 * c, k, n, dtype)), m // 128, first=1, second=2)
    if kind == "block_free":
        if m % 256 or n % 1024:
            raise Skip("sizes are no multiples of a block")
        return steady_ns(lambda c: run(matmul_hoisted(256 * c, k, n, dtype, block=2)), m // 256, first=1, second=2)
    blocks = (min(2048, m), min(1024, k), min(1024, n))
    if m % blocks[0] or k % blocks[1] or n % blocks[2]:
        raise Skip("sizes are no multiples of a block")
    per_column = m // blocks[0]
    total = per_column * (n // blocks[2])
    return steady_ns(
        lambda c: run(matmul_blocked(blocks[0], k, blocks[2] * c, dtype, blocks=blocks)), total, first=1, second=2
    )


def _nkibench(entry: Entry, workload: str) -> Case | None:
    target = load_target(entry.target)
    name = workload.rsplit(maxsplit=1)[-1]
    kinds = ("matmul_k", "transpose_matmul", "rmsnorm_matmul", "add_rmsnorm_matmul", "matmul_add_rmsnorm", "lora",
        "swiglu", "bmm")  # fmt: skip
    if not name.startswith(kinds):
        return None
    if entry.element("fp32") != "fp32":
        raise Skip("a dtype the kernel lacks")
    for prefix in kinds[:5]:
        if name.startswith(prefix):
            m, k, n = _sizes(entry)
            predict = partial(_nkibench_ns, prefix, m, k, n, target)
            return _case(entry, m, k, n, "fp32", predict, (prefix, m, k, n))
    if name.startswith(("lora", "swiglu")):
        m, k, n = _sizes(entry)
        rank = entry.number("R") if name.startswith("lora") else 0
        if rank > 128:
            raise Skip("rank over 128")
        flops = 2.0 * m * (k * n + rank * (k + n)) if rank else 6.0 * m * k * n
        size = 4.0 * (m * k + k * n * (1 if rank else 3) + m * (n if rank else k) + rank * (k + n))
        return Case(
            NAME, target.name, flops, size, "fp32",
            lambda: launched(
                target, nkibench.lora(m, k, n, rank, target) if rank else nkibench.swiglu(m, k, n, target)
            ),
            key=("lora or swiglu", m, k, n, rank),
        )  # fmt: skip
    if name.startswith("bmm"):
        batch = entry.number("B", "batch")
        m, k, n = _sizes(entry)
        if k > 128:
            raise Skip("contraction longer than 128")
        product = nkibench.batched_softmax if name.startswith("bmm_softmax") else nkibench.batched_matmul
        return Case(
            NAME, target.name, 2.0 * batch * m * k * n, 4.0 * batch * (m * k + k * n + m * n), "fp32",
            lambda: launched(target, product(batch, m, k, n, target)), key=(name.split("_b")[0], batch, m, k, n),
        )  # fmt: skip
    return None


def _nkibench_ns(name: str, m: int, k: int, n: int, target: Target) -> float:
    if name.endswith("matmul_k") or name == "transpose_matmul":
        return launched(target, nkibench.matmul(m, k, n, target, rows_first=name != "transpose_matmul"))
    time = nkibench.normalized_matmul(m, k, n, target, add="add" in name, after=name == "matmul_add_rmsnorm")
    return launched(target, time)
