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
    from neuronscope.analysis.grouping import Grouping
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["OutputFile", "OutputFormat", "PrimaryGroup", "SecondaryGroup", "export", "write_out"]


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

PrimaryGroup = Annotated[
    str | None,
    typer.Option(
        "--system-trace-primary-group",
        metavar="A,B,…",
        help="Groups of a Perfetto export: of instance_id, process_id (these by default), thread_id, lnc_idx.",
    ),
]
SecondaryGroup = Annotated[
    str | None,
    typer.Option(
        "--system-trace-secondary-group",
        metavar="A,B,…",
        help="Rows of a group: of worker_gid, lnc_idx, thread_id (these by default), instance_id, process_id.",
    ),
]


def export(
    path: OnePath,
    form: Annotated[OutputFormat, typer.Option("--output-format", help="What to write.")],
    output_file: OutputFile = None,
    primary_group: PrimaryGroup = None,
    secondary_group: SecondaryGroup = None,
    data_path: DataPath = None,
) -> None:
    """Write a profile as Parquet, JSON, a summary, or a trace for Perfetto."""
    from neuronscope.analysis.grouping import grouping_of
    from neuronscope.cli.opening import open_profiles

    grouping = grouping_of(primary_group, secondary_group)
    write_out(open_profiles([path], None, data_path)[0], form, output_file, grouping)


def write_out(profile: Profile, form: OutputFormat, target: Path | None, grouping: Grouping | None = None) -> None:
    """Write one profile and say where; a summary without a file is printed.

    Raises:
        NeuronscopeError: a grouping for another format than Perfetto's.
        ExportError, OSError: it can't be written there.
    """
    from neuronscope.analysis import export as analysis

    if grouping is not None and form is not OutputFormat.perfetto:
        raise NeuronscopeError("--system-trace-primary-group and -secondary-group group a Perfetto export")
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
        analysis.export(profile, form.value, target, grouping)
    typer.echo(f"wrote {target}")


def _summary_json(profile: Profile) -> Iterator[str]:
    facts = profile.summary().to_dict()
    if metrics := profile.rows("SELECT * FROM Summary ORDER BY device_profile_name"):
        facts["device_profiles"] = metrics  # of each executable and core, as Neuron Explorer defines them
    yield json.dumps(facts, ensure_ascii=False)


def _summary_text(profile: Profile, selected: Range | None) -> Iterator[str]:
    from neuronscope.cli.summary import summary_lines

    yield from summary_lines(profile, selected)
