"""Why one run takes longer than another: span = launches + engines and DMA + gaps, in integer nanoseconds, exactly.

Each nanosecond of a span goes to one term (`sql/totals.sql`), so differences of terms sum to the difference of spans.
Bytes are never a term: they explain engine and DMA time, and are judged by their time at HBM peak. Sources that don't
tell launch cost apart have the terms "device busy" and "gaps".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.devices import Peak, peak_of
from neuronscope.analysis.gaps import idle_by_cause
from neuronscope.analysis.operators import Operators, totals_of
from neuronscope.analysis.profile import RANGE_ARGUMENTS
from neuronscope.analysis.units import count_word, format_bytes, format_ns, format_percent
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["CompareError", "Compared", "Comparison", "Term", "compare", "explain"]

_SELECTED = f"executions{RANGE_ARGUMENTS}"
_EXECUTIONS_SHOWN = 2000
_SAME = 0.01  # spans closer than this are called nearly the same
_BYTES_REASON = 0.5  # bytes at HBM peak make up this share of the engine and DMA difference: they are the reason
_BYTES_PART = 0.05
_LATE_HOST = 0.05  # share of the difference from which a late host of an emulated run is set apart


class CompareError(NeuronscopeError, ValueError):
    """The profiles can't be compared: the message says which and why."""


@dataclass(frozen=True)
class Term:
    """One reason of a difference in span; `delta_ns` is this profile's minus the base's, negative is better."""

    name: str
    text: str
    detail: str
    delta_ns: int


@dataclass(frozen=True)
class Compared:
    """One profile's numbers over its selected range."""

    profile: Profile
    selected: Range
    totals: dict[str, Any]
    operators: Operators
    peak: Peak | None
    host_late_ns: int

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.profile.name

    @property
    def bytes_at_peak_ns(self) -> int | None:
        """Time to move the range's bytes at HBM peak, None when bytes or peak are unknown."""
        moved = self.totals["bytes_moved"]
        return None if self.peak is None or moved is None else self.peak.time_for_bytes(moved)

    def terms_in_span(self, split: bool) -> dict[str, int]:
        """The terms of the span, in ns; they sum to it."""
        totals = self.totals
        if split:
            return {
                "launches": totals["launch_in_span"],
                "engines and DMA": totals["work_in_span"],
                "gaps": totals["gaps_ns"],
            }
        return {"device busy": totals["busy_ns"], "gaps": totals["gaps_ns"]}

    def to_row(self) -> dict[str, Any]:
        """The row `neuronscope compare --json` prints (issue 2, section 6)."""
        totals = self.totals
        split = totals["split"]
        return {
            "name": self.name,
            "device_time_ns": totals["device_time_ns"],
            "span_ns": totals["span_ns"],
            "self_cpu_ns": self.operators.total.self_cpu_ns,
            "executions": totals["executions"],
            "launch_ns": totals["launch_ns"] if split else None,
            "program_ns": totals["program_ns"] if split else None,
            "gaps_ns": totals["gaps_ns"],
            "bytes_moved": totals["bytes_moved"],
            "ops": [
                {
                    "name": row.name,
                    "calls": row.calls,
                    "self_cpu_ns": row.self_cpu_ns,
                    "device_time_ns": row.device_time_ns,
                    "launch_ns": row.launch_ns,
                    "program_ns": row.program_ns,
                    "estimated_ns": row.estimated_ns,
                }
                for row in self.operators.with_device_time
            ],
        }


@dataclass(frozen=True)
class Comparison:
    """Profiles against a base. `sentence` explains the largest difference in span."""

    base: Compared
    compared: tuple[Compared, ...]
    warnings: tuple[str, ...]
    sentence: str
    split: bool

    def terms(self, other: Compared) -> tuple[Term, ...]:
        """What makes up the difference in span between `other` and the base; deltas sum to it exactly."""
        return _terms(self.base, other, self.split)


