"""The bytes of a trace file, whatever it is packed in: `load` makes a `Source` that is read by position.

A large file is mapped, not read; a large compressed one is inflated into the scratch folder first and mapped there.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import mmap
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from neuronscope.formats.errors import FormatError
from neuronscope.readers.scratch import SCRATCH_PREFIX
from neuronscope.readers.texts import Place

with contextlib.suppress(ImportError):  # a Python may be built without them
    import bz2
    import lzma

__all__ = ["Bytes", "Fault", "Source", "Stretches", "head", "load", "packed", "remove_scratch", "wide_encoding"]

_INFLATE_BYTES = 1 << 20
_IN_MEMORY_BYTES = 32 << 20  # smaller files are read as they are
_GZIP, _ZSTD, _BZ2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0"

Bytes = bytes | mmap.mmap


@dataclass
class Fault:
    """A kind of damage: how many events, where first, an example of what was wrong."""

    count: int
    offset: int
    detail: str


@dataclass
class Source:
    """A file's decompressed bytes.

    Attributes:
        data: what is read by position.
        path: a file with exactly these bytes, None when they are only in memory.
        faults: what was wrong with the compression.
    """

    data: Bytes
    path: Path | None = None
    faults: dict[str, Fault] = field(default_factory=dict)

    def forget(self) -> None:
        """Give back the memory of the pages read so far."""
        if isinstance(self.data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.data.madvise(mmap.MADV_DONTNEED)


class Stretches:
    """Reads stretches of a source for one thread, which uses each before it asks for the next.

    A file is read into memory that is used again, not looked at through its mapping: the pages of a mapping cost more
    time than the copy does, and count as memory of the process until they are given back.
    """

    def __init__(self, source: Source, padding: int = 0) -> None:
        """`padding`: how many zeros follow each stretch of a file."""
        self._data = source.data
        self._path = source.path
        self._file = source.path.open("rb", buffering=0) if source.path is not None else None
        self._buffer = bytearray()
        self.padding = padding if self._file is not None else 0

    def read(self, start: int, end: int) -> memoryview:
        """The bytes between two offsets, and the zeros.

        Raises:
            OSError: the file has become shorter.
        """
        if self._file is None:
            return memoryview(self._data)[start:end]
        size = end - start
        if len(self._buffer) < size + self.padding:
            self._buffer = bytearray(size + size // 8 + self.padding)
        text = memoryview(self._buffer)[: size + self.padding]
        self._file.seek(start)
        done = 0
        while done < size:
            count = self._file.readinto(text[done:size])
            if not count:
                raise OSError(f"{self._file.name}: it became shorter while it was read")
            done += count
        text[size:] = bytes(self.padding)
        return text

    def place(self, start: int, end: int) -> Place | None:
        """Where the bytes between two offsets stand; None when in no file."""
        return None if self._path is None else Place(str(self._path), start, end - start)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def load(path: Path, scratch: Path | None = None, progress: Callable[[float], None] | None = None) -> Source:
    """The decompressed bytes of a file.

    Args:
        path: plain, .gz, .zst, .bz2 or .xz text.
        scratch: an existing folder for what does not fit into memory; None keeps all in memory.
        progress: told the fraction of the file that is inflated.

    Raises:
        FormatError: compressed in a way this Python can't read.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        magic = packed(file.read(6))
    if magic is None:
        if size <= _IN_MEMORY_BYTES or scratch is None:
            return Source(path.read_bytes())
        return Source(_mapped(path), path)
    sink = _Sink(scratch)
    raw = _mapped(path) if size > _IN_MEMORY_BYTES else path.read_bytes()
    try:
        faults = _inflate(raw, sink, progress) if magic == _GZIP else _decompress(raw, magic, path, sink)
    finally:
        if isinstance(raw, mmap.mmap):
            raw.close()
    return sink.source(faults)


