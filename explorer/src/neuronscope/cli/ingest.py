"""`neuronscope ingest`: read a profile into Parquet and say what became of every event."""

from __future__ import annotations

import json

import typer

from neuronscope.cli.options import DataPath, Json, Names, OnePath
from neuronscope.formats.errors import NeuronscopeError

__all__ = ["ingest"]


def ingest(path: OnePath, as_json: Json = False, name: Names = None, data_path: DataPath = None) -> None:
    """Read a profile into Parquet, nothing else; --json prints the counts."""
    from neuronscope.cli.opening import open_profiles
    from neuronscope.cli.printing import found_lines

    profile = open_profiles([path], name, data_path)[0]
    if as_json:
        if profile.ingest_result is None:
            raise NeuronscopeError(
                f"{path}: a processed profile, nothing to ingest. Give the original trace or session"
            )
        typer.echo(json.dumps(profile.ingest_result.as_json(), ensure_ascii=False))
        return
    for line in found_lines(profile, facts=0):
        typer.echo(line)
    typer.echo(f"  stored in {profile.directory}")