def compare(profiles: Sequence[Profile], base: str | None = None) -> Comparison:
    """Compare profiles over the last complete step of each, or all of it where there is none.

    Args:
        profiles: in the order to show them.
        base: name or id of the profile the others are set against; default the first.

    Raises:
        CompareError: no profile, or no profile of that name.
    """
    if not profiles:
        raise CompareError("nothing to compare: give at least one profile")
    compared = tuple(_measure(profile) for profile in profiles)
    chosen = (
        compared[0] if base is None else next((one for one in compared if base in (one.name, one.profile.id)), None)
    )
    if chosen is None:
        raise CompareError(
            f"no profile named {base!r} to compare with. Names: {', '.join(one.name for one in compared)}"
        )
    split = all(one.totals["split"] for one in compared if one.totals["device_time_ns"])
    split = split and any(one.totals["device_time_ns"] for one in compared)
    others = [one for one in compared if one is not chosen]
    sentence = ""
    if others:
        widest = max(others, key=lambda one: abs(one.totals["span_ns"] - chosen.totals["span_ns"]))
        sentence = explain(chosen, widest, split)
        if len(others) > 1:
            named = sentence.startswith((chosen.name, widest.name))
            sentence = f"{chosen.name} against {widest.name}: {sentence if named else _lower(sentence)}"
    return Comparison(chosen, compared, tuple(_warnings(compared)), sentence, split)


def _measure(profile: Profile) -> Compared:
    selected = profile.default_range
    late = sum(row["duration_ns"] for row in idle_by_cause(profile, selected) if row["cause"] == "host_late")
    return Compared(
        profile, selected, totals_of(profile, selected), profile.operators(selected), peak_of(profile), late
    )


def _terms(base: Compared, other: Compared, split: bool) -> tuple[Term, ...]:
    before, after = base.terms_in_span(split), other.terms_in_span(split)
    terms = []
    for name, start in before.items():
        delta = after[name] - start
        if name == "launches":
            text = f"{base.totals['executions']:,} → {other.totals['executions']:,}"
            detail = _launch_detail(base, other)
        elif name == "gaps":
            idle, left = _gap_count(base), _gap_count(other)
            text = f"{idle:,} → {left:,}"
            detail = f"{format_ns(start)} → {format_ns(after[name])}, no device work between first start and last end"
            if base.host_late_ns or other.host_late_ns:
                detail += f"; host late {format_ns(base.host_late_ns)} → {format_ns(other.host_late_ns)}"
        else:
            text = f"{format_ns(start)} → {format_ns(after[name])}"
            detail = _bytes_detail(base, other)
        terms.append(Term(name, text, detail, delta))
    return tuple(terms)


def _gap_count(one: Compared) -> int:
    return int(one.totals["gaps"])


def _launch_detail(base: Compared, other: Compared) -> str:
    costs = [one.totals["launch_ns"] / max(one.totals["executions"], 1) for one in (base, other)]
    fewer = abs(base.totals["executions"] - other.totals["executions"])
    status = " and ".join(dict.fromkeys(one.profile.launch_status for one in (base, other)))
    if min(costs) > 0 and max(costs) / min(costs) < 1.02 and fewer:
        return f"{fewer:,} × {format_ns(costs[0])}, {status}"
    return f"{format_ns(costs[0])} → {format_ns(costs[1])} each, {status}"


def _bytes_detail(base: Compared, other: Compared) -> str:
    sizes = [one.totals["bytes_moved"] for one in (base, other)]
    if None in sizes:
        return ""
    text = f"{format_bytes(sizes[0])} → {format_bytes(sizes[1])}"
    peaks = [one.bytes_at_peak_ns for one in (base, other)]
    if peaks[0] is not None and peaks[1] is not None:
        text += f", at HBM peak {format_ns(peaks[0])} → {format_ns(peaks[1])}"
    return text


