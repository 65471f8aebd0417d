"""Chrome-format JSON → columns.

The file is parsed in pieces of some megabytes: a strict typed parser first, and where it refuses, event by event with
`salvage`. Whatever is mended or lost is counted with its byte offset; nothing is silent.

`parse(data)` is the entry; `Columns` are what the rest of the reader works on.
"""

from __future__ import annotations

import bisect
import gc
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

from neuronscope.formats.errors import FormatError
from neuronscope.readers.exact import Bools, Int64, TextColumn, int64_column, nanoseconds
from neuronscope.readers.salvage import EVENT_KEYS, extent, mend_event, mend_value

__all__ = ["Columns", "Document", "Fault", "load", "parse"]

_PIECE_BYTES = 8 << 20
_INFLATE_BYTES = 4 << 20
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{\s*\"?(?:" + "|".join(EVENT_KEYS).encode() + rb")\"\s*:)")
_SKIP = re.compile(rb"[\s,]*")
_SPACE = re.compile(rb"\s*")
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*')
_EVENTS_KEY = re.compile(rb'"traceEvents"[^\[{]{0,64}\[(?=\s*[{\]])|"traceEvents"[^{]{0,64}\[(?=\s*\{)')
_SCALAR = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^,\]}\s"]+')
_MISSING = msgspec.Raw(b"")


