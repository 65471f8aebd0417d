"""Chrome-format JSON → columns.

The file is parsed in pieces of some megabytes: a strict typed parser first, and where it refuses, event by event with
`salvage`. Whatever is mended or lost is counted with its byte offset; nothing is silent.

`parse(source)` is the entry; `Columns` are what the rest of the reader works on.
"""

from __future__ import annotations

import bisect
import contextlib
import gc
import re
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from neuronscope.formats.errors import FormatError
from neuronscope.readers.ahead import Ahead
from neuronscope.readers.exact import Int64
from neuronscope.readers.helper import Helper, helpers_wanted, open_helper
from neuronscope.readers.native import PADDING, parse_piece
from neuronscope.readers.pieces import (
    REFUSED,
    Collected,
    Columns,
    Event,
    Piece,
    columns_of,
    parse_events,
    tighten,
)
from neuronscope.readers.salvage import (
    EVENT_KEYS,
    MAX_DEPTH,
    MAX_EVENT_BYTES,
    extent,
    mend_event,
    mend_value,
    replace_bare_words,
)
from neuronscope.readers.scratch import Scratch
from neuronscope.readers.source import Fault, Source, Stretches, load, wide_encoding
from neuronscope.readers.texts import SPILL_PREFIX, Spill

__all__ = ["Columns", "Document", "Fault", "Source", "fault_kinds", "load", "parse"]

_PIECE_BYTES = 4 << 20
_BOUNDARY = re.compile(rb"\}\s*,?\s*(?=\{\s*\"?(?:" + "|".join(EVENT_KEYS).encode() + rb")\"\s*:)")
_EVENT = re.compile(rb"\{\s*\"(?:" + "|".join(EVENT_KEYS).encode() + rb")\"\s*:")
_NO_EVENT = re.compile(rb'(?:null|true|false|-?\d[\d.eE+-]*|"[^"\\]*(?:\\.[^"\\]*)*")(?=\s*[,\]])')
_SKIP = re.compile(rb"[\s,]*")
_SPACE = re.compile(rb"\s*")
_BLANK = re.compile(rb"[\s\0]*")  # a crash can leave blocks of zeros
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*')
_EVENTS_KEY = re.compile(rb'"traceEvents"[^\[{]{0,64}\[(?=\s*[{\]])|"traceEvents"[^{]{0,64}\[(?=\s*\{)')
_SCALAR = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^,\]}\s"]+')
_loose = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SMALL_BYTES = 1 << 18
_LOOSE_EVENTS = 4096  # events parsed one by one, gathered before they become columns
_ATTEMPTS = 64  # places in lost text where the next event may begin that are tried
_ATTEMPT_BYTES = 1 << 16


@dataclass
class Document:
    """A parsed file: header fields, columns, and the account of what happened to its events."""

    header: dict[str, Any]
    columns: Columns
    events_in_file: int
    bytes_read: int
    mended: Int64  # rows of `columns` whose text was damaged
    skipped: int
    faults: dict[str, Fault] = field(default_factory=dict)
    offset_of: Callable[[int], int] = lambda row: -1  # byte offset of the event in a row of `columns`


def parse(
    source: Source | bytes,
    where: str,
    progress: Callable[[float], None] | None = None,
    scratch: Scratch | None = None,
) -> Document:
    """Parse one file's text.

    Args:
        source: the text.
        where: the file's name for messages.
        progress: told the fraction that is parsed.
        scratch: for what need not stay in memory; what is left in its folder must outlive the document.

    Raises:
        FormatError: no trace events in it; the message says what it looks like instead.
    """
    source = Source(source) if isinstance(source, bytes) else source
    collecting = gc.isenabled()
    gc.disable()  # parsing makes only acyclic objects; worth a factor of two
    try:
        with contextlib.ExitStack() as stack:
            helpers: list[Helper] = []
            spill: Spill | None = None
            folder = scratch.folder if scratch else None
            if source.path and folder:
                spill = stack.enter_context(contextlib.closing(Spill(folder / f"{SPILL_PREFIX}0")))
                spills = [folder / f"{SPILL_PREFIX}{n + 1}" for n in range(helpers_wanted(len(source.data)))]
                helpers = [stack.enter_context(open_helper(source, path)) for path in spills]
            walker = _Walker(source, where, progress, spill, helpers, scratch)
            stack.callback(walker.close)
            return walker.document()
    finally:
        if collecting:
            gc.enable()


