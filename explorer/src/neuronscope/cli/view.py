"""`neuronscope view`: read profiles, say what is in them, show them in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from neuronscope.cli.options import DataPath, Host, Names, Paths, Port

__all__ = ["view"]


def view(
    paths: Paths,
    name: Names = None,
    host: Host = "127.0.0.1",
    port: Port = 3001,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in this machine's browser.")] = False,
    no_serve: Annotated[
        bool, typer.Option("--no-serve", "--ingest-only", help="Read and print, start no server.")
    ] = False,
    data_path: DataPath = None,
) -> None:
    """Read profiles, print what was found and their largest facts, and serve the page until Ctrl-C."""
    from neuronscope.cli.opening import open_profiles
    from neuronscope.cli.printing import found_lines

    profiles = open_profiles(paths, name, data_path)
    for profile in profiles:
        for line in found_lines(profile):
            typer.echo(line)
        typer.echo("")
    if not no_serve:
        from neuronscope.cli.serve import serve_profiles

        serve_profiles(profiles, host, port, open_browser)
