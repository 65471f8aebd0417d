"""Builds the command line from its leaf files and from other distributions' commands, and turns errors into one line.

A distribution adds commands through the entry-point group `neuronscope.commands`: the entry's name is the command's,
its object a function with typer annotations or a `typer.Typer` with sub-commands.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.metadata import entry_points, version
from typing import Annotated, Any

import typer

from neuronscope.cli import analyses, analysis, compare, diff, export, ingest, library, serve, sql, summary, top, view
from neuronscope.formats.errors import NeuronscopeError

__all__ = ["ENTRY_POINTS", "build", "run"]

ENTRY_POINTS = "neuronscope.commands"
_FAILURE = 2
# typer has carried its own copy of click since 0.25: this is the root of its errors in either case.
_ClickError: type[Any] = typer.BadParameter.__mro__[2]


def build() -> typer.Typer:
    """The application with every command that is installed."""
    app = typer.Typer(
        name="neuronscope",
        help="Explore profiles of PyTorch on AWS Trainium and other accelerators.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        _version: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
        ] = False,
        _schema: Annotated[
            bool,
            typer.Option(
                "--show-profile-schema",
                callback=_print_schema,
                is_eager=True,
                help="Print every table and field of a stored profile as OpenAPI YAML.",
            ),
        ] = False,
    ) -> None:
        """Options of the command line itself."""

    app.command("view")(view.view)
    app.command("summary")(summary.summary)
    app.command("top")(top.top)
    app.command("analysis")(analysis.analysis)
    for name, command in analyses.commands():
        app.command(name)(command)
    app.command("compare")(compare.compare)
    app.command("diff")(diff.diff)
    app.command("ingest")(ingest.ingest)
    app.command("serve")(serve.serve)
    app.command("sql")(sql.sql)
    app.command("export")(export.export)
    app.add_typer(library.library, name="library")
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            command = entry.load()
        except Exception as error:  # a broken extension must not take the explorer with it
            typer.echo(f"neuronscope: command {entry.name} is not available: {error}", err=True)
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=entry.name)
        else:
            app.command(entry.name)(command)
    return app


def run(arguments: list[str]) -> int:
    """Run a command and return the exit code.

    0: done. 2: the command could not do what was asked; one line on stderr says why. 130: interrupted.
    """
    try:
        result = build()(arguments or ["--help"], prog_name="neuronscope", standalone_mode=False)
        sys.stdout.flush()
    except NeuronscopeError as error:
        return _fail(str(error))
    except _ClickError as error:
        return _fail(f"{error.format_message()} (neuronscope --help lists commands and options)")
    except BrokenPipeError:  # `neuronscope sql … | head`
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    except MemoryError:
        return _fail("not enough memory for this profile")
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:  # our own mistake: one line all the same, the traceback for who asks for it
        if os.environ.get("NEURONSCOPE_TRACEBACK"):
            raise
        kind = type(error).__name__
        return _fail(f"internal error ({kind}: {error}). Please report it; NEURONSCOPE_TRACEBACK=1 shows where")
    return result if isinstance(result, int) else 0


def _fail(text: str) -> int:
    typer.echo(f"neuronscope: {' '.join(text.split())}", err=True)
    return _FAILURE


def _print_version(wanted: bool) -> None:
    if wanted:
        from neuronscope.readers.native import tokenizer

        typer.echo(f"neuronscope {version('neuronscope')} ({tokenizer()} tokenizer)")
        raise typer.Exit


def _print_schema(wanted: bool) -> None:
    if wanted:
        from neuronscope.cli.schema import openapi_yaml

        typer.echo(openapi_yaml())
        raise typer.Exit
