"""The NEFF container: a 1 KiB header and a gzip tar, laid out as public ones are, with our own magic.

Header (little endian): magic ``NSCPNEFF`` (8 bytes), major u32, minor u32, header size u64 (1024), data size u64,
sha256 of the data (32 bytes), zero padding. The archive holds ``info.json``, ``program.txt`` (printed instruction
stream, parses back), ``tensors.json`` and ``debug_info.json`` (source lines; outside the hash). Same members → same
bytes: fixed times and owners.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuronscope.formats.container import write_atomic
from neuronscope.formats.errors import FormatError

MAGIC = b"NSCPNEFF"
VERSION = (1, 0)
HEADER_BYTES = 1024
_HEADER = struct.Struct("<8sIIQQ32s")
HASHED_MEMBERS = ("info.json", "program.txt", "tensors.json")


@dataclass(frozen=True)
class Neff:
    """A decoded NEFF: `info` (name, target, compiler_version, …) and the raw members by name."""

    info: Mapping[str, Any]
    members: Mapping[str, bytes]

    @property
    def hash(self) -> str:
        """Decimal 63-bit content hash over program, target and compiler version; debug info excluded."""
        return content_hash(self.members)


def content_hash(members: Mapping[str, bytes]) -> str:
    """Decimal 63-bit hash of the hashed members; names the file and links NEFF, NTFF and executions."""
    digest = hashlib.sha256()
    for name in HASHED_MEMBERS:
        data = members.get(name, b"")
        digest.update(f"{name}:{len(data)}:".encode())
        digest.update(data)
    return str(int.from_bytes(digest.digest()[:8], "big") >> 1)


def pack(info: Mapping[str, Any], program: str, tensors: Any, debug_info: Any = None) -> bytes:
    """Serialize a NEFF; equal arguments give equal bytes in any process."""
    members = {
        "info.json": _json(info),
        "program.txt": program.encode(),
        "tensors.json": _json(tensors),
        "debug_info.json": _json(debug_info if debug_info is not None else {}),
    }
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, compresslevel=6, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    data = buffer.getvalue()
    header = _HEADER.pack(MAGIC, *VERSION, HEADER_BYTES, len(data), hashlib.sha256(data).digest())
    return header.ljust(HEADER_BYTES, b"\0") + data


def unpack(data: bytes, where: str = "NEFF") -> Neff:
    """Decode a NEFF's bytes.

    Raises:
        FormatError: foreign (a vendor's NEFF is named as such), truncated, damaged or newer.
    """
    if len(data) < HEADER_BYTES:
        raise FormatError(f"{where}: {len(data)} bytes, shorter than a NEFF header ({HEADER_BYTES})")
    magic, major, _minor, header_bytes, data_bytes, digest = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(f"{where}: not a NEFF of this emulator (a vendor's NEFF can be listed but not executed)")
    if major > VERSION[0]:
        raise FormatError(f"{where}: NEFF version {major}; this Neuronscope reads up to {VERSION[0]}. Upgrade it.")
    body = data[header_bytes : header_bytes + data_bytes]
    if len(body) != data_bytes or hashlib.sha256(body).digest() != digest:
        raise FormatError(f"{where}: damaged or truncated (checksum differs)")
    members = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as archive:
            for entry in archive:
                file = archive.extractfile(entry)
                if file is not None:
                    members[entry.name] = file.read()
        info = json.loads(members["info.json"])
    except (EOFError, KeyError, OSError, ValueError, tarfile.TarError, zlib.error) as error:
        raise FormatError(f"{where}: no readable info.json inside ({error or type(error).__name__})") from None
    if not isinstance(info, dict):
        raise FormatError(f"{where}: info.json is no object")
    return Neff(info, members)


def read(path: str | os.PathLike[str]) -> Neff:
    """Read a NEFF file; raises FormatError or OSError."""
    return unpack(Path(path).read_bytes(), str(path))


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write packed NEFF bytes atomically."""
    write_atomic(Path(path), data)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
