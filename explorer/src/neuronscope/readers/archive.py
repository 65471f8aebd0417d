"""An archive (.zip, .tar, .tar.gz, …) of traces or a session folder: unpacked beside the profile, then read."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from neuronscope.formats.errors import FormatError
from neuronscope.readers.result import IngestResult, Progress
from neuronscope.readers.wording import printable
from neuronscope.readers.write import change_facts

try:
    from lzma import LZMAError
except ImportError:  # a Python may be built without it
    LZMAError = EOFError  # type: ignore[misc,assignment]

if TYPE_CHECKING:
    from neuronscope.readers import Reader

__all__ = ["ENDINGS", "ArchiveReader", "is_archive"]

_MOST_FILES = 10_000
_MOST_BYTES = 200 << 30
ENDINGS = (*(".json", ".gz", ".zst", ".bz2", ".xz", ".pb", ".ntff", ".neff", ".parquet", ".sqlite", ".db", ".csv"),)
_DAMAGE = (
    *(zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, LZMAError),
    *(UnicodeDecodeError, RuntimeError, NotImplementedError),  # encrypted, or packed in a way this Python doesn't know
)


def is_archive(head: bytes) -> bool:
    """Whether a file whose text begins so is an archive."""
    return head[:4] == b"PK\x03\x04" or head[257:262] == b"ustar"


class ArchiveReader:
    """Unpacks what can be part of a profile and hands it to the reader of that."""

    format = "archive"

    def __init__(self, path: Path, detect: Callable[[Path], Reader]) -> None:
        self.source = path
        self._detect = detect
        with path.open("rb") as file:
            self._zip = file.read(2) == b"PK"
        with self._opened() as archive:
            self._members(archive)

    def files(self) -> list[Path]:
        """The archive."""
        return [self.source]

    def read(self, store_dir: Path, progress: Progress | None = None) -> IngestResult:
        """See `Reader.read`."""
        folder = store_dir / ".unpacked"
        try:
            with self._opened() as archive:
                for name, member in self._members(archive):
                    target = folder / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with _content(archive, member) as content, target.open("wb") as file:
                        shutil.copyfileobj(content, file, 1 << 20)
            files = [path for path in folder.rglob("*") if path.is_file()]
            inner = files[0] if len(files) == 1 else _lowest(folder)
            result = self._detect(inner).read(store_dir, progress)
            change_facts(
                store_dir,
                lambda facts: {"path": printable(self.source)} if facts.get("path", "").startswith(str(folder)) else {},
            )
            return replace(result, source=self.source)
        except FormatError as error:  # in the user's terms: nobody knows where it was unpacked
            told = str(error).replace(f"{folder}{os.sep}", f"{self.source}: ").replace(str(folder), str(self.source))
            raise FormatError(told) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
        try:
            with zipfile.ZipFile(self.source) if self._zip else tarfile.open(self.source) as archive:
                yield archive
        except _DAMAGE as error:
            said = ascii(str(error))[1:200]
            raise FormatError(f"{self.source}: damaged or encrypted archive ({said})") from None

    def _members(
        self, archive: zipfile.ZipFile | tarfile.TarFile
    ) -> list[tuple[str, zipfile.ZipInfo | tarfile.TarInfo]]:
        """What can be part of a profile, by its place below the folder it is unpacked to."""
        members: list[tuple[str, zipfile.ZipInfo | tarfile.TarInfo]]
        if isinstance(archive, zipfile.ZipFile):
            members = [(_inside(m.filename), m) for m in archive.infolist() if m.filename and not m.is_dir()]
            sizes = [m.file_size for m in archive.infolist()]
        else:
            members = [(_inside(m.name), m) for m in archive if m.isfile()]
            sizes = [m.size for m in archive.getmembers()]
        members = [(name, member) for name, member in members if _wanted(name)]
        if not members:
            raise FormatError(f"{self.source}: nothing of a profile in this archive. Looked for {', '.join(ENDINGS)}")
        if len(members) > _MOST_FILES or sum(sizes) > _MOST_BYTES:
            raise FormatError(
                f"{self.source}: {len(members)} files of {sum(sizes)} bytes; at most {_MOST_FILES} files and "
                f"{_MOST_BYTES} bytes are unpacked. Unpack it and open the folder"
            )
        return members


def _content(archive: zipfile.ZipFile | tarfile.TarFile, member: zipfile.ZipInfo | tarfile.TarInfo) -> IO[bytes]:
    if isinstance(archive, zipfile.ZipFile):
        assert isinstance(member, zipfile.ZipInfo)
        return archive.open(member)
    assert isinstance(member, tarfile.TarInfo)
    content = archive.extractfile(member)
    assert content is not None  # only files are members
    return content


def _inside(name: str) -> str:
    """A member's name without what would lead out of the folder."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    return "/".join(part.replace(":", "_") for part in parts)


def _wanted(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and name.lower().endswith(ENDINGS) and "__MACOSX" not in parts and not parts[-1].startswith("._")


def _lowest(folder: Path) -> Path:
    """The folder below which the files really are."""
    while len(inside := list(folder.iterdir())) == 1 and inside[0].is_dir():
        folder = inside[0]
    return folder
