"""Uploads: files are received into a folder of the library, read by a process of its own, and opened.

An upload is `receiving` until all its files are there, then `reading`, and ends as `done`, `failed` or `cancelled`.
What was received stays in the library beside the profile made of it (`uploads/<server>-<id>/`); anything else is
removed, at the latest by the next server that starts: a lock file per server says which ones live.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from neuronscope.formats.errors import NeuronscopeError
from neuronscope.readers.archive import ENDINGS
from neuronscope.store import Store
from neuronscope.store._lock import hold

__all__ = ["DEFAULT_LIMIT_BYTES", "Upload", "UploadError", "Uploads", "safe_path"]

DEFAULT_LIMIT_BYTES = 64 << 30
_MOST_FILES = 10_000
_MOST_AT_ONCE = 8
_KEPT = 50  # finished ones that can still be asked for
_ROOM_BYTES = 256 << 20  # of the disk that uploads leave free
_LONGEST_PATH = 1024
_LONGEST_PART = 200
_DEEPEST = 16
_WRITE_BYTES = 1 << 20
_POLL_S = 0.1
_PART = ".part-"
_LOCK = ".server-{}.lock"
ENDED = ("done", "failed", "cancelled")


class UploadError(NeuronscopeError, ValueError):
    """An upload can't be taken; `status` is the answer's."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Upload:
    """One upload; `as_json` is what the client sees."""

    id: str
    name: str
    folder: Path
    expected: int | None = None
    state: str = "receiving"
    received: int = 0
    stage: str = ""
    fraction: float = 0.0
    profile: str | None = None
    error: str | None = None
    files: dict[str, int] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    process: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None

    def as_json(self) -> dict[str, Any]:
        """What is known of it."""
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "files": len(self.files),
            "received_bytes": self.received,
            "expected_bytes": self.expected,
            "stage": self.stage,
            "fraction": round(self.fraction, 4),
            "profile": self.profile,
            "error": self.error,
        }


def safe_path(text: str) -> PurePosixPath:
    """A file's place in its upload.

    Raises:
        UploadError: it would lie outside, or no file system could hold it.
    """
    parts = text.split("/")
    odd = any(
        part in ("", ".", "..")
        or len(os.fsencode(part)) > _LONGEST_PART
        or any(ord(char) < 32 or char in '\\:*?"<>|' for char in part)
        or part.startswith(_PART)
        or part.endswith((" ", "."))
        for part in parts
    )
    if odd or len(text) > _LONGEST_PATH or len(parts) > _DEEPEST:
        raise UploadError(f"{text[:100]!r}: no name for an uploaded file; give a relative path of plain names")
    return PurePosixPath(*parts)


