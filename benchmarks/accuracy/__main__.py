"""`python -m benchmarks.accuracy [--measurements FILE] [--json] [--jobs N] [--only TEXT] [--rows]`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.accuracy.entries import DEFAULT, MeasurementsError, read
from benchmarks.accuracy.report import NOTE_TRN3, Report, run

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Print the report; exit 2 when the file is no list of measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description="Published against predicted.")
    parser.add_argument("--measurements", type=Path, default=DEFAULT, help="file of published measurements")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="processes that share the work")
    parser.add_argument("--only", default="", help="only entries whose id or workload contains this")
    parser.add_argument("--rows", action="store_true", help="print every entry too")
    options = parser.parse_args(arguments)
    try:
        entries, malformed = read(options.measurements)
    except MeasurementsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.only:
        entries = [e for e in entries if options.only in e.id or options.only in e.workload]
    report = run(entries, malformed, jobs=max(1, options.jobs), progress=_progress())
    if options.json:
        json.dump(report.json(), sys.stdout, indent=1)
        print()
    else:
        _print(report, rows=options.rows)
    return 0


def _progress() -> Callable[[int, int], None] | None:
    """A line on a terminal that says how far the run is."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        print(f"\r{done}/{total} programs", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show


def _print(report: Report, *, rows: bool) -> None:
    if rows:
        for row in report.rows:
            print(
                f"{row.id:44} {row.published:12.4g} {row.predicted:12.4g} {row.ratio:6.2f} roofline"
                f" {row.roofline_ratio:6.2f}  {'fitted' if row.fitted else ''}  {row.how}"
            )
    print(
        f"{'family':28} {'n':>4} {'skip':>5} {'log error':>10} {'roofline':>9} {'mean':>7} {'roofline':>9}"
        f" {'pairs':>7} {'roofline':>9}"
    )
    for name in [*report.families(), None]:
        figures = report.figures(name)
        base = figures["roofline"]
        cells = [
            _cell(values[key], width)
            for key, widths in (
                ("median_abs_log_error", (10, 9)),
                ("mean_abs_error", (7, 9)),
                ("pairs_ordered", (7, 9)),
            )
            for values, width in zip((figures, base), widths, strict=True)
        ]
        print(f"{name or 'all':28} {figures['predicted']:4} {figures['skipped']:5} {' '.join(cells)}")
    print(
        f"roofline fitted on the calibrate entries: {report.roofline.fixed_ns / 1000:.1f} us + the larger of FLOPs at"
        f" {report.roofline.compute_efficiency:.0%} and bytes at {report.roofline.memory_efficiency:.0%} of the peaks"
    )
    if any(NOTE_TRN3 in row.how for row in report.rows):
        print(NOTE_TRN3.removeprefix("; "))
    for reason, count in report.json()["skips"].items():
        print(f"{count:5} skipped: {reason}")


def _cell(value: float | None, width: int) -> str:
    return f"{'-' if value is None else format(value, '.3f'):>{width}}"


if __name__ == "__main__":
    sys.exit(main())
