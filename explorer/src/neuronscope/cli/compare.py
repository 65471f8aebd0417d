"""`neuronscope compare`: profiles side by side, and why they differ."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from neuronscope.cli.options import DataPath, Json, Names, Paths

__all__ = ["compare"]


def compare(
    paths: Paths,
    base: Annotated[
        str | None, typer.Option("--base", help="Name of the profile to set against; default the first.")
    ] = None,
    name: Names = None,
    as_json: Json = False,
    data_path: DataPath = None,
) -> None:
    """Compare profiles over the last complete step of each: span = launches + engines and DMA + gaps."""
    from neuronscope.analysis.compare import compare as analyse
    from neuronscope.cli.opening import open_profiles
    from neuronscope.cli.printing import comparison_lines

    comparison = analyse(open_profiles(paths, name, data_path), base)
    if as_json:
        typer.echo(json.dumps([one.to_row() for one in comparison.compared], ensure_ascii=False))
        return
    for line in comparison_lines(comparison):
        typer.echo(line)
