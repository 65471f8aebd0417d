"""The operator table: calls, host time and device time per operator, and why the device time is what it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.answers import range_answer
from neuronscope.analysis.devices import peak_of
from neuronscope.analysis.units import count_word, format_bytes, format_ns, format_percent, plural

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["UNLINKED", "Operator", "Operators", "operator_table", "reason", "totals_of"]

UNLINKED = "(unlinked)"


@dataclass(frozen=True)
class Operator:
    """One row; columns as documented in `analysis/sql/operators.sql`."""

    name: str
    calls: int
    self_cpu_ns: int
    device_time_ns: int
    executions: int
    copies: int
    launch_ns: int | None
    program_ns: int | None
    estimated_ns: int
    share: float | None
    first_event: int | None
    bound_ns: int = 0

    @property
    def estimated(self) -> bool:
        """True when any of its device time is an estimate: figures get a ≈."""
        return self.estimated_ns > 0


@dataclass(frozen=True)
class Operators:
    """The table of one range. `total` covers the rows that have device time, or all rows when none has."""

    rows: tuple[Operator, ...]
    total: Operator
    selected: Range

    @property
    def with_device_time(self) -> tuple[Operator, ...]:
        """The rows the totals cover: those with device time, or all when the range has none."""
        chosen = tuple(row for row in self.rows if row.device_time_ns > 0 or row.executions > 0)
        return chosen or self.rows

    def to_dicts(self) -> list[dict[str, Any]]:
        """All rows as plain dictionaries."""
        return [asdict(row) for row in self.rows]


def operator_table(profile: Profile, selected: Range | None = None) -> Operators:
    """Operators of a range (default: the last complete step), largest device time first.

    The total's self CPU time is that of the operators that have device time, so that it can be set against it.
    """
    selected = selected or profile.default_range
    rows = tuple(Operator(**row) for row in range_answer(profile, "operators", selected))
    table = Operators(rows, rows[0] if rows else _EMPTY, selected)
    chosen = table.with_device_time
    launches = [row.launch_ns for row in chosen if row.launch_ns is not None]
    programs = [row.program_ns for row in chosen if row.program_ns is not None]
    device_time = sum(row.device_time_ns for row in chosen)
    total = Operator(
        name="total",
        calls=sum(row.calls for row in chosen),
        self_cpu_ns=sum(row.self_cpu_ns for row in chosen),
        device_time_ns=device_time,
        executions=sum(row.executions for row in chosen),
        copies=sum(row.copies for row in chosen),
        launch_ns=sum(launches) if launches else None,
        program_ns=sum(programs) if launches else None,
        estimated_ns=sum(row.estimated_ns for row in chosen),
        share=1.0 if device_time else None,
        first_event=None,
        bound_ns=sum(row.bound_ns for row in chosen),
    )
    return Operators(rows, total, selected)


_EMPTY = Operator("total", 0, 0, 0, 0, 0, None, None, 0, None, None)


def totals_of(profile: Profile, selected: Range) -> dict[str, Any]:
    """The row of `analysis/sql/totals.sql` for a range."""
    return range_answer(profile, "totals", selected)[0]


def reason(profile: Profile, selected: Range) -> dict[str, Any]:
    """Why the device time of a range is what it is: `{"title", "lines"}`, computed, with a bound called a bound."""
    totals = totals_of(profile, selected)
    device_time = totals["device_time_ns"]
    if not device_time:
        return {"title": "No device time in this range", "lines": [_no_device(profile)]}
    lines = []
    about = "≈ " if totals["estimated_ns"] else ""
    executions = totals["executions"]
    if totals["split"]:
        launch = totals["launch_ns"]
        each = f"{executions:,} × {format_ns(launch / executions)}, " if executions else ""
        lines.append(
            f"{format_percent(launch / device_time)} is the launch cost of {plural(executions, 'execution')} "
            f"({each}{profile.launch_status})."
        )
        engines = f"Engines and DMA need {about}{format_ns(totals['program_ns'])} (simulated"
        if totals["estimated_ns"]:
            engines += f", {format_percent(totals['estimated_ns'] / max(totals['program_ns'], 1))} of it estimated"
        lines.append(f"{engines}). {_bytes_line(profile, totals)}".strip())
        if totals["bound_ns"]:
            share = format_percent(totals["bound_ns"] / max(totals["program_ns"], 1))
            lines.append(
                f"{share} of engine and DMA time is of programs with an index by data (embedding, gather, scatter): "
                "timed as if all indices were distinct, a bound."
            )
        if executions > 1:
            single = launch / executions + totals["program_ns"]
            lines.append(
                f"As one execution with the same work it would take {format_ns(single)} "
                f"({device_time / single:.1f}× less): a bound, fusing may also save work."
            )
    else:
        lines.append(
            f"{plural(executions, 'kernel').capitalize()}"
            f"{' and ' + plural(totals['copies'], 'copy') if totals['copies'] else ''} of "
            f"{format_ns(device_time / max(executions + totals['copies'], 1))} on average."
        )
        span = totals["span_ns"]
        lines.append(
            f"The device works {format_percent(totals['busy_ns'] / span)} of the {format_ns(span)} between first start "
            f"and last end."
            if span
            else "One instant."
        )
    return {"title": f"Why it takes {about}{format_ns(device_time)}", "lines": lines}


def _bytes_line(profile: Profile, totals: dict[str, Any]) -> str:
    moved = totals["bytes_moved"]
    peak = peak_of(profile)
    if moved is None:
        return ""
    if peak is None:
        return f"Device memory traffic: {format_bytes(moved)}."
    at_peak = peak.time_for_bytes(moved)
    text = f"{format_bytes(moved)}, {format_ns(at_peak)} at HBM peak"
    share = at_peak / totals["device_time_ns"]
    if share < 0.05:
        return f"Bytes are no reason here: {text}."
    if share < 0.5:
        return f"Bytes are a part of it: {text} ({format_percent(share)} of device time, a lower bound)."
    return f"Bytes are the reason: {text} ({format_percent(share)} of device time, a lower bound)."


def _no_device(profile: Profile) -> str:
    if profile.has_device_rows:
        return "The profile has device work elsewhere: widen the range."
    return empty_text(profile) or "The profile has no rows."


def empty_text(profile: Profile) -> str | None:
    """What to say instead of a blank page, or None when there are device rows."""
    if profile.has_device_rows:
        return None
    if profile.span_ns or profile.rows("SELECT 1 FROM Slice LIMIT 1"):
        if profile.info.get("format") == "chrome trace":
            return "No device rows: nothing in this trace is marked as device work."
        return "No device rows. This trace has CPU activity only. Record with activities=[CPU, CUDA]."
    return "No events. The file is valid and empty."


def launches_text(number: int) -> str:
    """`six launches`, `one launch`."""
    return f"{count_word(number)} launch{'' if number == 1 else 'es'}"
