"""`neuronscope summary`: the largest facts and the operator table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from neuronscope.cli.options import DataPath, Json, Names, OnePath

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["summary", "summary_lines"]


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
    from neuronscope.cli.opening import open_profiles

    profile = open_profiles([path], name, data_path)[0]
    selected = profile.whole_range if everything else profile.default_range
    if as_json:
        typer.echo(json.dumps(profile.summary(selected).to_dict(), ensure_ascii=False))
        return
    for line in summary_lines(profile, selected):
        typer.echo(line)


def summary_lines(profile: Profile, selected: Range | None) -> Iterator[str]:
    """What was found, the largest facts, the operators, and why the device time is what it is."""
    from neuronscope.analysis.operators import reason
    from neuronscope.cli.printing import found_lines, operator_lines
    from neuronscope.cli.text import wrap

    yield from found_lines(profile, selected, facts=5)
    yield ""
    if profile.info.get("device_only") == "true":  # nothing of the host's: no operator has called anything
        from neuronscope.analysis.roofline import RooflineError, roofline
        from neuronscope.cli.analysis import roofline_lines

        try:
            yield from roofline_lines(roofline(profile, selected), 20)
        except RooflineError as error:
            yield wrap(str(error))
        return
    yield from operator_lines(profile.operators(selected), profile.launch_status)
    why = reason(profile, selected or profile.default_range)
    yield ""
    yield f"  {why['title']}"
    for line in why["lines"]:
        yield wrap(line, "    ")