class _Event(msgspec.Struct, gc=False):
    """An event as nearly every writer makes it; times and ids stay text."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: msgspec.Raw = _MISSING
    tid: msgspec.Raw = _MISSING
    ts: msgspec.Raw = _MISSING
    dur: msgspec.Raw = _MISSING
    id: msgspec.Raw = _MISSING
    args: msgspec.Raw = _MISSING


class _LooseEvent(msgspec.Struct, gc=False):
    """Valid JSON whose fields have types of their own."""

    ph: msgspec.Raw = _MISSING
    cat: msgspec.Raw = _MISSING
    name: msgspec.Raw = _MISSING
    pid: msgspec.Raw = _MISSING
    tid: msgspec.Raw = _MISSING
    ts: msgspec.Raw = _MISSING
    dur: msgspec.Raw = _MISSING
    id: msgspec.Raw = _MISSING
    args: msgspec.Raw = _MISSING


_Id = int | str | float | None


class _Args(msgspec.Struct, gc=False):
    """The arguments every reader needs; the whole text is kept beside them."""

    correlation: _Id = -1
    external_id: _Id = msgspec.field(name="External id", default=-1)
    external_id_2021: _Id = msgspec.field(name="external id", default=-1)
    device: _Id = -1
    stream: _Id = -1
    stream_id: _Id = msgspec.field(name="Stream Id", default=-1)
    bytes: _Id = -1
    execution_id: _Id = -1


_events = msgspec.json.Decoder(list[_Event])
_loose = msgspec.json.Decoder(_LooseEvent)
_args_list = msgspec.json.Decoder(list[_Args])
_args_one = msgspec.json.Decoder(_Args)
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


@dataclass
class Fault:
    """A kind of damage: how many events, where first, an example of what was wrong."""

    count: int
    offset: int
    detail: str


@dataclass(frozen=True)
class Columns:
    """All events of a document, one row each, in file order.

    `ids` holds flow and async ids as text, `args` the arguments as JSON text (empty: none). Missing ids are -1.
    """

    ph: pa.Array
    cat: pa.Array
    name: pa.Array
    pid: pa.Array
    tid: pa.Array
    ids: pa.Array
    args: pa.Array
    ts: Int64
    has_ts: Bools
    dur: Int64
    has_dur: Bools
    correlation: Int64
    external_id: Int64
    device: Int64
    stream: Int64
    bytes: Int64
    execution_id: Int64

    def __len__(self) -> int:
        return len(self.ts)


@dataclass
class Document:
    """A parsed file: header fields, columns, and the account of what happened to its events."""

    header: dict[str, Any]
    columns: Columns
    events_in_file: int
    bytes_read: int
    repaired: int
    skipped: int
    faults: dict[str, Fault] = field(default_factory=dict)


def load(path: Path, progress: Callable[[float], None] | None = None) -> tuple[bytes, dict[str, Fault]]:
    """The decompressed bytes of a file, and what was wrong with its compression."""
    raw = path.read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw, {}
    faults: dict[str, Fault] = {}
    parts: list[bytes] = []
    size = members = 0
    while raw[:2] == b"\x1f\x8b":
        inflate = zlib.decompressobj(31)
        start = 0
        while start < len(raw) and not inflate.eof:
            before = inflate.copy()
            piece = raw[start : start + _INFLATE_BYTES]
            try:
                parts.append(inflate.decompress(piece))
            except zlib.error as error:
                parts.append(_inflate_until_damage(before, piece))
                faults["damaged_gzip"] = Fault(1, size + len(parts[-1]), str(error))
                return b"".join(parts), faults
            size += len(parts[-1])
            start += len(piece)
            if progress:
                progress(start / len(raw))
        members += 1
        if not inflate.eof:
            faults["truncated_gzip"] = Fault(1, size, "the compressed stream ends early")
            return b"".join(parts), faults
        raw = inflate.unused_data + raw[start:]
    if members > 1:
        faults["gzip_members"] = Fault(members, 0, "several gzip members in one file")
    if raw.strip(b"\0"):
        faults["gzip_trailer"] = Fault(len(raw), size, "bytes after the end of the gzip data")
    return b"".join(parts), faults


def _inflate_until_damage(inflate: Any, piece: bytes) -> bytes:
    """What a damaged piece gives before its first bad byte, found by halving."""
    parts = []
    while piece:
        half = piece[: max(len(piece) // 2, 1)]
        before = inflate.copy()
        try:
            parts.append(inflate.decompress(half))
        except zlib.error:
            if len(half) == 1:
                break
            inflate, piece = before, half
            continue
        piece = piece[len(half) :]
    return b"".join(parts)


def parse(data: bytes, where: str, progress: Callable[[float], None] | None = None) -> Document:
    """Parse one file's text.

    Raises:
        FormatError: no trace events in it; the message says what it looks like instead.
    """
    collecting = gc.isenabled()
    gc.disable()  # parsing makes only acyclic objects; worth a factor of two
    try:
        return _Walker(data, where, progress).document()
    finally:
        if collecting:
            gc.enable()


class _Walker:
    """Walks the file's documents; owns the position and the account."""

    def __init__(self, data: bytes, where: str, progress: Callable[[float], None] | None) -> None:
        self.data = data
        self.where = where
        self.progress = progress
        self.pieces: list[Columns] = []
        self.header: dict[str, Any] = {}
        self.found_events = False
        self.events_in_file = self.repaired = self.skipped = 0
        self.faults: dict[str, Fault] = {}
        self.ascii = False
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
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            self.data = data = data.decode("utf-16", "replace").encode()
            self.fault("utf16", 0, "text is UTF-16")
        self.ascii = data.isascii()
        at = self.space(at)
        if at >= len(data) or not data[at : at + 4096].strip(b"\0 \t\r\n"):
            raise FormatError(f"{self.where}: empty file")
        if data[at] not in b"{[":
            raise FormatError(f"{self.where}: not JSON (begins with {data[at : at + 12]!r})")
        at = self.one(at)
        if not self.found_events:
            keys = ", ".join(" ".join(key.split())[:40] for key in list(self.header)[:6]) or "none"
            raise FormatError(f"{self.where}: no traceEvents; is this a Kineto trace? Its keys: {keys}")
        self.more(at)
        return Document(
            self.header,
            _concat(self.pieces),
            self.events_in_file,
            len(data),
            self.repaired,
            self.skipped,
            self.faults,
        )

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
            at = self.one(at)
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
            return len(self.data)
        text = self.data[at:end]
        try:
            self.header[key] = msgspec.json.decode(text)
        except _REFUSED:
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
            match = _BOUNDARY.search(data, at + _PIECE_BYTES)
            if match:
                if self.strict(at, match.start() + 1):
                    at = match.end()
                    continue
                at, ended = self.slow(at, match.end())
            else:
                close = self.last_piece(at)
                if close is not None:
                    return close
                at, ended = self.slow(at, len(data))
            if ended:
                return at

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

    def strict(self, start: int, end: int) -> bool:
        try:
            while end > start and self.data[end - 1] in b", \t\r\n":
                end -= 1
            self.check_text(start, end)
            events = _events.decode(b"".join((b"[", memoryview(self.data)[start:end], b"]")))
        except _REFUSED:
            return False
        self.keep(events)
        return True

    def check_text(self, start: int, end: int) -> None:
        """Refuse bytes that are not UTF-8: the parser looks only at what it decodes, not at what it passes on raw."""
        if not self.ascii:
            self.data[start:end].decode("utf-8")

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
            if data[at : at + 1] == b"]" or at >= len(data):
                return self.after_last(at)
            if data[at] != 123:
                at = self.resync(at)
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
                self.check_text(start, end)
                self.keep([_tighten(_loose.decode(data[start:end]))])
                return end
            except _REFUSED:
                pass
        mended = mend_event(data[start:following].rstrip())
        if mended is None and end is not None and end > following:
            mended = mend_event(data[start:end])
        if mended is None:
            self.events_in_file += 1
            if self.keeping:
                self.skipped += 1
            cut = following >= len(data) and end is None
            kind, detail = (
                ("truncated", "the file ends inside an event") if cut else ("skipped", "an event beyond repair")
            )
            self.fault(kind, start, detail)
            return following
        raw = {
            key: msgspec.Raw(mended.fields[key].encode())
            for key in _LooseEvent.__struct_fields__
            if key in mended.fields
        }
        self.keep([_tighten(_LooseEvent(**raw))])
        self.repaired += 1
        for detail in sorted(mended.faults) or ["damaged text"]:
            self.fault("repaired: " + detail, start, detail)
        return start + mended.consumed

    def resync(self, at: int) -> int:
        """Bytes between events that belong to none: go to the next event or the end."""
        match = _BOUNDARY.search(self.data, at)
        brace = self.data.find(b"{", at)
        following = min([p for p in (match.end() if match else -1, brace) if p > at], default=len(self.data))
        self.fault("garbage", at, f"{following - at} bytes between events")
        return following

    def keep(self, events: Sequence[_Event]) -> None:
        self.events_in_file += len(events)
        if self.keeping and events:
            self.pieces.append(_columns(events))

    def space(self, at: int) -> int:
        match = _SPACE.match(self.data, at)
        return match.end() if match else at

    def skip(self, at: int) -> int:
        match = _SKIP.match(self.data, at)
        return match.end() if match else at


