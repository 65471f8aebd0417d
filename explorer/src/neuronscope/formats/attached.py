"""Tables of a profile carried at the end of a file that was written for another viewer.

An export shows a profile in another tool's terms, which can't hold all of it: what launched what, lanes, gap causes,
provenance. So an export carries the profile's own tables (Parquet) too, and opens again as exactly what was exported.
Other viewers skip them. A checksum over what stands before them tells whether somebody changed that since.

JSON: a first member `"neuronscope": {"export": …}` and a last one `"neuronscope_tables": {"Slice": "<base64>", …}`.
Perfetto's protobuf: a first packet with the same facts as Chrome metadata, and last packets with a field of ours.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import mmap
import re
import zlib
from collections.abc import Iterator
from typing import IO, Protocol

from neuronscope.formats.errors import FormatError

__all__ = [
    "JSON_MARK",
    "TABLES_FIELD",
    "TABLES_KEY",
    "Attached",
    "Counted",
    "Output",
    "head_packet",
    "is_export",
    "json_head",
    "json_tables",
    "read_json",
    "read_protobuf",
    "tables_packet",
]

JSON_MARK = b'"neuronscope": {"export": '
TABLES_FIELD = 90_100
"""Of a TracePacket: tables of ours. Perfetto defines no such field, and its readers skip what they don't know."""

Bytes = bytes | mmap.mmap
TABLES_KEY = "neuronscope_tables"
_KEY = b'"%b": {' % TABLES_KEY.encode()
_CHECK = re.compile(rb'"check": "(\w+)"')
_TABLE = re.compile(rb',\n"(\w+)": "([0-9a-f]{8}) ([A-Za-z0-9+/=]*)"')
_NAME = b"neuronscope.export"
_AT_ONCE = 3 << 18  # bytes, a multiple of 3: base64 of the parts is that of the whole


class Attached:
    """What an export carries.

    Attributes:
        facts: what it is: `export` (the form), `name`, `source`, `tables` (their names).
        unchanged: the visible part is as it was written.
    """

    def __init__(self, facts: dict[str, str], unchanged: bool, found: Iterator[tuple[str, str, bytes]]) -> None:
        self.facts = facts
        self.unchanged = unchanged
        self._found = found

    def tables(self) -> Iterator[tuple[str, bytes]]:
        """Parquet bytes by table name, one at a time.

        Raises:
            FormatError: one is damaged or missing.
        """
        missing = set(self.facts.get("tables", "").split())
        for name, check, data in self._found:
            if f"{zlib.crc32(data):08x}" != check:
                raise FormatError(f"table {name} is damaged")
            missing.discard(name)
            yield name, data
        if missing:
            raise FormatError(f"{len(missing)} tables are missing")


class Output(Protocol):
    """What an export is written to."""

    def write(self, data: bytes, /) -> int:
        """Write all of it."""
        ...


