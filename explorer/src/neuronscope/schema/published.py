"""The published profile schema (7.4.0) and ours as Arrow schemas, and the self-describing `SchemaFields` table.

One lookup for both: `arrow_schema(name)`. Strings are plain in the published tables' contract; readers may get them
dictionary-encoded, which every consumer of Parquet treats as strings.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pyarrow as pa

from neuronscope.schema import own

__all__ = ["SCHEMA_VERSION", "Field", "arrow_schema", "fields", "schema_fields", "table_names"]

SCHEMA_VERSION = "7.4.0"
_UNITS = {"_ns": "ns", "_ts": "ns", "_bytes": "B", "_percent": "%"}
_TYPES: dict[str, pa.DataType] = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "list<string>": pa.list_(pa.string()),
    "list<int64>": pa.list_(pa.int64()),
}


@dataclass(frozen=True)
class Field:
    """One column of one table, of the published schema or ours."""

    name: str
    type: str
    unit: str
    required: bool
    doc: str
    enum_values: tuple[str, ...] = ()


@functools.cache
def _published() -> dict[str, Any]:
    text = resources.files("neuronscope.schema").joinpath("profile-schema-7.4.0.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@functools.cache
def _tables() -> Mapping[str, tuple[str, tuple[Field, ...]]]:
    document = _published()
    enums: dict[str, list[str]] = document["enums"]
    found: dict[str, tuple[str, tuple[Field, ...]]] = {}
    for table in document["tables"]:
        if table["transient"]:
            continue  # answers of its HTTP interface, never kept in a profile
        columns = tuple(
            Field(
                field["name"],
                field["type"],
                field.get("unit") or "",
                bool(field["required"]),
                field.get("note", ""),
                tuple(enums.get(field.get("enum", ""), ())),
            )
            for field in table["fields"]
        )
        found[table["name"]] = (table.get("note") or f"published table of kind {table['kind']}", columns)
    for spec in own.OWN_TABLES:
        found[spec.name] = (
            f"{spec.doc} (Neuronscope)",
            tuple(Field(c.name, c.type, _unit(c.name), True, c.doc) for c in spec.columns),
        )
    return found


def _unit(name: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")


def table_names() -> tuple[str, ...]:
    """Every table of the published schema and ours."""
    return tuple(_tables())


def fields(table: str) -> tuple[Field, ...]:
    """The columns of a table; KeyError when neither schema has it."""
    return _tables()[table][1]


@functools.cache
def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of a table; KeyError when neither schema has it."""
    return pa.schema([pa.field(f.name, _TYPES[f.type], nullable=not f.required) for f in fields(table)])


def schema_fields(tables: Iterable[str]) -> pa.Table:
    """The `SchemaFields` table that describes `tables` and itself."""
    names = sorted({*tables, "SchemaFields"})
    rows = [
        {
            "table_name": name,
            "table_description": _tables()[name][0],
            "field_name": field.name,
            "field_description": field.doc or field.name.replace("_", " "),
            "field_example": None,
            "field_type": field.type,
            "field_required": field.required,
            "field_format": field.type if field.type.startswith(("int", "float")) else None,
            "field_unit": field.unit or None,
            "field_minimum": None,
            "field_maximum": None,
            "field_enum_values": ", ".join(field.enum_values) or None,
        }
        for name in names
        for field in fields(name)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema("SchemaFields"))
