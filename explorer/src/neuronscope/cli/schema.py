"""The stored tables as an OpenAPI document, for `--show-profile-schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from neuronscope.analysis.columns import published_schema
from neuronscope.schema import own

__all__ = ["openapi_yaml"]

_TYPES = {
    "int64": ("integer", "int64"),
    "int32": ("integer", "int32"),
    "uint64": ("integer", "uint64"),
    "uint32": ("integer", "uint32"),
    "float64": ("number", "double"),
    "float32": ("number", "float"),
    "bool": ("boolean", None),
    "string": ("string", None),
}


def openapi_yaml() -> str:
    """Published tables first, then our own; text is quoted as JSON strings, which YAML reads."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    schema = published_schema()
    yield "openapi: 3.0.3"
    yield "info:"
    yield "  title: Neuronscope profile"
    yield f"  version: {json.dumps(schema['schema_version'])}"
    yield "paths: {}"
    yield "components:"
    yield "  schemas:"
    for table in schema["tables"]:
        yield f"    {table['name']}:"
        yield "      type: object"
        if table.get("note"):
            yield f"      description: {json.dumps(table['note'])}"
        required = [field["name"] for field in table["fields"] if field["required"]]
        if required:
            yield f"      required: [{', '.join(required)}]"
        yield f"      properties:{'' if table['fields'] else ' {}'}"
        for field in table["fields"]:
            yield from _property(field["name"], field["type"], field)
    for spec in own.OWN_TABLES:
        yield f"    {spec.name}:"
        yield "      type: object"
        yield f"      description: {json.dumps(f'ours: {spec.doc}', ensure_ascii=False)}"
        yield f"      required: [{', '.join(column.name for column in spec.columns)}]"
        yield "      properties:"
        for column in spec.columns:
            yield from _property(column.name, column.type, {"note": column.doc})


def _property(name: str, kind: str, facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"        {name}:"
    indent = "          "
    if kind.startswith("list<"):
        yield f"{indent}type: array"
        yield f"{indent}items:"
        yield from _type(kind[5:-1], f"{indent}  ")
    else:
        yield from _type(kind, indent)
    notes = [text for text in (facts.get("unit") and f"unit {facts['unit']}", facts.get("note")) if text]
    if notes:
        yield f"{indent}description: {json.dumps('; '.join(notes), ensure_ascii=False)}"


def _type(kind: str, indent: str) -> Iterator[str]:
    name, form = _TYPES.get(kind, ("string", None))
    yield f"{indent}type: {name}"
    if form:
        yield f"{indent}format: {form}"
