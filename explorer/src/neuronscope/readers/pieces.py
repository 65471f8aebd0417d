"""Events of a stretch of JSON → `Columns`: the strict parser, and the columns every later step works on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import astuple

from neuronscope.readers.exact import Bools, Int64, TextColumn, int64_column, nanoseconds, nanoseconds_meant
from neuronscope.readers.narrow import Coded, Dictionary, narrow
from neuronscope.readers.scratch import Scratch
from neuronscope.readers.texts import Spill, Stored, Texts

__all__ = [
    "ABSENT",
    "NO_IDS",
    "REFUSED",
    "Collected",
    "Columns",
    "Event",
    "Fields",
    "Piece",
    "columns_of",
    "no_ids",
    "parse_events",
    "parse_piece",
    "tighten",
    "with_member",
]

Int8 = npt.NDArray[np.int8]

_MISSING = msgspec.Raw(b"")
ABSENT = float("nan")  # what no JSON holds
_IN_NS = 2
_FIRST_ID = 3  # of an event's five labels the last two are ids
_Id = int | str | float | None


class Event(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An event as nearly every writer makes it; times and ids stay text."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: _Id = ABSENT
    tid: _Id = ABSENT
    ts: msgspec.Raw = _MISSING
    dur: msgspec.Raw = _MISSING
    id: msgspec.Raw = _MISSING
    args: msgspec.Raw = _MISSING
    s: msgspec.Raw = _MISSING  # scope of an instant
    bp: msgspec.Raw = _MISSING  # how an arrow binds; all are bound to the slice that encloses their end


_FIELDS = frozenset(Event.__struct_fields__)
Fields = Mapping[str, msgspec.Raw]  # an event's members as JSON text


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


_events = msgspec.json.Decoder(list[Event])
_other_events = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_args_list = msgspec.json.Decoder(list[_Args])
_args_one = msgspec.json.Decoder(_Args)
REFUSED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


@dataclass(frozen=True)
class Piece:
    """Columns of some events in file order; whole numbers in the narrowest type that holds them, -1 where missing.

    `has_ts` is 0 where no time could be read, 2 where it (and the duration) was in nanoseconds, else 1.
    """

    ph: Coded
    cat: Coded
    name: Coded
    pid: Coded
    tid: Coded
    ids: pa.Array | Stored
    args: pa.Array | Stored
    ts: Int64
    has_ts: Int8
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


@dataclass(frozen=True)
class Columns:
    """All events of a document, one row each, in file order.

    `ids` holds flow and async ids as text, `args` the arguments as JSON text (empty: none). Missing ids are -1.
    Columns of whole numbers may be narrower than 64 bits.
    """

    ph: pa.DictionaryArray
    cat: pa.DictionaryArray
    name: pa.DictionaryArray
    pid: pa.DictionaryArray
    tid: pa.DictionaryArray
    ids: Texts
    args: Texts
    ts: Int64
    has_ts: Int8
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


def parse_piece(text: bytes | memoryview, spill: Spill | None) -> Piece | None:
    """Columns of the events of a text, which are separated by commas; None when anything in it is out of order."""
    events = parse_events(text)
    return None if events is None else columns_of(events, spill)


def parse_events(text: bytes | memoryview) -> list[Event] | None:
    """Events separated by commas, strictly; None when anything in the text is out of order.

    The parser looks only at what it decodes, so that what it passes on raw is checked for UTF-8 before. Members that
    `Event` does not name join the arguments (see `tighten`).
    """
    whole = b"".join((b"[", text, b"]"))
    try:
        if not whole.isascii():
            whole.decode("utf-8")
        return _events.decode(whole)
    except msgspec.ValidationError:
        try:
            return [tighten(fields) for fields in _other_events.decode(whole)]
        except REFUSED:
            return None
    except REFUSED:
        return None


def tighten(fields: Fields) -> Event:
    """The event of some members of any type: texts as text, members that `Event` does not name among the arguments.

    Those stand there in one member `event`: `{"event": {"attr": ...}, "External id": 5}`.
    """

    def text(raw: msgspec.Raw) -> str:
        if not len(raw):
            return ""
        try:
            value = msgspec.json.decode(raw)
        except REFUSED:  # a number beyond all bounds
            value = bytes(raw).decode("utf-8", "replace")
        return value if isinstance(value, str) else "" if value is None else bytes(raw).decode("utf-8", "replace")

    def scalar(raw: msgspec.Raw) -> _Id:
        if not len(raw):
            return ABSENT
        try:
            value = msgspec.json.decode(raw)
        except REFUSED:
            value = False
        plain = value is None or (isinstance(value, int | str | float) and not isinstance(value, bool))
        return value if plain else bytes(raw).decode("utf-8", "replace")

    def member(name: str) -> msgspec.Raw:
        return fields.get(name, _MISSING)

    args, scope = member("args"), member("s")
    if not fields.keys() <= _FIELDS:
        args = msgspec.Raw(_with_others(args, {k: v for k, v in fields.items() if k == "s" or k not in _FIELDS}))
        scope = _MISSING
    return Event(
        text(member("ph")),
        text(member("cat")),
        text(member("name")),
        scalar(member("pid")),
        scalar(member("tid")),
        member("ts"),
        member("dur"),
        member("id"),
        args,
        scope,
    )


def _with_others(args: msgspec.Raw, others: Fields) -> bytes:
    """The arguments with the members of the event that no column holds."""
    members = (msgspec.json.encode(name) + b": " + bytes(value) for name, value in others.items())
    return with_member(bytes(args), "event", b"{" + b", ".join(members) + b"}")


def with_member(args: bytes, name: str, value: bytes) -> bytes:
    """Arguments (JSON text, empty: none) with another member in front; such that are no object become `args` in one."""
    head, body = b'{"%b": %b' % (name.encode(), value), args.strip()
    if body[:1] == b"{":
        rest = body[1:].lstrip()
        return head + (rest if rest[:1] == b"}" else b", " + rest)
    return head + (b', "args": ' + body if body else b"") + b"}"


def columns_of(events: Sequence[Event], spill: Spill | None = None) -> Piece:
    """Columns of some events; long texts go to `spill` when there is one."""
    count = len(events)
    args: Sequence[Any] = [event.args for event in events]
    if b"".join([event.s for event in events]):
        args = [_with_others(e.args, {"s": e.s}) if len(e.s) else e.args for e in events]
    time_texts = TextColumn.join_short([event.ts for event in events])
    duration_texts = TextColumn.join_short([event.dur for event in events])
    times, durations = nanoseconds(time_texts), nanoseconds(duration_texts)
    has_ts = times.valid.astype(np.int8)
    for row in np.flatnonzero(~times.valid & (time_texts.lengths >= 18)).tolist():
        meant = nanoseconds_meant(time_texts.text(row))
        if meant is not None:
            times.ns[row], has_ts[row] = meant, _IN_NS
            durations.ns[row] = (durations.ns[row] + 500) // 1000
    ph, category, name, pid, tid = _coded(events)
    texts, id_texts = TextColumn.join(args), TextColumn.join_short([event.id for event in events])
    found = _ids_of(args, texts, category)
    return Piece(
        ph=ph,
        cat=category,
        name=name,
        pid=pid,
        tid=tid,
        ids=spill.store(id_texts) if spill else id_texts.binary(),
        args=spill.store(texts) if spill else texts.binary(),
        ts=times.ns,
        has_ts=has_ts,
        dur=narrow(durations.ns),
        has_dur=durations.valid,
        **{key: narrow(found[key]) if key in found else no_ids(count) for key in _ID_KEYS},
    )


def no_ids(count: int) -> Int64:
    """A column of ids that no event has; takes no memory."""
    return np.broadcast_to(np.int8(-1), count)


class _Numbers(dict[Any, int]):
    """Values → numbers in order of appearance."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


