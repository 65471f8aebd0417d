"""Whether hardware that is faster in one respect ever makes a program slower.

The distinct programs of a training step of every model of the coverage benchmark, and random programs of unrelated
instructions on all engines and queues, timed on trn2 and again with one number of the target better. `slower` counts
programs that take longer then, `at most` is the largest growth. Where queues share nothing and TensorE is always warm,
each step is a sum or maximum in a fixed order, and none may be slower (`not shared`).
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections.abc import Iterator

from neuroncore.isa import Program, ProgramBuilder
from neuroncore.runtime import compile_graph
from neuroncore.targets import Target, load_target
from neuroncore.timing import simulate

NAME = "Faster hardware, slower program"

#: What gets better: (field, factor).
FASTER = (
    ("hbm_bytes_per_second", 2.0), ("dma_engine_bytes_per_second", 1.5), ("tensor_clock_hz", 1.5),
    ("vector_clock_hz", 1.5), ("scalar_clock_hz", 1.5), ("gpsimd_clock_hz", 1.5), ("semaphore_ns", 0.5),
    ("dma_start_ns", 0.5), ("dma_done_ns", 0.5), ("dge_fixed_ns", 0.5), ("dma_queue_interval_ns", 0.5),
    ("activation_table_load_ns", 0.5),
)  # fmt: skip

_MOST_INSTRUCTIONS = 100_000


def better(target: Target, field: str, factor: float) -> Target:
    """The target with one number multiplied."""
    return dataclasses.replace(target, **{field: getattr(target, field) * factor})


def model_programs(sizes: tuple[str, ...] = ("tiny",)) -> Iterator[Program]:
    """The distinct programs of a training step of every model, eager and compiled."""
    from benchmarks.coverage import MODELS, step_graphs

    seen: set[str] = set()
    for name in MODELS:
        for size in sizes:
            for compiled in (False, True):
                for graph in step_graphs(name, size, compiled=compiled):
                    executable = compile_graph(graph, "trn2")
                    program = executable.program
                    if executable.hash not in seen and 0 < program.executed <= _MOST_INSTRUCTIONS:
                        seen.add(executable.hash)
                        yield program


def random_program(seed: int) -> Program:
    """Loads, stores, arithmetic and matmuls on eight tiles, in any order, on all engines and three queues."""
    dice = random.Random(seed)
    b = ProgramBuilder("random")
    x = b.tensor("x", (1024, 2048), "fp32", "inout")
    tiles = [b.sbuf(f"t{i}", 128, 2048, "fp32", i * 8192) for i in range(8)]
    bank = b.psum("bank", 128, 512, "fp32", 0)
    for _ in range(dice.randint(5, 60)):
        kind = dice.choice(("load", "load", "store", "copy", "copy", "apply", "matmul", "evict"))
        tile, other, width = dice.choice(tiles), dice.choice(tiles), dice.choice((64, 512, 2048))
        rows = x.rows(128 * dice.randrange(8), 128, (0, width))
        match kind:
            case "load":
                b.emit(
                    "dma_copy", engine=dice.choice(("Sync", "Scalar", "GpSimd")), dst=tile.columns(0, width), src=rows
                )
            case "store":
                b.emit("dma_copy", engine=dice.choice(("Sync", "Scalar")), dst=rows, src=tile.columns(0, width))
            case "copy":
                engine = dice.choice(("Vector", "Scalar", "GpSimd"))
                b.emit("tensor_copy", engine=engine, dst=tile.columns(0, width), data=other.columns(0, width))
            case "apply":
                op = dice.choice(("exp", "square", "tanh"))
                b.emit("activation", dst=tile.columns(0, width), data=other.columns(0, width), op=op)
            case "matmul":
                b.emit("nc_matmul", dst=bank, stationary=tile.columns(0, 128), moving=other.columns(0, 512))
            case "evict":
                b.emit("tensor_copy", engine=dice.choice(("Vector", "Scalar")), dst=tile.columns(0, 512), data=bank)
    return dataclasses.replace(b.build(), derived=True)


def alone(program: Program) -> Program:
    """The same with every transfer on one queue of SyncE: nothing is shared."""
    from neuroncore.isa import Instruction, Loop

    def moved(body: tuple[Instruction | Loop, ...]) -> tuple[Instruction | Loop, ...]:
        return tuple(
            dataclasses.replace(item, body=moved(item.body)) if isinstance(item, Loop)
            else dataclasses.replace(item, engine="Sync", queue="q") if item.queue else item
            for item in body
        )  # fmt: skip

    return dataclasses.replace(program, body=moved(program.body), derived=True)


def count(programs: list[Program], target: Target, field: str, factor: float, *, shared: bool) -> tuple[int, float]:
    """How many programs are slower on better hardware, and the largest growth (0.1 = 10 %)."""
    slower, most = 0, 0.0
    for program in programs:
        before = simulate(program, target).program_ns
        after = simulate(program, better(target, field, factor)).program_ns
        if after > before + (0 if shared else 1):
            slower += 1
            most = max(most, after / before - 1)
    return slower, most


def run(random_programs: int = 1000) -> list[dict[str, object]]:
    """Rows of the table."""
    target = load_target("trn2")
    warm = dataclasses.replace(target, tensor_warmup_rate=1.0)
    models = list(model_programs())
    drawn = [random_program(seed) for seed in range(random_programs)]
    lonely = [alone(program) for program in drawn]
    rows: list[dict[str, object]] = []
    for field, factor in FASTER:
        row: dict[str, object] = {"better": f"{field} ×{factor:g}"}
        for name, programs in ((f"{len(models)} of models", models), (f"{len(drawn)} random", drawn)):
            slower, most = count(programs, target, field, factor, shared=True)
            row |= {f"{name}: slower": slower, f"{name}: at most": f"{100 * most:.2f} %"}
        row["random, not shared: slower"] = count(lonely, warm, field, factor, shared=False)[0]
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    from benchmarks.__main__ import _markdown

    print(_markdown(run()))
