"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "DataPath",
    "FrameworkSources",
    "Host",
    "Json",
    "Names",
    "NkiSources",
    "OnePath",
    "Paths",
    "Port",
    "ReadOnly",
    "UploadLimit",
]

Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Trace files or session folders; NAME=PATH names one.")
]
OnePath = Annotated[str, typer.Argument(metavar="PATH", help="A trace file or session folder.")]
Names = Annotated[str | None, typer.Option("--name", metavar="A,B,…", help="Names of the profiles, one per PATH.")]
DataPath = Annotated[
    Path | None,
    typer.Option("--data-path", metavar="DIR", help="Where processed profiles are kept.", show_default=False),
]
FrameworkSources = Annotated[
    Path | None,
    typer.Option(
        "--framework-source-root", metavar="DIR", help="Where the recorded script's code is; shown beside events."
    ),
]
NkiSources = Annotated[
    Path | None, typer.Option("--nki-source-root", metavar="DIR", help="Where the code of NKI kernels is.")
]
Json = Annotated[bool, typer.Option("--json", help="Print exact numbers as JSON, and nothing else.")]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; the default is this machine only.")]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Port; a taken one moves to the next free. 0: any.")
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Take no uploads.")]
UploadLimit = Annotated[int, typer.Option("--upload-limit", metavar="GIB", min=1, help="The most one upload may have.")]
