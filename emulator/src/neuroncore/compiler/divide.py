"""Kernels for the physical cores of a logical one: each kernel's work in parts that share nothing, then a barrier.

A product is divided by its batches, rows or columns, attention by heads, a convolution by images or channels: each core
tiles its part as a kernel of its own. Others are divided between the iterations of their tiles. What can't be divided,
or takes longer divided, stays on the first core, so that no kernel is slower for it.

How the hardware's compiler divides programs is not public beyond "independent halves with barriers"
(reference/hw/compile_rules.md section 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from neuroncore.compiler.allocate import allocate
from neuroncore.compiler.fuse import Kernel, Kernels
from neuroncore.compiler.ir import Attend, AttendGradient, Contract, Convolve, Map, Move, Prim
from neuroncore.compiler.lowering import map_views
from neuroncore.compiler.pipeline import pipeline
from neuroncore.compiler.rolled import Item, Iteration, Rolled, every_iteration, moved, written
from neuroncore.compiler.tile import Block, Estimated, Tiled, tile
from neuroncore.compiler.views import View
from neuroncore.isa import INSTRUCTIONS, Access, Instruction, Program
from neuroncore.isa.cores import Divided, Section
from neuroncore.targets import Target
from neuroncore.timing import simulate
from neuroncore.timing.cores import CORE_BARRIER_NS

__all__ = ["divide"]

#: A part of fewer rows or columns would not fill the partitions.
_LEAST_ROWS = 128


def divide(kernels: Kernels, target: Target, cores: int) -> Divided | None:
    """Divide fused kernels over the cores of a logical core.

    Args:
        kernels: what the pass `fuse` leaves.
        target: whose cores they are.
        cores: how many physical ones.

    Returns:
        None where a kernel is an estimate: nobody knows how to divide it.
    """
    sections = []
    for kernel in kernels.kernels:
        whole = _programs(kernels, [kernel], target)
        if whole is None:
            return None
        if not whole[0].executed:
            continue
        options: list[list[Program]] = [whole]
        if cores > 1:
            shares = _shares(kernel, cores)
            divided = _programs(kernels, shares, target) if shares else None
            divided = divided or _by_iterations(kernels, kernel, target, cores)
            options += [divided] if divided else []
        fastest = min(options, key=lambda one: _time_ns(one, target))
        sections.append(Section(kernel.kind, tuple(fastest)))
    return Divided(cores, tuple(sections))


def _time_ns(programs: Sequence[Program], target: Target) -> int:
    barrier_ns = CORE_BARRIER_NS if len(programs) > 1 else 0
    return max(simulate(program, target).program_ns for program in programs) + barrier_ns


def _programs(kernels: Kernels, shares: Sequence[Kernel], target: Target) -> list[Program] | None:
    """Each share as a program; None where one has no instructions."""
    programs = []
    for share in shares:
        tiled = allocate(tile(replace(kernels, kernels=(share,)), target), target)
        if any(isinstance(block, Estimated) for block in tiled.blocks):
            return None
        programs.append(_program(tiled))
    return programs


def _program(tiled: Tiled) -> Program:
    segments = pipeline(tiled).segments
    body = tuple(item for segment in segments if not isinstance(segment, Estimated) for item in segment)
    return Program(tiled.name, tiled.tensors, tuple(t for kernel in tiled.tiles for t in kernel), body, derived=True)


# -- by what is computed -----------------------------------------------------------------------------------------------


def _shares(kernel: Kernel, cores: int) -> list[Kernel] | None:
    """The kernel on parts of its operands, one for each core."""
    first = kernel.prims[0]
    if isinstance(first, Contract):
        return _product(kernel, first, cores)
    if isinstance(first, Attend | AttendGradient):
        return _attention(kernel, first, cores)
    if isinstance(first, Convolve):
        return _convolution(kernel, first, cores)
    if len(kernel.prims) == 1 and isinstance(first, Move | Map) and kernel.kind in ("move", "turn"):
        return _copy(kernel, first, cores)
    return None


def _bounds(size: int, cores: int, step: int = 1) -> list[tuple[int, int]] | None:
    """Equal ranges of 0 .. size, each a multiple of `step` but the last."""
    length = -(-size // (cores * step)) * step
    ranges = [(start, min(start + length, size)) for start in range(0, size, length)]
    return ranges if len(ranges) == cores else None


def _product(kernel: Kernel, prim: Contract, cores: int) -> list[Kernel] | None:
    batches, rows, columns = prim.out.shape
    if batches >= cores and len(prim.a.shape) == len(prim.b.shape) == 3:
        axis, step = 0, 1
    elif rows >= cores * _LEAST_ROWS and rows >= columns:
        axis, step = 1, _LEAST_ROWS
    elif columns >= cores * _LEAST_ROWS:
        axis, step = 2, _LEAST_ROWS
    else:
        return None
    ranges = _bounds(prim.out.shape[axis], cores, step)
    epilogue = kernel.prims[1:]
    if ranges is None or not all(isinstance(p, Map) and _like(p, prim.out.shape) for p in epilogue):
        return None
    shares = []
    for low, high in ranges:
        a = prim.a.slice((0, -2, 0)[axis], low, high) if axis < 2 else prim.a
        b = prim.b.slice((0, 0, -1)[axis], low, high) if axis != 1 else prim.b
        one = replace(prim, a=a, b=b, out=prim.out.slice(axis, low, high))

        def part(value: object, low: int = low, high: int = high) -> object:
            return value.slice(len(value.shape) - 3 + axis, low, high) if isinstance(value, View) else value

        prims = (one, *(map_views(p, part) for p in epilogue))
        shares.append(replace(kernel, prims=prims, rows=one.out.shape[0] * one.out.shape[1], cols=one.out.shape[2]))
    return shares


def _like(prim: Prim, shape: tuple[int, ...]) -> bool:
    """Whether a map behind a product looks at everything as [batches, rows, columns], or without a single batch."""
    views = [v for v in (*prim.ins, prim.out) if isinstance(v, View)]  # type: ignore[union-attr]
    return all(v.shape == shape for v in views)


def _attention(kernel: Kernel, prim: Attend | AttendGradient, cores: int) -> list[Kernel] | None:
    axis = 0 if prim.q.shape[0] % cores == 0 else 1
    if prim.q.shape[axis] % cores or prim.k.shape[axis] % cores or len(kernel.prims) > 1:
        return None
    shares = []
    for core in range(cores):

        def part(value: object, core: int = core) -> object:
            if not isinstance(value, View):
                return value
            length = value.shape[axis] // cores
            return value.slice(axis, core * length, (core + 1) * length) if length else value

        shares.append(replace(kernel, prims=(map_views(prim, part),)))
    return shares


def _convolution(kernel: Kernel, prim: Convolve, cores: int) -> list[Kernel] | None:
    if len(kernel.prims) > 1:
        return None
    shares = []
    if prim.form != "weight" and prim.out.shape[0] >= cores:
        for low, high in _bounds(prim.out.shape[0], cores) or ():
            one = replace(prim, src=prim.src.slice(0, low, high), out=prim.out.slice(0, low, high))
            shares.append(replace(kernel, prims=(one,)))
    elif prim.form == "weight" and prim.out.shape[0] >= cores:
        for low, high in _bounds(prim.out.shape[0], cores) or ():
            one = replace(prim, weight=prim.weight.slice(1, low, high), out=prim.out.slice(0, low, high))
            shares.append(replace(kernel, prims=(one,)))
    return shares or None


def _copy(kernel: Kernel, prim: Move | Map, cores: int) -> list[Kernel] | None:
    shape = (prim.dst if isinstance(prim, Move) else prim.out).shape
    views = [prim.src, prim.dst] if isinstance(prim, Move) else [v for v in prim.ins if isinstance(v, View)]
    if not shape or any(v.shape != shape for v in views):
        return None
    axis = max(range(len(shape)), key=lambda a: shape[a])
    ranges = _bounds(shape[axis], cores, _LEAST_ROWS)
    if ranges is None:
        return None

    def share(low: int, high: int) -> Kernel:
        def part(value: object) -> object:
            return value.slice(axis, low, high) if isinstance(value, View) else value

        return replace(kernel, prims=(map_views(prim, part),))

    return [share(low, high) for low, high in ranges]


# -- between iterations ------------------------------------------------------------------------------------------------


def _by_iterations(kernels: Kernels, kernel: Kernel, target: Target, cores: int) -> list[Program] | None:
    """The kernel's tiles as they are, their iterations in parts that pass nothing on."""
    tiled = allocate(tile(replace(kernels, kernels=(kernel,)), target), target)
    if len(tiled.blocks) != 1 or not isinstance(tiled.blocks[0], Block):
        return None
    block = tiled.blocks[0]
    names = {t.name for t in tiled.tensors}
    text = [*block.prologue, *(i for it in every_iteration(block.iterations) for i, _ in written(it))]
    if any(i.opcode == "rng" or (i.get("index") is not None and i.get("index_side") == "dst") for i in text):
        return None  # drawn in order, or put where data says
    read = {a.buffer for i in text for a, reads, _ in _accesses(i) if reads and a.buffer in names}
    wrote = {a.buffer for i in text for a, _, writes in _accesses(i) if writes and a.buffer in names}
    if read & wrote and not _in_place(block, read & wrote):
        return None
    total = sum(map(_weight, block.iterations))
    cuts = [_cut(block, total * core / cores) for core in range(1, cores)]
    if not all(cuts):
        return None
    bounds = [(0, 0), *(cut for cut in cuts if cut), (len(block.iterations), 0)]
    shares = [_between(block.iterations, a, b) for a, b in pairwise(bounds)]
    if not all(shares):
        return None
    return [_program(replace(tiled, blocks=(replace(block, iterations=share),))) for share in shares]


