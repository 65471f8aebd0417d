"""Single rows of large tables by id, read from the one row group that holds them.

A query costs DuckDB some work per row group of the file, which on a hundred million rows is more than reading one group
takes. The group read last is kept: who looks at an event asks for its chain too, and then for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["PointRows"]

_MOST_GROUPS = 4  # beyond it a query is as good


class PointRows:
    """Rows of one Parquet file by the value of a column that grows with the rows, more or less."""

    def __init__(self, path: Path, column: str) -> None:
        self._column = column
        self._lock = Lock()  # a ParquetFile reads for one thread at a time
        self._last: tuple[int, list[str], pa.Table] | None = None
        self._file = pq.ParquetFile(path, memory_map=True)
        self.columns: list[str] = self._file.schema_arrow.names
        metadata = self._file.metadata
        at = self.columns.index(column)
        found = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
        known = [stats is not None and stats.has_min_max for stats in found]
        self._low = np.array([s.min if ok else -(2**63) for s, ok in zip(found, known, strict=True)], np.int64)
        self._high = np.array([s.max if ok else 2**63 - 1 for s, ok in zip(found, known, strict=True)], np.int64)

    def rows(self, values: Sequence[int], columns: Sequence[str] | None) -> list[dict[str, Any]] | None:
        """The rows whose column is one of the values, in the file's order; None when too many groups may hold them."""
        wanted: npt.NDArray[np.int64] = np.array(values, np.int64)
        held = ((self._low <= wanted[:, None]) & (wanted[:, None] <= self._high)).any(axis=0)
        groups = np.flatnonzero(held).tolist()
        if len(groups) > _MOST_GROUPS:
            return None
        found: list[dict[str, Any]] = []
        shown = self.columns if columns is None else list(columns)
        with self._lock:
            for group in groups:
                table = self._group(group, [*dict.fromkeys([*shown, self._column])])
                here = np.flatnonzero(np.isin(table[self._column].to_numpy(), wanted))
                found += table.select(shown).take(pa.array(here)).to_pylist()
        return found

    def _group(self, group: int, columns: list[str]) -> pa.Table:
        if self._last is None or self._last[:2] != (group, columns):
            self._last = group, columns, self._file.read_row_group(group, columns)
        return self._last[2]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
