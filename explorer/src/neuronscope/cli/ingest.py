"""`neuronscope ingest`: read a profile into Parquet and say what became of every event."""

from __future__ import annotations

import json

import typer

from neuronscope.cli.options import DataPath, Json, Names, OnePath

__all__ = ["ingest"]


def ingest(path: OnePath, as_json: Json = False, name: Names = None, data_path: DataPath = None) -> None:
    """Read a profile into Parquet, nothing else; --json prints the counts."""
    from neuronscope.analysis.library import ingest_result
    from neuronscope.cli.opening import open_profiles
    from neuronscope.cli.printing import found_lines

    profile = open_profiles([path], name, data_path)[0]
    if as_json:
        typer.echo(json.dumps(ingest_result(profile).as_json(), ensure_ascii=False))
        return
    for line in found_lines(profile, facts=0):
        typer.echo(line)
    typer.echo(f"  stored in {profile.directory}")