class Counted:
    """A file that is written to, with the checksum of what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._crc = 0

    def write(self, data: bytes, /) -> int:
        """Write, and count."""
        self._crc = zlib.crc32(data, self._crc)
        return self._file.write(data)

    @property
    def check(self) -> str:
        """The checksum so far."""
        return f"{self._crc:08x}"


def is_export(head: bytes) -> bool:
    """Whether a file whose bytes begin so is an export that carries tables."""
    return JSON_MARK in head[:512] or (head[:1] == b"\x0a" and _NAME in head[:64])


def json_head(facts: dict[str, str]) -> bytes:
    """The first member of a JSON export, `export` in front of the facts."""
    return b'"neuronscope": ' + json.dumps(facts).encode()


def json_tables(check: str, tables: Iterator[tuple[str, bytes]]) -> Iterator[bytes]:
    """The last member of a JSON export, in parts; `check` is the checksum of all that stands before it."""
    yield _KEY + b'"check": "' + check.encode() + b'"'
    for name, data in tables:
        yield b',\n"%b": "%08x ' % (name.encode(), zlib.crc32(data))
        for at in range(0, len(data), _AT_ONCE):
            yield base64.b64encode(data[at : at + _AT_ONCE])
        yield b'"'
    yield b"}"


def read_json(data: Bytes) -> Attached | None:
    """What a JSON export carries; None when nothing of it is left."""
    facts = _facts(data[: 1 << 16])
    at = data.rfind(_KEY)
    check = _CHECK.match(data, at + len(_KEY)) if at >= 0 else None
    if facts is None or check is None or not data[-64:].rstrip().endswith(b'"}\n}'):
        return None

    def tables() -> Iterator[tuple[str, str, bytes]]:
        for match in _TABLE.finditer(data, check.end()):
            with contextlib.suppress(binascii.Error):
                yield match[1].decode(), match[2].decode(), base64.b64decode(match[3], validate=True)

    return Attached(facts, _crc(data, at) == check[1].decode(), tables())


def _facts(head: bytes) -> dict[str, str] | None:
    at = head.find(JSON_MARK)
    if at < 0:
        return None
    text = head[at + len(b'"neuronscope": ') :].decode("utf-8", "replace")
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    return {str(key): str(fact) for key, fact in value.items()} if isinstance(value, dict) else None


def _crc(data: Bytes, end: int) -> str:
    crc = 0
    for at in range(0, end, 1 << 24):
        crc = zlib.crc32(data[at : min(at + (1 << 24), end)], crc)
    return f"{crc:08x}"


# Perfetto's protobuf: Trace.packet 1; TracePacket.chrome_events 5; ChromeEventBundle.metadata 2; ChromeMetadata.name 1,
# .string_value 2.


def head_packet(facts: dict[str, str]) -> bytes:
    """The first packet of an export in Perfetto's protobuf."""
    told = _field(1, _NAME) + _field(2, json.dumps(facts).encode())
    return _field(1, _field(5, _field(2, told)))


def tables_packet(check: str, tables: Iterator[tuple[str, bytes]]) -> Iterator[bytes]:
    """The last packets: a checksum of all that stands before them, then one per table: its name and Parquet bytes."""
    yield _field(1, _field(TABLES_FIELD, _field(3, check.encode())))
    for name, data in tables:
        told = _field(1, name.encode()) + _field(2, data) + _field(3, f"{zlib.crc32(data):08x}".encode())
        yield _field(1, _field(TABLES_FIELD, told))


def read_protobuf(data: Bytes) -> Attached | None:
    """What an export in Perfetto's protobuf carries; None when nothing of it is left."""
    try:
        first = next(_packets(data, 0))
        told = dict(_fields(dict(_fields(dict(_fields(first[1]))[5]))[2]))
        facts = {str(key): str(fact) for key, fact in json.loads(told[2]).items()}
    except (StopIteration, ValueError, KeyError, AttributeError):
        return None
    mark = _varint(TABLES_FIELD << 3 | 2)
    check, begin, found = "", -1, []
    try:
        for at, packet in _packets(data, 0):
            if packet[: len(mark)] != mark:
                continue
            inside = dict(_fields(dict(_fields(packet))[TABLES_FIELD]))
            if begin < 0:
                check, begin = inside[3].decode(), at
            else:
                found.append((inside[1].decode(), inside[3].decode(), inside[2]))
    except (ValueError, KeyError, UnicodeDecodeError):
        return None
    if begin < 0:
        return None
    return Attached(facts, _crc(data, begin) == check, iter(found))


def _packets(data: Bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Position and content of each packet.

    Raises:
        ValueError: no packet stands there.
    """
    while at < len(data):
        begin = at
        if data[at] != 0x0A:
            raise ValueError
        size, at = _number(data, at + 1)
        if at + size > len(data):
            raise ValueError
        yield begin, data[at : at + size]
        at += size


def _fields(data: Bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of the fields of bytes in a message; others are passed over."""
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = _number(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            size, at = _number(data, at)
            if at + size > len(data):
                raise ValueError
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError


def _number(data: Bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError


def _field(number: int, data: Bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
