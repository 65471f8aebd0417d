"""Predict every entry that a family knows, and put the figures together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from neuroncore.errors import NeuroncoreError

from benchmarks.accuracy.case import Case
from benchmarks.accuracy.entries import DEFAULT, Entry, Malformed, Skip, read
from benchmarks.accuracy.families import recognise
from benchmarks.accuracy.roofline import Observation, Roofline, fit
from benchmarks.accuracy.score import Point, Score, score
from benchmarks.kernels.writer import SbufError

__all__ = ["NOTE_TRN3", "Report", "Row", "run"]

#: Said wherever trn3 is predicted.
NOTE_TRN3 = "; trn3: its numbers are architectural, no kernel's time is published for it"


@dataclass(frozen=True)
class Row:
    """One predicted entry, its figures in its own unit.

    Attributes:
        ratio: predicted time over published time.
        fitted: whether a parameter may have been fitted on it.
        how: where the time comes from.
    """

    id: str
    family: str
    published: float
    predicted: float
    roofline: float
    ratio: float
    roofline_ratio: float
    fitted: bool
    how: str

    def json(self) -> dict[str, Any]:
        """The row as plain data; one of trn3 says what its prediction is worth."""
        figures = {"id": self.id, "published": self.published, "predicted": self.predicted, "roofline": self.roofline}
        return {**figures, "note": NOTE_TRN3.removeprefix("; ")} if NOTE_TRN3 in self.how else figures


@dataclass(frozen=True)
class Report:
    """Everything there is to say about a file of measurements."""

    rows: list[Row]
    skipped: list[tuple[str, str, str]]
    roofline: Roofline
    points: dict[str, tuple[list[Point], list[Point]]] = field(repr=False)

    def figures(self, family: str | None = None) -> dict[str, Any]:
        """The figures of one family, or of all: over entries that were never fitted."""
        names = [family] if family else list(self.points)
        ours = score([self.points[n][0] for n in names if n in self.points])
        theirs = score([self.points[n][1] for n in names if n in self.points])
        predicted = sum(family in (None, row.family) for row in self.rows)
        skipped = sum(family in (None, name) for _, name, _ in self.skipped)
        return {
            "predicted": predicted,
            "skipped": skipped,
            **_figures(ours),
            "roofline": {"predicted": predicted, "skipped": skipped, **_figures(theirs)},
        }

    def families(self) -> list[str]:
        """Names, those with the most entries first."""
        counts = Counter([row.family for row in self.rows] + [name for _, name, _ in self.skipped])
        return [name for name, _ in counts.most_common()]

    def json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            **self.figures(),
            "families": {name: self.figures(name) for name in self.families()},
            "rows": [row.json() for row in self.rows],
            "skips": dict(Counter(reason for _, _, reason in self.skipped).most_common()),
        }


def _figures(score: Score) -> dict[str, Any]:
    return {
        "median_abs_log_error": score.median_abs_log_error,
        "mean_abs_error": score.mean_abs_error,
        "pairs_ordered": score.pairs_ordered,
    }


def run(
    entries: Sequence[Entry],
    malformed: Sequence[Malformed] = (),
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Predict all entries; `jobs` processes share the work. `progress` is told (programs run, programs to run)."""
    skipped = [(m.id, "other", m.reason) for m in malformed]
    known: list[tuple[Entry, Case, float]] = []
    for entry in entries:
        family, result = recognise(entry)
        if isinstance(result, Skip):
            skipped.append((entry.id, family, str(result)))
            continue
        try:
            known.append((entry, result, _published_ns(entry, result)))
        except Skip as skip:
            skipped.append((entry.id, family, str(skip)))
    observed = [(*case.bounds_ns(), published) for entry, case, published in known if entry.fitted]
    roofline = fit(observed or _shipped())
    rows: list[Row] = []
    points: dict[str, tuple[list[Point], list[Point]]] = {}
    times = _times([e for e, _, _ in known], [c for _, c, _ in known], jobs, progress)
    for (entry, case, published), time in zip(known, times, strict=True):
        if isinstance(time, str):
            skipped.append((entry.id, case.family, time))
            continue
        baseline = roofline.time_ns(*case.bounds_ns())
        rows.append(
            Row(
                entry.id, case.family, entry.value, entry.in_unit(time, published), entry.in_unit(baseline, published),
                time / published, baseline / published, entry.fitted,
                case.how + (NOTE_TRN3 if case.target == "trn3" else ""),
            )
        )  # fmt: skip
        if not entry.fitted:
            ours, theirs = points.setdefault(case.family, ([], []))
            ours.append(Point(case.flops, case.bytes, published, time))
            theirs.append(Point(case.flops, case.bytes, published, baseline))
    return Report(rows, skipped, roofline, points)


def _published_ns(entry: Entry, case: Case) -> float:
    """The figure as the time of one execution of the case.

    Raises:
        Skip: no time, or the rate of an unknown number of cores.
    """
    if not entry.rate:
        return entry.published_ns
    if not case.items:
        raise Skip("a rate over several cores")
    return entry.published_ns * case.items


def _shipped() -> list[Observation]:
    """What the roofline is fitted on when a file has nothing to fit: the `calibrate` entries of the shipped file."""
    observed: list[Observation] = []
    for entry in read(DEFAULT)[0]:
        if not entry.fitted:
            continue
        result = recognise(entry)[1]
        if isinstance(result, Case):
            observed.append((*result.bounds_ns(), _published_ns(entry, result)))
    return observed


def _times(
    entries: list[Entry], cases: list[Case], jobs: int, progress: Callable[[int, int], None] | None
) -> list[float | str]:
    """Times in nanoseconds, or why there is none; equal cases run once."""
    keys = [(case.family, case.target, case.key) if case.key is not None else i for i, case in enumerate(cases)]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    chosen = sorted(first.values())
    results: list[float | str] = []

    def collect(times: Iterable[float | str]) -> None:
        for time in times:
            results.append(time)
            if progress is not None:
                progress(len(results), len(chosen))

    if jobs > 1 and len(chosen) > 1:
        with ProcessPoolExecutor(jobs) as pool:
            collect(pool.map(_time_of, [entries[i] for i in chosen], chunksize=4))
    else:
        collect(_time(cases[i].predict) for i in chosen)
    by_index = dict(zip(chosen, results, strict=True))
    return [by_index[first[key]] for key in keys]


def _time_of(entry: Entry) -> float | str:
    """In a worker: cases hold closures, entries travel."""
    result = recognise(entry)[1]
    assert isinstance(result, Case)
    return _time(result.predict)


def _time(predict: Callable[[], float]) -> float | str:
    try:
        time = predict()
    except Skip as reason:
        return str(reason)
    except SbufError:
        return "program does not fit the SBUF"
    except NeuroncoreError as error:
        return f"no valid program in these shapes ({type(error).__name__})"
    except Exception as error:  # a fault of a kernel may cost its entry, never the report
        return f"fault of the kernel's program: {type(error).__name__}"
    return time if math.isfinite(time) and time > 0 else "prediction is no positive time"