_labels = attrgetter("ph", "cat", "name", "pid", "tid")


def _coded(events: Sequence[Event]) -> list[Coded]:
    """Phase, category, name, process and thread id of each event; the ids, which are of any type, as JSON text.

    Few combinations are distinct, so that one look-up per event finds all five.
    """
    combinations = _Numbers()
    rows = np.fromiter(map(combinations.__getitem__, map(_labels, events)), np.int32, len(events))
    columns = []
    for field, values in enumerate(zip(*combinations, strict=True) if combinations else [()] * 5):
        numbers = _Numbers()
        codes = np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))
        texts: list[Any] = list(numbers)
        if field >= _FIRST_ID:
            texts = [b"" if value is ABSENT else msgspec.json.encode(value) for value in numbers]
        columns.append(Coded(codes[rows], texts))
    return columns


_ID_KEYS = {
    # column: attributes of _Args, newest name first
    "correlation": ("correlation",),
    "external_id": ("external_id", "external_id_2021"),
    "device": ("device",),
    "stream": ("stream", "stream_id"),
    "bytes": ("bytes",),
    "execution_id": ("execution_id",),
}
NO_IDS = ("python_function", "ac2g", "fwdbwd")  # categories whose arguments hold none of these; often half of a trace


def _ids_of(args: Sequence[Any], texts: TextColumn, category: Coded) -> dict[str, Int64]:
    """The ids among the arguments, as columns; a column without any value is left out."""
    count = len(args)
    wanted = np.array([name not in NO_IDS for name in category.texts] or [False], np.bool_)
    if not count:
        return {}
    chosen = wanted[category.codes] & (texts.lengths > 2)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return {}
    present = args if len(rows) == count else list(itertools.compress(args, chosen.tolist()))
    try:
        parsed = _args_list.decode(b"".join((b"[", b",".join(present), b"]")))
    except REFUSED:
        parsed = [_one_args(a) for a in present]
    columns = dict(zip(_Args.__struct_fields__, zip(*map(astuple, parsed), strict=True), strict=True))
    found: dict[str, Int64] = {}
    for column, sources in _ID_KEYS.items():
        values: Int64 | None = None
        for attribute in sources:
            ids = columns[attribute]
            if ids.count(-1) == len(ids):
                continue
            here = int64_column(ids)
            values = here if values is None else np.where(values >= 0, values, here)
        if values is not None:
            found[column] = np.full(count, -1, np.int64)
            found[column][rows] = values
    return found


