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

__all__ = [
    "ADDED",
    "DEVICE_TABLES",
    "SCHEMA_VERSION",
    "Field",
    "arrow_schema",
    "description",
    "fields",
    "schema_fields",
    "table_names",
]

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


#: Columns of ours at the end of published tables, null where a profile came from elsewhere: one store holds every
#: device profile of a session, where the vendor's tools make a folder of each.
_PROFILE = ("device_profile_name", "string", "DeviceProfileList.device_profile_name: the executable and core it is of")
_EXECUTION = ("execution_id", "int64", "Execution.execution_id it belongs to")
ADDED: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Instruction": (
        _PROFILE,
        _EXECUTION,
        ("elementwise_flops", "int64", "additions and multiplications of an engine that is not TensorE"),
    ),
    "DmaPacketAggregated": (_PROFILE, _EXECUTION),
    "DmaPacket": (_PROFILE,),
    "ActiveTime": (_PROFILE, _EXECUTION),
    "SemaphoreUpdate": (_PROFILE, _EXECUTION),
    "SbufAllocation": (_PROFILE, _EXECUTION),
    "SbufUsage": (_PROFILE, _EXECUTION),
    "PsumUsage": (_PROFILE, _EXECUTION),
    "HbmUsage": (_PROFILE, _EXECUTION),
    "DmaUsage": (_PROFILE, _EXECUTION),
    "PendingDma": (_PROFILE, _EXECUTION),
    "ExecutionInfo": (_PROFILE, _EXECUTION),
    "OpcodeSummary": (_PROFILE,),
    "TensorInfo": (_PROFILE,),
    "Summary": (
        _PROFILE,
        ("neff", "string", "hash of the executable"),
        ("nc_idx", "int64", "logical NeuronCore it ran on"),
        ("execution_count", "int64", "how often it ran; the row describes one of these, they are all the same"),
        ("elementwise_flops", "int64", "additions and multiplications of engines that are not TensorE"),
        ("estimated_percent", "float32", "part of total_time that is an estimate: no engine is active in it"),
        ("useful_read_percent", "float32", "HBM reads that are no spill reload, of all HBM reads"),
    ),
}


#: Tables that an emulated device profile fills.
DEVICE_TABLES = (
    "DeviceProfileList",
    "Summary",
    "OpcodeSummary",
    "Instruction",
    "DmaPacketAggregated",
    "DmaPacket",
    "DmaQueuesInfo",
    "Flow",
    "SemaphoreUpdate",
    "ActiveTime",
    "SbufAllocation",
    "SbufUsage",
    "PsumUsage",
    "HbmUsage",
    "DmaUsage",
    "PendingDma",
    "TensorInfo",
    "ExecutionInfo",
    "NeffHeader",
    "Metadata",
)


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
        columns += tuple(
            Field(name, kind, _unit(name), False, f"{doc} (Neuronscope)")
            for name, kind, doc in ADDED.get(table["name"], ())
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


def description(table: str) -> str:
    """What a row of a table is; KeyError when neither schema has it."""
    return _tables()[table][0]


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
