"""Read any profile into Parquet. Start at `ingest`; one module per format, each a `Reader`.

The way of an event: `detect` picks the reader → `json_events` / `session` turn bytes into columns → `model` gives them
tracks, lanes, links, executions, gaps and steps → `write` makes the Parquet tables.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from neuronscope.formats.errors import FormatError
from neuronscope.readers.result import IngestResult, IngestWarning, Progress

__all__ = ["FormatError", "IngestResult", "IngestWarning", "Progress", "Reader", "detect", "ingest"]


class Reader(Protocol):
    """Reads one format. `source` is what will be read; of a folder with several sessions it is the one taken."""

    format: str
    source: Path

    def files(self) -> list[Path]:
        """Every file that a change of would change the profile."""
        ...

    def read(self, store_dir: Path, progress: Progress | None = None) -> IngestResult:
        """Read the source and write the Parquet tables into `store_dir`, an existing empty directory."""
        ...


def detect(path: str | os.PathLike[str]) -> Reader:
    """Find the format of a file or folder from its content.

    Raises:
        FormatError: nothing here is a profile; the message lists what was looked for.
        FileNotFoundError: the path does not exist.
    """
    raise NotImplementedError


def ingest(
    path: str | os.PathLike[str], store_dir: str | os.PathLike[str], progress: Progress | None = None
) -> IngestResult:
    """Read a profile and write its Parquet tables into `store_dir`, which is made if needed.

    Raises:
        FormatError: unknown format, or nothing in it could be kept.
        OSError: a file cannot be read or written.
    """
    raise NotImplementedError
