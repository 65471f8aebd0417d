"""Recompute the calibrated launch costs of trn2: `python -m benchmarks.calibrate [--write]`.

The cost of launching an execution is what a published latency leaves after the simulated program:

* plain: CS149 vector add, stream FREE_DIM=200 (15 us on the NeuronCore), minus its program;
* profiled: the aten::mul row of the walk-through (1164.5 us for three calls under DEVICE+RUNTIME capture), minus the
  mean program of its three multiplications. No other row of the walk-through is used, so all others are predictions.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import neuroncore.targets
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.runtime import compile_graph
from neuroncore.targets import load_target
from neuroncore.timing import simulate

from benchmarks.kernels import vector_add

__all__ = ["calibrated", "multiplications"]

TARGET = "trn2"
PLAIN_LATENCY_NS = 15_000
MUL_ROW_NS = 1_164_500
MUL_CALLS = 3


def multiplications() -> list[Graph]:
    """The three eager multiplications of the walk-through's naive RMSNorm: x*x, x*rsqrt(…), …*weight."""
    x, column, weight = (TensorSpec(s, "bf16", t) for s, t in (((4, 512), (512, 1)), ((4, 1), (1, 1)), ((512,), (1,))))
    pairs = (((x,), (0, 0)), ((x, column), (0, 1)), ((x, weight), (0, 1)))
    return [
        Graph(
            "aten::mul",
            inputs,
            (Node("aten.mul.Tensor", tuple(Value(-1, i) for i in operands), (), (x,)),),
            (Value(0, 0),),
        )
        for inputs, operands in pairs
    ]


def calibrated() -> dict[str, int]:
    """The values of the calibrated keys of the trn2 target file."""
    plain = simulate(vector_add(25600, 128, 200), load_target(TARGET)).program_ns
    programs = [compile_graph(graph, TARGET) for graph in multiplications()]
    estimated = [p.name for p in programs if p.estimated_ns]
    if estimated:
        raise SystemExit("calibrate: a multiplication is only estimated, not lowered; fix the compiler first")
    mean = sum(p.program_ns for p in programs) / MUL_CALLS
    return {
        "launch_cost_plain_ns": PLAIN_LATENCY_NS - plain,
        "launch_cost_profiled_ns": round(MUL_ROW_NS / MUL_CALLS - mean),
    }


def _write(values: dict[str, int]) -> None:
    path = Path(neuroncore.targets.__file__).parent / f"{TARGET}.toml"
    text = path.read_text()
    for key, value in values.items():
        text = re.sub(rf"(\[{key}\]\nvalue = )[\d_]+", rf"\g<1>{value:_}", text)
    path.write_text(text)


def main() -> int:
    """Print file and recomputed values; with --write put the latter into the file."""
    parser = argparse.ArgumentParser(description="Recompute the calibrated launch costs.")
    parser.add_argument("--write", action="store_true", help="write them to the target file")
    options = parser.parse_args()
    target = load_target(TARGET)
    values = calibrated()
    for key, value in values.items():
        print(f"{key:26} file {getattr(target, key):>8} ns   recomputed {value:>8} ns")
    if options.write:
        _write(values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