def explain(base: Compared, other: Compared, split: bool) -> str:
    """One or two computed sentences on the difference in span between two profiles.

    The slower one is described against the faster one, whichever is the base. Percentages are of the difference in
    span; where a term works against it, times are given instead.
    """
    if not base.totals["device_time_ns"] or not other.totals["device_time_ns"]:
        silent = base if not base.totals["device_time_ns"] else other
        return f"No device rows in {silent.name}: the spans cannot be compared."
    late = _late_host_to_leave_out(base, other)
    explained = {one.profile.id: one.totals["span_ns"] - late.get(one.profile.id, 0) for one in (base, other)}
    slow, fast = (base, other) if explained[base.profile.id] >= explained[other.profile.id] else (other, base)
    spans = explained[slow.profile.id], explained[fast.profile.id]
    difference = spans[0] - spans[1]
    if difference == 0:
        same = f"No difference in span: both take {format_ns(spans[0])}."
        return f"{same} {_late_sentence(base, other, late)}".strip()
    slow_terms, fast_terms = slow.terms_in_span(split), fast.terms_in_span(split)
    deltas = {name: slow_terms[name] - fast_terms[name] for name in slow_terms}
    deltas["gaps"] -= late.get(slow.profile.id, 0) - late.get(fast.profile.id, 0)
    order = sorted(deltas, key=lambda name: -deltas[name])
    main = order[0]
    more = [name for name in order[1:] if deltas[name] > 0]
    less = [name for name in reversed(order) if deltas[name] < 0]
    reason = _main_text(main, slow, fast, deltas[main])
    parts = []
    if less:  # a share of what remains after others worked against it says nothing: amounts do
        clauses = [_lower(reason) + (f", {format_ns(deltas[main])} more" if main == "launches" else "")]
        clauses += [f"{name} {format_ns(deltas[name])} more" for name in more]
        clauses += [f"{name} {format_ns(-deltas[name])} less" for name in less]
        aside = ", without waiting for this machine's host" if late else ""
        head = f"{slow.name} takes {format_ns(difference)} longer{aside}: {'; '.join(clauses)}."
    else:
        of_what = "the difference that is not the host's" if late else "the difference"
        head = f"{reason}: that is {format_percent(deltas[main] / difference)} of {of_what}."
        if more:
            listed = ", ".join(f"{name} {format_percent(deltas[name] / difference)}" for name in more)
            parts.append(f"{_capital(listed)}.")
    share = difference / spans[0]
    if share < _SAME:
        head = (
            f"Nearly the same span, {format_ns(spans[0])} and {format_ns(spans[1])} ({share * 100:.2g} % apart). {head}"
        )
    parts += [_bytes_sentence(slow, fast, deltas, main, difference), _late_sentence(base, other, late)]
    return " ".join([head, *(part for part in parts if part)])


def _late_host_to_leave_out(base: Compared, other: Compared) -> dict[str, int]:
    """Idle time for a late host by profile id, where it would drown the rest; empty where it need not be left out.

    An emulated device waits for the host that emulates it: such gaps say nothing about a host with the real device, so
    no conclusion is drawn from them. A real device's late host is a reason like any other.
    """
    if not (base.profile.emulated and other.profile.emulated):
        return {}
    late = {one.profile.id: one.host_late_ns for one in (base, other)}
    of_host = abs(base.host_late_ns - other.host_late_ns)
    if of_host < _LATE_HOST * max(abs(base.totals["span_ns"] - other.totals["span_ns"]), 1):
        return {}
    return late


def _late_sentence(base: Compared, other: Compared, late: dict[str, int]) -> str:
    if not late:
        return ""
    later, sooner = sorted((base, other), key=lambda one: -late[one.profile.id])
    more = format_ns(late[later.profile.id] - late[sooner.profile.id])
    return f"{later.name} also waited {more} longer for this machine's host: that says nothing about a Trainium host."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _main_text(name: str, slow: Compared, fast: Compared, delta: int) -> str:
    many, few = slow.totals["executions"], fast.totals["executions"]
    if name == "launches":
        if many > few:
            noun = "launch" if many == 1 else "launches"
            return f"{_capital(count_word(many))} {noun} instead of {count_word(few)}"
        costs = [one.totals["launch_ns"] / max(one.totals["executions"], 1) for one in (slow, fast)]
        return f"{format_ns(costs[0])} per launch instead of {format_ns(costs[1])}"
    if name == "gaps":
        return f"Gaps between executions take {format_ns(delta)} more"
    if name == "device busy":
        text = f"The device is busy {format_ns(delta)} longer"
        return f"{text}, with {many:,} kernels instead of {few:,}" if many != few else text
    return f"Engines and DMA take {format_ns(delta)} more"


def _bytes_sentence(slow: Compared, fast: Compared, deltas: dict[str, int], main: str, difference: int) -> str:
    """What bytes have to do with it: judged by their time at HBM peak against the engine and DMA difference."""
    at_slow, at_fast = slow.bytes_at_peak_ns, fast.bytes_at_peak_ns
    work = deltas.get("engines and DMA", deltas.get("device busy", 0))
    if at_slow is None or at_fast is None:
        return ""
    extra = at_slow - at_fast
    sizes = f"{format_bytes(slow.totals['bytes_moved'])} instead of {format_bytes(fast.totals['bytes_moved'])}"
    if extra <= 0:
        if main == "launches" or work <= 0:
            return "Bytes are no reason."
        return f"Bytes are no reason: the slower run moves no more ({sizes})."
    if extra < _BYTES_PART * difference:
        return "Bytes are no reason at this size."
    peak = f"{sizes}, {format_ns(extra)} at HBM peak, a lower bound"
    if work > 0 and extra >= _BYTES_REASON * work:
        of_what = " of the engine and DMA time" if main in ("launches", "gaps") else ""
        return f"Bytes are the reason{of_what}: {peak}."
    return f"Bytes are a part of it: {peak} ({format_percent(extra / difference)} of the difference)."


