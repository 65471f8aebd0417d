"""Source code for the page's source panel: from the folders the user named, and from nowhere else."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from neuronscope.formats.errors import NeuronscopeError

__all__ = ["SourceError", "Sources"]

_PLACE = re.compile(r"(?P<file>.+?)(?::(?P<line>\d+)(?::\d+)?|\((?P<call>\d+)\)(?::.*)?)$")
_AROUND = 12  # lines before and after
_MOST_BYTES = 4 << 20
_LONGEST = 400  # characters of a line
_DEEPEST = 64  # folders of a path
_MOST_FILES = 20_000
_SKIPPED = ("__pycache__", "node_modules", "site-packages")


class SourceError(NeuronscopeError, ValueError):
    """A place that is none, or a root that is no folder."""


@dataclass(frozen=True)
class Sources:
    """Where source files are on this machine.

    Attributes:
        framework: of the script and its libraries (`--framework-source-root`).
        nki: of NKI kernels (`--nki-source-root`).
    """

    framework: Path | None = None
    nki: Path | None = None

    def __post_init__(self) -> None:
        for option, root in (("--framework-source-root", self.framework), ("--nki-source-root", self.nki)):
            if root is not None and not root.is_dir():
                raise SourceError(f"{option} {root}: no such folder")

    def lines(self, place: str) -> dict[str, Any]:
        """The code around a place such as `model/layers.py:12` or `layers.py(12): forward`.

        A recorded path is that of the machine that recorded; here it is the longest end of it that exists below a root,
        else the only file of its name there.
        Nothing outside the roots is read, whatever the path or a link below a root says.

        Returns:
            `{"file", "line", "first", "lines": [text]}`, or `{"reason"}` where there is nothing to show.

        Raises:
            SourceError: no place.
        """
        found = _PLACE.fullmatch(place.strip())
        if found is None or "\0" in place:
            raise SourceError(f"source {place[:200]!r}: give a file and a line, as in model.py:12")
        roots = [root for root in (self.framework, self.nki) if root is not None]
        if not roots:
            return {"reason": "--framework-source-root DIR (--nki-source-root DIR for kernels) shows the code here."}
        parts = PurePosixPath(found["file"].replace("\\", "/")).parts[-_DEEPEST:]
        for start in range(len(parts)):
            for root in roots:
                file = _below(root, parts[start:])
                if file is not None:
                    return _around(root, file, int(found["line"] or found["call"]))
        alike = [(root, file) for root in roots for file in _named(root, parts[-1] if parts else "")]
        if len(alike) == 1:
            return _around(*alike[0], int(found["line"] or found["call"]))
        if alike:
            shown = ", ".join(file.relative_to(root.resolve()).as_posix() for root, file in alike[:3])
            return {"reason": f"{found['file']} is one of {len(alike)} files of that name: {shown}, …"}
        listed = " and ".join(str(root) for root in roots)
        return {"reason": f"{found['file']} is not below {listed}."}


def _below(root: Path, parts: tuple[str, ...]) -> Path | None:
    """The file at these parts below the root, None where there is none or it lies elsewhere."""
    if any(part in ("..", "/", "") or ":" in part for part in parts):
        return None
    try:
        home = root.resolve()
        file = home.joinpath(*parts).resolve()
        return file if file.is_relative_to(home) and file.is_file() else None
    except (OSError, ValueError):
        return None


def _named(root: Path, name: str) -> list[Path]:
    """The files of this name below the root, of the first `_MOST_FILES` that a walk meets."""
    met = 0
    found = []
    home = root.resolve()
    for folder, inner, files in os.walk(home):
        inner[:] = sorted(one for one in inner if not one.startswith(".") and one not in _SKIPPED)
        met += len(files)
        if name in files and (file := _below(home, Path(folder, name).relative_to(home).parts)) is not None:
            found.append(file)
        if met > _MOST_FILES:
            break
    return found


def _around(root: Path, file: Path, line: int) -> dict[str, Any]:
    shown = file.relative_to(root.resolve()).as_posix()
    try:
        if file.stat().st_size > _MOST_BYTES:
            return {"reason": f"{shown} is longer than {_MOST_BYTES >> 20} MiB."}
        data = file.read_bytes()
    except OSError as error:
        return {"reason": f"{shown}: {error.strerror or error}"}
    if b"\0" in data[:8192]:
        return {"reason": f"{shown} is no text."}
    texts = data.decode("utf-8", "replace").splitlines()
    if not 1 <= line <= len(texts):
        return {"reason": f"{shown} has {len(texts):,} lines, not {line:,}: another version than the one recorded?"}
    first = max(line - _AROUND, 1)
    return {
        "file": shown,
        "line": line,
        "first": first,
        "lines": [text[:_LONGEST] for text in texts[first - 1 : line + _AROUND]],
    }
