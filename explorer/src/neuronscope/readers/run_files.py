"""Databases of one run, one per process or rank, as Nsight Systems and rocprofv3 write them: which belong together.

Databases belong together when the same tool wrote them and their times overlap. A rank is one that the file's name, its
MPI table (Nsight Systems) or its process's environment (rocprofv3) tells; otherwise the files are numbered and the rank
stays unknown.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuronscope.formats.errors import FormatError
from neuronscope.readers import nsys, rocpd
from neuronscope.readers.database import Database, connect
from neuronscope.readers.exact import int64
from neuronscope.readers.wording import printable, without_endings

__all__ = ["Part", "parts_of"]

_NAMED = re.compile(r"rank[-_.]?(\d+)", re.IGNORECASE)
_ENVIRONMENT = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


@dataclass(frozen=True)
class Part:
    """One database of a run.

    Attributes:
        path: the file.
        rank: -1 unknown.
        name: what people call it.
        shift_ns: what its times are late by against the first one's clock, 0 where clocks are the same or unknown.
    """

    path: Path
    rank: int
    name: str
    shift_ns: int = 0


@dataclass(frozen=True)
class _Seen:
    """What one look into a database tells."""

    tool: str
    first: int
    last: int
    epoch: int  # what times count from, -1 unknown
    rank: int


def parts_of(paths: Sequence[Path]) -> list[Part] | None:
    """The databases as parts of one run, by rank or name; None when they are not of one."""
    if len(paths) < 2:
        return None
    seen = [_look(path) for path in paths]
    known = [one for one in seen if one is not None]
    if len(known) < len(seen) or len({one.tool for one in known}) > 1:
        return None
    ranks = [one.rank for one in known]
    told = min(ranks) >= 0 and len(set(ranks)) == len(ranks)
    counted = all(one.epoch >= 0 for one in known) and known[0].tool == "nsys"
    base = min(one.epoch for one in known)
    shifts = [one.epoch - base if counted else 0 for one in known]
    spans = sorted((one.first + shift, one.last + shift) for one, shift in zip(known, shifts, strict=True))
    reach = itertools.accumulate((last for _, last in spans), max)
    at_once = all(first <= last for (first, _), last in zip(spans[1:], reach, strict=False))
    if not (told or (at_once and (counted or known[0].tool != "nsys"))):
        return None
    stems = [without_endings(printable(path, name_only=True)) for path in paths]
    places = [path.parent.name for path in paths] if len(set(stems)) < len(stems) else [""] * len(stems)
    names = [f"{place}/{stem}" if place else stem for place, stem in zip(places, stems, strict=True)]
    found = [
        Part(path, rank if told else -1, name, shift)
        for path, rank, name, shift in zip(paths, ranks, names, shifts, strict=True)
    ]
    return sorted(found, key=lambda part: (part.rank, part.name))


def _look(path: Path) -> _Seen | None:
    try:
        with closing(connect(path)) as connection:
            database = Database(connection)
            named = _NAMED.search(path.name)
            rank = int(named[1]) if named else -1
            if nsys.is_mine(database):
                return _Seen("nsys", *_span(database, nsys.TABLES), _epoch(database), _mpi_rank(database, rank))
            if rocpd.is_mine(database):
                return _Seen("rocpd", *_span(database, rocpd.TABLES), -1, _told_rank(database, rank))
    except (sqlite3.Error, OverflowError, FormatError):
        return None
    return None


def _span(database: Database, tables: Sequence[str]) -> tuple[int, int]:
    """First start and last end; all of time where the tables do not tell."""
    found: list[tuple[int, int]] = []
    for table in database.tables:
        if table.startswith(tuple(tables)) and {"start", "end"} <= database.columns(table):
            first, last = database.extremes(table, "start", "end")
            if int64(first) >= 0 and int64(last) >= 0:
                found.append((int64(first), int64(last)))
    return (min(low for low, _ in found), max(high for _, high in found)) if found else (0, 2**62)


def _epoch(database: Database) -> int:
    return max((int64(row.get("utcEpochNs")) for row in database.rows("TARGET_INFO_SESSION_START_TIME")), default=-1)


def _mpi_rank(database: Database, named: int) -> int:
    ranks = {int64(row.get("rank")) for row in database.rows("MPI_RANKS")}
    return ranks.pop() if len(ranks) == 1 else named


def _told_rank(database: Database, named: int) -> int:
    for table in sorted(database.tables):
        if not table.startswith("rocpd_info_process"):
            continue
        for row in database.rows(table):
            environment = _object(row.get("environment"))
            for key in _ENVIRONMENT:
                if int64(environment.get(key)) >= 0:
                    return int64(environment[key])
    return named


def _object(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