_ROLES = {name: {o.name: o.role for o in spec.operands} for name, spec in INSTRUCTIONS.items()}


def _accesses(instruction: Instruction) -> Iterator[tuple[Access, bool, bool]]:
    """Each access, whether it reads and whether it writes."""
    roles = _ROLES[instruction.opcode]
    kept = instruction.get("accumulate") is not False
    for name, access in instruction.accesses():
        yield access, roles[name] == "read" or (roles[name] == "update" and kept), roles[name] != "read"


def _weight(item: Item) -> int:
    """Instructions executed."""
    if isinstance(item, Rolled):
        return item.count * sum(map(_weight, item.items))
    return sum(times for _, times in Program("", (), (), tuple(i for i, _ in item)).counts())


def _cut(block: Block, wanted: float) -> tuple[int, int] | None:
    """(item, round within it) nearest to `wanted` instructions where nothing on chip passes from before to after."""
    best: tuple[float, tuple[int, int]] | None = None
    before = 0.0
    for number, item in enumerate(block.iterations):
        weight = _weight(item)
        rounds = item.count if isinstance(item, Rolled) else 1
        places = {0}
        if rounds > 1:
            places.add(min(max(1, round((wanted - before) / (weight / rounds))), rounds - 1))
        for place in places:
            at = before + weight * place / rounds
            if at and (best is None or abs(at - wanted) < best[0]) and _separate(block, number, place):
                best = (abs(at - wanted), (number, place))
        before += weight
    return best[1] if best is not None else None


