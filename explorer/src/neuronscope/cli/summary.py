"""`neuronscope summary`: the largest facts and the operator table."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from neuronscope.cli.options import DataPath, Json, Names, OnePath

__all__ = ["summary"]


def summary(
    path: OnePath,
    as_json: Json = False,
    name: Names = None,
    everything: Annotated[
        bool, typer.Option("--all", help="The whole profile instead of the last complete step.")
    ] = False,
    data_path: DataPath = None,
) -> None:
    """Print a profile's largest facts, why its device time is what it is, and its operators."""
    from neuronscope.analysis.operators import reason
    from neuronscope.cli.opening import open_profiles
    from neuronscope.cli.printing import found_lines, operator_lines
    from neuronscope.cli.text import wrap

    profile = open_profiles([path], name, data_path)[0]
    selected = profile.whole_range if everything else profile.default_range
    if as_json:
        typer.echo(json.dumps(profile.summary(selected).to_dict(), ensure_ascii=False))
        return
    for line in found_lines(profile, selected, facts=5):
        typer.echo(line)
    typer.echo("")
    for line in operator_lines(profile.operators(selected)):
        typer.echo(line)
    why = reason(profile, selected)
    typer.echo("")
    typer.echo(f"  {why['title']}")
    for line in why["lines"]:
        typer.echo(wrap(line, "    "))
