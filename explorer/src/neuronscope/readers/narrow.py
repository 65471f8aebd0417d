"""Columns that take little memory: whole numbers in the narrowest type, texts as codes into one dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.readers.exact import Int64

__all__ = ["Dictionary", "constant", "narrow", "one_dictionary", "rows_of"]


def narrow(values: Int64) -> Any:
    """The same numbers in the narrowest type that holds them."""
    if not len(values):
        return values.astype(np.int8)
    low, high = int(values.min()), int(values.max())
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def constant(value: int, count: int) -> Any:
    """A column of one number that takes no memory; not writable."""
    return np.broadcast_to(np.int64(value), count)


def rows_of(column: npt.NDArray[Any], rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`column[rows]`; of a `constant` a constant."""
    if column.strides == (0,) and len(column):
        return np.broadcast_to(column[0], len(rows))
    return column[rows]


class Dictionary:
    """One dictionary of the texts of several arrays, and their codes in it as narrow as that allows."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._type: pa.DataType = pa.string()

    def codes(self, part: pa.DictionaryArray) -> npt.NDArray[np.signedinteger]:
        """The texts of one more array as codes."""
        numbers, self._type = self._numbers, part.type.value_type
        table = [numbers.setdefault(value, len(numbers)) for value in part.dictionary.to_pylist()]
        kind = np.int8 if len(numbers) <= 2**7 else np.int16 if len(numbers) <= 2**15 else np.int32
        return np.array(table, kind)[part.indices.to_numpy()] if len(part) else np.zeros(0, np.int8)

    def array(self, codes: npt.NDArray[np.signedinteger]) -> pa.DictionaryArray:
        """The texts of some codes."""
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(self._numbers), self._type))


def one_dictionary(parts: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """The parts as one array with one dictionary and codes as narrow as that allows."""
    dictionary = Dictionary()
    codes = [dictionary.codes(part) for part in parts]
    return dictionary.array(np.concatenate(codes) if codes else np.zeros(0, np.int8))
