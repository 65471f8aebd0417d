"""The tables of a profile through DuckDB: ours and a user's SQL, single rows, columns; nothing can be written.

A profile is a folder of Parquet files (`Name.parquet` or `Name_0.parquet`, `Name_1.parquet`, …) or, in tests, a mapping
of Arrow tables. A table without a file is an empty table, never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from neuronscope.analysis.arrays import kind_of
from neuronscope.analysis.columns import absent_columns, table_schemas
from neuronscope.analysis.point_rows import PointRows
from neuronscope.analysis.stop import running
from neuronscope.store.query import SqlError as QueryError
from neuronscope.store.query import check_query, first_line, read_only, time_limit

__all__ = ["SQL_FILES", "QueryError", "Tables"]

SQL_FILES = (
    "is_collective",
    "executions",
    "host_ops",
    "operators",
    "busy",
    "idle",
    "idle_by_cause",
    "totals",
    "work_by",
    "work_by_step",
    "op_paths",
    "host_by_step",
    "host_paths",
    "host_collectives",
    "step_split",
    "overlap",
    "launches",
    "operator_tree",
    "key_averages",
    "lane_use",
    "memory_timeline",
    "memory_peaks",
    "memory_curve",
    "memory_at_peak",
    "collectives",
    "rank_skew",
    "instruction_tree",
    "throttling",
    "insights",
)
"""Macros of `sql/`, in order of use."""


class Tables:
    """What was opened, as tables. Safe to use from several threads.

    Args:
        tables: folder of Parquet files, or tables by name.
    """

    def __init__(self, tables: Path | Mapping[str, pa.Table]) -> None:
        self.directory = tables if isinstance(tables, Path) else None
        self._folder = _folder_identity(self.directory)
        self._connection = duckdb.connect(config={"threads": 2})
        self._lock = Lock()
        self._files: dict[str, list[Path]] = {}
        self._whole: dict[str, Path] = {}  # tables that are one file with all columns
        self._points: dict[tuple[str, str], PointRows] = {}
        self._connection.execute("SET parquet_metadata_cache = true")  # a folder of the library doesn't change
        schemas = table_schemas()
        if isinstance(tables, Path):
            for path in sorted(tables.glob("*.parquet")):
                table_name = re.sub(r"_\d+$", "", path.stem)
                self._files.setdefault(table_name, []).append(path)
            for table_name, paths in self._files.items():
                listed = ", ".join(_sql_text(_escape_glob(str(path.resolve()))) for path in paths)
                present = self._connection.sql(f"FROM read_parquet([{listed}], union_by_name := true) LIMIT 0").columns
                added = absent_columns(table_name, present)
                if len(paths) == 1 and not added:
                    self._whole[table_name] = paths[0]
                self._connection.execute(
                    f'CREATE VIEW "{table_name}" AS '
                    f"SELECT *{added} FROM read_parquet([{listed}], union_by_name := true)"
                )
        else:
            for table_name, table in tables.items():
                self._files[table_name] = []
                self._connection.register("_incoming", table)
                added = absent_columns(table_name, table.column_names)
                self._connection.execute(f'CREATE TABLE "{table_name}" AS SELECT *{added} FROM _incoming')
                self._connection.unregister("_incoming")
        for table_name, columns in schemas.items():
            if table_name not in self._files:
                listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
                self._connection.execute(f'CREATE TABLE "{table_name}" ({listed})')
        for file in SQL_FILES:
            self._connection.execute(resources.files("neuronscope.analysis").joinpath("sql", f"{file}.sql").read_text())
        if self.directory is not None:  # a user's query may read this profile, and nothing else on this machine
            folder = str(self.directory.resolve())
            allowed = ", ".join(_sql_text(text) for text in (folder, _escape_glob(folder)))  # compared as text
            self._connection.execute(f"SET allowed_directories = [{allowed}]")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    @property
    def tables(self) -> list[str]:
        """Names of the tables that have rows' files, sorted."""
        return sorted(self._files)

    def table(self, name: str) -> pa.Table:
        """One table in full; empty with its declared columns when the profile has none.

        Raises:
            QueryError: no such table in the schema.
        """
        if name not in self._files and name not in table_schemas():
            raise QueryError(f"no table {name}. Tables with rows: {', '.join(self.tables)}")
        return self.query(f'SELECT * FROM "{name}"')

    def parquet(self, name: str) -> bytes:
        """One table as the content of a Parquet file."""
        if name in self._whole:
            return self._whole[name].read_bytes()
        sink = pa.BufferOutputStream()
        pq.write_table(self.table(name), sink, compression="zstd")
        return sink.getvalue().to_pybytes()

    def query(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run our own SQL; `$name` parameters that the text does not mention are left out."""
        given = {key: value for key, value in (parameters or {}).items() if f"${key}" in text}
        with self._cursor() as cursor:
            return cursor.sql(text, params=given).to_arrow_table()

    def batches(self, text: str, rows: int) -> Iterator[pa.RecordBatch]:
        """The result of our own SQL, `rows` at a time as it is made; its order is that of the files unless it says."""
        with self._cursor() as cursor:
            yield from cursor.sql(text).to_arrow_reader(rows)

    def columns(self, text: str) -> dict[str, npt.NDArray[Any]]:
        """The columns of our own SQL, all of whole numbers, as narrow as they go and without a second copy of them."""
        parts: dict[str, list[npt.NDArray[Any]]] = {}
        for batch in self.batches(text, 1 << 20):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                values = column.to_numpy(zero_copy_only=False)
                parts.setdefault(name, []).append(values.astype(kind_of(int(values.min()), int(values.max()))))
        if not parts:
            return {name: np.zeros(0, np.int64) for name in self.query(f"FROM ({text}) LIMIT 0").column_names}
        return {name: np.concatenate(parts.pop(name)) for name in list(parts)}

    def rows_with(
        self, table: str, column: str, values: Iterable[int], columns: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Rows of a table whose `column` is one of some ids; at any size of the profile in milliseconds."""
        wanted = [int(value) for value in values]
        if not wanted:
            return []
        points = self._point_rows(table, column)
        found = points.rows(wanted, columns) if points is not None else None
        if found is not None:
            return found
        # The ids stand in the text, so that DuckDB skips row groups by them.
        shown, listed = ", ".join(columns or ("*",)), ", ".join(map(str, wanted))
        return self.rows(f'SELECT {shown} FROM "{table}" WHERE "{column}" IN ({listed})')

    def _point_rows(self, table: str, column: str) -> PointRows | None:
        if table not in self._whole:
            return None
        with self._lock:
            if (table, column) not in self._points:
                self._points[table, column] = PointRows(self._whole[table], column)
            return self._points[table, column]

    def row_count(self, table: str) -> int:
        """Number of rows of a table."""
        return int(self.rows(f'SELECT count(*) AS n FROM "{table}"')[0]["n"])

    def rows(self, text: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Like `query`, as dictionaries."""
        return self.query(text, parameters).to_pylist()

    @property
    def replaced(self) -> bool:
        """The folder was made anew since this profile was opened, since its source had changed."""
        now = _folder_identity(self.directory)
        return now is not None and now != self._folder

    def sql(self, text: str, timeout_s: float | None = None, limit: int | None = None) -> pa.Table:
        """Run a user's query over the profile's tables and the macros of `analysis/sql`; nothing can be written.

        Args:
            text: one SELECT (WITH, FROM, DESCRIBE, EXPLAIN of one).
            timeout_s: seconds after which it is stopped; None: never.
            limit: rows to return at most; None: all.

        Raises:
            QueryError: a syntax error, an unknown name, more than one statement, a statement that is not a query, or
                it took too long.
        """
        query = check_query(text)
        try:
            with self._cursor() as cursor, time_limit(cursor, timeout_s), read_only(cursor, query):
                result = cursor.sql(text)
                return (result if limit is None else result.limit(limit)).to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(first_line(error)) from None

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:
            cursor = self._connection.cursor()
        try:
            with running(cursor):
                yield cursor
        finally:
            cursor.close()

    def close(self) -> None:
        """Release the database and the files."""
        self._connection.close()
        for points in self._points.values():
            points.close()


def _folder_identity(folder: Path | None) -> tuple[int, int] | None:
    try:
        found = folder.stat() if folder is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def _sql_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _escape_glob(path: str) -> str:
    """`path` such that DuckDB's globbing finds only itself."""
    return re.sub(r"([\[*?])", r"[\1]", path)