def _tighten(loose: _LooseEvent) -> _Event:
    def text(raw: msgspec.Raw) -> str:
        if not len(raw):
            return ""
        try:
            value = msgspec.json.decode(raw)
        except _REFUSED:  # a number beyond all bounds
            value = bytes(raw).decode("utf-8", "replace")
        return value if isinstance(value, str) else "" if value is None else bytes(raw).decode("utf-8", "replace")

    return _Event(
        text(loose.ph),
        text(loose.cat),
        text(loose.name),
        loose.pid,
        loose.tid,
        loose.ts,
        loose.dur,
        loose.id,
        loose.args,
    )


def _columns(events: Sequence[_Event]) -> Columns:
    count = len(events)
    ph, cat, name, pid, tid, ts, dur, ids, args = zip(*map(astuple, events), strict=True) if count else ((),) * 9
    times, durations = nanoseconds(TextColumn.join(ts)), nanoseconds(TextColumn.join(dur))
    category = pa.array(cat, pa.string()).dictionary_encode()
    texts = TextColumn.join(args)
    found = _ids_of(args, texts, category)
    return Columns(
        ph=pa.array(ph, pa.string()).dictionary_encode(),
        cat=category,
        name=pa.array(name, pa.string()).dictionary_encode(),
        pid=TextColumn.join(pid).binary().dictionary_encode(),
        tid=TextColumn.join(tid).binary().dictionary_encode(),
        ids=TextColumn.join(ids).binary(),
        args=texts.binary(),
        ts=times.ns,
        has_ts=times.valid,
        dur=durations.ns,
        has_dur=durations.valid,
        **{key: found.get(key, np.full(count, -1, np.int64)) for key in _ID_KEYS},
    )


