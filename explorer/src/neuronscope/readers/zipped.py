"""A .zip of a trace, of the traces of several ranks, or of a session folder: unpacked beside the profile, then read."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from neuronscope.formats.errors import FormatError
from neuronscope.readers.result import IngestResult, Progress

if TYPE_CHECKING:
    from neuronscope.readers import Reader

__all__ = ["ZipReader"]

_MOST_FILES = 10_000
_MOST_BYTES = 200 << 30
_WANTED = (".json", ".gz", ".zst", ".pb", ".ntff", ".neff", ".parquet", ".sqlite", ".csv")


class ZipReader:
    """Unpacks what can be part of a profile and hands it to the reader of that."""

    format = "zip archive"

    def __init__(self, path: Path, detect: Callable[[Path], Reader]) -> None:
        self.source = path
        self._detect = detect
        self._members()

    def files(self) -> list[Path]:
        """The archive."""
        return [self.source]

    def read(self, store_dir: Path, progress: Progress | None = None) -> IngestResult:
        """See `Reader.read`."""
        folder = store_dir / ".unzipped"
        try:
            with zipfile.ZipFile(self.source) as archive:
                for member in self._members():
                    archive.extract(member, folder)  # keeps names inside the folder
            files = [path for path in folder.rglob("*") if path.is_file()]
            inner = files[0] if len(files) == 1 else _lowest(folder)
            return replace(self._detect(inner).read(store_dir, progress), source=self.source)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise FormatError(f"{self.source}: damaged or encrypted archive ({error})") from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _members(self) -> list[zipfile.ZipInfo]:
        try:
            with zipfile.ZipFile(self.source) as archive:
                members = [m for m in archive.infolist() if not m.is_dir() and _wanted(m.filename)]
        except zipfile.BadZipFile as error:
            raise FormatError(f"{self.source}: damaged zip archive ({error})") from None
        if not members:
            raise FormatError(f"{self.source}: nothing of a profile in this archive. Looked for {', '.join(_WANTED)}")
        size = sum(member.file_size for member in members)
        if len(members) > _MOST_FILES or size > _MOST_BYTES:
            raise FormatError(
                f"{self.source}: {len(members)} files of {size} bytes; at most {_MOST_FILES} files and {_MOST_BYTES} "
                f"bytes are unpacked. Unpack it and open the folder"
            )
        return members


def _wanted(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return name.lower().endswith(_WANTED) and "__MACOSX" not in parts and not parts[-1].startswith("._")


def _lowest(folder: Path) -> Path:
    """The folder below which the files really are."""
    while len(inside := list(folder.iterdir())) == 1 and inside[0].is_dir():
        folder = inside[0]
    return folder
