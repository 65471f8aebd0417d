"""Events of a trace file by their row there, once the rest of the reader has them in order of time.

What is found about an event after that is told with the byte it begins at (`offset_of`). What became neither slice nor
instant is kept with all that the file says of it, as are the members of the file's head (`others`: table OtherEvent).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from neuronscope.formats.attached import TABLES_KEY
from neuronscope.readers.exact import Int64
from neuronscope.readers.pieces import Columns
from neuronscope.readers.scratch import ranges
from neuronscope.readers.tables import named_table

__all__ = ["FileRows"]

_KINDS = {"M": "metadata", "s": "arrow", "t": "arrow", "f": "arrow"}
_NO_ARGUMENTS = 2  # characters of {}


class _Ids(Protocol):
    def __getitem__(self, rows: Any, /) -> Any: ...


class FileRows:
    """The events as they stand in the file."""

    def __init__(
        self,
        columns: Columns,
        pid: _Ids,
        tid: _Ids,
        base: int,
        offset: Callable[[int], int],
        header: Mapping[str, Any],
    ) -> None:
        """`pid` and `tid` as numbers; `base` is what times are counted from; `offset` of a row in the file."""
        self._header = {key: value for key, value in header.items() if key != TABLES_KEY}
        self._columns = columns
        self._pid = pid
        self._tid = tid
        self._base = base
        self._offset = offset
        self._rows: list[Int64] = []

    def offset(self, rows: Int64) -> int:
        """Where the first of some rows begins in the file, -1 for none."""
        return self._offset(int(rows.min())) if len(rows) else -1

    def offset_of(self, starts: Int64, names: Sequence[str]) -> int:
        """Where the first of some events begins in the file, given their start and name; -1 where it isn't found."""
        if not len(starts):
            return -1
        order = np.argsort(starts, kind="stable")
        times = np.asarray(starts, np.int64)[order] - self._base
        first, last = int(times[0]), int(times[-1])
        listed = self._columns.name.dictionary
        codes = self._columns.name.indices
        for low, high in ranges(len(self._columns)):
            ts = self._columns.ts[low:high]
            near = np.flatnonzero((ts >= first) & (ts <= last))
            at = np.minimum(np.searchsorted(times, ts[near]), len(times) - 1)
            for row, begin in zip(
                near[times[at] == ts[near]].tolist(), at[times[at] == ts[near]].tolist(), strict=True
            ):
                name = listed[codes[low + row].as_py()].as_py()
                end = int(np.searchsorted(times, times[begin], "right"))
                if any(names[which] == name for which in order[begin:end].tolist()):
                    return self._offset(low + row)
        return -1

    def keep(self, rows: Int64) -> None:
        """Rows of the file that become neither slice nor instant."""
        self._rows.append(np.asarray(rows, np.int64))

    def with_arguments(self, rows: Int64) -> Int64:
        """Those of the rows that have arguments."""
        found = [rows[:0]]
        for low, high in ranges(len(rows)):
            lengths = np.diff(_offsets(self._columns.args.read(rows[low:high])))
            found.append(rows[low:high][lengths > _NO_ARGUMENTS])
            self._columns.args.forget()
        return np.concatenate(found)

    def others(self, rank: int) -> pa.Table:
        """Table OtherEvent: the rows that were kept, in the file's order."""
        rows = np.unique(np.concatenate(self._rows)) if self._rows else np.zeros(0, np.int64)
        columns, index = self._columns, pa.array(rows)
        phases = columns.ph.take(index).to_pylist()
        timed = np.asarray(columns.has_ts[rows]) > 0
        heads = len(self._header)  # members of the head stand before the events
        nothing = np.full(heads, -1, np.int64)
        return named_table(
            "OtherEvent",
            {
                "kind": pa.array(["head"] * heads + [_KINDS.get(phase, "other") for phase in phases], pa.string()),
                "phase": pa.array([""] * heads + phases, pa.string()),
                "name": pa.array([*self._header, *columns.name.take(index).to_pylist()], pa.string()),
                "category": pa.array([""] * heads + columns.cat.take(index).to_pylist(), pa.string()),
                "process_id": np.concatenate((nothing, np.asarray(self._pid[rows], np.int64))),
                "thread_id": np.concatenate((nothing, np.asarray(self._tid[rows], np.int64))),
                "ts": np.concatenate((nothing, np.where(timed, self._times(rows), -1))),
                "identity": pa.array([""] * heads + _texts(columns.ids.read(rows)), pa.string()),
                "arguments": pa.array(
                    [_json(value) for value in self._header.values()] + _texts(columns.args.read(rows)), pa.string()
                ),
                "rank": np.full(heads + len(rows), rank, np.int32),
            },
        )

    def _times(self, rows: Int64) -> Int64:
        return np.asarray(self._columns.ts[rows], np.int64) + self._base


def _offsets(texts: pa.Array) -> Int64:
    wide = pa.types.is_large_binary(texts.type)
    buffer = texts.buffers()[1]
    if buffer is None:
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int64 if wide else np.int32)[texts.offset : texts.offset + len(texts) + 1]


def _texts(values: pa.Array) -> list[str]:
    return [value.decode("utf-8", "replace") for value in values.to_pylist()]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")
