"""The sentences of a comparison: why one run takes longer than another, computed from the terms of their spans."""

from __future__ import annotations

from neuronscope.analysis.compared import Compared
from neuronscope.analysis.units import count_word, format_bytes, format_ns, format_percent

__all__ = ["explain", "lower"]

_SAME = 0.01  # spans closer than this are called nearly the same
_BYTES_REASON = 0.5  # bytes at HBM peak make up this share of the engine and DMA difference: they are the reason
_BYTES_PART = 0.05
_LATE_HOST = 0.05  # share of the difference from which a late host of an emulated run is set apart


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
        clauses = [lower(reason) + (f", {format_ns(deltas[main])} more" if main == "launches" else "")]
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


def lower(text: str) -> str:
    """A sentence as the rest of another one."""
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
