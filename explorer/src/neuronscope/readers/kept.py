"""What became of the events of a file: those that are kept, and the account of all."""

from __future__ import annotations

import bisect
import re
from array import array
from collections.abc import Sequence

from neuronscope.readers.pieces import Collected, Event, Piece, columns_of
from neuronscope.readers.salvage import MAX_EVENT_BYTES, extent
from neuronscope.readers.scratch import Scratch
from neuronscope.readers.source import Bytes, Fault
from neuronscope.readers.texts import Spill

__all__ = ["Kept", "skip", "space"]

_SKIP = re.compile(rb"[\s,]*")
_SPACE = re.compile(rb"\s*")
_LOOSE_EVENTS = 4096  # events parsed one by one, gathered before they become columns


class Kept:
    """Events in their order, their offsets in the file, and counts of what was mended or lost.

    Attributes:
        keeping: False inside a second document, whose events are counted but not kept.
        mended: rows whose text was damaged.
    """

    def __init__(self, data: Bytes, spill: Spill | None, scratch: Scratch | None) -> None:
        self.keeping = True
        self.events_in_file = self.skipped = self.rows = 0
        self.mended: list[int] = []
        self.faults: dict[str, Fault] = {}
        self._data = data
        self._spill = spill
        self._collected = Collected(scratch)
        self._loose: list[Event] = []
        self._first_rows = array("q")  # row of the first event of each stretch of the file, and the stretch's offset
        self._offsets = array("q")

    def fault(self, kind: str, offset: int, detail: str, count: int = 1) -> None:
        """Count a kind of damage; where it was first is remembered."""
        known = self.faults.get(kind)
        if known:
            known.count += count
        else:
            self.faults[kind] = Fault(count, offset, detail)

    def lose(self, kind: str, offset: int, detail: str) -> None:
        """Count an event that can't be had."""
        self.events_in_file += 1
        if self.keeping:
            self.skipped += 1
        self.fault(kind, offset, detail)

    def add(self, piece: Piece, offset: int) -> None:
        """Count the events and, in the first document, keep them."""
        self.events_in_file += len(piece)
        if self.keeping and len(piece):
            self.finished().add(piece)
            self._stretch(offset, len(piece))

    def _stretch(self, offset: int, count: int) -> None:
        self._first_rows.append(self.rows)
        self._offsets.append(offset)
        self.rows += count

    def add_some(self, events: Sequence[Event], offset: int) -> None:
        """Like `add`, of few events, whose columns are made once they are many."""
        self.events_in_file += len(events)
        if self.keeping and len(events):
            self._stretch(offset, len(events))
            self._loose.extend(events)
            if len(self._loose) >= _LOOSE_EVENTS:
                self.finished()

    def finished(self) -> Collected:
        """The events so far, those kept one by one included."""
        if self._loose:
            self._collected.add(columns_of(self._loose, self._spill))
            self._loose = []
        return self._collected

    def offset_of(self, row: int) -> int:
        """Byte offset of the event in a row of the columns, -1 when it can't be told."""
        index = bisect.bisect_right(self._first_rows, row) - 1
        if index < 0:
            return -1
        at = self._offsets[index]
        for _ in range(row - self._first_rows[index]):
            end = extent(self._data, at, max_depth=MAX_EVENT_BYTES)
            if end is None:
                return -1
            at = skip(self._data, end)
        return at


def space(data: Bytes, at: int) -> int:
    """The position after white space."""
    match = _SPACE.match(data, at)
    return match.end() if match else at


def skip(data: Bytes, at: int) -> int:
    """The position after white space and commas."""
    match = _SKIP.match(data, at)
    return match.end() if match else at
