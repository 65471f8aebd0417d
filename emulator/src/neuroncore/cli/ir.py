"""`neuronscope ir`: what the compiler makes of an op, after any of its passes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["ir"]


def ir(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE.neff|OPS", help="An executable, or ops as text: 'aten.mul.Tensor bf16[4,512] bf16[4,512]'."
        ),
    ],
    after: Annotated[
        str | None, typer.Option("--after", metavar="PASS", help="Stop after this pass; default the finished program.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="Compile for trn1, trn2 …; default trn2.")
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
    if after is not None and after not in passes:
        raise CommandError(f"--after {after}: no such pass; passes in order: {', '.join(passes)}")
    if Path(what).is_file():
        if after not in (None, passes[-1]) or target is not None:
            raise CommandError(f"{what}: a NEFF holds the finished program; give ops as text for --after, --target")
        loaded = load_neff(Path(what))
        typer.echo(print_program(loaded.program, origins=True), nl=False)
        for op, reason, duration_ns in loaded.estimates:
            typer.echo(f"estimate {op}: {duration_ns} ns, {reason}")
        return
    if what.endswith(".neff"):
        raise CommandError(f"{what}: no such file")
    with one_line():
        typer.echo(compiler.dump(parse_graph(what), after or passes[-1], load_target(target)), nl=False)
