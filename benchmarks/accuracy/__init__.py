"""Published measurements against predictions: `python -m benchmarks.accuracy [--measurements FILE] [--json] [--rows]`.

Every entry of the file whose workload one of the families knows is predicted for the shapes, dtype and generation it
states: a hand-written kernel from its own program in the instruction set (`benchmarks/kernels`), what a compiler made
from the compiler's programs, a whole model composed of kernels and the roofline of its collectives; plus the launch
cost of the capture mode. Beside it stands a FLOPs/bytes roofline fitted on the entries that may be fitted
(`calibrate`). The figures are those of the other entries (`test`) alone; no parameter was fitted on those, but most of
them were at hand while the programs were written. A pair counts when its FLOPs and bytes are within a factor of 2 and
its published times differ by more than 15 %.
"""

from __future__ import annotations

from benchmarks.accuracy.entries import DEFAULT, read
from benchmarks.accuracy.report import run as report

__all__ = ["NAME", "run"]

NAME = "Predicted against published latencies"


def run() -> list[dict[str, object]]:
    """A row per family, as one table."""
    entries, malformed = read(DEFAULT)
    result = report(entries, malformed, jobs=2)
    rows: list[dict[str, object]] = []
    for family in [*result.families(), None]:
        figures = result.figures(family)
        base = figures["roofline"]
        rows.append(
            {
                "family": family or "all",
                "predicted": figures["predicted"],
                "skipped": figures["skipped"],
                "median log error": _cell(figures["median_abs_log_error"]),
                "roofline's": _cell(base["median_abs_log_error"]),
                "mean error": _cell(figures["mean_abs_error"]),
                "roofline's mean error": _cell(base["mean_abs_error"]),
                "pairs ordered": _cell(figures["pairs_ordered"]),
                "roofline's pairs": _cell(base["pairs_ordered"]),
                "more than 2x off": sum(
                    family in (None, row.family) and not 0.5 <= row.ratio <= 2 and not row.fitted for row in result.rows
                ),
            }
        )
    return rows


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
