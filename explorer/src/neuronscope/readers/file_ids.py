"""Process and thread ids of a trace file, which may be of any type, as numbers."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.readers.exact import Int64, int64
from neuronscope.readers.narrow import narrow
from neuronscope.readers.trace import TEXT_PID

__all__ = ["Numbers", "id_text", "numbers_of"]


class Numbers:
    """Process or thread ids of rows as int64, from one number per distinct text."""

    def __init__(self, table: Int64, codes: npt.NDArray[Any]) -> None:
        self._table = table
        self._codes = codes

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, np.ndarray) and rows.dtype != np.bool_:
            return self._table.take(self._codes.take(rows))
        return self._table[self._codes[rows]]


def numbers_of(column: pa.DictionaryArray, labels: dict[int, str]) -> Numbers:
    """Process or thread ids as int64; texts without a number get negative ones and go to `labels`."""
    values: list[int] = []
    for index, raw in enumerate(column.dictionary.to_pylist()):
        text = id_text(raw)
        number = int64(text, -(2**62))
        if not text:
            number = 0 if not raw else TEXT_PID - index
        elif number == -(2**62):
            tail = re.fullmatch(r"(?:stream|thread|tid|pid)[ :_-]*(\d{1,18})", text, re.IGNORECASE)
            number = int(tail[1]) if tail else TEXT_PID - index
        if number <= TEXT_PID:
            labels[number] = text or "(empty)"
        values.append(number)
    return Numbers(narrow(np.array(values or [0], np.int64)), column.indices.to_numpy())


def id_text(raw: bytes) -> str:
    """An id in JSON as text, without quotes."""
    if raw[:1] != b'"':
        return raw.decode("utf-8", "replace")
    try:
        return str(msgspec.json.decode(raw)).strip()
    except msgspec.DecodeError:
        return raw.decode("utf-8", "replace").strip('"')
