"""`neuronscope serve`: the server alone, over given profiles or the whole library."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuronscope.cli.options import (
    DataPath,
    FrameworkSources,
    Host,
    Names,
    NkiSources,
    Port,
    ReadOnly,
    UploadLimit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuronscope.analysis.profile import Profile
    from neuronscope.server.sources import Sources

__all__ = ["Library", "serve", "serve_profiles"]


def serve(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="Profiles; none: every profile of the library.")
    ] = None,
    name: Names = None,
    host: Host = "127.0.0.1",
    port: Port = 3001,
    data_path: DataPath = None,
    read_only: ReadOnly = False,
    upload_limit: UploadLimit = 64,
    framework_sources: FrameworkSources = None,
    nki_sources: NkiSources = None,
) -> None:
    """Serve the page over profiles without printing their facts."""
    from neuronscope.analysis.library import library_profiles
    from neuronscope.cli.opening import open_profiles
    from neuronscope.server.sources import Sources

    sources = Sources(framework_sources, nki_sources)
    profiles = open_profiles(paths, name, data_path) if paths else library_profiles(data_path)
    library = None if read_only else Library(data_path, upload_limit)
    serve_profiles(profiles, host, port, open_browser=False, library=library, sources=sources)


@dataclass(frozen=True)
class Library:
    """Where uploads go, and how many GiB one may have."""

    data_path: Path | None
    upload_limit: int


def serve_profiles(
    profiles: Sequence[Profile],
    host: str,
    port: int,
    open_browser: bool,
    library: Library | None,
    sources: Sources | None = None,
) -> None:
    """Bind, print the link (and over SSH the tunnel command), serve until interrupted."""
    from neuronscope.server import run
    from neuronscope.store import Store

    server = run.bind(host, port)
    token = None if run.is_loopback(server) else secrets.token_urlsafe(18)
    link = run.url(server) + (f"?token={token}" if token else "")
    bound = server.getsockname()[1]
    if port and bound != port:
        typer.echo(f"Port {port} is taken: using {bound}.")
    tunnel = run.tunnel_command(bound)
    if tunnel:
        typer.echo(f"On your own machine first run: {tunnel}")
    if token:
        typer.echo(f"Listening on {host}: whoever reaches this machine and has this link can read these profiles.")
    typer.echo(f"Open {link}  (Ctrl-C stops the server)")

    def ready() -> None:
        if open_browser:
            import webbrowser

            webbrowser.open(link)

    if library is None:
        run.serve(profiles, server, ready, token, sources=sources)
    else:
        run.serve(profiles, server, ready, token, Store(library.data_path), library.upload_limit << 30, sources)
