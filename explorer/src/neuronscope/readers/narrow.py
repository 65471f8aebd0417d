"""Columns that take little memory: whole numbers in the narrowest type, texts as codes into one dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.readers.exact import Int64

__all__ = ["Coded", "Dictionary", "constant", "narrow", "one_dictionary", "rows_of"]


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
    return column[rows] if rows.dtype == np.bool_ else column.take(rows)  # twice as fast, and without the lock


@dataclass(frozen=True)
class Coded:
    """A column of texts as codes into a list of them, in which a text may stand twice."""

    codes: npt.NDArray[Any]
    texts: Sequence[Any]

    @classmethod
    def of(cls, values: Sequence[str] | npt.NDArray[np.object_]) -> Coded:
        """From one text per row."""
        coded = pa.array(values, pa.string()).dictionary_encode()
        return cls(coded.indices.to_numpy(), coded.dictionary.to_pylist())

    @classmethod
    def same(cls, text: str, count: int) -> Coded:
        """One text in all rows."""
        return cls(np.broadcast_to(np.int8(0), count), [text])

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Coded:
        """Some rows."""
        return Coded(rows_of(self.codes, rows) if isinstance(rows, np.ndarray) else self.codes[rows], self.texts)

    def array(self) -> pa.DictionaryArray:
        """As an Arrow array."""
        return pa.DictionaryArray.from_arrays(pa.array(self.codes.astype(np.int32)), pa.array(self.texts, pa.string()))

    def tolist(self) -> list[str]:
        """One text per row."""
        return [self.texts[code] for code in self.codes.tolist()]

    def equal(self, text: str) -> npt.NDArray[np.bool_]:
        """Which rows have a text."""
        return np.array([other == text for other in self.texts], np.bool_)[self.codes]

    def or_else(self, other: Coded) -> Coded:
        """The rows of `other` where these are empty."""
        codes = np.where(self.equal(""), other.codes.astype(np.int64) + len(self.texts), self.codes)
        return Coded(narrow(codes), [*self.texts, *other.texts])


class Dictionary:
    """One dictionary of the texts of several arrays, and their codes in it as narrow as that allows."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._type: pa.DataType = pa.string()

    def codes(self, part: pa.DictionaryArray | Coded) -> npt.NDArray[np.signedinteger]:
        """The texts of one more column as codes."""
        if isinstance(part, pa.DictionaryArray):
            self._type, part = part.type.value_type, Coded(part.indices.to_numpy(), part.dictionary.to_pylist())
        elif part.texts and isinstance(part.texts[0], bytes):
            self._type = pa.binary()
        numbers = self._numbers
        table = [numbers.setdefault(value, len(numbers)) for value in part.texts]
        kind = np.int8 if len(numbers) <= 2**7 else np.int16 if len(numbers) <= 2**15 else np.int32
        if not len(part):
            return np.zeros(0, np.int8)
        found: npt.NDArray[Any] = np.array(table, kind).take(part.codes)
        return found

    def array(self, codes: npt.NDArray[np.signedinteger]) -> pa.DictionaryArray:
        """The texts of some codes."""
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(self._numbers), self._type))


def one_dictionary(parts: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """The parts as one array with one dictionary and codes as narrow as that allows."""
    dictionary = Dictionary()
    codes = [dictionary.codes(part) for part in parts]
    return dictionary.array(np.concatenate(codes) if codes else np.zeros(0, np.int8))