_NO_ARGS = _Args()


def _one_args(text: Any) -> _Args:
    try:
        return _args_one.decode(text)
    except REFUSED:
        return _NO_ARGS  # a list, null, text, or an id of a strange type; the text itself is kept


class Collected:
    """Pieces on their way to `Columns`, in their order; what is too large for memory goes to `scratch`."""

    def __init__(self, scratch: Scratch | None = None) -> None:
        scratch = scratch or Scratch()
        self._numbers = {name: scratch.column(_FIXED.get(name)) for name in _NUMBERS}
        self._codes = {name: scratch.column() for name in _CODED}
        self._dictionaries = {name: Dictionary() for name in _CODED}
        self._texts: dict[str, list[pa.Array | Stored]] = {"ids": [], "args": []}

    def add(self, piece: Piece) -> None:
        """The events of the next piece."""
        for name, column in self._numbers.items():
            column.append(getattr(piece, name))
        for name, column in self._codes.items():
            column.append(self._dictionaries[name].codes(getattr(piece, name)))
        for name, texts in self._texts.items():
            texts.append(getattr(piece, name))

    def columns(self) -> Columns:
        """All events so far; none may be added any more."""
        if not self._texts["ids"]:
            self.add(columns_of([]))
        values: dict[str, Any] = {name: column.finish() for name, column in self._numbers.items()}
        for name, column in self._codes.items():
            values[name] = self._dictionaries[name].array(column.finish())
        values |= {name: Texts.of(*texts) for name, texts in self._texts.items()}
        return Columns(**values)


_CODED = ("ph", "cat", "name", "pid", "tid")
_FIXED = {"ts": np.int64, "has_dur": np.bool_}  # the others are as narrow as they go, also when there are none
_NUMBERS = tuple(name for name in Columns.__dataclass_fields__ if name not in (*_CODED, "ids", "args"))
