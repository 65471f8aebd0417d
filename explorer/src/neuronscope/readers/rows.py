"""Intervals added one at a time → `Trace`: what readers of databases and tables share, with the account of each row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from neuronscope.readers.exact import LONGEST_NS, MAX_NS, int64
from neuronscope.readers.narrow import constant
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import Events, Role, Trace, concat_events

__all__ = ["RowEvents"]

_AT_ONCE = 65_536  # rows held as Python objects
_NUMBERS = ("role", "start", "end", "pid", "tid", "device", "stream", "correlation", "bytes")


class RowEvents:
    """Collects rows; times in ns.

    Attributes:
        in_file: rows told of, whatever became of them.
        at: byte of the file where the row that is added next begins, -1 where the source has none.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.in_file = 0
        self.at = -1
        self._first: dict[str, int] = {}  # where the first fault of a kind is
        self._parts: list[Events] = []
        self._rows: list[tuple[Any, ...]] = []
        self._faults: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()

    def add(
        self,
        role: Role,
        name: object,
        start: object,
        end: object,
        *,
        pid: object = 0,
        tid: object = 0,
        device: object = -1,
        stream: object = -1,
        correlation: object = -1,
        size: object = -1,
        category: str = "",
        args: bytes = b"",
    ) -> None:
        """One row; what can't be a time or an id is taken for none, and the row without a start is left out."""
        self.in_file += 1
        begin = int64(start)
        if not 0 <= begin <= MAX_NS:
            self._fault("no_timestamp")
            return
        last = begin if role == Role.INSTANT else int64(end, -(2**62))
        if role == Role.INSTANT:
            self._kept["instants"] += 1
        elif not 0 <= last <= MAX_NS:
            self._fault("no_duration")
            last = begin
        elif last < begin:
            self._fault("negative_duration")
            last = begin
        elif last - begin > LONGEST_NS:
            self._fault("endless")
            last = begin
        where, on, lane = max(int64(tid), 0), -1, -1
        if role in (Role.DEVICE, Role.MEMCPY, Role.MEMSET, Role.DEVICE_ANNOTATION):
            on, lane = max(int64(device), 0), max(int64(stream), 0)
            where = lane
        linked = int64(correlation)
        self._rows.append(
            (
                *(int(role), begin, last, max(int64(pid), 0), where, on, lane, linked if linked > 0 else -1),
                *(int64(size), str(name) if name not in (None, "") else "(no name)", category, args),
            )
        )
        if len(self._rows) >= _AT_ONCE:
            self._flush()

    def keep(self, kind: str) -> None:
        """A row that is no interval but tells something that was used: names, categories."""
        self.in_file += 1
        self._kept[kind] += 1

    def lose(self, kind: str, count: int = 1) -> None:
        """Rows that can't be read."""
        self.in_file += count
        self._fault(kind, count)

    def _fault(self, kind: str, count: int = 1) -> None:
        self._faults[kind] += count
        self._first.setdefault(kind, self.at)

    def trace(self, form: str, bytes_read: int) -> Trace:
        """All rows and what became of them."""
        self._flush()
        trace = Trace(form, concat_events(self._parts), self.in_file, bytes_read)
        for kind, count in sorted(self._faults.items()):
            lost = kind in ("no_timestamp", "skipped")
            trace.skipped += count if lost else 0
            trace.repaired += 0 if lost else count
            what = "row" if count == 1 else "rows"
            text = f"{count:,} {what} {_FAULTS[kind]}" + (" left out" if lost else ": shown with none, in no total")
            trace.report.append(
                IngestWarning(kind, count, self._first[kind], self.file, "skipped" if lost else "repaired", text)
            )
        for kind, count in sorted(self._kept.items()):
            text = f"{count:,} rows kept, not drawn"
            trace.report.append(IngestWarning(kind, count, -1, self.file, "kept", text))
        return trace

    def _flush(self) -> None:
        if not self._rows and self._parts:
            return
        columns = list(zip(*self._rows, strict=True)) or [()] * 12
        numbers = {name: np.array(values, np.int64) for name, values in zip(_NUMBERS, columns, strict=False)}
        none = constant(-1, len(self._rows))
        role = numbers.pop("role").astype(np.int8)
        texts = {
            name: pa.array([_clean(text) for text in values], pa.string()).dictionary_encode()
            for name, values in zip(("name", "category"), columns[9:11], strict=True)
        }
        args = Texts.of(pa.array(columns[11], pa.binary()))
        self._parts.append(
            Events(role=role, **numbers, **texts, nc=none, pcore=none, external_id=none, execution_id=none, args=args)
        )
        self._rows = []


_FAULTS = {
    "no_timestamp": "without a start time",
    "skipped": "that can't be read",
    "no_duration": "without an end",
    "negative_duration": "that end before they start",
    "endless": "lasting months",
}


def _clean(text: str) -> str:
    """Text that UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()
