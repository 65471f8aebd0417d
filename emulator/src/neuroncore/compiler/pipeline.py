"""The order of instructions: iterations of a kernel overlap like the stages of a pipeline.

Engines are in order, so an instruction that waits for another engine blocks everything behind it. Each instruction
gets a stage: one
more than what it waits for on another engine. Stage s of iteration i is issued with stage s-1 of iteration i+1, so by
then its input is there. DMA loads need no such help: Sync, which triggers them, has nothing else to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from neuroncore.compiler.tile import Block, Estimated, Tiled
from neuroncore.errors import VerifyError
from neuroncore.isa import INSTRUCTIONS, Access, Instruction

__all__ = ["Ordered", "pipeline"]


@dataclass(frozen=True)
class Ordered:
    """Straight-line instructions per kernel in issue order, and the estimates between them."""

    tiled: Tiled
    segments: tuple[tuple[Instruction, ...] | Estimated, ...]


def pipeline(tiled: Tiled) -> Ordered:
    """Order the instructions of every block.

    Raises:
        VerifyError: the new order would let an instruction see another value than before.
    """
    segments: list[tuple[Instruction, ...] | Estimated] = []
    tensors = {t.name for t in tiled.tensors}
    for block in tiled.blocks:
        if isinstance(block, Estimated):
            segments.append(block)
            continue
        naive = [*block.prologue, *(i for iteration in block.iterations for i, _ in iteration)]
        for depth in (6, 5, 4, 3, 2, 1):
            ordered = [*block.prologue, *_overlapped(block, depth)]
            if depth == 1 or _same_values(naive, ordered, tensors):
                break
        if not _same_values(naive, ordered, tensors):
            raise VerifyError(f"{tiled.name}: kernel {block.kernel} reads other values after pipelining")
        segments.append(tuple(ordered))
    return Ordered(tiled, tuple(segments))


def _overlapped(block: Block, depth: int) -> Iterator[Instruction]:
    """Stage s of iteration i at time i+s; within a time the youngest iteration first."""
    staged: list[dict[int, list[Instruction]]] = []
    most = 0
    for iteration in block.iterations:
        by_stage: dict[int, list[Instruction]] = {}
        for instruction, stage in zip((i for i, _ in iteration), _stages(iteration), strict=True):
            by_stage.setdefault(min(stage, depth - 1), []).append(instruction)
        most = max(most, *by_stage)
        staged.append(by_stage)
    for time in range(len(staged) + most):
        for stage in range(most + 1):
            if 0 <= time - stage < len(staged):
                yield from staged[time - stage].get(stage, ())


def _stages(iteration: Sequence[tuple[Instruction, int]]) -> list[int]:
    """Pipeline stage of each instruction of one iteration."""
    made: dict[str, tuple[int, str]] = {}  # tile → stage and engine of its last writer, "" for a load
    stages = []
    for instruction, given in iteration:
        stage = given
        reads, writes = _accesses(instruction)
        if given < 0:
            stage = 0
            for access in reads:
                before = made.get(access.buffer)
                if before is None:
                    continue
                other = before[1] not in ("", instruction.engine) or (bool(instruction.queue) and before[1] != "")
                stage = max(stage, before[0] + int(other))
            for access in writes:  # a slot written twice in an iteration keeps its order
                if access.buffer in made:
                    stage = max(stage, made[access.buffer][0])
        for access in writes:
            made[access.buffer] = (stage, "" if instruction.queue else instruction.engine)
        stages.append(stage)
    return stages


def _accesses(instruction: Instruction) -> tuple[list[Access], list[Access]]:
    roles = _ROLES[instruction.opcode]
    reads, writes = [], []
    for name, value in instruction.operands:
        if type(value) is Access:
            role = roles[name]
            if role != "write":
                reads.append(value)
            if role != "read":
                writes.append(value)
    return reads, writes


_ROLES = {name: {o.name: o.role for o in spec.operands} for name, spec in INSTRUCTIONS.items()}


def _same_values(naive: Sequence[Instruction], ordered: Sequence[Instruction], tensors: set[str]) -> bool:
    """Whether on every tile reads and writes alternate as before: what was read after a write still is."""
    epochs: dict[int, list[tuple[str, int]]] = {}
    state: dict[str, tuple[int, bool]] = {}
    for instruction in naive:
        mine: list[tuple[str, int]] = []
        reads, writes = _accesses(instruction)
        for accesses, writing in ((reads, False), (writes, True)):
            for access in accesses:
                if access.buffer in tensors:
                    continue
                epoch, was_writing = state.get(access.buffer, (0, writing))
                if was_writing != writing:
                    epoch += 1
                state[access.buffer] = (epoch, writing)
                mine.append((access.buffer, epoch))
        epochs[id(instruction)] = mine
    current: dict[str, int] = {}
    for instruction in ordered:
        for buffer, epoch in epochs[id(instruction)]:
            if epoch < current.get(buffer, 0):
                return False
            current[buffer] = epoch
    return True
