"""The events of one list in a file's text: strictly in pieces of some megabytes, and where that fails one by one.

Whatever is mended or lost is counted with its byte offset (`Kept`).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Sequence

import msgspec

from neuronscope.readers.ahead import Ahead
from neuronscope.readers.helper import Helper
from neuronscope.readers.kept import Kept, skip
from neuronscope.readers.native import PADDING, parse_piece
from neuronscope.readers.pieces import REFUSED, Piece, parse_events, tighten
from neuronscope.readers.salvage import (
    EVENT_KEYS,
    MAX_DEPTH,
    MAX_EVENT_BYTES,
    extent,
    mend_event,
    replace_bare_words,
)
from neuronscope.readers.source import Source, Stretches
from neuronscope.readers.texts import Spill

__all__ = ["ATTEMPT_BYTES", "EVENT", "EventList"]

_PIECE_BYTES = 4 << 20
_BOUNDARY = re.compile(rb"\}\s*,?\s*(?=\{\s*\"?(?:" + "|".join(EVENT_KEYS).encode() + rb")\"\s*:)")
EVENT = re.compile(rb"\{\s*\"(?:" + "|".join(EVENT_KEYS).encode() + rb")\"\s*:")
_NO_EVENT = re.compile(rb'(?:null|true|false|-?\d[\d.eE+-]*|"[^"\\]*(?:\\.[^"\\]*)*")(?=\s*[,\]])')
_loose = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SMALL_BYTES = 1 << 18
_ATTEMPTS = 64  # places in lost text where the next event may begin that are tried
ATTEMPT_BYTES = 1 << 16


class EventList:
    """Reads lists of events; `Kept` gets them."""

    def __init__(
        self,
        source: Source,
        kept: Kept,
        spill: Spill | None,
        helpers: Sequence[Helper],
        progress: Callable[[float], None] | None,
    ) -> None:
        self.source = source
        self.data = source.data
        self.kept = kept
        self.spill = spill
        self.progress = progress
        self.stretches = Stretches(source, PADDING)
        self.ahead = Ahead(self.boundary, self.parse_strictly, helpers)

    def close(self) -> None:
        """Let go of the file and of threads."""
        self.ahead.close()
        self.stretches.close()

    def events(self, at: int) -> int:
        """The events of an array, from after its `[`; returns the position after its `]`."""
        data = self.data
        while True:
            at = skip(self.data, at)
            if at >= len(data):
                self.kept.fault("no_closing_bracket", at, "the list of events does not end")
                return at
            if data[at] == 93:  # ]
                return at + 1
            if data[at] != 123:  # {
                at = self.resync(at)
                continue
            if self.progress:
                self.progress(at / len(data))
            parsed = self.ahead.take(at)
            if parsed:
                if parsed.piece is not None:
                    self.kept.add(parsed.piece, at)
                    at = parsed.following
                    continue
                at, ended = self.slow(at, parsed.following)
            else:
                close = self.last_piece(at)
                if close is not None:
                    return close
                at, ended = self.slow(at, len(data))
            if ended:
                return at

    def boundary(self, at: int) -> tuple[int, int] | None:
        """Where a piece that begins at `at` ends and the next one begins; None when it is the last."""
        match = _BOUNDARY.search(self.data, at + _PIECE_BYTES)
        return (match.start() + 1, match.end()) if match else None

    def last_piece(self, at: int) -> int | None:
        """Parse up to the end of the array when one of the file's last `]` is that; the position after it."""
        close = len(self.data)
        for _ in range(3):
            close = self.data.rfind(b"]", at, close)
            if close < 0:
                return None
            if self.strict(at, close):
                return close + 1
        return None

    def parse_strictly(self, start: int, end: int) -> Piece | None:
        """The events between two positions, None when something there is out of order."""
        stretches = self.stretches
        found = parse_piece(stretches.read(start, end), self.spill, stretches.padding, stretches.place(start, end))
        self.source.forget()
        return found

    def strict(self, start: int, end: int) -> bool:
        """Keep the events between two positions if they are in order."""
        while end > start and self.data[end - 1] in b", \t\r\n":
            end -= 1
        if end - start < _SMALL_BYTES:  # columns of a few events cost more than the events
            events = parse_events(bytes(self.data[start:end]))
            if events is not None:
                self.kept.add_some(events, start)
            return events is not None
        piece = self.parse_strictly(start, end)
        if piece is not None:
            self.kept.add(piece, start)
        return piece is not None

    def slow(self, at: int, end: int) -> tuple[int, bool]:
        """A piece the strict parser refused: growing and shrinking groups of events, down to single ones."""
        data = self.data
        starts = [at, *(m.end() for m in _BOUNDARY.finditer(data, at, end))]
        if starts[-1] < end:
            starts.append(end)
        index, group = 0, 512
        while index < len(starts) - 1:
            group = min(group, len(starts) - 1 - index)
            if group > 1 or starts[index + 1] < len(data):
                following = starts[index + group]
                stop = data.rfind(b"}", starts[index], following) + 1
                if stop and self.strict(starts[index], stop):
                    index, group = index + group, group * 2
                    if following < len(data):
                        continue
                    return self.after_last(stop)
            if group > 1:
                group //= 8
                group = max(group, 1)
                continue
            at = self.single(starts[index], starts[index + 1])
            at = skip(self.data, at)
            while at < len(data) and data[at] not in b"{]":
                at = skip(self.data, self.resync(at))
            if data[at : at + 1] == b"]" or at >= len(data):
                return self.after_last(at)
            index = bisect.bisect_left(starts, at)
            if index < len(starts) and starts[index] != at:
                starts.insert(index, at)
            if index >= len(starts):
                return at, False
        return starts[-1], False

    def after_last(self, at: int) -> tuple[int, bool]:
        """After an event near the end of the data: is that the end of the list?"""
        at = skip(self.data, at)
        if self.data[at : at + 1] == b"]":
            return at + 1, True
        if at >= len(self.data):
            self.kept.fault("no_closing_bracket", at, "the list of events does not end")
            return at, True
        return at, False

    def single(self, start: int, following: int) -> int:
        """One event by itself: valid JSON of other types, damaged, or lost. Returns where to go on."""
        data = self.data
        end = extent(data, start)
        if end is not None:
            try:
                text = data[start:end]
                text.decode("utf-8")
                self.kept.add_some((tighten(_loose.decode(text)),), start)
                return end
            except REFUSED:
                if self.without_bare_words(data[start:end], start):
                    return end
        mended = mend_event(data[start:following].rstrip())
        if mended is None and end is not None and end > following:
            mended = mend_event(data[start:end])
        if mended is not None and "ph" not in mended.fields and self.next_event(start + 1, start + mended.consumed):
            mended = None  # another writer's events stand inside
        if mended is None:
            return self.lose(start, following)
        if self.kept.keeping:
            self.kept.mended.append(self.kept.rows)
        fields = {key: msgspec.Raw(value.encode()) for key, value in mended.fields.items()}
        self.kept.add_some((tighten(fields),), start)
        if not self.kept.keeping:
            return start + mended.consumed
        for detail in sorted(mended.faults) or ["damaged text"]:
            self.kept.fault("repaired: " + detail, start, detail)
        return start + mended.consumed

    def without_bare_words(self, text: bytes, start: int) -> bool:
        """Keep an event in which nothing is wrong but words like NaN, which stand for unknown; whether it was that."""
        clean, words = replace_bare_words(text)
        if not words:
            return False
        try:
            clean.decode("utf-8")
            event = tighten(_loose.decode(clean))
        except REFUSED:
            return False
        if self.kept.keeping:
            self.kept.mended.append(self.kept.rows)
            for word in words:
                self.kept.fault(f"repaired: the bare word {word}", start, f"the bare word {word}")
        self.kept.add_some((event,), start)
        return True

    def lose(self, start: int, following: int) -> int:
        """Count an event that can't be had, say why, and return where the next one may begin."""
        data = self.data
        deep = extent(data, start, max_depth=MAX_EVENT_BYTES)
        if deep is not None and extent(data, start) is None:
            self.kept.lose("too_deep", start, f"nested deeper than {MAX_DEPTH}")
            return deep
        after = self.next_event(start + 1, following)
        if after is None and deep is not None and deep < following and data[deep - 1] == 125:  # }
            after = deep
        if after is None and following >= len(data) and deep is None:
            self.kept.lose("truncated", start, "the file ends inside an event")
        else:
            self.kept.lose("skipped", start, "an event beyond repair")
        return following if after is None else after

    def next_event(self, at: int, limit: int) -> int | None:
        """Where a whole event begins in a damaged one's text: another writer's, or the next document's."""
        for attempt, match in enumerate(EVENT.finditer(self.data, at, limit)):
            if attempt >= _ATTEMPTS:
                return None
            text = self.data[match.start() : min(limit, match.start() + ATTEMPT_BYTES)]
            found = mend_event(text.rstrip())
            if found is not None and "ph" in found.fields:
                return match.start()
        return None

    def resync(self, at: int) -> int:
        """What stands between events and is none: go past it, to the next event or to the end of the list."""
        other = _NO_EVENT.match(self.data, at)
        end = other.end() if other else self.nested_list(at)
        if end is not None:
            self.kept.lose("not_an_event", at, f"{bytes(self.data[at : min(end, at + 20)])!r} in the list of events")
            return end
        match = _BOUNDARY.search(self.data, at)
        brace = self.data.find(b"{", at)
        following = min([p for p in (match.end() if match else -1, brace) if p > at], default=-1)
        if following < 0:
            close = self.data.rfind(b"]", at)
            following = close if close >= 0 else len(self.data)
        self.kept.fault("garbage", at, f"{following - at} bytes between events")
        return following

    def nested_list(self, at: int) -> int | None:
        """The end of a list among the events; None when there is none, or what begins so is a line of a log."""
        end = extent(self.data, at) if self.data[at : at + 1] == b"[" else None
        if end is None:
            return None
        try:
            msgspec.json.decode(self.data[at:end])
        except REFUSED:
            return None
        return end
