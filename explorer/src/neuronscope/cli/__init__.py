"""The `neuronscope` command: one file per command, each a function that typer reads. Start at `app.build`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with its code. 2 after one line on stderr that says what was wrong."""
    from neuronscope.cli.app import run

    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))
