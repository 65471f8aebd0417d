"""`Store`: profiles under one folder, made once per source and kept until the source or the store version changes.

Layout: ``<root>/profiles/global/<id>@latest/{manifest.json, *.parquet}``. A profile is made in a folder beside
(`.making-…`) and renamed when complete, under a lock per id: whoever looks sees all of it or nothing, and what a
killed process left behind is removed by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from neuronscope.formats.errors import NeuronscopeError
from neuronscope.readers import IngestResult, Progress, Reader, detect
from neuronscope.readers.wording import printable, without_endings
from neuronscope.store._lock import hold, locked
from neuronscope.store.notes import Notes, check_tag, read_notes, update_notes
from neuronscope.store.profile import MANIFEST, Profile, result_to_json

__all__ = ["STORE_VERSION", "Going", "Store", "StoreError", "default_data_path"]

STORE_VERSION = 6  # raise it when tables change: profiles of another version are made anew from their source
_HASHED_BYTES = 4 << 20  # files up to this size are recognized by content too
_LATEST = "@latest"
_MAKING = ".making-"
_DELETED = ".deleted-"
_OLD = "old"
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))


class StoreError(NeuronscopeError, OSError):
    """The store's folder cannot be used; says which and what to do."""


def default_data_path() -> Path:
    """$NEURONSCOPE_DATA_PATH, else the platform's place for a user's data (on Linux $XDG_DATA_HOME) + /neuronscope."""
    if chosen := os.environ.get("NEURONSCOPE_DATA_PATH"):
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin" and not os.environ.get("XDG_DATA_HOME"):
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "neuronscope"


@dataclass(frozen=True)
class Going:
    """A folder that goes with a deleted profile, and how large it is."""

    path: Path
    size_bytes: int


