"""SQLite files of other profilers: which one it is, and rows of their tables by column name."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from neuronscope.formats.errors import FormatError
from neuronscope.readers.trace import Trace

__all__ = ["Database", "connect", "read_database"]

_VERSION = re.compile(r"_V\d+$")
_AT_ONCE = 16_384


class Database:
    """An open file; tables and columns are looked up by name, whatever version wrote them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._connection = connection
        found = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        listed = sorted(str(row[0]) for row in found)
        # Newer Nsight Systems writes NVTX_EVENTS_V2 and the like: known by their plain names, the latest where several.
        self._versions = {plain: name for name in listed if (plain := _VERSION.sub("", name)) != name}
        self._versions = {plain: name for plain, name in self._versions.items() if plain not in listed}
        self.tables = {name for name in listed if self._versions.get(_VERSION.sub("", name)) is None} | {
            *self._versions
        }

    def _named(self, table: str) -> str:
        return _quoted(self._versions.get(table, table))

    def columns(self, table: str) -> set[str]:
        """Names of a table's columns."""
        return {str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({self._named(table)})")}

    def count(self, table: str) -> int:
        """Number of rows."""
        return int(self._connection.execute(f"SELECT count(*) FROM {self._named(table)}").fetchone()[0])

    def extremes(self, table: str, low: str, high: str) -> tuple[Any, Any]:
        """The least value of one column and the greatest of another, None in an empty table."""
        query = f"SELECT min({_quoted(low)}), max({_quoted(high)}) FROM {self._named(table)}"
        first, last = self._connection.execute(query).fetchone()
        return first, last

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """Every row as column → value; nothing when there is no such table."""
        if table in self.tables:
            yield from self.joined(table, (), ())

    def joined(self, table: str, selected: Sequence[str], joins: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Rows of a table, `t` in the joins; the selected columns of those come last and win."""
        columns = ", ".join(("t.*", *selected))
        cursor = self._connection.execute(f"SELECT {columns} FROM {self._named(table)} AS t {' '.join(joins)}")
        names = [str(column[0]) for column in cursor.description]
        while some := cursor.fetchmany(_AT_ONCE):
            for row in some:
                yield dict(zip(names, row, strict=True))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def connect(path: Path) -> sqlite3.Connection:
    """The file, to be read only."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def read_database(path: Path, progress: Callable[[float], None] | None = None) -> Trace:
    """Read one file.

    Raises:
        FormatError: a database of something else, or damaged.
    """
    from neuronscope.readers import nsys, rocpd

    try:
        with closing(connect(path)) as connection:
            database = Database(connection)
            for reader in (nsys, rocpd):
                if reader.is_mine(database):
                    trace: Trace = reader.read(database, path, progress)
                    return trace
            raise FormatError(
                f"{path}: a SQLite file of something else. Looked for tables of Nsight Systems "
                f"({', '.join(nsys.TABLES)}) and of rocprofv3 or RPD ({', '.join(rocpd.TABLES)})"
            )
    except (sqlite3.Error, OverflowError) as error:
        raise FormatError(f"{path}: this SQLite file can't be read ({error})") from None
