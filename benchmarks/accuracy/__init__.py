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

import functools

from benchmarks.accuracy.entries import DEFAULT, read
from benchmarks.accuracy.report import Report
from benchmarks.accuracy.report import run as report

__all__ = ["NAME", "notes", "run"]

NAME = "Predicted against published latencies"


#: Why predictions of a family are far off, as far as we know.
CAUSES = {
    "MLP and QKV": (
        "Prefill of few rows on two cores. The library's tests give one number to several variants of a shape, that of"
        " the slowest: L231, L262, L316 and L347 (with and without a norm and an addition) all expect 82.8 us, so the"
        " variants without are far off. What two cores cost beyond their programs (some 25 us in all of the library's"
        " two-core entries) is published nowhere and in no entry that may be fitted. The quantized ones slow down with"
        " fewer rows (542, 544 and 805 us for 1024, 512 and 256), which no step of the kernel explains."
    ),
    "convolutions": (
        "The products of ResNet-18 are small; how the compiler lays out its first layers and its poolings is unknown."
        " Latencies of throughput tables hold two requests per core, as the vendor's scripts keep in flight."
    ),
    "encoder models": "The result's way to the host is slower there than in the entry that it is calibrated on.",
}


TRN3 = (
    "For trn3 no kernel's time is published: its target file holds architectural numbers, and what it predicts here is"
    " untested."
)


@functools.cache
def _result() -> Report:
    entries, malformed = read(DEFAULT)
    return report(entries, malformed, jobs=2)


def notes() -> str:
    """Entries more than twice or less than half as long as published, never fitted ones, with the cause by family."""
    lines = ["More than 2x off (predicted over published), fitted entries left out:", ""]
    for family in _result().families():
        far = [r for r in _result().rows if r.family == family and not r.fitted and not 0.5 <= r.ratio <= 2]
        if far:
            listed = ", ".join(f"{r.id} {r.ratio:.2f}" for r in far)
            lines.append(f"- {family}: {listed}. {CAUSES.get(family, 'Cause unknown.')}")
    skips = "; ".join(f"{count} {reason}" for reason, count in _result().json()["skips"].items())
    return "\n".join([*lines, "", f"Skipped: {skips}.", "", TRN3])


def run() -> list[dict[str, object]]:
    """A row per family, as one table."""
    result = _result()
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
