"""The bytes of a trace file, whatever it is packed in: `load` makes a `Source` that is read by position.

A large file is mapped, not read; a large compressed one is inflated into the scratch folder first and mapped there.
"""

from __future__ import annotations

import importlib
import io
import mmap
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from neuronscope.formats.errors import FormatError

__all__ = ["Fault", "Source", "head", "load", "remove_scratch"]

_INFLATE_BYTES = 1 << 20
_IN_MEMORY_BYTES = 32 << 20  # smaller files are read as they are
_ZSTD = b"\x28\xb5\x2f\xfd"

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


def load(path: Path, scratch: Path | None = None, progress: Callable[[float], None] | None = None) -> Source:
    """The decompressed bytes of a file.

    Args:
        path: plain, .gz or .zst text.
        scratch: an existing folder for what does not fit into memory; None keeps all in memory.
        progress: told the fraction of the file that is inflated.

    Raises:
        FormatError: .zst without the package for it.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(4)
    if head[:2] != b"\x1f\x8b" and head != _ZSTD:
        if size <= _IN_MEMORY_BYTES or scratch is None:
            return Source(path.read_bytes())
        return Source(_mapped(path), path)
    sink = _Sink(scratch)
    raw = _mapped(path) if size > _IN_MEMORY_BYTES else path.read_bytes()
    try:
        faults = _unzstd(raw, path, sink) if head == _ZSTD else _inflate(raw, sink, progress)
    finally:
        if isinstance(raw, mmap.mmap):
            raw.close()
    return sink.source(faults)


def head(path: Path, size: int) -> bytes:
    """The first bytes of a file's text, at most about `size`; empty when it can't be read."""
    with path.open("rb") as file:
        raw = file.read(size)
    if raw[:2] != b"\x1f\x8b" and raw[:4] != _ZSTD:
        return raw
    sink = _Sink(None)
    try:
        _unzstd(raw, path, sink) if raw[:4] == _ZSTD else _inflate(raw[: size // 8], sink, None)
    except FormatError:
        return b""
    return sink.source({}).data[:size]


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


def _unzstd(raw: Bytes, path: Path, sink: _Sink) -> dict[str, Fault]:
    """A .zst file, with the standard library of Python 3.14 or the package `zstandard`."""
    for module in ("compression.zstd", "zstandard"):
        try:
            zstd = importlib.import_module(module)
            break
        except ImportError:
            continue
    else:
        raise FormatError(f"{path}: compressed with zstd, which this Python can't read: pip install zstandard")
    make = zstd.ZstdDecompressor().decompressobj if module == "zstandard" else zstd.ZstdDecompressor
    start = 0
    while start < len(raw):
        decompressor = make()
        while start < len(raw) and not decompressor.eof:
            piece = raw[start : start + _INFLATE_BYTES]
            try:
                sink.write(decompressor.decompress(piece))
            except Exception as error:
                return {"damaged_gzip": Fault(1, sink.size, f"zstd: {error}")}
            start += len(piece) - len(decompressor.unused_data)
        if not decompressor.eof:
            return {"truncated_gzip": Fault(1, sink.size, "the compressed stream ends early")}
        if raw[start : start + 4] != _ZSTD:
            break
    if raw[start:].strip(b"\0"):
        return {"gzip_trailer": Fault(len(raw) - start, sink.size, "bytes after the end of the zstd data")}
    return {}


def remove_scratch(scratch: Path) -> None:
    """Delete what `load` left in the folder."""
    (scratch / ".inflated").unlink(missing_ok=True)