def _separate(block: Block, number: int, place: int) -> bool:
    """Whether what comes after a place reads on chip only what the prologue or itself wrote."""
    first = every_iteration(_between(block.iterations, (0, 0), (number, place)), 2)
    last = list(every_iteration(_between(block.iterations, (number, place), (len(block.iterations), 0)), 2))
    early = {a.buffer for it in first for i, _ in written(it) for a, _, writes in _accesses(i) if writes}
    mine: dict[str, list[tuple[int, int, int, int]]] = {}
    for instruction in _instructions(last):
        for access, reads, _ in _accesses(instruction):
            if reads and access.buffer in early and access.partition_stride == 0:
                region = _region(access)
                if not any(_covers(own, region) for own in mine.get(access.buffer, ())):
                    return False
        for access, _, writes in _accesses(instruction):
            if writes and access.buffer in early:
                mine.setdefault(access.buffer, []).append(_region(access))
    return bool(last)


def _instructions(iterations: Iterable[Iteration]) -> Iterator[Instruction]:
    for iteration in iterations:
        yield from (instruction for instruction, _ in written(iteration))


def _region(access: Access) -> tuple[int, int, int, int]:
    low, high = access.span()
    return access.start_partition, access.start_partition + access.partitions, low, high


def _covers(own: tuple[int, int, int, int], region: tuple[int, int, int, int]) -> bool:
    return own[0] <= region[0] and region[1] <= own[1] and own[2] <= region[2] and region[3] <= own[3]


def _in_place(block: Block, tensors: set[str]) -> bool:
    """Whether every iteration reads of these tensors only what it writes itself."""
    for iteration in every_iteration(block.iterations):
        read: set[object] = set()
        wrote: set[object] = set()
        for access, reads, writes in (a for i, _ in written(iteration) for a in _accesses(i)):
            if access.buffer in tensors:
                place = (
                    access.buffer,
                    access.offset,
                    access.free,
                    access.partitions,
                    access.partition_stride,
                    access.steps,
                )
                if reads:
                    read.add(place)
                if writes:
                    wrote.add(place)
        if not read <= wrote:
            return False
    return not any(a.buffer in tensors for i in block.prologue for a, _, _ in _accesses(i))


def _between(items: Sequence[Item], begin: tuple[int, int], end: tuple[int, int]) -> tuple[Item, ...]:
    """The items from one (item, round) to another."""
    result: list[Item] = []
    for number, item in enumerate(items):
        first = begin[1] if number == begin[0] else 0
        if number < begin[0] or number > end[0] or (number == end[0] and not end[1]):
            continue
        if not isinstance(item, Rolled):
            result.append(item)
            continue
        last = end[1] if number == end[0] else item.count
        if first == 0 and last == item.count:
            result.append(item)
        elif last > first:
            result.append(replace(moved(item, first), count=last - first))
    return tuple(result)
