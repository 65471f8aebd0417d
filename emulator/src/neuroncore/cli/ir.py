"""`neuronscope ir`: what the compiler makes of an op, after any of its passes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from neuroncore.graph import Graph
    from neuroncore.targets import Target

__all__ = ["ir"]


def ir(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE.neff|OPS", help="An executable, or ops as text: 'aten.mul.Tensor bf16[4,512] bf16[4,512]'."
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="PASS", help="Stop after this pass; default the finished program.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="Compile for trn1, trn2 …; default trn2.")
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(
            "--cores", min=1, max=8, metavar="N", help="Time the ops divided over N physical cores, and stop."
        ),
    ] = None,
    list_passes: Annotated[bool, typer.Option("--list", help="Name the passes in order, and stop.")] = False,
) -> None:
    """Print an executable's program, or the form ops have after a pass of the compiler."""
    from neuroncore import compiler
    from neuroncore.cli._common import CommandError, load_neff, one_line
    from neuroncore.cli._graph_text import parse_graph
    from neuroncore.isa import print_program
    from neuroncore.targets import load_target

    passes = [one.name for one in compiler.PASSES]
    if list_passes:
        typer.echo("\n".join(passes))
        return
    if what is None:
        raise CommandError(
            "give a NEFF or ops as text, as in: neuronscope ir 'aten.mul.Tensor bf16[4,512] bf16[4,512]'"
        )
    if after is not None and after not in passes:
        raise CommandError(f"--after {after}: no such pass; passes in order: {', '.join(passes)}")
    if Path(what).is_file():
        if after not in (None, passes[-1]) or target is not None or cores is not None:
            raise CommandError(
                f"{what}: a NEFF holds the finished program; give ops as text for --after, --target, --cores"
            )
        loaded = load_neff(Path(what))
        typer.echo(print_program(loaded.program, origins=True), nl=False)
        for op, reason, duration_ns in loaded.estimates:
            typer.echo(f"estimate {op}: {duration_ns} ns, {reason}")
        return
    if what.endswith(".neff"):
        raise CommandError(f"{what}: no such file")
    if cores is not None:
        with one_line():
            typer.echo(_cores(parse_graph(what), load_target(target), cores))
        return
    with one_line():
        typer.echo(compiler.dump(parse_graph(what), after or passes[-1], load_target(target)), nl=False)


def _cores(graph: Graph, target: Target, cores: int) -> str:
    """What dividing a graph over the cores of a logical core would bring."""
    from neuroncore import compiler
    from neuroncore.cli._common import format_ns, table
    from neuroncore.timing import divided_time, simulate

    one = compiler.compile_program(graph, target)
    divided = compiler.divide_program(graph, target, cores)
    if divided is None:
        return "A part of this is an estimate, which nobody knows how to divide."
    spent = divided_time(divided, target)
    alone_ns = simulate(one.program, target).program_ns if one.program.executed else 0
    rows = [
        [section.kernel, str(len(times)), ", ".join(map(format_ns, times))]
        for section, times in zip(divided.sections, spent.sections, strict=True)
    ]
    faster = min(alone_ns, spent.program_ns)
    chosen = "one core" if faster == alone_ns else f"{cores} cores"
    return (
        f"Engines and DMA on {target.name}, simulated; barriers of {cores} cores are an estimate:\n"
        f"{table(['kernel', 'cores', 'time of each'], rows)}\n"
        f"  one core {format_ns(alone_ns)}; divided {format_ns(spent.program_ns)}, {spent.barriers} barriers included: "
        f"{chosen}, {alone_ns / max(1, faster):.2f}×"
    )