_ID_KEYS = {
    # column: the argument's names, newest first, as attribute of _Args and as JSON text
    "correlation": (("correlation", b'"correlation"'),),
    "external_id": (("external_id", b'"External id"'), ("external_id_2021", b'"external id"')),
    "device": (("device", b'"device"'),),
    "stream": (("stream", b'"stream"'), ("stream_id", b'"Stream Id"')),
    "bytes": (("bytes", b'"bytes"'),),
    "execution_id": (("execution_id", b'"execution_id"'),),
}
_NO_IDS = ("python_function", "ac2g", "fwdbwd")  # categories whose arguments hold none of these; often half of a trace


def _ids_of(args: Sequence[Any], texts: TextColumn, category: pa.DictionaryArray) -> dict[str, Int64]:
    """The ids among the arguments, as columns; a column without any value is left out."""
    count = len(args)
    wanted = np.array([name not in _NO_IDS for name in category.dictionary.to_pylist()] or [False], np.bool_)
    rows = np.flatnonzero(wanted[category.indices.to_numpy()] & (texts.lengths > 2)) if count else np.zeros(0, np.int64)
    if not len(rows):
        return {}
    present = [args[row] for row in rows.tolist()]
    text = b"[" + b",".join(present) + b"]"
    try:
        parsed = _args_list.decode(text)
    except _REFUSED:
        parsed = [_one_args(a) for a in present]
    found: dict[str, Int64] = {}
    for column, sources in _ID_KEYS.items():
        values: Int64 | None = None
        for attribute, key in sources:
            if key not in text:
                continue
            here = int64_column(list(map(attrgetter(attribute), parsed)))
            values = here if values is None else np.where(values >= 0, values, here)
        if values is not None:
            found[column] = np.full(count, -1, np.int64)
            found[column][rows] = values
    return found


_NO_ARGS = _Args()


def _one_args(text: Any) -> _Args:
    try:
        return _args_one.decode(text)
    except _REFUSED:
        return _NO_ARGS  # a list, null, text, or an id of a strange type; the text itself is kept


def _concat(pieces: Iterable[Columns]) -> Columns:
    pieces = list(pieces) or [_columns([])]
    values: dict[str, Any] = {}
    for name in Columns.__dataclass_fields__:
        parts = [getattr(piece, name) for piece in pieces]
        if isinstance(parts[0], np.ndarray):
            values[name] = np.concatenate(parts)
        else:
            chunked = pa.chunked_array(parts)
            if pa.types.is_dictionary(chunked.type):
                chunked = chunked.unify_dictionaries()
            elif pa.types.is_binary(chunked.type) and chunked.nbytes > 2**31 - 2**24:
                chunked = chunked.cast(pa.large_binary())
            values[name] = chunked.combine_chunks()
    return Columns(**values)


def fault_kinds(faults: dict[str, Fault]) -> Counter[str]:
    """Counts per kind, for tests and messages."""
    return Counter({kind: fault.count for kind, fault in faults.items()})
