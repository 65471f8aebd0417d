"""`neuronscope top`: what takes the most device time."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from neuronscope.cli.options import DataPath, Json, OnePath

__all__ = ["top"]


class By(StrEnum):
    """What device work is summed by."""

    operator = "operator"
    kernel = "kernel"
    module = "module"
    region = "region"
    source = "source"
    stack = "stack"
    step = "step"
    rank = "rank"
    device = "device"
    category = "category"


def top(
    path: OnePath,
    by: Annotated[By, typer.Option("--by", help="Sum device work by this.")] = By.operator,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="How many rows.")] = 20,
    everything: Annotated[
        bool, typer.Option("--all", help="The whole profile instead of the last complete step.")
    ] = False,
    as_json: Json = False,
    data_path: DataPath = None,
) -> None:
    """List what takes the most device time: operators, kernels, modules, regions, source lines, stacks, …."""
    from neuronscope.analysis.top import top as analyse
    from neuronscope.cli.opening import open_profiles
    from neuronscope.cli.printing import top_lines

    profile = open_profiles([path], None, data_path)[0]
    found = analyse(profile, by.value, limit, profile.whole_range if everything else None)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    for line in top_lines(found):
        typer.echo(line)
