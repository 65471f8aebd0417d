"""The optional compiled reader of event pieces: what `pieces.parse_piece` does, several times as fast.

`native/tokenizer.cpp` scans strict JSON into typed buffers; here these become the columns of a `Piece`. Whatever is out
of the ordinary goes to the plain parser, which is also the oracle of its tests: both must give the same columns.

NEURONSCOPE_TOKENIZER=plain or native chooses one; by default the compiled one is taken where it was built.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from neuronscope.formats.errors import FormatError
from neuronscope.readers import pieces
from neuronscope.readers.exact import Int64, TextColumn, exact_nanoseconds, int64, nanoseconds_meant
from neuronscope.readers.narrow import Coded, narrow
from neuronscope.readers.pieces import ABSENT, NO_IDS, REFUSED, Piece, no_ids
from neuronscope.readers.texts import Place, Spill, Stored

__all__ = ["PADDING", "argument_texts", "parse_piece", "tokenizer"]

PADDING = 64  # zeros after a text that the compiled one reads where it is

_SOURCES = ("correlation", "external_id", "external_id", "device", "stream", "stream", "bytes", "execution_id")
_VERSION = 3  # of what the compiled one takes and gives: one of other sources is left alone
_INT64_MIN = -(2**63)
_FIRST_ID = 2  # of the columns that an odd value can belong to: 0 is the time, 1 the duration
_id = msgspec.json.Decoder(int | str | float | None)
_text = msgspec.json.Decoder(str)

_tokenize: Callable[[bytes | memoryview, int, bool], dict[str, Any] | None] | None = None
_members: Callable[[Any, Any, tuple[bytes, ...]], list[tuple[Any, Any]] | None] | None = None
with contextlib.suppress(ImportError):  # a wheel without it
    _built = importlib.import_module("neuronscope.readers._tokenizer")
    if getattr(_built, "VERSION", 0) == _VERSION:
        _tokenize, _members = _built.tokenize, _built.members


def tokenizer() -> str:
    """Which one reads events: "native" or "plain".

    Raises:
        FormatError: NEURONSCOPE_TOKENIZER asks for something that is not there.
    """
    wanted = os.environ.get("NEURONSCOPE_TOKENIZER", "")
    if wanted not in ("", "plain", "native"):
        raise FormatError(f"NEURONSCOPE_TOKENIZER={wanted}: plain or native")
    if wanted == "native" and _tokenize is None:
        raise FormatError(
            "NEURONSCOPE_TOKENIZER=native: the native tokenizer is not built; install with a C++ compiler"
        )
    return wanted or ("plain" if _tokenize is None else "native")


def parse_piece(
    text: bytes | memoryview, spill: Spill | None, padding: int = 0, place: Place | None = None
) -> Piece | None:
    """Events separated by commas, strictly; None when anything in the text is out of order.

    Args:
        text: its last `padding` bytes do not belong to it: zeros (`PADDING`), with which it need not be copied.
        spill: takes long texts.
        padding: see `text`.
        place: where the text stands in a file, which then holds the arguments for the spill.
    """
    if _tokenize is not None and tokenizer() == "native":
        found = _tokenize(text, padding, spill is not None and place is not None)
        piece = None if found is None else _piece(found, spill, place)
        if piece is not None:
            return piece
    return pieces.parse_piece(text[: len(text) - padding], spill)


def argument_texts(args: pa.Array, keys: tuple[bytes, ...]) -> list[pa.Array] | None:
    """The JSON texts of some arguments, empty where an event lacks one; None when the plain decoder has to read them.

    Args:
        args: arguments of some events as JSON texts, an Arrow array of bytes.
        keys: the arguments' names.
    """
    if _members is None or tokenizer() != "native" or args.type != pa.binary() or not len(args):
        return None
    _, offsets, data = args.buffers()
    bounds = np.frombuffer(offsets, np.int32)[args.offset : args.offset + len(args) + 1]
    found = _members(data if data is not None else b"", bounds, keys)
    return None if found is None else [_texts(*column).binary() for column in found]


def _piece(found: dict[str, Any], spill: Spill | None, place: Place | None) -> Piece | None:
    """The columns; None when a value is of a kind that the plain parser has to judge."""
    rows: int = found["rows"]
    try:
        ph, category, name = (_coded(_whole(found[key][0], rows), found[key][1]) for key in ("ph", "cat", "name"))
        pid, tid = (_numbered(_whole(found[key][0], rows), found[key][1]) for key in ("pid", "tid"))
    except REFUSED:
        return None
    ts, dur = (_whole(found[key][0], rows) for key in ("ts", "dur"))
    has_ts, has_dur = np.frombuffer(found["ts"][1], np.int8), np.frombuffer(found["dur"][1], np.bool_)
    numbers: list[Int64 | None] = [_whole(part, rows) if len(part) else None for part in found["numbers"]]
    wanted = np.array([text not in NO_IDS for text in category.texts], np.bool_)
    has_ids = wanted[category.codes]
    if found["odd"]:
        dur = dur.astype(np.int64)
        numbers = [None if part is None else part.astype(np.int64) for part in numbers]
        if not _judge(found["odd"], (ts, dur), (has_ts, has_dur), numbers, has_ids):
            return None
        dur, numbers = narrow(dur), [None if part is None else narrow(part) for part in numbers]
    ids: dict[str, Int64] = {}
    for key, values in zip(_SOURCES, numbers, strict=True):
        if values is None:
            continue
        here = np.where(has_ids, values, np.int8(-1))
        before = ids.get(key)
        if before is not None and (before < -1).any():
            return None  # which name the id is taken from depends on the texts around
        ids[key] = here if before is None else np.where(before >= 0, before, here)
    id_texts = _texts(*found["id"])
    offsets, data = found["args"]
    args: Stored | pa.Array
    if data is None and spill is not None and place is not None:
        args = spill.store_slices(np.frombuffer(offsets, np.int32), place)
    else:
        args = _stored(_texts(offsets, data), spill)
    return Piece(
        ph=ph,
        cat=category,
        name=name,
        pid=pid,
        tid=tid,
        ids=_stored(id_texts, spill),
        args=args,
        ts=ts,
        has_ts=has_ts,
        dur=dur,
        has_dur=has_dur,
        **{key: narrow(ids[key]) if key in ids else no_ids(rows) for key in dict.fromkeys(_SOURCES)},
    )


def _judge(
    odd: list[tuple[int, int, bytes]],
    times: tuple[Int64, Int64],
    valid: tuple[Any, Any],
    numbers: list[Int64 | None],
    has_ids: Any,
) -> bool:
    """Fill in times and ids that are not in plain digits; False when the plain parser has to."""
    in_ns, refused = [], []
    for column, row, raw in odd:
        if column < _FIRST_ID:
            text = raw.decode()
            parsed = exact_nanoseconds(text)
            if parsed is not None:
                times[column][row], valid[column][row] = parsed, True
            elif column == 0 and len(raw) >= 18:
                meant = nanoseconds_meant(text)
                if meant is not None:
                    times[0][row], valid[0][row] = meant, 2
                    in_ns.append(row)
        elif has_ids[row]:
            try:
                value = _id.decode(raw)
            except REFUSED:
                refused.append(row)
                continue
            if value == _INT64_MIN:  # in range or not, as the ids around it are
                return False
            target = numbers[column - _FIRST_ID]
            if target is not None:
                target[row] = int64(value)
    for row in in_ns:
        times[1][row] = (times[1][row] + 500) // 1000
    for values in numbers:
        if values is not None:
            values[refused] = -1
    return True


def _stored(texts: TextColumn, spill: Spill | None) -> Stored | pa.Array:
    return spill.store(texts) if spill else texts.binary()


_WHOLE = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def _whole(values: Any, rows: int) -> Int64:
    """Whole numbers of as many bytes as their number says."""
    return np.frombuffer(values, _WHOLE[len(values) // rows])


def _coded(codes: Int64, contents: list[bytes]) -> Coded:
    """A column of texts from the contents of its JSON strings."""
    texts = [_text.decode(b'"' + content + b'"') for content in contents]
    return _distinct(codes, texts, texts)


def _numbered(codes: Int64, raw: list[bytes]) -> Coded:
    """Process or thread ids of any type, as JSON text (empty: none)."""
    values = [_id.decode(text) if text else ABSENT for text in raw]
    texts = [b"" if value is ABSENT else msgspec.json.encode(value) for value in values]
    return _distinct(codes, values, texts)


def _distinct(codes: Int64, values: list[Any], texts: list[Any]) -> Coded:
    """Codes for texts, of which equal `values` are one."""
    if len(set(values)) == len(values):
        return Coded(codes, texts)
    first: dict[Any, int] = {}
    numbers = [first.setdefault(value, len(first)) for value in values]
    return Coded(np.array(numbers, np.int32)[codes], [texts[numbers.index(number)] for number in range(len(first))])


def _texts(offsets: Any, data: Any) -> TextColumn:
    return TextColumn(np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int32))
