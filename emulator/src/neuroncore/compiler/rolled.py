"""Iterations of a kernel and loops of them: how tilers write programs that stay short however long they run.

A tiler emits the first rounds of a loop; `roll` sees what advances from one to the next and by how much. Iterations
carry their pipeline stages; `overlap` interleaves them as if the loops were written out, and keeps the loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from neuroncore.isa import Access, Instruction, Loop

__all__ = ["Item", "Iteration", "Rolled", "every_iteration", "is_round", "moved", "overlap", "roll", "written"]

#: The instructions and loops of one iteration, each with its pipeline stage (-1: to find).
Iteration = tuple[tuple[Instruction | Loop, int], ...]


@dataclass(frozen=True)
class Rolled:
    """`items` repeated `count` times; accesses whose steps name the loop advance each time."""

    name: str
    count: int
    items: tuple[Item, ...]


Item = Iteration | Rolled


def every_iteration(items: Iterable[Item], most: int | None = None) -> Iterator[Iteration]:
    """The iterations in order: written ones once (None), or loops unrolled up to `most` rounds, steps not applied."""
    for item in items:
        if isinstance(item, Rolled):
            for _ in range(1 if most is None else min(item.count, most)):
                yield from every_iteration(item.items, most)
        else:
            yield item


def written(iteration: Iterable[tuple[Instruction | Loop, int]]) -> Iterator[tuple[Instruction, int]]:
    """The instructions of an iteration as written, each with its stage."""
    for item, stage in iteration:
        for instruction in item.text() if isinstance(item, Loop) else (item,):
            yield instruction, stage


# -- rolling -----------------------------------------------------------------------------------------------------------


def roll(name: str, first: Sequence[Item], second: Sequence[Item], rounds: int) -> Rolled | None:
    """The loop whose first two rounds are given; None when they differ in more than offsets."""
    if len(first) != len(second):
        return None
    items = []
    for a, b in zip(first, second, strict=True):
        item = _between(name, a, b)
        if item is None:
            return None
        items.append(item)
    return Rolled(name, rounds, tuple(items))


def is_round(loop: Rolled, number: int, items: Sequence[Item]) -> bool:
    """Whether `items` are what the loop says about round `number`."""
    return _plain(_at(loop.items, loop.name, number)) == _plain(tuple(items))


def _plain(items: tuple[Item, ...], names: dict[str, str] | None = None) -> tuple[object, ...]:
    """What to compare: loops by their place instead of their name."""
    names = names or {}
    result: list[object] = []
    for item in items:
        if isinstance(item, Rolled):
            inner = {**names, item.name: str(len(names))}
            result.append((item.count, _plain(item.items, inner)))
        else:
            result.append(tuple((_renamed(i, names), stage) for i, stage in item))
    return tuple(result)


def _renamed(item: Instruction | Loop, names: dict[str, str]) -> Instruction | Loop:
    if isinstance(item, Loop):  # a loop inside an iteration is alone in naming its index
        inner = {**names, item.name: "*"}
        return Loop("*", item.count, tuple(_renamed(i, inner) for i in item.body))
    return _renamed_one(item, names)


def _renamed_one(instruction: Instruction, names: dict[str, str]) -> Instruction:
    def change(value: object) -> object:
        if isinstance(value, Access) and value.steps:
            return replace(value, steps=tuple((names.get(name, name), step) for name, step in value.steps))
        return value

    operands = tuple((name, change(value)) for name, value in instruction.operands)
    return replace(instruction, operands=operands) if operands != instruction.operands else instruction  # type: ignore[arg-type]


def _between(name: str, a: Item, b: Item) -> Item | None:
    """An item that is `a` in round 0 and `b` in round 1."""
    if isinstance(a, Rolled):
        if not isinstance(b, Rolled) or a.count != b.count or len(a.items) != len(b.items):
            return None
        items = []
        for x, y in zip(a.items, b.items, strict=True):
            item = _between(name, x, _named(y, b.name, a.name))
            if item is None:
                return None
            items.append(item)
        return replace(a, items=tuple(items))
    if isinstance(b, Rolled) or len(a) != len(b):
        return None
    result = []
    for (one, stage), (two, other) in zip(a, b, strict=True):
        made = _step(name, one, two) if stage == other else None
        if made is None:
            return None
        result.append((made, stage))
    return tuple(result)


def _named(item: Item, old: str, new: str) -> Item:
    if isinstance(item, Rolled):
        return replace(item, items=tuple(_named(i, old, new) for i in item.items))
    return tuple((_named_one(i, old, new), stage) for i, stage in item)


def _named_one(item: Instruction | Loop, old: str, new: str) -> Instruction | Loop:
    if isinstance(item, Loop):
        return replace(item, body=tuple(_named_one(i, old, new) for i in item.body))
    return _renamed_one(item, {old: new})


def _step(name: str, one: Instruction | Loop, two: Instruction | Loop) -> Instruction | Loop | None:
    if isinstance(one, Loop) or isinstance(two, Loop):
        if not isinstance(one, Loop) or not isinstance(two, Loop):
            return None
        if one.count != two.count or len(one.body) != len(two.body):
            return None
        body = []
        for a, b in zip(one.body, two.body, strict=True):
            made = _step(name, a, _named_one(b, two.name, one.name))
            if made is None:
                return None
            body.append(made)
        return replace(one, body=tuple(body))
    return _step_one(name, one, two)


def _step_one(name: str, one: Instruction, two: Instruction) -> Instruction | None:
    if one.opcode != two.opcode or one.engine != two.engine or one.queue != two.queue:
        return None
    if len(one.operands) != len(two.operands) or one.op != two.op:
        return None
    operands: list[tuple[str, object]] = []
    changed = False
    for (key, a), (other, b) in zip(one.operands, two.operands, strict=True):
        if key != other:
            return None
        if type(a) is Access and type(b) is Access and a.offset != b.offset:
            if replace(b, offset=a.offset) != a:
                return None
            operands.append((key, replace(a, steps=(*a.steps, (name, b.offset - a.offset)))))
            changed = True
            continue
        if a != b or type(a) is not type(b):
            return None
        operands.append((key, a))
    return replace(one, operands=tuple(operands)) if changed else one  # type: ignore[arg-type]


# -- substituting the index --------------------------------------------------------------------------------------------


def _at(items: tuple[Item, ...], name: str, value: int) -> tuple[Item, ...]:
    """The items in round `value` of loop `name`."""
    return tuple(_moved(item, name, value, fixed=True) for item in items)


def moved(loop: Rolled, rounds: int) -> Rolled:
    """The loop begun `rounds` rounds later; its count stays."""
    return replace(loop, items=tuple(_moved(item, loop.name, rounds, fixed=False) for item in loop.items))


def _moved(item: Item, name: str, by: int, *, fixed: bool) -> Item:
    """An item with `by` for the index of loop `name` (fixed), or added to it."""
    if isinstance(item, Rolled):
        return replace(item, items=tuple(_moved(i, name, by, fixed=fixed) for i in item.items))
    return tuple((_advanced(i, name, by, fixed=fixed), stage) for i, stage in item)


def _advanced(item: Instruction | Loop, name: str, by: int, *, fixed: bool) -> Instruction | Loop:
    if isinstance(item, Loop):
        return replace(item, body=tuple(_advanced(i, name, by, fixed=fixed) for i in item.body))
    return _advanced_one(item, name, by, fixed=fixed)


def _advanced_one(instruction: Instruction, name: str, by: int, *, fixed: bool) -> Instruction:
    changed = False
    operands = []
    for key, value in instruction.operands:
        if type(value) is Access and value.steps:
            moved = sum(step * by for loop, step in value.steps if loop == name)
            if moved or fixed:
                steps = tuple(s for s in value.steps if s[0] != name) if fixed else value.steps
                value = replace(value, offset=value.offset + moved, steps=steps)  # noqa: PLW2901
                changed = True
        operands.append((key, value))
    return replace(instruction, operands=tuple(operands)) if changed else instruction


# -- overlapping -------------------------------------------------------------------------------------------------------


def overlap(items: tuple[Item, ...], depth: int) -> tuple[Instruction | Loop, ...]:
    """Stage s of iteration i with stage 0 of iteration i+s; among those issued together the youngest iteration first.

    A loop's first rounds are written out where their windows reach back over its beginning; the others stay a loop.
    Stages from `depth` on count as `depth` - 1.
    """
    body: list[Instruction | Loop] = []
    history: list[Iteration] = []
    most = min(depth - 1, max((stage for it in every_iteration(items) for _, stage in it), default=0))
    _windows(items, most, history, body)
    for _ in range(most):  # what is left in the pipeline
        _window((), most, history, body)
    return tuple(body)


def _windows(items: Iterable[Item], most: int, history: list[Iteration], body: list[Instruction | Loop]) -> None:
    """Issue items; `history` holds the last iterations before, most recent first, and is kept so."""
    for item in items:
        if not isinstance(item, Rolled):
            _window(item, most, history, body)
            continue
        length = _length(item.items)
        peeled = min(item.count, -(-most // length)) if length else item.count
        for number in range(peeled):
            _windows(_at(item.items, item.name, number), most, history, body)
        left = item.count - peeled
        if not left:
            continue
        if left == 1:
            _windows(_at(item.items, item.name, peeled), most, history, body)
            continue
        before: list[Iteration] = []
        number = peeled - 1
        while len(before) < most:
            moved = tuple(_moved(i, item.name, number, fixed=False) for i in item.items)
            before += _last(moved, most - len(before))
            number -= 1
        inner: list[Instruction | Loop] = []
        _windows(tuple(_moved(i, item.name, peeled, fixed=False) for i in item.items), most, before, inner)
        body.append(Loop(item.name, left, tuple(inner)))
        history[:] = _last((item,), most)


def _window(item: Iteration, most: int, history: list[Iteration], body: list[Instruction | Loop]) -> None:
    history.insert(0, item)
    for stage, iteration in enumerate(history[: most + 1]):
        body.extend(i for i, own in iteration if min(own, most) == stage)
    del history[most:]


def _length(items: Iterable[Item]) -> int:
    """Number of iterations, loops unrolled."""
    return sum(i.count * _length(i.items) if isinstance(i, Rolled) else 1 for i in items)


def _last(items: tuple[Item, ...], count: int) -> list[Iteration]:
    """The last iterations, most recent first."""
    found: list[Iteration] = []
    for item in reversed(items):
        if isinstance(item, Rolled):
            for number in range(item.count - 1, -1, -1):
                if len(found) >= count:
                    break
                found += _last(_at(item.items, item.name, number), count - len(found))
        else:
            found.append(item)
        if len(found) >= count:
            break
    return found[:count]
