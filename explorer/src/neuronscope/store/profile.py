"""One processed profile: a folder of Parquet tables and the manifest that says what it was made from."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from neuronscope.readers import IngestResult, IngestWarning
from neuronscope.schema.published import arrow_schema, table_names
from neuronscope.store.query import SqlError, check_query, first_line, read_only, time_limit

__all__ = ["MANIFEST", "Profile", "SqlError", "result_from_json", "result_to_json"]

MANIFEST = "manifest.json"


class Profile:
    """One processed profile. Immutable; reads its tables when asked. Safe to use from several threads.

    Attributes:
        id: URL-safe, unique in the store, the same for the same source path.
        name: for people.
        path: folder of its Parquet files.
        source: the original, never changed.
        result: what the ingest found.
    """

    def __init__(self, path: Path) -> None:
        """Open the profile in a folder of the store.

        Raises:
            FileNotFoundError, ValueError: there is no complete profile.
        """
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8", errors="surrogateescape"))
        self.id: str = manifest["id"]
        self.name: str = manifest["name"]
        self.path = path
        self.source = Path(manifest["source"])
        self.created_ns: int = manifest["created_ns"]
        self.fingerprint: str = manifest["fingerprint"]
        self.result: IngestResult = result_from_json(manifest["result"])

    def __repr__(self) -> str:
        return f"Profile({self.id!r})"

    @functools.cached_property
    def info(self) -> dict[str, str]:
        """Facts of table ProfileInfo."""
        table = self.table("ProfileInfo")
        return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table of the published schema or of ours; no rows (with its columns) when the profile has none.

        Raises:
            KeyError: no such table in either schema.
        """
        schema = arrow_schema(name)
        files = self._files().get(name)
        if not files:
            empty = schema.empty_table()
            return empty if columns is None else empty.select(list(columns))
        chosen = None if columns is None else list(columns)
        parts = [pq.read_table(file, columns=chosen, partitioning=None) for file in files]
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="permissive")

    def tables(self) -> dict[str, int]:
        """Names of the tables that have rows → number of rows."""
        return {name: sum(pq.read_metadata(f).num_rows for f in files) for name, files in sorted(self._files().items())}

    def sql(self, query: str, parameters: Any = None, timeout_s: float | None = None) -> pa.Table:
        """Run one SELECT of DuckDB over the tables; absent ones are empty. Nothing can be written or read elsewhere.

        Raises:
            SqlError: not one SELECT, a mistake in it, or it took longer than `timeout_s`.
        """
        bare = check_query(query)
        connection = self._connect()
        try:
            with time_limit(connection, timeout_s), read_only(connection, bare, parameters):
                return connection.sql(query, params=parameters).to_arrow_table()
        except duckdb.Error as error:
            raise SqlError(first_line(error)) from None
        finally:
            connection.close()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:", config={"threads": 2})
        files = self._files()
        globbing = any(char in str(self.path) for char in "[*?")  # DuckDB can't escape these and also allow the folder
        for name in table_names():
            if name in files and globbing:
                connection.register(name, self.table(name))
            elif name in files:
                listed = ", ".join(_literal(str(file)) for file in files[name])
                connection.execute(
                    f'CREATE VIEW "{name}" AS SELECT * FROM read_parquet([{listed}], union_by_name := true)'
                )
            elif len(arrow_schema(name)):
                connection.register(f"_{name}", arrow_schema(name).empty_table())
                connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM "_{name}"')
                connection.unregister(f"_{name}")
        connection.execute(f"SET allowed_directories = [{_literal(str(self.path.resolve()))}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection

    def _files(self) -> Mapping[str, list[Path]]:
        """Parquet files by table; large tables may be split into Name_0, Name_1, ..."""
        found: dict[str, list[Path]] = {}
        for file in sorted(self.path.glob("*.parquet")):
            found.setdefault(re.sub(r"_\d+$", "", file.stem), []).append(file)
        return found


def result_to_json(result: IngestResult) -> dict[str, Any]:
    """An ingest result as plain JSON values."""
    values = asdict(result)
    values["source"] = str(result.source)
    return values


def result_from_json(values: Mapping[str, Any]) -> IngestResult:
    """The inverse of `result_to_json`."""
    fields = dict(values)
    fields["source"] = Path(fields["source"])
    fields["ranks"] = tuple(fields["ranks"])
    fields["report"] = tuple(IngestWarning(**row) for row in fields["report"])
    return IngestResult(**fields)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
