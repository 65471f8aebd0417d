"""Whether instructions in another order compute the same: every read sees the latest writes that it saw before.

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
    windows = [issued]
    if len(issued) > _FIRST + _LAST:
        windows = [_whole_steps(issued[:_FIRST], issued[_FIRST:]), _whole_steps(issued[-_LAST:], issued[:-_LAST])]
    for window in windows:
        numbers = range(len(window))
        apart = sorted(numbers, key=lambda n, window=window: (window[n].step, window[n].place))  # type: ignore[misc]
        expected, actual = _sources(window, apart, tiles), _sources(window, numbers, tiles)
        for number in numbers:
            for wanted, given in zip(expected[number], actual[number], strict=True):
                if not wanted.meant <= given.seen:
                    one = window[number]
                    raise VerifyError(
                        f"{where}: {one.instruction.opcode} of step {one.step} would read another value of "
                        f"{wanted.buffer} than the step by itself: a slot is written again too early, or its value "
                        "comes too late"
                    )


def _whole_steps(window: Sequence[Issued], beyond: Sequence[Issued]) -> list[Issued]:
    """The steps that lie in a window: what is beyond it may write what the others read, or read what they write."""
    cut = {one.step for one in beyond}
    return [one for one in window if one.step not in cut]


_Region = tuple[int, int, int, int]


@dataclass(frozen=True)
class _Source:
    """What an instruction reads of a tile: the writes whose bytes it sees, and those that it is for.

    Beside what a read is for it may see left-overs, and whose they are does not matter. It is for what was written
    since the tile was last read, or, where that is nothing, for the latest write.
    """

    buffer: str
    seen: frozenset[int]
    meant: frozenset[int]


def _sources(issued: Sequence[Issued], order: Iterable[int], tiles: frozenset[str]) -> dict[int, list[_Source]]:
    """For every instruction, of each tile it reads what it sees in an order."""
    written: dict[str, list[tuple[_Region, int]]] = {}
    fresh: dict[str, set[int]] = {}
    found: dict[int, list[_Source]] = {}
    for number in order:
        instruction = issued[number].instruction
        roles = _ROLES[instruction.opcode]
        starts = instruction.get("accumulate") is False
        sources: list[_Source] = []
        writes: list[tuple[str, _Region]] = []
        for name, access in instruction.operands:
            if type(access) is not Access or access.buffer not in tiles:
                continue
            region, role = _region(access), roles[name]
            if role != "write" and not (role == "update" and starts):
                seen = [n for other, n in written.get(access.buffer, ()) if _meets(region, other)]
                meant = fresh.get(access.buffer, set()).intersection(seen) or set(seen[-1:])
                sources.append(_Source(access.buffer, frozenset(seen), frozenset(meant)))
            if role != "read":
                writes.append((access.buffer, region))
        for source in sources:
            fresh.pop(source.buffer, None)
        for buffer, region in writes:
            left = [(other, n) for other, n in written.get(buffer, ()) if not _covers(region, other)]
            written[buffer] = [*left, (region, number)]
            fresh.setdefault(buffer, set()).add(number)
        found[number] = sources
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
