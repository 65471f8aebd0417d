"""Opening what the user named: paths to profiles, their names, with progress on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from neuronscope.analysis.library import open_profile
from neuronscope.analysis.profile import Profile, unique_names
from neuronscope.formats.errors import NeuronscopeError
from neuronscope.readers.wording import printable, without_endings

__all__ = ["PathError", "open_profiles", "split_names"]


class PathError(NeuronscopeError, FileNotFoundError):
    """A path on the command line does not exist, or names and paths don't match."""

    def __str__(self) -> str:
        return str(self.args[0])


def open_profiles(
    arguments: Sequence[str], names: str | None, data_path: Path | None, display_name: str | None = None
) -> list[Profile]:
    """Open every profile named, in order, ingesting what is not in the library yet.

    Args:
        arguments: `PATH` or `NAME=PATH`; a path that exists is a path, whatever characters it has.
        names: `a,b,c`, one per path, instead of the names the paths suggest.
        data_path: the library's folder; None takes the default.
        display_name: the name of the only profile, whatever characters it has.

    Raises:
        PathError: no such path, or a wrong number of names.
        FormatError: nothing readable there.
    """
    pairs = split_names(arguments)
    if names is not None:
        given = [name.strip() for name in names.split(",")]
        if len(given) != len(pairs):
            raise PathError(f"--name {names}: {len(given)} names for {len(pairs)} profiles. Give one per PATH")
        pairs = [(name, path) for name, (_, path) in zip(given, pairs, strict=True)]
    if display_name is not None:
        pairs = [(display_name, path) for _, path in pairs]
    chosen = unique_names([name or default_name(path) for name, path in pairs])
    profiles = []
    with _progress() as report:
        for name, (_, path) in zip(chosen, pairs, strict=True):
            profiles.append(open_profile(path, name=name, data_path=data_path, progress=report(name)))
    return profiles


def split_names(arguments: Sequence[str]) -> list[tuple[str | None, Path]]:
    """`(name or None, path)` for each argument.

    Raises:
        PathError: neither the whole argument nor what follows one of its `=` exists.
    """
    found: list[tuple[str | None, Path]] = []
    for argument in arguments:
        if not argument.strip():
            raise PathError("an empty path: give a trace file or a session folder")
        if _exists(argument):
            found.append((None, Path(argument)))
            continue
        for match in re.finditer("=", argument):
            name, path = argument[: match.start()], argument[match.end() :]
            if name and path and _exists(path):
                found.append((name, Path(path)))
                break
        else:
            link = Path(argument)
            if len(argument) < _LONGEST_PATH and "\0" not in argument and link.is_symlink():
                raise PathError(f"{argument}: a link to {printable(link.readlink())}, which does not exist")
            raise PathError(f"{argument[:500]}: no such file or directory")
    return found


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long, or a NUL inside
        return False


_SESSION_PARTS = (
    re.compile(r".+_pid_\d+"),  # <instance>_pid_<pid>
    re.compile(r"\d{4}[-_]?\d{2}[-_]?\d{2}.*|\d{9,}.*"),  # the capture's time
)


def default_name(path: Path) -> str:
    """The folder's own name, without the levels a capture adds below the folder it was told to write to."""
    path = path.resolve()
    name = printable(path, name_only=True)
    if path.is_file():
        name = without_endings(name)
        if name not in ("trace", "ntrace"):
            return name
        path = path.parent
    for folder in (path, *path.parents):
        if folder.name and not any(part.fullmatch(folder.name) for part in _SESSION_PARTS):
            return printable(folder, name_only=True)
    return name


_LONGEST_PATH = 4096
Report = Callable[[str, float], None]


@contextmanager
def _progress() -> Iterator[Callable[[str], Report | None]]:
    """A progress bar per profile on a terminal; nothing elsewhere, so that logs stay readable."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[stage]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def start(name: str) -> Report:
            task = bars.add_task(name, total=1.0, stage="")
            return lambda stage, fraction: bars.update(task, completed=fraction, stage=stage)

        yield start
