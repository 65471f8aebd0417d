"""What must hold of the account of any trace: nothing in the file is unaccounted for, nothing is counted twice."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from neuronscope.readers import IngestResult

LOST = {"skipped", "left out"}  # actions of the report that lose events
_ENDS = ("E", "e", "F")
_ARROWS = ("s", "t", "f")
_FILES = {"unreadable_file", "no_neff", "unread_table", "not_opened", "trailing_bytes", "garbage", "gzip_trailer",
          "damaged_header", "unknown_column", "column_type"}  # fmt: skip


def check(result: IngestResult, store: Path, content: bytes | None = None) -> None:
    """Assert the account of one reading.

    Args:
        result: what was told.
        store: the folder of the tables.
        content: the file's, where it was a trace: what strict JSON says of it is counted independently.
    """
    assert result.stored + result.skipped == result.events_in_file
    assert min(result.stored, result.skipped, result.repaired, result.device_slices, result.device_time_ns) >= 0
    assert result.device_busy_ns <= result.device_time_ns
    assert result.repaired <= result.stored
    mended = sum(row.count for row in result.report if row.action == "repaired")
    assert mended >= result.repaired, "each repair has a row"
    lost = sum(row.count for row in result.report if row.action in LOST and row.kind not in _FILES)
    assert lost == result.skipped, "each loss has a row, and no more are told than there are"
    assert all(row.message and "\n" not in row.message for row in result.report)
    kept = pq.read_table(store / "IngestReport.parquet").to_pylist()
    assert [row["kind"] for row in kept] == [row.kind for row in result.report]
    if content is not None and (events := _listed(content)) is not None:
        _counted(result, store, events)


def _listed(content: bytes) -> list[Any] | None:
    """The events of a file that is strict JSON of objects, None where it is not."""
    try:
        text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        document = json.loads(text.decode("utf-8-sig"), parse_constant=lambda word: 1 / 0)
    except (ValueError, OSError, EOFError, ZeroDivisionError, RecursionError, zlib.error):
        return None
    if text.count(b'"traceEvents"') > 1:
        return None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    plain = isinstance(events, list) and all(isinstance(event, dict) for event in events)
    return events if plain else None


def _counted(result: IngestResult, store: Path, events: list[Any]) -> None:
    assert result.events_in_file == len(events)
    rows = {
        name: pq.read_table(store / f"{name}.parquet").to_pylist() if (store / f"{name}.parquet").exists() else []
        for name in ("SystemProfileEvents", "OtherEvent", "Flow")
    }
    told = {row.kind: row.count for row in result.report}
    phases = [event.get("ph") for event in events]
    ends = sum(phase in _ENDS for phase in phases) - told.get("unmatched_pair", 0)
    metadata = sum(row["kind"] == "metadata" for row in rows["OtherEvent"])
    assert metadata == phases.count("M"), "each metadata event is in OtherEvent"
    arrows = told.get("flow_ends", 0)
    filler = told.get("filler", 0)
    untimed = told.get("no_timestamp", 0) + told.get("zero_timestamp", 0)
    if not (untimed and ends):  # which of the ends had no time is not told
        held = len(rows["SystemProfileEvents"]) + ends + metadata + arrows + filler
        assert held == result.stored, "each stored event is a slice, an instant, an end, an arrow's end or metadata"
    lone = [row for row in rows["OtherEvent"] if row["phase"] in _ARROWS]
    assert len(lone) >= told.get("unmatched_flow", 0), "ends without another are in OtherEvent"
