"""An opened profile: its tables through DuckDB, its facts, and every analysis as a method.

A profile is a folder of Parquet files (`Name.parquet` or `Name_0.parquet`, `Name_1.parquet`, …) or, in tests, a mapping
of Arrow tables. A table without a file is an empty table, never an error.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from neuronscope.analysis.arrays import kept_facts, kind_of
from neuronscope.analysis.point_rows import PointRows
from neuronscope.schema import own, published
from neuronscope.store.query import SqlError as QueryError
from neuronscope.store.query import check_query, first_line, time_limit

if TYPE_CHECKING:
    from neuronscope.analysis.catalog import Found
    from neuronscope.analysis.event_index import EventIndex
    from neuronscope.analysis.operators import Operators
    from neuronscope.analysis.roofline import Roofline
    from neuronscope.analysis.summary import Summary
    from neuronscope.analysis.timeline import Timeline
    from neuronscope.readers import IngestResult

__all__ = ["RANGE_ARGUMENTS", "SQL_FILES", "Profile", "QueryError", "Range", "Step", "slug", "unique_names"]

RANGE_ARGUMENTS = (
    "(range_start := $range_start::BIGINT, range_end := $range_end::BIGINT, range_step := $range_step::BIGINT)"
)
"""Call of a range macro of `sql/` with `Range.parameters`."""

SQL_FILES = (
    "is_collective",
    "executions",
    "host_ops",
    "operators",
    "busy",
    "idle",
    "totals",
    "work_by",
    "work_by_step",
    "op_paths",
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
    "insights",
)
"""Macros of `sql/`, in order of use."""
_KEPT = 32  # answers of analyses


@dataclass(frozen=True)
class Step:
    """A profiler step; times absolute, in ns."""

    number: int
    name: str
    start: int
    end: int
    complete: bool


@dataclass(frozen=True)
class Range:
    """A part of a profile: half open, absolute ns; `step` >= 0 selects by step number rather than by time."""

    start: int
    end: int
    step: int = -1
    text: str = ""

    @property
    def parameters(self) -> dict[str, int]:
        """The arguments of every range macro in `analysis/sql`."""
        return {"range_start": self.start, "range_end": self.end, "range_step": self.step}


class Profile:
    """One profile. Safe to use from several threads.

    `id` is the URL-safe form of the name; whoever opens several profiles makes names unique (`unique_names`).

    Args:
        name: what tables and links call it.
        tables: folder of Parquet files, or tables by name.
        source: the file or folder it was read from, for display.
        ingest_result: what the reader counted, where known.
    """

    def __init__(
        self,
        name: str,
        tables: Path | Mapping[str, pa.Table],
        source: Path | None = None,
        ingest_result: IngestResult | None = None,
    ) -> None:
        self.name = name
        self.id = slug(name)
        self.source = source
        self.ingest_result = ingest_result
        self.directory = tables if isinstance(tables, Path) else None
        self._folder = _folder_identity(self.directory)
        self._connection = duckdb.connect(config={"threads": 2})
        self._lock = Lock()
        self._created: set[str] = set()
        self._found: dict[tuple[str, Range], Found] = {}
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
                added = _absent_columns(table_name, present)
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
                added = _absent_columns(table_name, table.column_names)
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
        with self._lock:
            cursor = self._connection.cursor()
        try:
            return cursor.sql(text, params=given).to_arrow_table()
        finally:
            cursor.close()

    def batches(self, text: str, rows: int) -> Iterator[pa.RecordBatch]:
        """The result of our own SQL, `rows` at a time as it is made; its order is that of the files unless it says."""
        with self._lock:
            cursor = self._connection.cursor()
        try:
            yield from cursor.sql(text).to_arrow_reader(rows)
        finally:
            cursor.close()

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

    def create_once(self, name: str, query: str) -> None:
        """Keep the result of a query as a table of this session, the first time it is asked for."""
        with self._lock:
            if name not in self._created:
                self._connection.execute(f'CREATE TABLE "{name}" AS {query}')
                self._created.add(name)

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
        check_query(text)
        with self._lock:
            cursor = self._connection.cursor()
        try:
            with time_limit(cursor, timeout_s):
                result = cursor.sql(text)
                return (result if limit is None else result.limit(limit)).to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(first_line(error)) from None
        finally:
            cursor.close()

    @functools.cached_property
    def info(self) -> Mapping[str, str]:
        """`ProfileInfo` as a dictionary."""
        return {row["key"]: row["value"] for row in self.rows("SELECT key, value FROM ProfileInfo")}

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        """First start and last end of all slices, absolute ns; (0, 0) for an empty profile."""
        query = "SELECT min(start_ts) AS first, max(end_ts) AS last FROM Slice"
        row = kept_facts(self, "bounds", ("Slice",), lambda: self.rows(query)[0])
        if row["first"] is None:
            return 0, 0
        return row["first"], row["last"]

    @property
    def origin_ns(self) -> int:
        """Absolute time of the first slice; times of the HTTP interface are relative to it."""
        return self.bounds[0]

    @property
    def span_ns(self) -> int:
        """First start to last end of all slices, host included."""
        return self.bounds[1] - self.bounds[0]

    @functools.cached_property
    def steps(self) -> list[Step]:
        """Profiler steps in order of start; one that several ranks or processes have is one, from first to last."""
        rows = self.rows(
            """
            SELECT number, any_value(name) AS name, min(start_ts) AS start_ts, max(end_ts) AS end_ts,
                   bool_and(complete) AS complete
            FROM Step GROUP BY number ORDER BY start_ts, number
            """
        )
        return [Step(r["number"], r["name"], r["start_ts"], r["end_ts"], r["complete"]) for r in rows]

    @functools.cached_property
    def default_range(self) -> Range:
        """The last complete step that launched device work (any complete step where none did), else everything."""
        complete = [step for step in self.steps if step.complete]
        query = "SELECT DISTINCT step FROM Execution WHERE step >= 0 ORDER BY step"
        worked = set(kept_facts(self, "steps", ("Execution",), lambda: [row["step"] for row in self.rows(query)]))
        complete = [step for step in complete if step.number in worked] or complete
        if not complete:
            return self.whole_range
        step = complete[-1]
        text = f"1 of {len(self.steps)} steps" if len(self.steps) > 1 else f"{step.name}, the only step"
        return Range(step.start, step.end, step.number, text)

    @property
    def whole_range(self) -> Range:
        """Everything."""
        start, end = self.bounds
        return Range(start, end + 1, -1, f"all {len(self.steps)} steps" if len(self.steps) > 1 else "everything")

    def range(self, start: int | None = None, end: int | None = None) -> Range:
        """The range of absolute times given; the default one when both are None.

        A range that is exactly a step selects that step's work, wherever the device got round to it.
        """
        if start is None and end is None:
            return self.default_range
        begin = self.bounds[0] if start is None else start
        finish = self.bounds[1] + 1 if end is None else end
        for step in self.steps:
            if (step.start, step.end) == (begin, finish):
                return Range(begin, finish, step.number, step.name)
        return Range(begin, finish, -1, "")

    @functools.cached_property
    def emulated(self) -> bool:
        """True when the device rows are simulated."""
        return self.info.get("emulated", "").lower() in ("true", "1", "yes")

    @functools.cached_property
    def launch_status(self) -> str:
        """Where the launch cost comes from, as the target file says: calibrated, estimated or another of its words."""
        return self.info.get("device_cost_status.launch_cost") or "of unknown origin"

    @functools.cached_property
    def has_device_rows(self) -> bool:
        """False for a trace of host activity alone."""
        return bool(self.rows("SELECT 1 FROM Execution LIMIT 1"))

    @functools.cached_property
    def names(self) -> list[str]:
        """Names of slices and operators by `name_id`."""
        rows = self.rows("SELECT name_id, name FROM Name")
        found = [""] * (max((row["name_id"] for row in rows), default=-1) + 1)
        for row in rows:
            found[row["name_id"]] = row["name"]
        return found

    @functools.cached_property
    def tracks(self) -> Mapping[int, Mapping[str, Any]]:
        """Rows of the Track table by `track_id`."""
        return {row["track_id"]: row for row in self.rows("SELECT * FROM Track ORDER BY track_id")}

    @functools.cached_property
    def event_index(self) -> EventIndex:
        """Who is linked to whom, built on first use."""
        from neuronscope.analysis.event_index import EventIndex

        return EventIndex(self)

    @functools.cached_property
    def timeline(self) -> Timeline:
        """The tile index, built on first use."""
        from neuronscope.analysis.timeline import Timeline

        return Timeline.of(self)

    def summary(self, selected: Range | None = None) -> Summary:
        """The largest facts of a range; see `neuronscope.analysis.summary`."""
        from neuronscope.analysis.summary import summarize

        return summarize(self, selected)

    def analyse(self, name: str, selected: Range | None = None) -> Found:
        """One of the analyses of `neuronscope.analysis.catalog`: steps, insights, overlap, ranks, memory, ….

        A profile does not change, so the last few answers are kept.
        """
        from neuronscope.analysis.catalog import analyse, range_of

        key = name, range_of(self, name, selected)
        found = self._found.get(key)
        if found is None:
            found = analyse(self, *key)
            with self._lock:
                if len(self._found) >= _KEPT:
                    self._found.pop(next(iter(self._found)))
                self._found[key] = found
        return found

    def operators(self, selected: Range | None = None) -> Operators:
        """The operator table of a range; see `neuronscope.analysis.operators`."""
        from neuronscope.analysis.operators import operator_table

        return operator_table(self, selected)

    def roofline(self, selected: Range | None = None, **peaks: float | None) -> Roofline:
        """Each executable against the hardware's peaks; see `neuronscope.analysis.roofline`."""
        from neuronscope.analysis.roofline import roofline

        return roofline(self, selected, **peaks)

    def close(self) -> None:
        """Release the database and the files."""
        self._connection.close()
        for points in self._points.values():
            points.close()


