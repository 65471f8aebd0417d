"""The full timing model (semaphores, DMA sharing, warm-up, table loads) on one core.

Rolled programs of growing length: `expand` unrolls the loops and derives the semaphores, `simulate` also prices every
written instruction and runs the streams against the clock, `tables` makes the profile's columns. The plain Python twin
of the model plays the shortest program in the same run and must give the same nanoseconds; `x twin` is relative to it.
CPU time, best of three; peak memory of the process so far.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

from neuroncore.compiler import compile_program
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.isa.columns import columns, native
from neuroncore.targets import load_target
from neuroncore.timing import simulate

NAME = "Simulated instructions per second"

_SIZES = (1024, 4096, 8192, 20480)


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


def run() -> list[dict[str, object]]:
    """Rows of the table."""
    if native() is None:
        raise RuntimeError("neuroncore._native is not built: run 'make setup'")
    target = load_target("trn2")
    rows: list[dict[str, object]] = []
    plain_rate = 0.0
    for size in _SIZES:
        program = compile_program(_product(size), target).program
        expand_s, _ = _cpu_seconds(lambda program=program: columns(program))
        simulate_s, timeline = _cpu_seconds(lambda program=program: simulate(program, target))
        tables_s, _ = _cpu_seconds(lambda t=timeline: (t.instruction_table(), t.dma_table()), 1)
        executed = program.executed
        if not rows:
            plain_s, plain = _cpu_seconds(lambda program=program: simulate(program, target, plain=True), 1)
            if plain.program_ns != timeline.program_ns:
                raise RuntimeError(f"the twins disagree: {plain.program_ns} and {timeline.program_ns} ns")
            plain_rate = executed / plain_s
        rows.append(
            {
                "bf16 product": f"{size}³",
                "instructions": executed,
                "written": sum(1 for _ in program.text()),
                "simulated ms": round(timeline.program_ns / 1e6, 3),
                "expand M/s": round(executed / expand_s / 1e6, 2),
                "simulate M/s": round(executed / simulate_s / 1e6, 2),
                "x twin": round(executed / simulate_s / plain_rate),
                "tables M/s": round(executed / tables_s / 1e6, 2),
                "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    return rows