class _Walker:
    """Walks the file's documents; owns the position and the account."""

    def __init__(
        self,
        source: Source,
        where: str,
        progress: Callable[[float], None] | None,
        spill: Spill | None,
        helpers: list[Helper],
        scratch: Scratch | None,
    ) -> None:
        self.source = source
        self.data = source.data
        self.stretches = Stretches(source, PADDING)
        self.where = where
        self.progress = progress
        self.spill = spill
        self.ahead = Ahead(self.boundary, self.parse_strictly, helpers)
        self.collected = Collected(scratch)
        self.loose: list[Event] = []
        self.header: dict[str, Any] = {}
        self.found_events = False
        self.events_in_file = self.skipped = 0
        self.mended: list[int] = []
        self.faults: dict[str, Fault] = {}
        self.rows = 0
        self.first_rows = array("q")  # row of the first event of each stretch of the file, and the stretch's offset
        self.offsets = array("q")
        self.keeping = True  # False inside a second document: its events are counted, not kept

    def fault(self, kind: str, offset: int, detail: str, count: int = 1) -> None:
        known = self.faults.get(kind)
        if known:
            known.count += count
        else:
            self.faults[kind] = Fault(count, offset, detail)

    def document(self) -> Document:
        data = self.data
        at = 3 if data[:3] == b"\xef\xbb\xbf" else 0
        if encoding := wide_encoding(data[:4]):
            self.source = Source(bytes(data).decode(encoding, "replace").lstrip("\ufeff").encode())
            self.data = data = self.source.data
            self.close()
            self.stretches = Stretches(self.source)
            self.ahead = Ahead(self.boundary, self.parse_strictly, ())  # helpers would read the file
            self.fault("utf16", 0, f"text is {encoding.upper()}")
        blank = _BLANK.match(data, at)
        at = blank.end() if blank else at
        if at >= len(data):
            early = self.source.faults.get("truncated_gzip") or self.source.faults.get("damaged_gzip")
            if early:
                raise FormatError(f"{self.where}: the compressed data hold nothing readable ({early.detail})")
            raise FormatError(f"{self.where}: empty file")
        if data[at : at + 2] == b"\x1f\x8b":
            raise FormatError(f"{self.where}: compressed twice. Unpack it once: gunzip")
        if data[at] not in b"{[":
            raise FormatError(f"{self.where}: not JSON (begins with {data[at : at + 12]!r})")
        if data[at] == 123 and self.is_event(at):
            self.found_events = True
            self.fault("no_list", at, "events one after another")
            at = self.lines(at)
        else:
            at = self.one(at)
        hidden = None if self.found_events else _EVENTS_KEY.search(data)
        if hidden:
            self.fault("damaged_header", hidden.start(), "traceEvents stands inside another value")
            self.found_events = True
            at = self.after_value(self.events(hidden.end()))
            if data[at : at + 1] == b"}":
                at = len(data)
        if not self.found_events:
            if "traceEvents" in self.header:
                raise FormatError(f"{self.where}: traceEvents is no list of events")
            keys = ", ".join(" ".join(key.split())[:40] for key in list(self.header)[:6]) or "none"
            raise FormatError(f"{self.where}: no traceEvents; is this a Kineto trace? Its keys: {keys}")
        self.more(at)
        return Document(
            self.header,
            self.finished().columns(),
            self.events_in_file,
            len(data),
            np.array(self.mended, np.int64),
            self.skipped,
            self.faults,
            self.offset_of,
        )

    def close(self) -> None:
        """Let go of what the walk needed; `offset_of` still works."""
        self.ahead.close()
        self.stretches.close()

    def offset_of(self, row: int) -> int:
        """Byte offset of the event in a row of the columns, -1 when it can't be told."""
        index = bisect.bisect_right(self.first_rows, row) - 1
        if index < 0:
            return -1
        at = self.offsets[index]
        for _ in range(row - self.first_rows[index]):
            end = extent(self.data, at, max_depth=MAX_EVENT_BYTES)
            if end is None:
                return -1
            at = self.skip(end)
        return at

    def more(self, at: int) -> None:
        """Whatever follows the first document: another one is counted and reported, never dropped silently."""
        kept = self.header
        while at < len(self.data):
            at = self.space(at)
            rest = self.data[at : at + 1]
            if not rest or (rest == b"\0" and not self.data[at:].strip(b"\0 \t\r\n")):
                return
            if rest not in (b"{", b"["):
                self.fault("trailing_bytes", at, f"{len(self.data) - at} bytes after the end of the document")
                return
            before, offset = self.events_in_file, at
            self.keeping, self.header = False, {}
            at = self.lines(at) if rest == b"{" and self.is_event(at) else self.one(at)
            count = self.events_in_file - before
            self.skipped += count
            self.header = kept
            self.fault("second_document", offset, "another JSON document follows the first", max(count, 1))

    def one(self, at: int) -> int:
        """One document, from its opening bracket; returns the position after it."""
        if self.data[at : at + 1] == b"[":
            self.found_events = True
            return self.events(at + 1)
        at = self.space(at + 1)
        while at < len(self.data) and self.data[at : at + 1] != b"}":
            match = _KEY.match(self.data, at)
            if not match:
                self.fault("damaged_header", at, "a top-level key that is no string")
                events = None if self.found_events else _EVENTS_KEY.search(self.data, at)
                if events is None:
                    return len(self.data)
                self.found_events = True
                at = self.after_value(self.events(events.end()))
                continue
            key = match[1].decode("utf-8", "replace")
            at = match.end()
            if key == "traceEvents" and self.data[at : at + 1] == b"[":
                self.found_events = True
                at = self.events(at + 1)
            else:
                at = self.header_value(key, at)
            at = self.after_value(at)
        return at + 1

    def is_event(self, at: int) -> bool:
        """Whether the object at `at` is an event by itself, not a document."""
        if not _EVENT.match(self.data, at):
            return False
        found = mend_event(self.data[at : extent(self.data, at) or at + _ATTEMPT_BYTES])
        return found is not None and "ph" in found.fields

    def lines(self, at: int) -> int:
        """Events without brackets around them, as a writer of one event per line leaves them."""
        at = self.events(at)
        while at < len(self.data):  # a bracket that was never opened
            self.fault("garbage", at - 1, "1 byte between events")
            at = self.events(at)
        self.faults.pop("no_closing_bracket", None)
        return at

    def after_value(self, at: int) -> int:
        """Past the comma after a value, if there is one."""
        at = self.space(at)
        return self.space(at + 1) if self.data[at : at + 1] == b"," else at

    def header_value(self, key: str, at: int) -> int:
        if self.data[at : at + 1] in (b"{", b"["):
            end = extent(self.data, at)
        else:
            match = _SCALAR.match(self.data, at)
            end = match.end() if match else None
        if end is None:
            self.fault("damaged_header", at, f"the value of {key!r} does not end")
            events = None if self.found_events else _EVENTS_KEY.search(self.data, at)
            return events.start() if events else len(self.data)
        text = self.data[at:end]
        try:
            self.header[key] = msgspec.json.decode(text)
        except REFUSED:
            self.header[key] = mend_value(text)
            self.fault("damaged_header", at, f"the value of {key!r} is no JSON")
        return end

    def events(self, at: int) -> int:
        """The events of an array, from after its `[`; returns the position after its `]`."""
        data = self.data
        while True:
            at = self.skip(at)
            if at >= len(data):
                self.fault("no_closing_bracket", at, "the list of events does not end")
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
                    self.keep(parsed.piece, at)
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
        text = self.stretches.read(start, end)
        found = parse_piece(text, self.spill, self.stretches.padding)
        self.source.forget()
        return found

    def strict(self, start: int, end: int) -> bool:
        """Keep the events between two positions if they are in order."""
        while end > start and self.data[end - 1] in b", \t\r\n":
            end -= 1
        if end - start < _SMALL_BYTES:  # columns of a few events cost more than the events
            events = parse_events(bytes(self.data[start:end]))
            if events is not None:
                self.keep_some(events, start)
            return events is not None
        piece = self.parse_strictly(start, end)
        if piece is not None:
            self.keep(piece, start)
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
            at = self.skip(at)
            while at < len(data) and data[at] not in b"{]":
                at = self.skip(self.resync(at))
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
        at = self.skip(at)
        if self.data[at : at + 1] == b"]":
            return at + 1, True
        if at >= len(self.data):
            self.fault("no_closing_bracket", at, "the list of events does not end")
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
                self.keep_some((tighten(_loose.decode(text)),), start)
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
        if self.keeping:
            self.mended.append(self.rows)
        fields = {key: msgspec.Raw(value.encode()) for key, value in mended.fields.items()}
        self.keep_some((tighten(fields),), start)
        if not self.keeping:
            return start + mended.consumed
        for detail in sorted(mended.faults) or ["damaged text"]:
            self.fault("repaired: " + detail, start, detail)
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
        if self.keeping:
            self.mended.append(self.rows)
            for word in words:
                self.fault(f"repaired: the bare word {word}", start, f"the bare word {word}")
        self.keep_some((event,), start)
        return True

    def lose(self, start: int, following: int) -> int:
        """Count an event that can't be had, say why, and return where the next one may begin."""
        data = self.data
        deep = extent(data, start, max_depth=MAX_EVENT_BYTES)
        if deep is not None and extent(data, start) is None:
            self.count_lost("too_deep", start, f"nested deeper than {MAX_DEPTH}")
            return deep
        after = self.next_event(start + 1, following)
        if after is None and deep is not None and deep < following and data[deep - 1] == 125:  # }
            after = deep
        if after is None and following >= len(data) and deep is None:
            self.count_lost("truncated", start, "the file ends inside an event")
        else:
            self.count_lost("skipped", start, "an event beyond repair")
        return following if after is None else after

    def count_lost(self, kind: str, offset: int, detail: str) -> None:
        self.events_in_file += 1
        if self.keeping:
            self.skipped += 1
        self.fault(kind, offset, detail)

    def next_event(self, at: int, limit: int) -> int | None:
        """Where a whole event begins in a damaged one's text: another writer's, or the next document's."""
        for attempt, match in enumerate(_EVENT.finditer(self.data, at, limit)):
            if attempt >= _ATTEMPTS:
                return None
            text = self.data[match.start() : min(limit, match.start() + _ATTEMPT_BYTES)]
            found = mend_event(text.rstrip())
            if found is not None and "ph" in found.fields:
                return match.start()
        return None

    def resync(self, at: int) -> int:
        """What stands between events and is none: go past it, to the next event or to the end of the list."""
        other = _NO_EVENT.match(self.data, at)
        end = other.end() if other else self.nested_list(at)
        if end is not None:
            self.count_lost("not_an_event", at, f"{bytes(self.data[at : min(end, at + 20)])!r} in the list of events")
            return end
        match = _BOUNDARY.search(self.data, at)
        brace = self.data.find(b"{", at)
        following = min([p for p in (match.end() if match else -1, brace) if p > at], default=-1)
        if following < 0:
            close = self.data.rfind(b"]", at)
            following = close if close >= 0 else len(self.data)
        self.fault("garbage", at, f"{following - at} bytes between events")
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

    def keep(self, piece: Piece, offset: int) -> None:
        """Count the events and, in the first document, keep them."""
        self.events_in_file += len(piece)
        if self.keeping and len(piece):
            self.finished().add(piece)
            self.stretch(offset, len(piece))

    def stretch(self, offset: int, count: int) -> None:
        self.first_rows.append(self.rows)
        self.offsets.append(offset)
        self.rows += count

    def keep_some(self, events: Sequence[Event], offset: int) -> None:
        """Like `keep`, of few events, whose columns are made once they are many."""
        self.events_in_file += len(events)
        if self.keeping and len(events):
            self.stretch(offset, len(events))
            self.loose.extend(events)
            if len(self.loose) >= _LOOSE_EVENTS:
                self.finished()

    def finished(self) -> Collected:
        """The events so far, those kept one by one included."""
        if self.loose:
            self.collected.add(columns_of(self.loose, self.spill))
            self.loose = []
        return self.collected

    def space(self, at: int) -> int:
        match = _SPACE.match(self.data, at)
        return match.end() if match else at

    def skip(self, at: int) -> int:
        match = _SKIP.match(self.data, at)
        return match.end() if match else at


def fault_kinds(faults: dict[str, Fault]) -> Counter[str]:
    """Counts per kind, for tests and messages."""
    return Counter({kind: fault.count for kind, fault in faults.items()})
