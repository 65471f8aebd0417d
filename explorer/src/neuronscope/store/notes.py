"""What a user keeps beside a profile, whatever becomes of its tables: tags, and when it was last opened.

One small file per profile, replaced as a whole under a lock: a crash leaves the old one or the new one, and of two
servers that change it at once neither loses what the other wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from neuronscope.formats.errors import NeuronscopeError
from neuronscope.store._lock import locked, replace_text

__all__ = ["Notes", "TagError", "check_tag", "read_notes", "update_notes"]

_LONGEST_TAG = 100


class TagError(NeuronscopeError, ValueError):
    """No text for a tag."""


@dataclass(frozen=True)
class Notes:
    """Tags in order of the alphabet; `opened_ns` is 0 for never."""

    tags: tuple[str, ...] = ()
    opened_ns: int = 0


def check_tag(text: str) -> str:
    """The tag without blanks around it.

    Raises:
        TagError: empty, too long, or with a comma or a line break in it.
    """
    tag = text.strip()
    if not tag or len(tag) > _LONGEST_TAG or any(char in tag for char in ",\n\r\0"):
        raise TagError(f"tag {text[:40]!r}: give 1 to {_LONGEST_TAG} characters without commas")
    return tag


def read_notes(file: Path) -> Notes:
    """The notes in a file; none where it is absent or damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return Notes(tuple(sorted({str(tag) for tag in found["tags"]})), int(found["opened_ns"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Notes()


def update_notes(file: Path, change: Callable[[Notes], Notes]) -> Notes:
    """Change the notes in a file; what it holds now.

    Raises:
        OSError: it can't be written.
    """
    with locked(file.with_suffix(".lock")):
        notes = change(read_notes(file))
        notes = replace(notes, tags=tuple(sorted(set(notes.tags))))
        replace_text(file, json.dumps(asdict(notes), ensure_ascii=False))
    return notes
