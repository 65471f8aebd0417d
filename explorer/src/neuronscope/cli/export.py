"""`neuronscope export`: a profile for other tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuronscope.cli.options import DataPath, OnePath
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["OutputFile", "OutputFormat", "export", "write_out"]


class OutputFormat(StrEnum):
    """What `--output-format` takes."""

    parquet = "parquet"
    json = "json"
    summary_text = "summary-text"
    summary_json = "summary-json"
    perfetto = "perfetto"


OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output-file",
        metavar="FILE",
        help="Where to write; - or nothing prints a summary. Perfetto: .pftrace, or .json for a Chrome trace.",
    ),
]


def export(
    path: OnePath,
    form: Annotated[OutputFormat, typer.Option("--output-format", help="What to write.")],
    output_file: OutputFile = None,
    data_path: DataPath = None,
) -> None:
    """Write a profile as Parquet, JSON, a summary, or a trace for Perfetto."""
    from neuronscope.cli.opening import open_profiles

    write_out(open_profiles([path], None, data_path)[0], form, output_file)


def write_out(profile: Profile, form: OutputFormat, target: Path | None) -> None:
    """Write one profile and say where; a summary without a file is printed.

    Raises:
        ExportError, OSError: it can't be written there.
    """
    from neuronscope.analysis import export as analysis

    if form in (OutputFormat.summary_text, OutputFormat.summary_json):
        lines = _summary_json(profile) if form is OutputFormat.summary_json else _summary_text(profile, None)
        if target is None or str(target) == "-":
            for line in lines:
                typer.echo(line)
            return
        target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="replace")
    else:
        if target is not None and str(target) == "-":
            raise NeuronscopeError(f"--output-file -: a {form.value} export needs a file")
        target = target or analysis.default_file(profile, form.value)
        analysis.export(profile, form.value, target)
    typer.echo(f"wrote {target}")


def _summary_json(profile: Profile) -> Iterator[str]:
    yield json.dumps(profile.summary().to_dict(), ensure_ascii=False)


def _summary_text(profile: Profile, selected: Range | None) -> Iterator[str]:
    from neuronscope.cli.summary import summary_lines

    yield from summary_lines(profile, selected)
