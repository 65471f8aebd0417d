"""Arrow tables with exactly the columns of their schema."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from neuronscope.readers.narrow import Coded
from neuronscope.readers.scratch import CHUNK_ROWS, Scratch, ranges
from neuronscope.schema.published import arrow_schema

__all__ = ["in_pieces", "named_table"]

_PIECE_ROWS = 65_536


def named_table(name: str, columns: dict[str, Any]) -> pa.Table:
    """A table with exactly the columns of its schema; absent optional ones are null.

    A required column whose values are unknown is given as None or holds nulls: it is null, not made up.

    Raises:
        KeyError: a required column is not mentioned.
    """
    schema = arrow_schema(name)
    rows = len(next(value for value in columns.values() if value is not None))
    arrays, fields = [], []
    for field in schema:
        value = columns.get(field.name)
        if isinstance(value, Coded):
            value = value.array()
        if value is None:
            if not field.nullable and field.name not in columns:
                raise KeyError(f"{name} needs column {field.name}")
            array = _nulls(rows, field.type)
        elif isinstance(value, pa.Array | pa.ChunkedArray):
            kept = (
                pa.types.is_dictionary(value.type) or pa.types.is_large_string(value.type) or value.type == field.type
            )
            array = value if kept else value.cast(field.type)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            array = pa.array(value).cast(field.type, safe=True)
        else:
            array = pa.array(value, field.type)
        if pa.types.is_string(array.type) and rows > 64:
            array = array.dictionary_encode() if name != "SystemProfileEvents" else array
        arrays.append(array)
        fields.append(pa.field(field.name, array.type, field.nullable or array.null_count > 0))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@functools.lru_cache(maxsize=32)
def _nulls(rows: int, kind: pa.DataType) -> pa.Array:
    """A column without values; most pieces of a table are of one size."""
    return pa.nulls(rows, kind)


def in_pieces(rows: int, piece: Callable[[int, int], pa.Table], scratch: Scratch) -> Iterator[pa.Table]:
    """A table of so many rows some at once, as `piece` makes them of two bounds of what `scratch` holds."""
    for low, high in ranges(rows, _PIECE_ROWS):
        yield piece(low, high)
        if high % CHUNK_ROWS < _PIECE_ROWS:
            scratch.forget()
