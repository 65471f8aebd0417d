"""The full timing model (semaphores, DMA sharing, warm-up, table loads) on one core.

Rolled programs of growing length: `expand` unrolls the loops and derives the semaphores, `simulate` also prices every
written instruction and runs the streams against the clock, `tables` makes the profile's columns. The plain Python twin
of the model plays the shortest program in the same run and must give the same nanoseconds; `x twin` is relative to it.
CPU time, best of three; each program in a process of its own, so that its peak memory can be told.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuroncore.compiler import compile_program
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.isa.columns import columns, native
from neuroncore.targets import load_target
from neuroncore.timing import simulate

from benchmarks._memory import peak_bytes

NAME = "Simulated instructions per second"

_SIZES = (1024, 2048, 4096, 8192, 20480)


def _product(size: int) -> Graph:
    """A square bf16 matrix product, the second operand given transposed, as a linear layer has it."""
    spec = TensorSpec((size, size), "bf16", (size, 1))
    node = Node("aten.linear.default", (Value(-1, 0), Value(-1, 1)), (), (spec,))
    return Graph(f"linear {size}", (spec, spec), (node,), (Value(0, 0),))


def _cpu_seconds(work: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(times):
        begin = time.process_time()
        result = work()
        best = min(best, time.process_time() - begin)
    return best, result


def _one(size: int) -> dict[str, Any]:
    """A row of the table; of the shortest program also the rate of the plain twin."""
    if native() is None:
        raise RuntimeError("neuroncore._native is not built: run 'make setup'")
    target = load_target("trn2")
    program = compile_program(_product(size), target).program
    expand_s, _ = _cpu_seconds(lambda: columns(program))
    simulate_s, timeline = _cpu_seconds(lambda: simulate(program, target))
    tables_s, _ = _cpu_seconds(lambda: (timeline.instruction_table(), timeline.dma_table()), 1)
    peak, executed = peak_bytes(), program.executed
    row = {
        "bf16 product": f"{size}³",
        "instructions": executed,
        "written": sum(1 for _ in program.text()),
        "simulated ms": round(timeline.program_ns / 1e6, 3),
        "expand M/s": round(executed / expand_s / 1e6, 2),
        "simulate M/s": round(executed / simulate_s / 1e6, 2),
        "x twin": 0,
        "tables M/s": round(executed / tables_s / 1e6, 2),
        "peak MB": round(peak / 1e6),
    }
    if size == _SIZES[0]:
        plain_s, plain = _cpu_seconds(lambda: simulate(program, target, plain=True), 1)
        if plain.program_ns != timeline.program_ns:
            raise RuntimeError(f"the twins disagree: {plain.program_ns} and {timeline.program_ns} ns")
        row["plain rate"] = executed / plain_s
    return row | {"rate": executed / simulate_s}


def run() -> list[dict[str, object]]:
    """Rows of the table."""
    rows: list[dict[str, Any]] = []
    for size in _SIZES:
        command = [sys.executable, "-m", "benchmarks.simulator", str(size)]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{size}: {done.stderr[-2000:]}")
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    twin = rows[0].pop("plain rate")
    for row in rows:
        row["x twin"] = round(row.pop("rate") / twin)
    return list(rows)


if __name__ == "__main__":
    print(json.dumps(_one(int(sys.argv[1]))))
