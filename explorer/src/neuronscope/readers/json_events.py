"""Chrome-format JSON → columns.

The file is parsed in pieces of some megabytes (`event_list`): a strict typed parser first, and where it refuses, event
by event with `salvage`. Whatever is mended or lost is counted with its byte offset (`kept`); nothing is silent.

`parse(source)` is the entry; `Columns` are what the rest of the reader works on.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from neuronscope.formats.errors import FormatError
from neuronscope.readers.event_list import ATTEMPT_BYTES, EVENT, EventList
from neuronscope.readers.exact import Int64
from neuronscope.readers.helper import Helper, helpers_wanted, open_helper
from neuronscope.readers.kept import Kept, space
from neuronscope.readers.pieces import REFUSED, Columns
from neuronscope.readers.salvage import extent, mend_event, mend_value
from neuronscope.readers.scratch import Scratch
from neuronscope.readers.source import Fault, Source, load, wide_encoding
from neuronscope.readers.texts import SPILL_PREFIX, Spill

__all__ = ["Columns", "Document", "Fault", "Source", "fault_kinds", "load", "parse"]

_BLANK = re.compile(rb"[\s\0]*")  # a crash can leave blocks of zeros
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*')
_EVENTS_KEY = re.compile(rb'"traceEvents"[^\[{]{0,64}\[(?=\s*[{\]])|"traceEvents"[^{]{0,64}\[(?=\s*\{)')
_SCALAR = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^,\]}\s"]+')


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
            stack.callback(walker.list.close)
            return walker.document()
    finally:
        if collecting:
            gc.enable()


class _Walker:
    """Walks the file's documents; owns the position."""

    def __init__(
        self,
        source: Source,
        where: str,
        progress: Callable[[float], None] | None,
        spill: Spill | None,
        helpers: Sequence[Helper],
        scratch: Scratch | None,
    ) -> None:
        self.source = source
        self.data = source.data
        self.where = where
        self.header: dict[str, Any] = {}
        self.found_events = False
        encoding = wide_encoding(self.data[:4])
        if encoding:
            self.source = Source(bytes(self.data).decode(encoding, "replace").lstrip("\ufeff").encode())
            self.source.faults = source.faults
            self.data = self.source.data
            helpers = ()  # they would read the file as it is
        self.kept = Kept(self.data, spill, scratch)
        self.list = EventList(self.source, self.kept, spill, helpers, progress)
        if encoding:
            self.kept.fault("utf16", 0, f"text is {encoding.upper()}")

    def document(self) -> Document:
        data = self.data
        at = 3 if data[:3] == b"\xef\xbb\xbf" else 0
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
            self.kept.fault("no_list", at, "events one after another")
            at = self.lines(at)
        else:
            at = self.one(at)
        hidden = None if self.found_events else _EVENTS_KEY.search(data)
        if hidden:
            self.kept.fault("damaged_header", hidden.start(), "traceEvents stands inside another value")
            self.found_events = True
            at = self.after_value(self.list.events(hidden.end()))
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
            self.kept.finished().columns(),
            self.kept.events_in_file,
            len(data),
            np.array(self.kept.mended, np.int64),
            self.kept.skipped,
            self.kept.faults,
            self.kept.offset_of,
        )

    def more(self, at: int) -> None:
        """Whatever follows the first document: another one is counted and reported, never dropped silently."""
        kept = self.header
        while at < len(self.data):
            at = space(self.data, at)
            rest = self.data[at : at + 1]
            if not rest or (rest == b"\0" and not self.data[at:].strip(b"\0 \t\r\n")):
                return
            if rest not in (b"{", b"["):
                self.kept.fault("trailing_bytes", at, f"{len(self.data) - at} bytes after the end of the document")
                return
            before, offset = self.kept.events_in_file, at
            self.kept.keeping, self.header = False, {}
            at = self.lines(at) if rest == b"{" and self.is_event(at) else self.one(at)
            count = self.kept.events_in_file - before
            self.kept.skipped += count
            self.header = kept
            self.kept.fault("second_document", offset, "another JSON document follows the first", max(count, 1))

    def one(self, at: int) -> int:
        """One document, from its opening bracket; returns the position after it."""
        if self.data[at : at + 1] == b"[":
            self.found_events = True
            return self.list.events(at + 1)
        at = space(self.data, at + 1)
        while at < len(self.data) and self.data[at : at + 1] != b"}":
            match = _KEY.match(self.data, at)
            if not match:
                self.kept.fault("damaged_header", at, "a top-level key that is no string")
                events = None if self.found_events else _EVENTS_KEY.search(self.data, at)
                if events is None:
                    return len(self.data)
                self.found_events = True
                at = self.after_value(self.list.events(events.end()))
                continue
            key = match[1].decode("utf-8", "replace")
            at = match.end()
            if key == "traceEvents" and self.data[at : at + 1] == b"[":
                self.found_events = True
                at = self.list.events(at + 1)
            else:
                at = self.header_value(key, at)
            at = self.after_value(at)
        return at + 1

    def is_event(self, at: int) -> bool:
        """Whether the object at `at` is an event by itself, not a document."""
        if not EVENT.match(self.data, at):
            return False
        found = mend_event(self.data[at : extent(self.data, at) or at + ATTEMPT_BYTES])
        return found is not None and "ph" in found.fields

    def lines(self, at: int) -> int:
        """Events without brackets around them, as a writer of one event per line leaves them."""
        at = self.list.events(at)
        while at < len(self.data):  # a bracket that was never opened
            self.kept.fault("garbage", at - 1, "1 byte between events")
            at = self.list.events(at)
        self.kept.faults.pop("no_closing_bracket", None)
        return at

    def after_value(self, at: int) -> int:
        """Past the comma after a value, if there is one."""
        at = space(self.data, at)
        return space(self.data, at + 1) if self.data[at : at + 1] == b"," else at

    def header_value(self, key: str, at: int) -> int:
        if self.data[at : at + 1] in (b"{", b"["):
            end = extent(self.data, at)
        else:
            match = _SCALAR.match(self.data, at)
            end = match.end() if match else None
        if end is None:
            self.kept.fault("damaged_header", at, f"the value of {key!r} does not end")
            events = None if self.found_events else _EVENTS_KEY.search(self.data, at)
            return events.start() if events else len(self.data)
        text = self.data[at:end]
        try:
            self.header[key] = msgspec.json.decode(text)
        except REFUSED:
            self.header[key] = mend_value(text)
            self.kept.fault("damaged_header", at, f"the value of {key!r} is no JSON")
        return end


def fault_kinds(faults: dict[str, Fault]) -> Counter[str]:
    """Counts per kind, for tests and messages."""
    return Counter({kind: fault.count for kind, fault in faults.items()})