def slug(name: str) -> str:
    """`name` with all but letters, digits, dot, dash and underscore replaced: safe in a URL and as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "profile"


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, later ones that would get an id already taken numbered: `naive`, `naive-2`."""
    taken: set[str] = set()
    result = []
    for name in names:
        chosen, number = name, 2
        while slug(chosen) in taken:
            chosen, number = f"{name}-{number}", number + 1
        taken.add(slug(chosen))
        result.append(chosen)
    return result


@functools.cache
def published_schema() -> Mapping[str, Any]:
    """The published profile schema, as checked in."""
    text = resources.files("neuronscope.schema").joinpath("profile-schema-7.4.0.json").read_text()
    return json.loads(text)


_OWN_TABLES = frozenset(table.name for table in own.OWN_TABLES)
_SQL_TYPES = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "uint64": "UBIGINT",
    "uint32": "UINTEGER",
    "float64": "DOUBLE",
    "float32": "FLOAT",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
}


def _sql_type(kind: str) -> str:
    if match := re.fullmatch(r"list<(.+)>", kind):
        return f"{_sql_type(match[1])}[]"
    return _SQL_TYPES.get(kind, "VARCHAR")


@functools.cache
def table_schemas() -> Mapping[str, Mapping[str, str]]:
    """SQL column types of every table, ours and published, by table name."""
    found = {
        table["name"]: {field["name"]: _sql_type(field["type"]) for field in table["fields"]}
        for table in published_schema()["tables"]
        if table["fields"]
    }
    for name, added in published.ADDED.items():
        found[name] |= {column: _sql_type(kind) for column, kind, _ in added}
    for table in own.OWN_TABLES:
        found[table.name] = {column.name: _sql_type(column.type) for column in table.columns}
    return found


def _absent_columns(table: str, present: Sequence[str]) -> str:
    """What to select besides `*`: columns of ours that a profile of an older version lacks, as unknown."""
    unknown = {"VARCHAR": "''", "BOOLEAN": "false"}
    if table in published.ADDED:
        missing = [(column, kind) for column, kind, _ in published.ADDED[table] if column not in present]
        return "".join(f', NULL::{_sql_type(kind)} AS "{column}"' for column, kind in missing)
    declared = table_schemas().get(table, {}) if table in _OWN_TABLES else {}
    return "".join(
        f', {unknown.get(kind, "-1")}::{kind} AS "{column}"'
        for column, kind in declared.items()
        if column not in present
    )


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
