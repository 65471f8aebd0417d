"""The order of instructions: iterations of a kernel overlap like the stages of a pipeline.

Engines are in order, so an instruction that waits for another engine blocks everything behind it. Each instruction
gets a stage: one
more than what it waits for on another engine. Stage s of iteration i is issued with stage s-1 of iteration i+1, so by
then its input is there. DMA loads need no such help: Sync, which triggers them, has nothing else to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neuroncore.compiler.rolled import Item, Iteration, Rolled, every_iteration, overlap, written
from neuroncore.compiler.tile import Estimated, Tiled
from neuroncore.errors import VerifyError
from neuroncore.isa import INSTRUCTIONS, Access, Instruction, Loop

__all__ = ["Ordered", "pipeline"]


@dataclass(frozen=True)
class Ordered:
    """Instructions and loops per kernel in issue order, and the estimates between them."""

    tiled: Tiled
    segments: tuple[tuple[Instruction | Loop, ...] | Estimated, ...]


def pipeline(tiled: Tiled) -> Ordered:
    """Order the instructions of every block.

    Raises:
        VerifyError: the new order would let an instruction see another value than before.
    """
    segments: list[tuple[Instruction | Loop, ...] | Estimated] = []
    tensors = {t.name for t in tiled.tensors}
    for block in tiled.blocks:
        if isinstance(block, Estimated):
            segments.append(block)
            continue
        items = _staged(block.iterations)
        deepest = 1 + max((stage for it in every_iteration(items) for _, stage in it), default=0)
        for depth in range(min(6, deepest), 0, -1):
            if _same_values(block.prologue, items, depth, tensors):
                break
        else:
            raise VerifyError(f"{tiled.name}: kernel {block.kernel} reads other values after pipelining")
        segments.append((*block.prologue, *overlap(items, depth)))
    return Ordered(tiled, tuple(segments))


def _staged(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The items with every stage found."""
    return tuple(
        replace(item, items=_staged(item.items))
        if isinstance(item, Rolled)
        else tuple(zip((i for i, _ in item), _stages(item), strict=True))
        for item in items
    )


def _stages(iteration: Iteration) -> list[int]:
    """Pipeline stage of each instruction of one iteration."""
    made: dict[str, tuple[int, str]] = {}  # tile → stage and engine of its last writer, "" for a load
    stages = []
    for item, given in iteration:
        if isinstance(item, Loop):  # its instructions have the stage the tiler gave
            stages.append(given)
            continue
        instruction, stage = item, given
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


def _same_values(prologue: Sequence[Instruction], items: tuple[Item, ...], depth: int, tensors: set[str]) -> bool:
    """Whether on every tile reads and writes alternate as before: what was read after a write still is.

    Tiles are told apart by name, so a loop's rounds are alike; as an iteration meets at most `depth` - 1 others, a few
    rounds tell about all.
    """
    rounds = every_iteration(items, depth + 2)
    iterations = [[(i, 0) for i in prologue], *(list(written(iteration)) for iteration in rounds)]
    most = min(depth - 1, max((stage for it in iterations for _, stage in it), default=0))
    epochs: list[list[list[tuple[str, int]]]] = []
    state: dict[str, tuple[int, bool]] = {}
    for iteration in iterations:
        epochs.append([])
        for instruction, _ in iteration:
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
            epochs[-1].append(mine)
    current: dict[str, int] = {}
    for time in range(len(iterations) + most):
        for stage in range(most + 1):
            number = time - stage
            if not 0 <= number < len(iterations):
                continue
            for (_, own), uses in zip(iterations[number], epochs[number], strict=True):
                if min(own, most) != stage:
                    continue
                for buffer, epoch in uses:
                    if epoch < current.get(buffer, 0):
                        return False
                    current[buffer] = epoch
    return True
