"""Whether instructions in another order compute the same: every read sees the writes that it saw before.

Attention's tilers give their own issue order, with phases of neighbouring steps between each other. What it must equal
is each step by itself, one after the other. Semaphores only keep the order that is given, so a slot that is written
again too early would give wrong numbers in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neuroncore.errors import VerifyError
from neuroncore.isa import INSTRUCTIONS, Access, Instruction

__all__ = ["Issued", "check_order"]

_ROLES = {name: {o.name: o.role for o in spec.operands} for name, spec in INSTRUCTIONS.items()}
#: Instructions that are checked, from the start and at the end: slots repeat long before.
_FIRST, _LAST = 6000, 2000


@dataclass(frozen=True)
class Issued:
    """An instruction, the step it belongs to and its place within that step."""

    instruction: Instruction
    step: int
    place: int


def check_order(issued: Sequence[Issued], tiles: frozenset[str], where: str) -> None:
    """Compare the order of issue with steps one after the other.

    Args:
        issued: in the order of issue.
        tiles: names of what is on chip; order in HBM follows from it.
        where: for the message.

    Raises:
        VerifyError: an instruction would read another value than step by step.
    """
    windows = [issued] if len(issued) <= _FIRST + _LAST else [issued[:_FIRST], issued[-_LAST:]]
    for window in windows:
        numbers = range(len(window))
        apart = sorted(numbers, key=lambda n, window=window: (window[n].step, window[n].place))  # type: ignore[misc]
        expected, actual = _sources(window, apart, tiles), _sources(window, numbers, tiles)
        if expected == actual:
            continue
        number = next(n for n in numbers if expected[n] != actual[n])
        buffer = next(b for (b, e), (_, a) in zip(expected[number], actual[number], strict=True) if e != a)
        one = window[number]
        raise VerifyError(
            f"{where}: {one.instruction.opcode} of step {one.step} would read another value of {buffer} than the step "
            "by itself: a slot is written again too early, or its value comes too late"
        )


_Region = tuple[int, int, int, int]


def _sources(
    issued: Sequence[Issued], order: Iterable[int], tiles: frozenset[str]
) -> dict[int, list[tuple[str, frozenset[int]]]]:
    """For every instruction, of each tile it reads the numbers of those that wrote what it sees."""
    written: dict[str, list[tuple[_Region, int]]] = {}
    found: dict[int, list[tuple[str, frozenset[int]]]] = {}
    for number in order:
        instruction = issued[number].instruction
        roles = _ROLES[instruction.opcode]
        fresh = instruction.get("accumulate") is False
        seen: list[tuple[str, frozenset[int]]] = []
        writes: list[tuple[str, _Region]] = []
        for name, access in instruction.operands:
            if type(access) is not Access or access.buffer not in tiles:
                continue
            region, role = _region(access), roles[name]
            if role != "write" and not (role == "update" and fresh):
                before = written.get(access.buffer, ())
                seen.append((access.buffer, frozenset(n for other, n in before if _meets(region, other))))
            if role != "read":
                writes.append((access.buffer, region))
        for buffer, region in writes:
            left = [(other, n) for other, n in written.get(buffer, ()) if not _covers(region, other)]
            written[buffer] = [*left, (region, number)]
        found[number] = seen
    return found


def _region(access: Access) -> _Region:
    """First and last partition and element; what a strided access leaves out counts as its own."""
    low = high = access.offset
    for stride, size in access.free:
        if stride >= 0:
            high += (size - 1) * stride
        else:
            low += (size - 1) * stride
    return access.start_partition, access.start_partition + access.partitions - 1, low, high


def _meets(a: _Region, b: _Region) -> bool:
    return a[0] <= b[1] and b[0] <= a[1] and a[2] <= b[3] and b[2] <= a[3]


def _covers(a: _Region, b: _Region) -> bool:
    return a[0] <= b[0] and b[1] <= a[1] and a[2] <= b[2] and b[3] <= a[3]