_FACTS = {
    "target": "target",
    "target_hash": "target file",
    "model_version": "model version",
    "device_name": "device",
    "emulated": "emulated",
    "lnc": "physical cores per logical core",
    "host_model": "host model",
    "world_size": "world size",
    "notes.with_stack": "profiler option with_stack",
    "notes.record_shapes": "profiler option record_shapes",
    "notes.profile_memory": "profiler option profile_memory",
}
# Older writers omit them: unknown is no difference.
_OPTIONS = frozenset(key for key in _FACTS if key == "world_size" or key.startswith("notes."))


def _warnings(compared: Sequence[Compared]) -> list[str]:
    """Differences that make the numbers less comparable, one line each."""
    if len(compared) < 2:
        return []
    found = []
    for key, label in _FACTS.items():
        values = [one.profile.info.get(key, "") for one in compared]
        told = [value for value in values if value] if key in _OPTIONS else values
        if len(set(told)) > 1:
            listed = ", ".join(f"{one.name} {value or 'unknown'}" for one, value in zip(compared, values, strict=True))
            found.append(f"Different {label}: {listed}.")
    costs = sorted({key for one in compared for key in one.profile.info if key.startswith("device_cost_ns.")})
    for key in costs:
        values = [one.profile.info.get(key, "") for one in compared]
        if len(set(values)) > 1:
            found.append(
                f"Different {key.removeprefix('device_cost_ns.').replace('_', ' ')}: "
                f"{', '.join(f'{value} ns' if value else 'unknown' for value in values)}."
            )
    shapes = [_shapes(one) for one in compared]
    if all(shapes) and not set.intersection(*shapes):
        listed = ", ".join(f"{one.name} {min(shape)}" for one, shape in zip(compared, shapes, strict=True))
        found.append(f"No input shape in common (largest input of each: {listed}).")
    selected = [one.selected.step >= 0 for one in compared]
    if len(set(selected)) > 1:
        listed = ", ".join(f"{one.name}: {one.selected.text}" for one in compared)
        found.append(f"Different ranges: {listed}.")
    estimated = [one for one in compared if one.totals["estimated_ns"]]
    for one in estimated:
        share = one.totals["estimated_ns"] / one.totals["device_time_ns"]
        found.append(f"{one.name}: {format_percent(share)} of device time is estimated, not simulated (≈).")
    for one in compared:
        dropped = one.profile.info.get("dropped", "")
        if dropped.isdigit() and int(dropped) > 0:
            found.append(f"{one.name}: {int(dropped):,} events were dropped while recording.")
        unfinished = one.profile.info.get("unfinished_executions", "")
        if unfinished.isdigit() and int(unfinished) > 0:
            found.append(f"{one.name}: {int(unfinished):,} executions had not finished when recording stopped.")
    return found


def _shapes(one: Compared) -> set[str]:
    """The largest input shape of each execution of the range."""
    rows = one.profile.rows(
        f"""
        SELECT DISTINCT shapes
        FROM {_SELECTED}
        WHERE kind = 'exec' AND shapes <> ''
        """,
        one.selected.parameters,
    )
    return {max(row["shapes"].split(" x "), key=_elements) for row in rows}


def _elements(shape: str) -> int:
    product = 1
    for part in shape.strip("[] ").split(","):
        product *= int(part) if part.strip().isdigit() else 1
    return product


