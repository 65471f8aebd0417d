"""The columns that every table has, ours and published, as SQL types; and what stands for those a profile lacks."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from neuronscope.schema import own, published

__all__ = ["absent_columns", "published_schema", "table_schemas"]


@functools.cache
def published_schema() -> Mapping[str, Any]:
    """The published profile schema, as checked in."""
    text = resources.files("neuronscope.schema").joinpath("profile-schema-7.4.0.json").read_text()
    return json.loads(text)


_READ = ("Instruction", "Throttle")
"""Published tables that macros of `sql/` read: columns that another version's file lacks are unknown there."""
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


def absent_columns(table: str, present: Sequence[str]) -> str:
    """What to select besides `*`: columns of ours that a profile of an older version lacks, as unknown."""
    unknown = {"VARCHAR": "''", "BOOLEAN": "false"}
    if table in _READ:
        return "".join(
            f', NULL::{kind} AS "{column}"' for column, kind in table_schemas()[table].items() if column not in present
        )
    if table in published.ADDED:
        missing = [(column, kind) for column, kind, _ in published.ADDED[table] if column not in present]
        return "".join(f', NULL::{_sql_type(kind)} AS "{column}"' for column, kind in missing)
    declared = table_schemas().get(table, {}) if table in _OWN_TABLES else {}
    return "".join(
        f', {unknown.get(kind, "-1")}::{kind} AS "{column}"'
        for column, kind in declared.items()
        if column not in present
    )
