"""What commands print about profiles: head lines, operator table, comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from neuronscope.analysis.card import format_of, ingest_report, made_by
from neuronscope.analysis.compare import Comparison
from neuronscope.analysis.operators import Operators
from neuronscope.analysis.profile import Profile, Range
from neuronscope.analysis.top import Top
from neuronscope.analysis.units import format_bytes, format_ns, format_ratio, format_share, plural
from neuronscope.cli.text import clip, table, wrap
from neuronscope.readers import IngestWarning
from neuronscope.readers.wording import printable

__all__ = ["comparison_lines", "found_lines", "operator_lines", "top_lines"]

_ROWS = 20
_WARNINGS = 6
_BOUND = "≤ depends on data (an index by data), timed as if all indices were distinct, a bound."


def found_lines(profile: Profile, selected: Range | None = None, facts: int = 3) -> Iterator[str]:
    """What was found in a profile, and its largest facts."""
    source = printable(profile.source) if profile.source else ""
    home = str(Path.home())
    source = f"~{source[len(home) :]}" if home != "/" and source.startswith(f"{home}/") else source
    yield f"{profile.name}  {clip(source, 78 - len(profile.name))}".rstrip()
    maker = made_by(profile)
    result = profile.ingest_result
    parts = [format_of(profile), maker["label"]]
    if maker["model_version"]:
        parts.append(f"model {maker['model_version']}")
    if result is not None:
        parts.append(
            plural(len(result.ranks), "rank")
            if result.ranks
            else f"{result.processes} host process{'' if result.processes == 1 else 'es'}"
        )
    steps = len(profile.steps)
    parts.append(f"{plural(steps, 'step')}" if steps else "no steps marked")
    yield wrap(" · ".join(part for part in parts if part))
    report = ingest_report(profile)
    dropped = "dropped: unknown (the format does not record drops)"
    if report["dropped"] is not None:
        dropped = f"{report['dropped']:,} dropped"
    yield wrap(
        f"{report['in_file']:,} events in file · {report['stored']:,} stored · {report['repaired']:,} repaired · "
        f"{report['skipped']:,} skipped · {dropped}"
    )
    if result is not None:
        yield from _warning_lines(result.warnings)
    summary = profile.summary(selected)
    if profile.steps and summary.selected.step >= 0:
        yield wrap(
            f"Facts of {summary.selected.text} (the last complete one):"
            if len(profile.steps) > 1
            else f"Facts of {summary.selected.text}:"
        )
    for fact in summary.facts[:facts]:
        yield wrap(f"- {fact}")


def _warning_lines(warnings: Sequence[IngestWarning]) -> Iterator[str]:
    """What was lost or changed first, marked `!`; then what is only worth knowing, since nothing of it is missing."""
    changed = [warning for warning in warnings if warning.action != "kept"]
    known = [warning for warning in warnings if warning.action == "kept"]
    shown = [(warning, "!") for warning in changed] + [(warning, "·") for warning in known]
    for warning, mark in shown[:_WARNINGS]:
        where = f" (first at byte {warning.offset:,})" if mark == "!" and warning.offset >= 0 else ""
        yield wrap(f"{mark} {warning.message}{where}")
    if len(shown) > _WARNINGS:
        yield f"  … {len(shown) - _WARNINGS} more in table IngestReport"


def operator_lines(operators: Operators, launch_status: str, rows: int = _ROWS) -> Iterator[str]:
    """The operator table: with device columns when anything ran on a device."""
    shown = operators.with_device_time
    if not shown:
        yield f"  No operator call in this range ({operators.selected.text})."
        return
    total = operators.total
    device = total.device_time_ns > 0
    split = total.launch_ns is not None
    header = ["operator", "calls", "self CPU"]
    if device:
        header += ["device time", "share"]
    if split:
        header += ["launch", "engines+DMA"]
    lines = []
    for row in [*shown[:rows], total]:
        about = "≈ " if row.estimated_ns else ""
        cells = [row.name, f"{row.calls:,}", format_ns(row.self_cpu_ns)]
        if device:
            cells += [about + format_ns(row.device_time_ns), format_share(row.share)]
        if split:
            cells += [
                "-" if row.launch_ns is None else format_ns(row.launch_ns),
                "-" if row.program_ns is None else f"{about}{'≤ ' if row.bound_ns else ''}{format_ns(row.program_ns)}",
            ]
        lines.append(cells)
    yield table(header, lines)
    if len(shown) > rows:
        yield f"  … {plural(len(shown) - rows, 'operator')} more (--json lists all)"
    if device:
        share = (
            "share: of device time. "
            if not split
            else f"share: of device time; launch is {launch_status}, engines+DMA simulated. "
        )
        yield wrap(f"{share}self CPU of the total: the operators with device time.")
    if total.bound_ns and total.program_ns:
        yield wrap(f"{_BOUND[:-1]}: {format_share(total.bound_ns / total.program_ns)} of engines+DMA.")
    if total.estimated_ns:
        yield wrap(f"≈ rests on an estimate: {format_share(total.estimated_ns / total.device_time_ns)} of device time.")


def top_lines(found: Top) -> Iterator[str]:
    """The rows of `neuronscope top`, and what they are shares of."""
    if not found.rows:
        yield f"  No device work in this range ({found.selected.text})."
        return
    header = [found.by, "executions", "device time", "share", "median"]
    split = any(row["launch_ns"] is not None for row in found.rows)
    lines = []
    for row in found.rows:
        about = "≈ " if row["estimated_ns"] else ""
        cells = [
            row["name"],
            f"{row['executions'] + row['copies']:,}",
            about + format_ns(row["device_time_ns"]),
            format_share(row["share"]),
            format_ns(row["median_ns"]),
        ]
        if split:
            bound = "≤ " if row["bound_ns"] else ""
            cells.append("-" if row["program_ns"] is None else f"{about}{bound}{format_ns(row['program_ns'])}")
        lines.append(cells)
    yield table([*header, "engines+DMA"] if split else header, lines)
    more = found.total_rows - len(found.rows)
    if more:
        yield f"  … {more:,} more (--limit, --json)"
    yield wrap(
        f"share: of {format_ns(found.device_time_ns)} device time, {found.selected.text}. executions: copies included."
        + (f" {_BOUND}" if any(row["bound_ns"] for row in found.rows) else "")
    )


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """The side-by-side table, the terms of each difference, the sentence, the warnings."""
    base = comparison.base
    header = ["", "device time", f"vs {clip(base.name, 8)}", "span", "self CPU", "exec."]
    with_bytes = any(one.totals["bytes_moved"] is not None for one in comparison.compared)
    if with_bytes:
        header += ["bytes", "at peak"]
    rows = []
    for one in comparison.compared:
        totals = one.totals
        about = "≈ " if totals["estimated_ns"] else ""
        device_time = totals["device_time_ns"]
        moved, at_peak = totals["bytes_moved"], one.bytes_at_peak_ns
        cells = [
            one.name,
            about + format_ns(device_time),
            format_ratio(base.totals["device_time_ns"] / device_time) if device_time else "-",
            format_ns(totals["span_ns"]),
            format_ns(one.operators.total.self_cpu_ns),
            f"{totals['executions']:,}",
        ]
        if with_bytes:
            cells += ["-" if moved is None else format_bytes(moved), "-" if at_peak is None else format_ns(at_peak)]
        rows.append(cells)
    yield table(header, rows)
    yield wrap(f"Range: {_ranges(comparison)}.")
    if with_bytes:
        yield wrap("at peak: time to move the bytes at HBM peak, a lower bound.")
    for one in comparison.compared:
        if one is base:
            continue
        terms = comparison.terms(one)
        yield ""
        spans = [format_ns(each.totals["span_ns"]) for each in (base, one)]
        yield f"  {base.name} → {one.name}: span {spans[0]} → {spans[1]}"
        lines = [[term.name, term.text, f"{term.delta_ns:+,} ns"] for term in terms]
        lines.append(["sum, exact", "", f"{sum(term.delta_ns for term in terms):+,} ns"])
        yield table(["", "", "difference"], lines, indent=4)
    if comparison.sentence:
        yield ""
        yield wrap(comparison.sentence)
    for warning in comparison.warnings:
        yield wrap(f"! {warning}")


def _ranges(comparison: Comparison) -> str:
    if all(one.selected.step < 0 for one in comparison.compared):
        return "everything recorded (no complete step is marked)"
    texts = [one.selected.text for one in comparison.compared]
    if len(set(texts)) > 1:
        texts = [f"{one.name}: {one.selected.text}" for one in comparison.compared]
    return f"the last complete step of each ({'; '.join(dict.fromkeys(texts))})"