def to_api(comparison: Comparison) -> dict[str, Any]:
    """The comparison as `GET /api/compare` answers."""
    base = comparison.base
    answer = []
    for one in comparison.compared:
        terms = comparison.terms(one)
        row = one.to_row()
        device_time = row["device_time_ns"]
        answer.append(
            {
                "id": one.profile.id,
                **row,
                "estimated_ns": one.totals["estimated_ns"],
                "device_busy_ns": one.totals["busy_ns"],
                "bytes_at_hbm_peak_ns": one.bytes_at_peak_ns,
                "ratio": base.totals["device_time_ns"] / device_time if device_time else None,
                "span_ratio": base.totals["span_ns"] / row["span_ns"] if row["span_ns"] else None,
                "range": one.selected.text,
                "launch_status": one.profile.launch_status,
                "executions_list": _executions_list(one),
                "terms": [term.__dict__ for term in terms],
                "in_span": one.terms_in_span(comparison.split),
                "delta_span_ns": sum(term.delta_ns for term in terms),
                "sentence": "" if one is base else explain(base, one, comparison.split),
                "ops": operator_rows(one.operators.with_device_time),
            }
        )
    return {
        "base": base.profile.id,
        "warnings": list(comparison.warnings),
        "sentence": comparison.sentence,
        "profiles": answer,
        "roofline": _roofline(comparison),
    }


def operator_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """OperatorRows of the HTTP interface."""
    return [
        {
            "name": row.name,
            "calls": row.calls,
            "self_cpu_ns": row.self_cpu_ns,
            "device_time_ns": row.device_time_ns,
            "launch_ns": row.launch_ns,
            "program_ns": row.program_ns,
            "estimated_ns": row.estimated_ns,
            "executions": row.executions,
            "share": row.share,
            "events": None if row.first_event is None else str(row.first_event),
        }
        for row in rows
    ]


def _executions_list(one: Compared) -> list[dict[str, Any]]:
    rows = one.profile.rows(
        f"""
        SELECT event_id, CASE WHEN op = '' THEN name ELSE op END AS op, kind, start_ts, duration_ns, launch_part,
               work_part, split, estimated_ns,
               greatest(start_ts - coalesce(max(end_ts) OVER (ORDER BY start_ts, execution_id
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ts), 0) AS gap,
               (SELECT min(h.start_ts) FROM HostOp h JOIN {_SELECTED} e ON e.op_event_id = h.event_id) AS dispatch
        FROM {_SELECTED}
        ORDER BY start_ts, execution_id LIMIT {_EXECUTIONS_SHOWN}
        """,
        one.selected.parameters,
    )
    if not rows:
        return []
    begin = rows[0]["dispatch"] if rows[0]["dispatch"] is not None else rows[0]["start_ts"]
    return [
        {
            "event_id": str(row["event_id"]),
            "op": row["op"],
            "kind": row["kind"],
            "start": row["start_ts"] - begin,
            "duration_ns": row["duration_ns"],
            "launch_ns": row["launch_part"] if row["split"] else None,
            "program_ns": row["work_part"] if row["split"] else None,
            "estimated": row["estimated_ns"] > 0,
            "gap_before_ns": row["gap"],
        }
        for row in rows
    ]


def _roofline(comparison: Comparison) -> dict[str, Any] | None:
    """One point per executable; None when any profile's ceilings are unknown or differ."""
    peaks = {one.peak for one in comparison.compared}
    if len(peaks) != 1 or (peak := peaks.pop()) is None:
        return None
    ridge = peak.flops_per_second / peak.hbm_bytes_per_second
    points = []
    for one in comparison.compared:
        rows = one.profile.rows(
            f"""
            SELECT CASE WHEN op = '' THEN name ELSE op END AS name, neff, count(*) AS executions,
                   sum(flops)::BIGINT AS flops, sum(bytes_read + bytes_written)::BIGINT AS bytes,
                   sum(work_part)::BIGINT AS work, sum(launch_part)::BIGINT AS launch
            FROM {_SELECTED} WHERE kind = 'exec' AND flops >= 0 AND bytes_read >= 0 AND bytes_written >= 0
            GROUP BY ALL ORDER BY name, neff
            """,
            one.selected.parameters,
        )
        for row in rows:
            if not row["bytes"] or not row["work"] or not row["flops"]:
                continue
            intensity = row["flops"] / row["bytes"]
            bound = "launch" if row["launch"] > row["work"] else "memory" if intensity < ridge else "compute"
            points.append(
                {
                    "profile": one.profile.id,
                    "name": row["name"],
                    "executions": row["executions"],
                    "flops_per_byte": intensity,
                    "flops_per_second": row["flops"] * 1e9 / row["work"],
                    "bound": bound,
                }
            )
    return {
        "target": f"{peak.target}, {peak.unit}, {peak.flops_dtype}",
        "peak_flops": peak.flops_per_second,
        "hbm_bytes_per_second": peak.hbm_bytes_per_second,
        "source": peak.source,
        "points": points,
    }
