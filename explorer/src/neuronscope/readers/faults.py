"""Damage of a file → rows of its report."""

from __future__ import annotations

from neuronscope.readers.result import IngestWarning
from neuronscope.readers.source import Fault

__all__ = ["counted", "fault_row"]

_MESSAGES = {
    "second_document": "another JSON document follows the first one in this file; its events are not shown",
    "truncated": "the file ends inside an event; that event is lost",
    "truncated_gzip": "the compressed file is cut short; what was readable is shown",
    "damaged_gzip": "the compressed data are damaged; what was readable is shown",
    "gzip_members": "several gzip members in one file; all are read",
    "gzip_trailer": "bytes after the end of the gzip data are ignored",
    "no_list": "no list around the events; all that follow one another are read",
    "no_closing_bracket": "the list of events has no closing bracket; all its events are read",
    "trailing_bytes": "bytes after the end of the document are ignored",
    "skipped": "events beyond repair are left out",
    "garbage": "bytes between events are ignored",
    "damaged_header": "a header field can't be read",
    "utf16": "the text is not UTF-8",
    "too_deep": "events nested too deeply are left out",
    "not_an_event": "the list of events holds other values, which are left out",
}
_NOTES = frozenset({"no_list", "no_closing_bracket", "utf16", "gzip_members"})


def fault_row(kind: str, fault: Fault, file: str) -> IngestWarning:
    """The report's row about a kind of damage."""
    if kind.startswith("repaired: "):
        message = f"{fault.detail} in {counted(fault.count)}; mended"
        return IngestWarning("repaired", fault.count, fault.offset, file, "repaired", message)
    action = "kept" if kind in _NOTES else "partial" if kind in ("truncated_gzip", "damaged_gzip") else "skipped"
    message = f"{_MESSAGES.get(kind, kind)} ({fault.detail})"
    return IngestWarning(kind, fault.count, fault.offset, file, action, message)


def counted(count: int) -> str:
    """`1 event`, `2 events`."""
    return "1 event" if count == 1 else f"{count} events"
