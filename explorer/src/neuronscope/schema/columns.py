"""How a table is declared, once for writer, reader, store and docs: its name, what a row is, its columns."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

_TYPES = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.dictionary(pa.int32(), pa.string()),
}


@dataclass(frozen=True)
class Column:
    """One column: name (unit as suffix), type name (`int64`, `int32`, `float64`, `bool`, `string`), meaning."""

    name: str
    type: str
    doc: str


@dataclass(frozen=True)
class TableSpec:
    """A bulk table: its name in the container, what a row is, its columns."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema; strings are dictionary-encoded."""
        return pa.schema([pa.field(c.name, _TYPES[c.type], nullable=False) for c in self.columns])


def spec(name: str, doc: str, columns: str) -> TableSpec:
    """Declare a table from lines of `name type meaning`."""
    rows = [line.split(None, 2) for line in columns.strip().splitlines()]
    return TableSpec(name, doc, tuple(Column(n, t, d) for n, t, d in rows))
