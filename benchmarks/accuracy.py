"""How far the timing model is from published measurements: `python -m benchmarks.accuracy [--json]`.

Each row is one published measurement, predicted by simulating the same kernel written in our instruction set, plus
the target's launch cost of that capture mode. Rows marked "fit" gave the model a parameter. Rows marked "seen" did not,
but were looked at while its mechanisms were chosen (DMA issue rate, matmul accumulation) or are the walk-through that
everybody here knew, so they are no blind test. All published values were at hand throughout; none was kept aside.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from neuroncore.isa import Program
from neuroncore.targets import load_target
from neuroncore.timing import simulate

from benchmarks.graphs import add, compiled, fused, mean, multiplications, rsqrt
from benchmarks.kernels import matmul_blocked, matmul_hoisted, matmul_tiled, vector_add

__all__ = ["CASES", "NAME", "Case", "Row", "predict", "run"]


@dataclass(frozen=True)
class Case:
    """A published measurement and the kernel that it measured.

    Attributes:
        id: of the entry in measurements.json.
        published_us: its value, used when no file is given.
        programs: what ran, one execution each.
        fitted: whether a parameter of the target was fitted on it.
        seen: whether it was looked at while the model's mechanisms were chosen, so that it is no blind prediction.
        profiled: whether DEVICE and RUNTIME streams were captured, which makes every launch dearer.
    """

    id: str
    target: str
    published_us: float
    programs: Callable[[], list[Program]]
    fitted: bool = False
    seen: bool = False
    profiled: bool = False

    @property
    def kind(self) -> str:
        """How far the row is evidence: fit, seen, or prediction."""
        return "fit" if self.fitted else "seen" if self.seen else "prediction"


@dataclass(frozen=True)
class Row:
    """A prediction beside its measurement."""

    id: str
    target: str
    published_us: float
    predicted_us: float
    error_percent: float
    kind: str
    instructions: int
    seconds: float


_SHAPE = (4096, 8192, 8192)

CASES = (
    Case("cs149-vadd-ROW_CHUNK=1", "trn2", 37308, lambda: [vector_add(25600, 1, 1)], fitted=True),
    Case("cs149-vadd-ROW_CHUNK=128", "trn2", 378, lambda: [vector_add(25600, 128, 1)], fitted=True),
    Case("cs149-vadd-stream_FREE_DIM=2", "trn2", 186, lambda: [vector_add(25600, 128, 2)]),
    Case("cs149-vadd-stream_FREE_DIM=200", "trn2", 15, lambda: [vector_add(25600, 128, 200)], fitted=True),
    Case("cs149-vadd-256000-2000", "trn2", 28, lambda: [vector_add(256000, 128, 2000)], seen=True),
    Case("cs149-vadd-256000-1000", "trn2", 26, lambda: [vector_add(256000, 128, 1000)], seen=True),
    Case("cs149t1-vadd-naive_rows", "trn1", 27404, lambda: [vector_add(25600, 1, 1)], fitted=True),
    Case("cs149t1-vadd-floor", "trn1", 19, lambda: [vector_add(25600, 128, 200)], fitted=True),
    Case("cs149t1-vadd-profile_2000", "trn1", 34, lambda: [vector_add(256000, 128, 2000)]),
    Case("cs149t1-vadd-profile_1000", "trn1", 29, lambda: [vector_add(256000, 128, 1000)]),
    Case("tut-matmul-trn2-v2", "trn2", 39890, lambda: [matmul_tiled(*_SHAPE, "fp32")], seen=True),
    Case("tut-matmul-trn2-v3", "trn2", 28200, lambda: [matmul_hoisted(*_SHAPE, "fp32")], seen=True),
    Case("tut-matmul-trn2-v4", "trn2", 28410, lambda: [matmul_hoisted(*_SHAPE, "fp32", block=2)], seen=True),
    Case("tut-matmul-trn2-v5", "trn2", 28300, lambda: [matmul_blocked(*_SHAPE, "fp32")], seen=True),
    Case("own-rmsnorm-eager-mul", "trn2", 1164.5, multiplications, fitted=True, profiled=True),
    Case("own-rmsnorm-eager-add", "trn2", 434.6, add, seen=True, profiled=True),
    Case("own-rmsnorm-eager-rsqrt", "trn2", 415.0, rsqrt, seen=True, profiled=True),
    Case("own-rmsnorm-eager-mean", "trn2", 340.8, mean, seen=True, profiled=True),
    Case("own-rmsnorm-fused", "trn2", 403.3, fused, seen=True, profiled=True),
    Case("own-rmsnorm-compiled", "trn2", 375.5, compiled, seen=True, profiled=True),
)

_UNIT_US = {"us": 1.0, "us total device time": 1.0, "ms": 1000.0, "ns": 0.001}


def predict(case: Case, published_us: float | None = None) -> Row:
    """Simulate one case."""
    target = load_target(case.target)
    programs = case.programs()
    began = time.perf_counter()
    program_ns = sum(simulate(program, target).program_ns for program in programs)
    seconds = time.perf_counter() - began
    launch_ns = target.launch_cost_profiled_ns if case.profiled else target.launch_cost_plain_ns
    predicted = (program_ns + launch_ns * len(programs)) / 1000
    published = case.published_us if published_us is None else published_us
    error = 100 * (predicted / published - 1)
    instructions = sum(len(program.body) for program in programs)
    return Row(case.id, case.target, published, predicted, error, case.kind, instructions, seconds)


def _published(path: Path) -> dict[str, float]:
    """Published values in microseconds by id, from a measurements file."""
    entries = json.loads(path.read_text())["measurements"]
    return {e["id"]: e["value"] * _UNIT_US[e["unit"]] for e in entries if e.get("unit") in _UNIT_US}


NAME = "Predicted against published latencies"


def run() -> list[dict[str, object]]:
    """Every case, as rows of one table."""
    return [
        {
            "measurement": row.id,
            "target": row.target,
            "published us": f"{row.published_us:.1f}",
            "predicted us": f"{row.predicted_us:.1f}",
            "error": f"{row.error_percent:+.1f} %",
            "kind": row.kind,
            "instructions": row.instructions,
        }
        for row in map(predict, CASES)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the table; exit 1 when a row is more than `--limit` percent off."""
    parser = argparse.ArgumentParser(description="Published against predicted latencies.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--measurements", type=Path, help="measurements.json to take the published values from")
    parser.add_argument("--only", default="", help="only ids that contain this")
    parser.add_argument("--limit", type=float, default=15.0, help="largest error accepted, in percent")
    options = parser.parse_args(arguments)
    published = _published(options.measurements) if options.measurements else {}
    rows = [predict(case, published.get(case.id)) for case in CASES if options.only in case.id]
    if options.json:
        json.dump([asdict(row) for row in rows], sys.stdout, indent=1)
        print()
    else:
        print(
            f"{'measurement':34} {'target':6} {'published us':>13} {'predicted us':>13} {'error':>8}  {'kind':10}"
            f" {'instr':>7} {'simulated in':>12}"
        )
        for row in rows:
            print(
                f"{row.id:34} {row.target:6} {row.published_us:13.1f} {row.predicted_us:13.1f}"
                f" {row.error_percent:+7.1f}%  {row.kind:10}"
                f" {row.instructions:7} {row.seconds:10.2f} s"
            )
    return int(any(abs(row.error_percent) > options.limit for row in rows))


if __name__ == "__main__":
    sys.exit(main())
