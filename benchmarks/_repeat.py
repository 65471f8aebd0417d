"""Makes a long profile from a short one: its tables repeated one after the other, with new ids, steps and times.

Pieces go to the files as they are made, in the order the reader writes them, so that 100 million slices take no memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from neuronscope.readers.write import Writer

__all__ = ["repeat"]

_IDS = ("event_id", "parent_id", "op_event_id", "previous_event_id", "next_event_id", "in_id", "out_id", "id")
_TIMES = ("start_ts", "end_ts", "enqueue_ts")
_NUMBERS = ("execution_id", "correlation", "external_id", "gap_id")
_NUMBERS_APART = 100_000_000
_GROUPS = {
    # Tables that are not in the order of time: the columns their order begins with.
    "Slice": ("track_id", "lane"),
    "HostOp": ("thread_id",),
    "Gap": ("track_id",),
    "SystemProfileEvents": (),
    "Execution": (),
    "Flow": (),
    "Step": (),
}
_ROWS = 1 << 18  # at once


def repeat(source: Path, target: Path, copies: int) -> int:
    """Write `copies` of a processed profile's work as one profile.

    Returns:
        Number of slices.
    """
    target.mkdir(parents=True)
    events = pq.read_table(source / "SystemProfileEvents.parquet", columns=["id", "start_ts", "end_ts"])
    steps = pq.read_metadata(source / "Step.parquet").num_rows
    apart = {
        "ids": pc.max(events["id"]).as_py() + 1,
        "times": pc.max(events["end_ts"]).as_py() - pc.min(events["start_ts"]).as_py() + 1_000_000,
        "steps": steps,
    }
    with Writer(target) as writer:
        for path in sorted(source.glob("*.parquet")):
            table = pq.read_table(path)
            pieces = _pieces(path.stem, table, copies, apart) if path.stem in _GROUPS else iter((table,))
            writer.write(path.stem, pieces)
            writer.finish()  # one after the other: their tables are large
    return pq.read_metadata(target / "Slice.parquet").num_rows


def _pieces(name: str, table: pa.Table, copies: int, apart: dict[str, int]) -> Iterator[pa.Table]:
    """The repeated table, some hundred thousand rows at a time."""
    held: list[pa.Table] = []
    rows = 0
    for first, last in _runs([table[column].to_numpy() for column in _GROUPS[name]], len(table)):
        for copy in range(copies):
            held.append(_shifted(name, table.slice(first, last - first), copy, apart))
            rows += last - first
            if rows >= _ROWS:
                whole = pa.concat_tables(held)
                for at in range(0, rows - _ROWS + 1, _ROWS):
                    yield whole.slice(at, _ROWS)
                rest = rows % _ROWS
                held, rows = ([whole.slice(len(whole) - rest)] if rest else []), rest
    if rows:
        yield pa.concat_tables(held)


def _runs(columns: list[np.ndarray], count: int) -> list[tuple[int, int]]:  # type: ignore[type-arg]
    changed = np.zeros(max(count - 1, 0), np.bool_)
    for column in columns:
        changed |= column[1:] != column[:-1]
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), count]
    return list(itertools.pairwise(bounds))


def _shifted(name: str, table: pa.Table, copy: int, apart: dict[str, int]) -> pa.Table:
    """One copy's rows."""
    for at, field in enumerate(table.schema):
        column = table[field.name]
        if field.name in _IDS:
            column = _moved(column, copy * apart["ids"])
        elif field.name in _TIMES:
            column = _moved(column, copy * apart["times"])
        elif field.name in _NUMBERS:
            column = _moved(column, copy * _NUMBERS_APART)
        elif field.name == "step" or (name == "Step" and field.name == "number"):
            column = _moved(column, copy * apart["steps"])
        elif name == "Step" and field.name == "name":
            column = pa.array([f"ProfilerStep#{number}" for number in table["number"].to_pylist()], pa.string())
        elif field.name == "flow_id":
            lists = column.combine_chunks()
            numbers = pc.add(pc.cast(lists.flatten(), pa.int64()), copy * _NUMBERS_APART)
            offsets = pc.subtract(lists.offsets, lists.offsets[0])
            column = pa.ListArray.from_arrays(offsets, pc.cast(numbers, pa.string()))
        table = table.set_column(at, field, pc.cast(column, field.type) if column.type != field.type else column)
    return table


def _moved(column: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    """Numbers that say something, moved; -1 stays."""
    return pc.if_else(pc.greater_equal(column, 0), pc.add(column, pa.scalar(by, column.type)), column)
