"""An opened profile: its tables, its facts, and every analysis as a method."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from neuronscope.analysis.arrays import kept_facts
from neuronscope.analysis.ranges import Range, Step
from neuronscope.analysis.tables import QueryError, Tables

if TYPE_CHECKING:
    from neuronscope.analysis.catalog import Found
    from neuronscope.analysis.event_index import EventIndex
    from neuronscope.analysis.operators import Operators
    from neuronscope.analysis.roofline import Roofline
    from neuronscope.analysis.summary import Summary
    from neuronscope.analysis.timeline import Timeline
    from neuronscope.readers import IngestResult

__all__ = ["Profile", "QueryError", "Range", "Step", "slug", "unique_names"]

_KEPT = 32  # answers of analyses


class Profile(Tables):
    """One profile. Safe to use from several threads.

    `id` is the URL-safe form of the name; whoever opens several profiles makes names unique (`unique_names`).

    Args:
        name: what tables and links call it.
        tables: folder of Parquet files, or tables by name.
        source: the file or folder it was read from, for display.
        ingest_result: what the reader counted, where known.
    """

    def __init__(
        self,
        name: str,
        tables: Path | Mapping[str, pa.Table],
        source: Path | None = None,
        ingest_result: IngestResult | None = None,
    ) -> None:
        super().__init__(tables)
        self.name = name
        self.id = slug(name)
        self.source = source
        self.ingest_result = ingest_result
        self._found: dict[tuple[str, Range], Found] = {}

    @functools.cached_property
    def info(self) -> Mapping[str, str]:
        """`ProfileInfo` as a dictionary."""
        return {row["key"]: row["value"] for row in self.rows("SELECT key, value FROM ProfileInfo")}

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        """First start and last end of all slices, absolute ns; (0, 0) for an empty profile."""
        query = "SELECT min(start_ts) AS first, max(end_ts) AS last FROM Slice"
        row = kept_facts(self, "bounds", ("Slice",), lambda: self.rows(query)[0])
        if row["first"] is None:
            return 0, 0
        return row["first"], row["last"]

    @property
    def origin_ns(self) -> int:
        """Absolute time of the first slice; times of the HTTP interface are relative to it."""
        return self.bounds[0]

    @property
    def span_ns(self) -> int:
        """First start to last end of all slices, host included."""
        return self.bounds[1] - self.bounds[0]

    @functools.cached_property
    def steps(self) -> list[Step]:
        """Profiler steps in order of start; one that several ranks or processes have is one, from first to last."""
        rows = self.rows(
            """
            SELECT number, any_value(name) AS name, min(start_ts) AS start_ts, max(end_ts) AS end_ts,
                   bool_and(complete) AS complete
            FROM Step GROUP BY number ORDER BY start_ts, number
            """
        )
        return [Step(r["number"], r["name"], r["start_ts"], r["end_ts"], r["complete"]) for r in rows]

    @functools.cached_property
    def default_range(self) -> Range:
        """The last complete step that launched device work (any complete step where none did), else everything."""
        complete = [step for step in self.steps if step.complete]
        query = "SELECT DISTINCT step FROM Execution WHERE step >= 0 ORDER BY step"
        worked = set(kept_facts(self, "steps", ("Execution",), lambda: [row["step"] for row in self.rows(query)]))
        complete = [step for step in complete if step.number in worked] or complete
        if not complete:
            return self.whole_range
        step = complete[-1]
        text = f"1 of {len(self.steps)} steps" if len(self.steps) > 1 else f"{step.name}, the only step"
        return Range(step.start, step.end, step.number, text)

    @property
    def whole_range(self) -> Range:
        """Everything."""
        start, end = self.bounds
        return Range(start, end + 1, -1, f"all {len(self.steps)} steps" if len(self.steps) > 1 else "everything")

    def range(self, start: int | None = None, end: int | None = None) -> Range:
        """The range of absolute times given; the default one when both are None.

        A range that is exactly a step selects that step's work, wherever the device got round to it.
        """
        if start is None and end is None:
            return self.default_range
        begin = self.bounds[0] if start is None else start
        finish = self.bounds[1] + 1 if end is None else end
        for step in self.steps:
            if (step.start, step.end) == (begin, finish):
                return Range(begin, finish, step.number, step.name)
        return Range(begin, finish, -1, "")

    @functools.cached_property
    def emulated(self) -> bool:
        """True when the device rows are simulated."""
        return self.info.get("emulated", "").lower() in ("true", "1", "yes")

    @functools.cached_property
    def launch_status(self) -> str:
        """Where the launch cost comes from, as the target file says: calibrated, estimated or another of its words."""
        return self.info.get("device_cost_status.launch_cost") or "of unknown origin"

    @functools.cached_property
    def has_device_rows(self) -> bool:
        """False for a trace of host activity alone."""
        return bool(self.rows("SELECT 1 FROM Execution LIMIT 1"))

    @functools.cached_property
    def names(self) -> list[str]:
        """Names of slices and operators by `name_id`."""
        rows = self.rows("SELECT name_id, name FROM Name")
        found = [""] * (max((row["name_id"] for row in rows), default=-1) + 1)
        for row in rows:
            found[row["name_id"]] = row["name"]
        return found

    @functools.cached_property
    def tracks(self) -> Mapping[int, Mapping[str, Any]]:
        """Rows of the Track table by `track_id`."""
        return {row["track_id"]: row for row in self.rows("SELECT * FROM Track ORDER BY track_id")}

    @functools.cached_property
    def event_index(self) -> EventIndex:
        """Who is linked to whom, built on first use."""
        from neuronscope.analysis.event_index import EventIndex

        return EventIndex(self)

    @functools.cached_property
    def timeline(self) -> Timeline:
        """The tile index, built on first use."""
        from neuronscope.analysis.timeline import Timeline

        return Timeline.of(self)

    def pandas(self, name: str) -> Any:
        """A table, or the result of a query, as a pandas.DataFrame; see `neuronscope.analysis.frames`."""
        from neuronscope.analysis.frames import pandas_frame

        return pandas_frame(self._asked(name))

    def polars(self, name: str) -> Any:
        """A table, or the result of a query, as a polars.DataFrame; see `neuronscope.analysis.frames`."""
        from neuronscope.analysis.frames import polars_frame

        return polars_frame(self._asked(name))

    def _asked(self, name: str) -> pa.Table:
        return self.table(name) if name.isidentifier() else self.sql(name)

    def summary(self, selected: Range | None = None) -> Summary:
        """The largest facts of a range; see `neuronscope.analysis.summary`."""
        from neuronscope.analysis.summary import summarize

        return summarize(self, selected)

    def analyse(self, name: str, selected: Range | None = None) -> Found:
        """One of the analyses of `neuronscope.analysis.catalog`: steps, insights, overlap, ranks, memory, ….

        A profile does not change, so the last few answers are kept.
        """
        from neuronscope.analysis.catalog import analyse, range_of

        key = name, range_of(self, name, selected)
        found = self._found.get(key)
        if found is None:
            found = analyse(self, *key)
            with self._lock:
                if len(self._found) >= _KEPT:
                    self._found.pop(next(iter(self._found)))
                self._found[key] = found
        return found

    def operators(self, selected: Range | None = None) -> Operators:
        """The operator table of a range; see `neuronscope.analysis.operators`."""
        from neuronscope.analysis.operators import operator_table

        return operator_table(self, selected)

    def roofline(self, selected: Range | None = None, **peaks: float | None) -> Roofline:
        """Each executable against the hardware's peaks; see `neuronscope.analysis.roofline`."""
        from neuronscope.analysis.roofline import roofline

        return roofline(self, selected, **peaks)


def slug(name: str) -> str:
    """`name` with all but letters, digits, dot, dash and underscore replaced: safe in a URL and as a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "profile"


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, later ones that would get an id already taken numbered: `naive`, `naive-2`."""
    taken: set[str] = set()
    result = []
    for name in names:
        chosen, number = name, 2
        while slug(chosen) in taken:
            chosen, number = f"{name}-{number}", number + 1
        taken.add(slug(chosen))
        result.append(chosen)
    return result
