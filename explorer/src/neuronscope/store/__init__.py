"""The profile library: every profile is a directory of Parquet tables. Start at `Store`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from neuronscope.readers import IngestResult, Progress

__all__ = ["Profile", "Store", "default_data_path"]


def default_data_path() -> Path:
    """$NEURONSCOPE_DATA_PATH, else $XDG_DATA_HOME/neuronscope, else ~/.local/share/neuronscope."""
    raise NotImplementedError


class Profile:
    """One processed profile. Immutable; reads its tables when asked.

    Attributes:
        id: URL-safe, unique in the store, the same for the same source path.
        name: for people.
        path: directory of its Parquet files.
        source: the original, never changed.
        result: what the ingest found.
        info: facts of table ProfileInfo as a dictionary of texts.
    """

    id: str
    name: str
    path: Path
    source: Path
    result: IngestResult
    info: dict[str, str]

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table of the published schema or of ours; no rows (with its columns) when the profile has none.

        Raises:
            KeyError: no such table in either schema.
        """
        raise NotImplementedError

    def tables(self) -> dict[str, int]:
        """Names of the tables that have rows → number of rows."""
        raise NotImplementedError

    def sql(self, query: str, parameters: Any = None, timeout_s: float | None = None) -> pa.Table:
        """Run one SELECT of DuckDB over the tables (absent ones are empty views). Nothing can be written or read elsewhere.

        Raises:
            SqlError: not one SELECT, a mistake in it, or it took longer than `timeout_s`.
        """
        raise NotImplementedError


class Store:
    """The library under one directory."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        """Open (and make on first write) the library at `root`, by default `default_data_path()`."""
        raise NotImplementedError

    def add(self, path: str | os.PathLike[str], name: str | None = None, progress: Progress | None = None) -> Profile:
        """Ingest a file or folder, or open the profile already made from it if neither it nor the store version changed.

        Raises:
            FormatError: not a profile; OSError: unreadable, or the store is unwritable.
        """
        raise NotImplementedError

    def open(self, profile_id: str) -> Profile:
        """Open a profile by id.

        Raises:
            KeyError: no such profile.
        """
        raise NotImplementedError

    def list(self) -> list[Profile]:
        """All complete profiles, oldest first."""
        raise NotImplementedError
