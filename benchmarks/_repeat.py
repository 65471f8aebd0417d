"""Makes a long profile from a short one: its tables repeated one after the other, with new ids, steps and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

__all__ = ["repeat"]

_IDS = ("event_id", "parent_id", "op_event_id", "previous_event_id", "next_event_id", "in_id", "out_id", "id")
_TIMES = ("start_ts", "end_ts", "enqueue_ts")
_REPEATED = ("SystemProfileEvents", "Slice", "HostOp", "Execution", "Gap", "Flow", "Step")
_ORDER = {"Slice": "track_id, lane, start_ts", "HostOp": "thread_id, event_id", "Gap": "track_id, start_ts"}


def repeat(source: Path, target: Path, copies: int) -> int:
    """Write `copies` of a processed profile's work as one profile.

    Returns:
        Number of slices.
    """
    target.mkdir(parents=True)
    base = duckdb.connect(config={"threads": 2})
    events, first, last = base.sql(
        f"SELECT max(id) + 1, min(start_ts), max(end_ts) FROM '{source}/SystemProfileEvents.parquet'"
    ).fetchall()[0]
    steps = base.sql(f"SELECT count(*) FROM '{source}/Step.parquet'").fetchall()[0][0]
    span = last - first + 1_000_000
    for path in sorted(source.glob("*.parquet")):
        name = path.stem
        if name not in _REPEATED:
            base.sql(f"COPY (FROM '{path}') TO '{target / path.name}' (FORMAT parquet)")
            continue
        columns: list[tuple[Any, ...]] = base.sql(f"DESCRIBE FROM '{path}'").fetchall()
        shown = ", ".join(_shifted(name, column[0], events, span, steps) for column in columns)
        order = _ORDER.get(name, "copy, 1" if name == "Flow" else "1")
        base.sql(
            f"COPY (SELECT {shown} FROM '{path}', range({copies}) AS copies(copy) ORDER BY {order}) "
            f"TO '{target / path.name}' (FORMAT parquet, ROW_GROUP_SIZE 65536)"
        )
    return int(base.sql(f"SELECT count(*) FROM '{target}/Slice.parquet'").fetchall()[0][0])


def _shifted(table: str, column: str, events: int, span: int, steps: int) -> str:
    if column in _IDS:
        return f'CASE WHEN "{column}" >= 0 THEN "{column}" + copy * {events} ELSE "{column}" END AS "{column}"'
    if column in _TIMES:
        return f'CASE WHEN "{column}" >= 0 THEN "{column}" + copy * {span} ELSE "{column}" END AS "{column}"'
    if column in ("execution_id", "correlation", "external_id", "gap_id"):
        return f'"{column}" + copy * 100000000 AS "{column}"'
    if column == "step" or (table == "Step" and column == "number"):
        return f'CASE WHEN "{column}" >= 0 THEN "{column}" + copy * {steps} ELSE "{column}" END AS "{column}"'
    if column == "name" and table == "Step":
        return f"'ProfilerStep#' || (number + copy * {steps}) AS name"
    if column == "flow_id":
        return "[(flow::BIGINT + copy * 100000000)::VARCHAR FOR flow IN flow_id] AS flow_id"
    return f'"{column}"'
