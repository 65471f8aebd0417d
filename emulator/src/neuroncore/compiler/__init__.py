"""The compiler: a graph of ATen ops becomes a program of NeuronCore instructions, in the order of `PASSES`.

Start reading at `PASSES`; each pass is a plain function from one immutable form to the next and lives in the module of
its name:

    graph → decompose → Module of primitives → split_parts → drop_unused → split_reductions → split_contractions
          → fuse → Kernels → tile → Tiled → allocate → pipeline → Ordered → synchronize → Program

`compile_program(graph, target)` runs them all, `dump(graph, after="fuse")` prints the form a pass leaves.

A program runs on one physical NeuronCore, also where a logical core is two (LNC 2 on trn2): the second stays idle.
`divide_program` gives what both would do; see there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from neuroncore.compiler import (
    aliases,
    attention,
    batch_norms,
    convolutions,
    copies,
    elementwise,
    functions,
    indexing,
    losses,
    norms,
    optimizers,
    ordering,
    padding,
    pooling,
    products,
    randoms,
    reductions,
)
from neuroncore.compiler.allocate import allocate
from neuroncore.compiler.contract import split_contractions
from neuroncore.compiler.decompose import decompose
from neuroncore.compiler.divide import divide
from neuroncore.compiler.fuse import Kernels, drop_unused, format_kernels, fuse, split_reductions
from neuroncore.compiler.ir import Buffer, Module, format_module, reads, writes
from neuroncore.compiler.lowering import LOWERINGS, REASONS, VIEWS, op_parts
from neuroncore.compiler.parts import split_parts
from neuroncore.compiler.pipeline import Ordered, pipeline
from neuroncore.compiler.rolled import Item, Rolled, every_iteration, written
from neuroncore.compiler.tile import Block, Estimated, Tiled, tile
from neuroncore.errors import CapacityError, VerifyError
from neuroncore.graph import Graph
from neuroncore.isa import Instruction, Loop, Program, print_program, synchronize, verify
from neuroncore.isa import Tile as _Tile
from neuroncore.isa.cores import Divided
from neuroncore.targets import Target, load_target

__all__ = [
    "COMPILER_VERSION",
    "LOWERINGS",
    "PASSES",
    "REASONS",
    "VIEWS",
    "Compiled",
    "Estimated",
    "Pass",
    "compile_program",
    "divide_program",
    "dump",
    "op_parts",
]

#: Modules of lowerings: importing them fills `LOWERINGS`.
LOWERING_MODULES = (
    aliases,
    copies,
    elementwise,
    norms,
    ordering,
    products,
    reductions,
    attention,
    batch_norms,
    convolutions,
    functions,
    indexing,
    losses,
    optimizers,
    padding,
    pooling,
    randoms,
)

#: Part of every NEFF's hash: change it whenever equal graphs may give other programs.
COMPILER_VERSION = "9"


@dataclass(frozen=True)
class Compiled:
    """A program, and its pieces in execution order: programs timed one after the other, estimates between them."""

    program: Program
    pieces: tuple[Program | Estimated, ...]


@dataclass(frozen=True)
class Pass:
    """A step of the compiler: its name in dumps and errors, what it does, how its result prints and is checked."""

    name: str
    run: Callable[[Any, Target], Any]
    text: Callable[[Any], str]
    check: Callable[[Any, Target], None]


def _synchronize(ordered: Ordered, target: Target) -> Compiled:
    """One program, its semaphores left to be derived; where estimates cut it, also its pieces."""
    tiled = ordered.tiled
    tiles = tuple(t for kernel in tiled.tiles for t in kernel)
    whole = tuple(i for s in ordered.segments if not isinstance(s, Estimated) for i in s)
    program = Program(tiled.name, tiled.tensors, tiles, whole, derived=True)
    if not any(isinstance(s, Estimated) for s in ordered.segments):
        return Compiled(program, (program,) if whole else ())
    pieces: list[Program | Estimated] = []
    body: list[Instruction | Loop] = []
    for segment in (*ordered.segments, None):
        if isinstance(segment, tuple):
            body += segment
            continue
        if body:
            pieces.append(Program(tiled.name, tiled.tensors, _used(tiles, body), tuple(body), derived=True))
            body = []
        if segment is not None:
            pieces.append(segment)
    return Compiled(program, tuple(pieces))


def _used(tiles: tuple[_Tile, ...], body: list[Instruction | Loop]) -> tuple[_Tile, ...]:
    names = {a.buffer for i in Program("", (), (), tuple(body)).text() for _, a in i.accesses()}
    return tuple(t for t in tiles if t.name in names)


# -- printing ------------------------------------------------------------------------------------------------


def _print_tiled(tiled: Tiled) -> str:
    return print_program(Program(tiled.name, tiled.tensors, tuple(t for k in tiled.tiles for t in k), ())) + "".join(
        _print_block(b) for b in tiled.blocks
    )


def _print_block(block: Block | Estimated) -> str:
    if isinstance(block, Estimated):
        return f"estimate {block.op}: {block.duration_ns} ns, {block.reason}\n"
    lines = [f"kernel {block.kernel}"]
    lines += [f"  {text}" for text in _instruction_lines(block.prologue)]
    lines += _item_lines(block.iterations, " ")
    return "\n".join(lines) + "\n"


def _item_lines(items: tuple[Item, ...], indent: str) -> Iterator[str]:
    number = 0
    for item in items:
        if isinstance(item, Rolled):
            yield f"{indent}loop {item.name} {item.count} {{"
            yield from _item_lines(item.items, indent + " ")
            yield f"{indent}}}"
            continue
        yield f"{indent}iteration {number}"
        yield from (f"{indent} {text}" for text in _instruction_lines(tuple(i for i, _ in item)))
        number += 1


def _instruction_lines(instructions: tuple[Instruction | Loop, ...]) -> list[str]:
    text = print_program(Program("", (), (), instructions))
    return text.rstrip("\n").split("\n")[1:]


def _print_ordered(ordered: Ordered) -> str:
    lines: list[str] = []
    for segment in ordered.segments:
        if isinstance(segment, Estimated):
            lines.append(_print_block(segment).rstrip("\n"))
        else:
            lines += ["kernel", *(f"  {text}" for text in _instruction_lines(segment))]
    return "\n".join(lines) + "\n"


def _print_compiled(compiled: Compiled) -> str:
    """The program with its semaphores written out, unless it has loops: theirs are not affine."""
    rolled = any(isinstance(item, Loop) for item in compiled.program.body)
    text = print_program(compiled.program if rolled else synchronize(compiled.program))
    return text + "".join(_print_block(p) for p in compiled.pieces if isinstance(p, Estimated))


# -- checks between passes -----------------------------------------------------------------------------------


def _check_module(module: Module, target: Target) -> None:
    for number, prim in enumerate(module.prims):
        for view in reads(prim):
            _check_view(module.buffers, view.buffer, view.extent, f"{module.name}: primitive {number} ({prim.op})")
        for view in writes(prim):
            _check_view(module.buffers, view.buffer, view.extent, f"{module.name}: primitive {number} ({prim.op})")
    total = sum(b.bytes for b in module.buffers if b.kind != "temp")
    if total > target.hbm_bytes:
        largest = max(range(len(module.buffers)), key=lambda number: module.buffers[number].bytes)
        users = [p for p in module.prims if largest in {v.buffer for v in (*writes(p), *reads(p))}]
        of = f" of {users[-1].op}{f' at {users[-1].source}' if users[-1].source else ''}" if users else ""
        raise CapacityError(
            f"{module.name}: its tensors need {total} B of HBM, a logical NeuronCore of {target.name} "
            f"has {target.hbm_bytes} B; "
            f"the largest is {module.buffers[largest].name}{of} with {module.buffers[largest].bytes} B. "
            "Use smaller tensors or split them over cores."
        )


def _check_view(buffers: tuple[Buffer, ...], buffer: int, extent: int, where: str) -> None:
    if extent > buffers[buffer].elements:
        raise VerifyError(
            f"{where}: reaches element {extent} of {buffers[buffer].name}, which has {buffers[buffer].elements}"
        )


def _check_kernels(kernels: Kernels, target: Target) -> None:
    done: set[int] = set()
    later = [{w.buffer for p in k.prims for w in writes(p)} for k in kernels.kernels]
    for number, kernel in enumerate(kernels.kernels):
        for prim in kernel.prims:
            for view in reads(prim):
                temporary = kernels.buffers[view.buffer].kind == "temp"
                late = any(view.buffer in written for written in later[number + 1 :])
                if temporary and late and view.buffer not in done and view.buffer not in later[number]:
                    raise VerifyError(
                        f"{kernels.name}: kernel {number} reads {kernels.buffers[view.buffer].name} too early"
                    )
        done |= later[number]


def _check_tiled(tiled: Tiled, target: Target) -> None:
    names = {t.name for t in tiled.tensors} | {t.name for k in tiled.tiles for t in k}
    for block in tiled.blocks:
        if isinstance(block, Block):
            for iteration in every_iteration(block.iterations):
                for instruction, _ in written(iteration):
                    for name, access in instruction.accesses():
                        if access.buffer not in names:
                            raise VerifyError(
                                f"{tiled.name}: {instruction.opcode} {name} names {access.buffer}, not declared"
                            )


def _check_compiled(compiled: Compiled, target: Target) -> None:
    verify(compiled.program, target)


def _unchecked(value: Any, target: Target) -> None:
    """Checked by the pass itself."""


#: The compiler, in order.
PASSES: tuple[Pass, ...] = (
    Pass("decompose", lambda graph, target: decompose(graph), format_module, _check_module),
    Pass("split_parts", lambda module, target: split_parts(module), format_module, _check_module),
    Pass("drop_unused", lambda module, target: drop_unused(module), format_module, _check_module),
    Pass("split_reductions", lambda module, target: split_reductions(module), format_module, _check_module),
    Pass("split_contractions", lambda module, target: split_contractions(module), format_module, _check_module),
    Pass(
        "fuse",
        lambda module, target: fuse(module, target.sbuf_usable_bytes_per_partition * 9 // 10),
        format_kernels,
        _check_kernels,
    ),
    Pass("tile", tile, _print_tiled, _check_tiled),
    Pass("allocate", allocate, _print_tiled, _unchecked),
    Pass("pipeline", lambda tiled, target: pipeline(tiled), _print_ordered, _unchecked),
    Pass("synchronize", _synchronize, _print_compiled, _check_compiled),
)


#: Shares of SBUF that fusing and tiling may plan with, one after the other until what they make fits.
_SHARES = (1.0, 0.75, 0.5, 0.25, 0.125)


def compile_program(graph: Graph, target: Target) -> Compiled:
    """Compile a graph.

    Raises:
        UnsupportedOpError: complex tensors or negative strides.
        CapacityError: tensors larger than HBM, or a kernel whose tiles exceed SBUF or PSUM however it is planned.
        VerifyError: a pass broke an invariant: our bug.
    """
    compiled, _ = _through(graph, target, "synchronize")
    assert isinstance(compiled, Compiled)
    return compiled


def _through(graph: Graph, target: Target, last: str) -> tuple[Any, Target]:
    """What a graph has become after a pass, and the target with as much SBUF as could be planned with.

    What fusing and tiling reckon their tiles to need is sometimes less than these take.
    """
    refused: CapacityError | None = None
    for share in _SHARES:
        planned = replace(target, sbuf_usable_bytes_per_partition=int(share * target.sbuf_usable_bytes_per_partition))
        value: Any = graph
        wanted = None
        try:
            for step in PASSES:
                value = step.run(value, planned if step.name in ("fuse", "tile") else target)
                step.check(value, target)
                if step.name == last:
                    wanted = value
                if wanted is not None and step.name not in ("fuse", "tile"):
                    return wanted, planned
        except CapacityError as error:
            refused = error
    assert refused is not None
    raise refused


def divide_program(graph: Graph, target: Target, cores: int) -> Divided | None:
    """A graph compiled for several physical cores that work as one logical core.

    It takes less time than `compile_program`'s program where kernels are long, and more where barriers and the lost
    overlap of neighbouring kernels cost more than is won: compare `timing.divided_time` with the program's time and
    take the faster.

    Returns:
        None where a part of the graph is an estimate.

    Raises:
        UnsupportedOpError, CapacityError, VerifyError: as `compile_program`.
    """
    kernels, planned = _through(graph, target, "fuse")
    divided = divide(kernels, planned, cores)
    for section in divided.sections if divided is not None else ():
        for program in section.programs:
            verify(program, target)
    return divided


def dump(graph: Graph, after: str, target: Target | None = None) -> str:
    """The form a graph has after a pass, as text.

    Args:
        graph: what to compile.
        after: name of a pass in `PASSES`.
        target: None takes NEURON_PLATFORM_TARGET_OVERRIDE, default trn2.

    Raises:
        ValueError: no such pass.
        UnsupportedOpError, CapacityError, VerifyError: as `compile_program`.
    """
    if after not in [p.name for p in PASSES]:
        raise ValueError(f"no pass {after!r}; passes: {', '.join(p.name for p in PASSES)}")
    value, _ = _through(graph, target or load_target(), after)
    return next(step.text(value) for step in PASSES if step.name == after)