class Uploads:
    """All uploads of one server."""

    def __init__(self, store: Store, opened: Callable[[str, str], str], limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        """Receive into the store's folder.

        Args:
            store: the library.
            opened: called with a new profile's id in the library and its name; its id here.
            limit_bytes: of one upload.
        """
        self.store = store
        self.limit_bytes = limit_bytes
        self._opened = opened
        self._uploads: dict[str, Upload] = {}
        self._root = store.root / "uploads"
        self._server = secrets.token_hex(4)
        self._lock: IO[bytes] | None = None
        store.sweep()
        if self._root.is_dir():
            self._sweep()

    def as_json(self) -> dict[str, Any]:
        """What can be uploaded, and the uploads of this server."""
        return {
            "limit_bytes": self.limit_bytes,
            "endings": list(ENDINGS),
            "uploads": [one.as_json() for one in self._uploads.values()],
        }

    def begin(self, name: str, expected: int | None = None) -> Upload:
        """A new upload.

        Raises:
            UploadError: too large, no room for it, or too many at once.
        """
        running = [one for one in self._uploads.values() if one.state not in ENDED]
        if len(running) >= _MOST_AT_ONCE:
            raise UploadError(f"{len(running)} uploads are under way; wait for one to end or cancel it", 429)
        if expected is not None and expected > self.limit_bytes:
            raise UploadError(f"{expected:,} bytes; at most {self.limit_bytes:,} are taken (--upload-limit)", 413)
        self._root.mkdir(parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = hold(self._root / _LOCK.format(self._server))
        free = shutil.disk_usage(self._root).free - _ROOM_BYTES
        if expected is not None and expected > free:
            raise UploadError(f"{expected:,} bytes; the library's disk has room for {max(free, 0):,}", 507)
        for one in [one for one in self._uploads.values() if one.state in ENDED][:-_KEPT]:
            del self._uploads[one.id]
        identity = secrets.token_hex(8)
        folder = self._root / f"{self._server}-{identity}"
        folder.mkdir(mode=0o700)
        title = " ".join(name.split())[:200] or "upload"
        upload = self._uploads[identity] = Upload(identity, title, folder, expected)
        return upload

    def find(self, identity: str) -> Upload:
        """The upload of this id.

        Raises:
            UploadError: there is none.
        """
        try:
            return self._uploads[identity]
        except KeyError:
            raise UploadError(f"no upload {identity[:40]!r} on this server", 404) from None

    async def receive(self, upload: Upload, path: str, chunks: AsyncIterator[bytes], declared: int | None) -> None:
        """Write one file of an upload as it comes in; a connection that breaks leaves nothing of the file.

        Raises:
            UploadError: a wrong path, the upload has ended, or it is over the limit.
        """
        place = str(safe_path(path))
        if upload.state != "receiving":
            raise UploadError(f"upload {upload.id} takes no more files: it is {upload.state}", 409)
        if place in upload.files or place in upload.busy:
            raise UploadError(f"{place}: there already", 409)
        if len(upload.files) + len(upload.busy) >= _MOST_FILES:
            raise UploadError(f"more than {_MOST_FILES:,} files: upload a .zip or .tar of them", 413)
        self._room(upload, declared or 0)
        target = upload.folder / place
        part = upload.folder / f"{_PART}{secrets.token_hex(8)}"
        upload.busy.add(place)
        size = 0
        try:
            with part.open("xb") as file:
                held = bytearray()
                async for chunk in chunks:
                    size += len(chunk)
                    upload.received += len(chunk)
                    self._room(upload, 0)
                    held += chunk
                    if len(held) >= _WRITE_BYTES:
                        await asyncio.to_thread(file.write, bytes(held))
                        held.clear()
                await asyncio.to_thread(file.write, bytes(held))
            if declared is not None and size != declared:
                raise UploadError(f"{place}: {size:,} of {declared:,} bytes came in")
            target.parent.mkdir(parents=True, exist_ok=True)
            part.rename(target)
            upload.files[place] = size
        except BaseException as error:
            upload.received -= size
            part.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise UploadError(f"{place}: can't be kept ({error.strerror or error})", 507) from None
            raise
        finally:
            upload.busy.discard(place)

    def _room(self, upload: Upload, more: int) -> None:
        if upload.state != "receiving":
            raise UploadError(f"upload {upload.id} was {upload.state}", 409)
        if upload.received + more > self.limit_bytes:
            raise UploadError(
                f"more than {self.limit_bytes:,} bytes, the most one upload may have (--upload-limit)", 413
            )

    def start(self, upload: Upload) -> None:
        """All files are there: read them.

        Raises:
            UploadError: it has no file, or is past this.
        """
        if upload.state != "receiving" or upload.busy:
            raise UploadError(f"upload {upload.id} is {'still receiving' if upload.busy else upload.state}", 409)
        if not upload.files:
            raise UploadError("an upload without a file")
        upload.state, upload.stage = "reading", "read"
        upload.task = asyncio.create_task(self._read(upload))

    async def _read(self, upload: Upload) -> None:
        """Run the reader's process and follow what it says."""
        source = upload.folder / next(iter(upload.files)) if len(upload.files) == 1 else upload.folder
        command = [sys.executable, "-m", "neuronscope.server.reading", str(source), str(self.store.root), upload.name]
        answer: dict[str, Any] = {}
        try:
            upload.process = await asyncio.create_subprocess_exec(
                *command,
                stdout=asyncio.subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                limit=1 << 20,
            )
            assert upload.process.stdout is not None
            async for line in upload.process.stdout:
                answer = json.loads(line)
                upload.stage = str(answer.get("stage", upload.stage))
                upload.fraction = float(answer.get("fraction", upload.fraction))
            code = await upload.process.wait()
            if upload.state == "cancelled":
                return
            if "profile" in answer:
                upload.profile = await asyncio.to_thread(self._opened, str(answer["profile"]), upload.name)
                upload.state, upload.stage, upload.fraction = "done", "", 1.0
            else:
                told = str(answer.get("error") or f"the reader ended with code {code} (out of memory?)")
                told = told.replace(f"{upload.folder}{os.sep}", "").replace(str(upload.folder), upload.name)
                self._fail(upload, told)
        except (OSError, ValueError, NeuronscopeError) as error:
            self._fail(upload, str(error))
        finally:
            upload.process = None
            if upload.state != "done":
                await asyncio.to_thread(self._remove, upload)

    def _remove(self, upload: Upload) -> None:
        """Remove what was received, and the profile when it was stored just before the upload was cancelled."""
        folder = upload.folder.resolve()
        for profile in self.store.list():
            if profile.source.is_relative_to(folder):
                with contextlib.suppress(KeyError, OSError, NeuronscopeError):
                    self.store.delete(profile.id)
        shutil.rmtree(upload.folder, ignore_errors=True)

    @staticmethod
    def _fail(upload: Upload, text: str) -> None:
        if upload.state not in ENDED:
            upload.state, upload.error = "failed", text

    async def cancel(self, upload: Upload) -> None:
        """End an upload and remove what it left; one that is done stays as it is."""
        if upload.state in ENDED:
            return
        upload.state = "cancelled"
        _kill(upload)
        if upload.task is not None:
            await asyncio.gather(upload.task, return_exceptions=True)
        if upload.profile is None:
            await asyncio.to_thread(shutil.rmtree, upload.folder, True)

    async def follow(self, upload: Upload) -> AsyncIterator[bytes]:
        """Server-sent events: what `as_json` says, each time it changes, until the upload ends."""
        before = ""
        quiet = 0.0
        while True:
            now = json.dumps(upload.as_json(), ensure_ascii=False)
            if now != before:
                before, quiet = now, 0.0
                yield f"data: {now}\n\n".encode()
            elif quiet > 10:
                quiet = 0.0
                yield b": still there\n\n"
            if upload.state in ENDED:
                return
            await asyncio.sleep(_POLL_S)
            quiet += _POLL_S

    def close(self) -> None:
        """The server ends: nothing goes on, what is not done is removed."""
        for upload in self._uploads.values():
            if upload.state not in ENDED:
                upload.state = "cancelled"
                _kill(upload)
                self._remove(upload)
        if self._lock is not None:
            self._lock.close()
            (self._root / _LOCK.format(self._server)).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what servers that were killed left behind: folders that no profile was made of."""
        sources = [profile.source for profile in self.store.list()]
        for folder in self._root.resolve().iterdir():
            server = folder.name.partition("-")[0]
            if not folder.is_dir() or any(source.is_relative_to(folder) for source in sources):
                continue
            lock = self._root / _LOCK.format(server)
            held = hold(lock)
            if held is None:
                continue  # that server lives
            held.close()
            lock.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def _kill(upload: Upload) -> None:
    """End the reader and the processes it started."""
    if upload.process is None or upload.process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(upload.process.pid, signal.SIGKILL)
        else:
            upload.process.kill()