def head(path: Path, size: int) -> bytes:
    """The first bytes of a file's text, at most about `size`; empty when it can't be read."""
    with path.open("rb") as file:
        raw = file.read(size)
    magic = packed(raw)
    if magic is None:
        return raw
    sink = _Sink(None)
    try:
        _inflate(raw[: size // 8], sink, None) if magic == _GZIP else _decompress(raw, magic, path, sink)
    except FormatError:
        return b""
    return sink.source({}).data[:size]


def packed(head: bytes) -> bytes | None:
    """The first bytes that say how a file is compressed (gzip, zstd, bzip2, xz); None when it is not."""
    return next((magic for magic in (_GZIP, _ZSTD, _BZ2, _XZ) if head.startswith(magic)), None)


def wide_encoding(head: bytes) -> str | None:
    """The encoding of a text of two or four bytes per character that begins so, with a byte order mark or without."""
    if head[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
        return "utf-32"
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if head[:1] in (b"{", b"[") and head[1:2] == b"\0":
        return "utf-32-le" if head[2:4] == b"\0\0" else "utf-16-le"
    if head[:1] == b"\0" and head[1:2] in (b"{", b"["):
        return "utf-16-be"
    return None


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class _Sink:
    """Takes inflated bytes: into memory while they are few, then into a file."""

    def __init__(self, scratch: Path | None) -> None:
        self._scratch = scratch
        self._memory = io.BytesIO()
        self._file: BinaryIO | None = None
        self._path: Path | None = None
        self.size = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if self._file is None and self._scratch is not None and self.size > _IN_MEMORY_BYTES:
            self._path = self._scratch / ".inflated"
            self._file = self._path.open("wb")
            self._file.write(self._memory.getbuffer())
            self._memory = io.BytesIO()
        (self._file or self._memory).write(data)

    def source(self, faults: dict[str, Fault]) -> Source:
        if self._file is None or self._path is None:
            return Source(self._memory.getvalue(), None, faults)
        self._file.close()
        data = _mapped(self._path)
        return Source(data, self._path, faults)


def _inflate(raw: Bytes, sink: _Sink, progress: Callable[[float], None] | None) -> dict[str, Fault]:
    """One or more gzip members."""
    faults: dict[str, Fault] = {}
    start = members = 0
    while raw[start : start + 2] == b"\x1f\x8b":
        inflate = zlib.decompressobj(31)
        while start < len(raw) and not inflate.eof:
            before = inflate.copy()
            piece = raw[start : start + _INFLATE_BYTES]
            try:
                data = inflate.decompress(piece)
            except zlib.error as error:
                sink.write(_until_damage(before, piece))
                return {**faults, "damaged_gzip": Fault(1, sink.size, str(error))}
            sink.write(data)
            start += len(piece) - len(inflate.unused_data)
            if progress:
                progress(start / len(raw))
        members += 1
        if not inflate.eof:
            return {**faults, "truncated_gzip": Fault(1, sink.size, "the compressed stream ends early")}
    if members > 1:
        faults["gzip_members"] = Fault(members, 0, "several gzip members in one file")
    if raw[start:].strip(b"\0"):
        faults["gzip_trailer"] = Fault(len(raw) - start, sink.size, "bytes after the end of the gzip data")
    return faults


def _until_damage(inflate: Any, piece: bytes) -> bytes:
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


def _decompressor(magic: bytes, path: Path) -> Callable[[], Any]:
    """What makes a decompressor for one member of a .zst, .bz2 or .xz file.

    Raises:
        FormatError: this Python has none.
    """
    if magic != _ZSTD:
        try:
            return bz2.BZ2Decompressor if magic == _BZ2 else lzma.LZMADecompressor
        except NameError:
            raise FormatError(f"{path}: this Python was built without bz2 or lzma: unpack the file first") from None
    for module in ("compression.zstd", "zstandard"):
        try:
            zstd = importlib.import_module(module)
        except ImportError:
            continue
        made: Callable[[], Any] = (
            zstd.ZstdDecompressor().decompressobj if module == "zstandard" else zstd.ZstdDecompressor
        )
        return made
    raise FormatError(f"{path}: compressed with zstd, which this Python can't read: pip install zstandard")


def _decompress(raw: Bytes, magic: bytes, path: Path, sink: _Sink) -> dict[str, Fault]:
    """One or more members of a .zst, .bz2 or .xz file."""
    make = _decompressor(magic, path)
    start = 0
    while start < len(raw):
        member = make()
        while start < len(raw) and not member.eof:
            piece = raw[start : start + _INFLATE_BYTES]
            try:
                sink.write(member.decompress(piece))
            except Exception as error:  # each of the packages has its own
                return {"damaged_gzip": Fault(1, sink.size, str(error))}
            start += len(piece) - len(member.unused_data)
        if not member.eof:
            return {"truncated_gzip": Fault(1, sink.size, "the compressed stream ends early")}
        if raw[start : start + len(magic)] != magic:
            break
    if raw[start:].strip(b"\0"):
        return {"gzip_trailer": Fault(len(raw) - start, sink.size, "bytes after the end of the compressed data")}
    return {}


def remove_scratch(scratch: Path) -> None:
    """Delete what `load` left in the folder, and columns where the system keeps the names of open files."""
    (scratch / ".inflated").unlink(missing_ok=True)
    for left in scratch.glob(f"{SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError):  # still mapped
            left.unlink(missing_ok=True)