class Store:
    """The library under one folder. Several processes may use it at once."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        """Open (and make on first write) the library at `root`, by default `default_data_path()`."""
        self.root = Path(root).expanduser() if root is not None else default_data_path()

    @property
    def _profiles(self) -> Path:
        return self.root / "profiles" / "global"

    def add(self, path: str | os.PathLike[str], name: str | None = None, progress: Progress | None = None) -> Profile:
        """Ingest a file or folder, or open what was made from it if neither it nor the store version has changed.

        Args:
            path: what to read.
            name: for people; by default made from the path.
            progress: told how far it is.

        Raises:
            FormatError: not a profile.
            OSError: the source is unreadable, or the store (`StoreError`) can't be written.
        """
        reader = detect(path)
        source = reader.source.resolve()
        fingerprint = _fingerprint(reader)
        identity = _identity(source)
        final = self._profiles / f"{identity}{_LATEST}"
        known = _unchanged(final, fingerprint)
        if known is not None and name in (None, known.name):
            return known  # needs no lock, so a library that can't be written can still be read
        try:
            self._profiles.mkdir(parents=True, exist_ok=True)
            lock = self._profiles / f".{identity}.lock"
            with locked(lock):
                self._clean(identity, final)
                known = _unchanged(final, fingerprint)
                if known is not None:
                    if name not in (None, known.name):
                        _rename(final, str(name))
                    return Profile(final)
                making = Path(tempfile.mkdtemp(prefix=f"{_MAKING}{identity}-", dir=self._profiles))
                try:
                    result = reader.read(making, progress)
                    facts = {"id": identity, "name": name or _name(source), "fingerprint": fingerprint}
                    _write_manifest(making, source, facts, result)
                    _replace(making, final)
                except BaseException:
                    shutil.rmtree(making, ignore_errors=True)
                    raise
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise StoreError(
                    f"{self.root}: no room for the profile ({error.strerror or error}); free some, "
                    "or give another folder with --data-path"
                ) from None
            if str(self.root) in str(error.filename or ""):
                raise StoreError(
                    f"{self.root}: the store cannot be written ({error.strerror}); give another folder with --data-path"
                ) from None
            raise
        return Profile(final)

    def _clean(self, identity: str, final: Path) -> None:
        """Remove what killed processes left of this id; its lock is held, so nobody works on it.

        Of a replacement cut short between its two renames the old profile is put back first.
        """
        for left in self._profiles.glob(f"{_MAKING}{identity}-*"):
            if (left / _OLD).is_dir() and not final.exists():
                (left / _OLD).rename(final)
            shutil.rmtree(left, ignore_errors=True)
        for left in self._profiles.glob(f"{_DELETED}{identity}-*"):
            shutil.rmtree(left, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what killed processes left of readings that nobody begins again; what lives is left alone."""
        left = {path for begin in (_MAKING, _DELETED) for path in self._profiles.glob(f"{begin}*-*")}
        for identity in {path.name.split("-", 1)[1].rpartition("-")[0] for path in left}:
            with contextlib.suppress(OSError):
                lock = hold(self._profiles / f".{identity}.lock")
                if lock is not None:
                    with lock:
                        self._clean(identity, self._profiles / f"{identity}{_LATEST}")

    def _notes_file(self, profile_id: str) -> Path:
        return self._profiles / f".{profile_id}.notes.json"

    def notes(self, profile: Profile) -> Notes:
        """Tags of a profile and when it was last opened."""
        return read_notes(self._notes_file(profile.id))

    def tag(self, profile: Profile, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Notes:
        """Add and remove tags; the notes now.

        Raises:
            TagError: no text for a tag.
            OSError: the library can't be written.
        """
        added, removed = {check_tag(tag) for tag in add}, {check_tag(tag) for tag in remove}
        return update_notes(
            self._notes_file(profile.id), lambda notes: replace(notes, tags=tuple((set(notes.tags) | added) - removed))
        )

    def opened(self, profile: Profile) -> None:
        """Remember that a profile was opened now, where the library can be written."""
        with contextlib.suppress(OSError):
            update_notes(self._notes_file(profile.id), lambda notes: replace(notes, opened_ns=time.time_ns()))

    def rename(self, profile: Profile, name: str) -> Profile:
        """Give a profile another name.

        Raises:
            StoreError: an empty name.
            OSError: the library can't be written.
        """
        if not name.strip():
            raise StoreError("an empty name")
        with locked(self._profiles / f".{profile.id}.lock"):
            _rename(profile.path, name.strip())
        return Profile(profile.path)

    def find(self, text: str) -> Profile:
        """The profile of this id, or the only one of this name.

        Raises:
            StoreError: there is none, or several.
        """
        listed = self.list()
        found = [profile for profile in listed if profile.id == text] or [p for p in listed if p.name == text]
        if len(found) == 1:
            return found[0]
        if found:
            raise StoreError(f"{len(found)} profiles are called {text!r}; give one of {', '.join(p.id for p in found)}")
        raise StoreError(f"no profile {text!r} in {self.root}. `neuronscope library list` shows them")

    def delete(self, profile_id: str) -> list[Going]:
        """Delete a profile and what was uploaded for it; the original elsewhere stays. Returns what went.

        Raises:
            KeyError: no such profile.
            OSError: it can't be removed.
        """
        profile = self.open(profile_id)
        goes = self.what_goes(profile)
        with locked(self._profiles / f".{profile_id}.lock"):
            gone = Path(tempfile.mkdtemp(prefix=f"{_DELETED}{profile_id}-", dir=self._profiles))
            profile.path.rename(gone / _OLD)  # from here on nobody sees it
            shutil.rmtree(gone)
        for one in goes[1:]:
            shutil.rmtree(one.path, ignore_errors=True)
        self._notes_file(profile_id).unlink(missing_ok=True)
        return goes

    def what_goes(self, profile: Profile) -> list[Going]:
        """What `delete` would remove: the profile's folder first, then what was uploaded for it."""
        folders = [profile.path]
        uploads = (self.root / "uploads").resolve()
        source = profile.source
        if source.is_relative_to(uploads) and source != uploads:
            folders.append(uploads / source.relative_to(uploads).parts[0])
        return [Going(folder, _size(folder)) for folder in folders if folder.is_dir()]

    def open(self, profile_id: str) -> Profile:
        """Open a profile by id.

        Raises:
            KeyError: no such profile.
        """
        if not re.fullmatch(r"[\w.-]+", profile_id) or profile_id.startswith("."):
            raise KeyError(profile_id)
        profile = _try_open(self._profiles / f"{profile_id}{_LATEST}")
        if profile is None:
            raise KeyError(profile_id)
        return profile

    def list(self) -> list[Profile]:
        """All complete profiles, oldest first."""
        if not self._profiles.is_dir():
            return []
        found = [_try_open(path) for path in self._profiles.glob(f"*{_LATEST}") if not path.name.startswith(".")]
        return sorted((p for p in found if p is not None), key=lambda p: (p.created_ns, p.id))


def _write_manifest(making: Path, source: Path, facts: Mapping[str, str], result: IngestResult) -> None:
    manifest = {
        "store_version": STORE_VERSION,
        **facts,
        "source": str(source),
        "created_ns": time.time_ns(),
        "result": result_to_json(result),
    }
    _write_json(making / MANIFEST, manifest)
    making.chmod(0o755)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8", errors="surrogateescape")


def _rename(profile: Path, name: str) -> None:
    """Give a profile another name; whoever reads the manifest meanwhile sees the old one or the new one."""
    manifest = json.loads((profile / MANIFEST).read_text(encoding="utf-8", errors="surrogateescape"))
    beside = profile / f".{MANIFEST}"
    _write_json(beside, {**manifest, "name": name})
    beside.replace(profile / MANIFEST)


def _unchanged(path: Path, fingerprint: str) -> Profile | None:
    """The profile in a folder when it was made from a source of this fingerprint."""
    known = _try_open(path)
    return known if known is not None and known.fingerprint == fingerprint else None


def _try_open(path: Path) -> Profile | None:
    try:
        return Profile(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent, or of a version whose manifest was different: made anew from its source


def _replace(new: Path, final: Path) -> None:
    if final.exists():
        old = Path(tempfile.mkdtemp(prefix=f"{_MAKING}{final.name.removesuffix(_LATEST)}-", dir=final.parent))
        final.rename(old / _OLD)
        new.rename(final)
        shutil.rmtree(old, ignore_errors=True)
    else:
        new.rename(final)


def _fingerprint(reader: Reader) -> str:
    """Hash over the store version and each file's name, size, time and, of small files, content."""
    digest = hashlib.sha256(f"{STORE_VERSION}:{reader.format}".encode())
    for file in reader.files():
        stat = file.stat()
        digest.update(b"\0%b:%d:%d" % (os.fsencode(file.name), stat.st_size, stat.st_mtime_ns))
        if stat.st_size <= _HASHED_BYTES:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _identity(source: Path) -> str:
    """A readable, URL-safe id of a profile that is the same for the same (resolved) path."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", _name(source)).strip("-").lower()[:48] or "profile"
    return f"{slug}-{hashlib.sha256(os.fsencode(source)).hexdigest()[:8]}"


def _name(source: Path) -> str:
    """What people call it: of a session `<output folder>`, of a file its name without endings."""
    if source.is_dir():
        instance = source.parent
        return printable(instance.parent if re.search(r"_pid_\d+$", instance.name) else source, name_only=True)
    return without_endings(printable(source, name_only=True))
