"""Why one run takes longer than another: span = launches + engines and DMA + gaps, in integer nanoseconds, exactly.

Each nanosecond of a span goes to one term (`sql/totals.sql`), so differences of terms sum to the difference of spans.
Bytes are never a term: they explain engine and DMA time, and are judged by their time at HBM peak. Sources that don't
tell launch cost apart have the terms "device busy" and "gaps".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuronscope.analysis.compared import Compared, measure
from neuronscope.analysis.explain import explain, lower
from neuronscope.analysis.units import format_bytes, format_ns
from neuronscope.analysis.unlike import differences
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["CompareError", "Compared", "Comparison", "Term", "compare"]


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
    compared = tuple(measure(profile) for profile in profiles)
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
            sentence = f"{chosen.name} against {widest.name}: {sentence if named else lower(sentence)}"
    return Comparison(chosen, compared, tuple(differences(compared)), sentence, split)


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
