"""Recompute the calibrated launch costs: `python -m benchmarks.calibrate [--write]`.

The cost of launching an execution is what a published latency leaves after the simulated program:

* plain: CS149 vector add, stream FREE_DIM=200 (15 us on trn2's NeuronCore, 19 us on trn1's), minus its program;
* profiled: the aten::mul row of the walk-through (1164.5 us for three calls under DEVICE+RUNTIME capture), minus the
  mean program of its three multiplications. No other row of the walk-through is used, so all others are predictions.

It also recomputes what the DMA engines moved in the matmul tutorial of an old compiler (`TUTORIAL_BYTES_PER_SECOND`,
version "tiled" on trn1).
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path

import neuroncore.targets
from neuroncore.targets import load_target
from neuroncore.timing import simulate

from benchmarks.accuracy.families.matmul import TUTORIAL_BYTES_PER_SECOND, tutorial_ns
from benchmarks.graphs import multiplications
from benchmarks.kernels.vector import vector_add

__all__ = ["calibrated", "tutorial_bytes_per_second"]

#: tut-matmul-trn1-tiled (calibrate).
TILED_NS, TILED_SIZES = 51.8e6, (4096, 8192, 8192)
PLAIN_LATENCY_NS = {"trn2": 15_000, "trn1": 19_000}
MUL_ROW_NS = 1_164_500


def calibrated() -> dict[tuple[str, str], int]:
    """The values of the calibrated keys of the target files, by (target, key)."""
    kernel = vector_add(25600, 128, 200)
    values = {
        (name, "launch_cost_plain_ns"): latency_ns - simulate(kernel, load_target(name)).program_ns
        for name, latency_ns in PLAIN_LATENCY_NS.items()
    }
    programs = [simulate(program, load_target("trn2")).program_ns for program in multiplications()]
    values["trn2", "launch_cost_profiled_ns"] = round((MUL_ROW_NS - sum(programs)) / len(programs))
    return values


def tutorial_bytes_per_second() -> float:
    """The rate at which the tutorial's version "tiled" (4096 x 8192 x 8192, 51.8 ms) takes as long as published."""
    target = load_target("trn1")

    def time_ns(rate: float) -> float:
        slow = replace(target, dma_engine_bytes_per_second=rate / target.dma_engines)
        return tutorial_ns("tiled", *TILED_SIZES, "bf16", slow) + target.launch_cost_plain_ns

    low, high = 5e10, 4e11
    while high - low > 1e8:
        middle = (low + high) / 2
        low, high = (middle, high) if time_ns(middle) > TILED_NS else (low, middle)
    return (low + high) / 2


def _write(values: dict[tuple[str, str], int]) -> None:
    for (name, key), value in values.items():
        path = Path(neuroncore.targets.__file__).parent / f"{name}.toml"
        text = re.sub(rf"(\[{key}\]\nvalue = )[\d_]+", rf"\g<1>{value:_}", path.read_text())
        path.write_text(text)


def main() -> int:
    """Print file and recomputed values; with --write put the latter into the files."""
    parser = argparse.ArgumentParser(description="Recompute the calibrated launch costs.")
    parser.add_argument("--write", action="store_true", help="write them to the target files")
    options = parser.parse_args()
    values = calibrated()
    for (name, key), value in values.items():
        print(f"{name} {key:26} file {getattr(load_target(name), key):>8} ns   recomputed {value:>8} ns")
    print(f"TUTORIAL_BYTES_PER_SECOND {TUTORIAL_BYTES_PER_SECOND:.4g}, recomputed {tutorial_bytes_per_second():.4g}")
    if options.write:
        _write(values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
