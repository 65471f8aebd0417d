"""The largest facts of a profile: how busy the device was, why idle, what it did most; every share names its whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.gaps import CAUSES, idle_by_cause
from neuronscope.analysis.operators import UNLINKED, Operators, empty_text, totals_of
from neuronscope.analysis.units import format_ns, format_percent, plural

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["Summary", "summarize"]


@dataclass(frozen=True)
class Summary:
    """Facts of one range.

    Attributes:
        facts: sentences, largest first; the terminal prints the first three.
        totals: the row of `analysis/sql/totals.sql`.
        idle: idle time by cause.
        operators: the operator table.
    """

    name: str
    selected: Range
    facts: tuple[str, ...]
    totals: dict[str, Any]
    idle: tuple[dict[str, Any], ...]
    operators: Operators

    def to_dict(self) -> dict[str, Any]:
        """Everything, exact, for JSON."""
        totals = self.totals
        return {
            "name": self.name,
            "range": {"text": self.selected.text, "step": self.selected.step},
            "facts": list(self.facts),
            "device_time_ns": totals["device_time_ns"],
            "device_busy_ns": totals["busy_ns"],
            "span_ns": totals["span_ns"],
            "executions": totals["executions"],
            "copies": totals["copies"],
            "launch_ns": totals["launch_ns"] if totals["split"] else None,
            "program_ns": totals["program_ns"] if totals["split"] else None,
            "estimated_ns": totals["estimated_ns"],
            "gaps_ns": totals["gaps_ns"],
            "bytes_moved": totals["bytes_moved"],
            "flops": totals["flops"],
            "self_cpu_ns": self.operators.total.self_cpu_ns,
            "idle": [dict(row) for row in self.idle],
            "ops": self.operators.to_dicts(),
        }


def summarize(profile: Profile, selected: Range | None = None) -> Summary:
    """Facts of a range (default: the last complete step)."""
    selected = selected or profile.default_range
    totals = totals_of(profile, selected)
    table = profile.operators(selected)
    idle = idle_by_cause(profile, selected)
    return Summary(profile.name, selected, tuple(_facts(profile, totals, table, idle)), totals, tuple(idle), table)


def _facts(profile: Profile, totals: dict[str, Any], table: Operators, idle: list[dict[str, Any]]) -> list[str]:
    if not totals["device_time_ns"]:
        return _host_facts(profile, table)
    span, busy, device_time = totals["span_ns"], totals["busy_ns"], totals["device_time_ns"]
    about = "≈ " if totals["estimated_ns"] else ""
    who = "Device" if totals["devices"] < 2 else f"At least one of {totals['devices']} devices"
    facts = [
        f"{who} busy {about}{format_ns(busy)} of the {format_ns(span)} from first start to last end "
        f"({format_percent(busy / span) if span else '100 %'}): {_work_text(profile, totals)}."
    ]
    why = [(totals["gaps_ns"], _idle_fact(profile, totals, idle))] if idle else []
    if totals["split"] and totals["launch_ns"]:
        each = totals["launch_ns"] / max(totals["executions"], 1)
        text = (
            f"Launch cost is {format_percent(totals['launch_ns'] / device_time)} of device time: "
            f"{totals['executions']:,} × {format_ns(each)}, {profile.launch_status}; engines and DMA take {about}"
            f"{format_ns(totals['program_ns'])}."
        )
        why.append((totals["launch_ns"], text))
    why.sort(key=lambda pair: -pair[0])
    facts += [text for _, text in why[:1]]
    top = next((row for row in table.rows if row.device_time_ns > 0), None)
    if top is not None:
        name = "Work that no operator claims (unlinked)" if top.name == UNLINKED else top.name
        marked = "≈ " if top.estimated_ns else ""
        share = top.share or 0.0
        facts.append(
            f"{name} takes {format_percent(share)} of device time ({marked}{format_ns(top.device_time_ns)} of {about}"
            f"{format_ns(device_time)}, {_pieces(profile, top.executions, top.copies)})."
        )
    facts += [text for _, text in why[1:]]
    unlinked = next((row for row in table.rows if row.name == UNLINKED), None)
    if unlinked is not None and unlinked is not top:
        facts.append(
            f"{format_percent(unlinked.share or 0.0)} of device time ({format_ns(unlinked.device_time_ns)}) is "
            "linked to no operator."
        )
    return facts


def _pieces(profile: Profile, executions: int, copies: int) -> str:
    parts = [plural(executions, _noun(profile))] if executions or not copies else []
    return " and ".join([*parts, plural(copies, "copy")] if copies else parts)


def _noun(profile: Profile) -> str:
    neuron = profile.emulated or profile.info.get("format", "").startswith("neuron")
    return "execution" if neuron else "kernel"


def _work_text(profile: Profile, totals: dict[str, Any]) -> str:
    text = plural(totals["executions"], _noun(profile))
    if totals["copies"]:
        kernels = totals["exec_ns"]
        text += f" {format_ns(kernels)}, {plural(totals['copies'], 'copy')} {format_ns(totals['copies_ns'])}"
    return text


def _idle_fact(profile: Profile, totals: dict[str, Any], idle: list[dict[str, Any]]) -> str:
    gap, span = totals["gaps_ns"], totals["span_ns"]
    count = sum(row["count"] for row in idle)
    who = "Device" if totals["devices"] < 2 else f"All {totals['devices']} devices"
    text = f"{who} idle {format_ns(gap)}, {format_percent(gap / span)} of that span, in {plural(count, 'gap')}"
    causes = [
        f"{CAUSES.get(row['cause'], row['cause'])} {format_percent(row['duration_ns'] / gap)}"
        for row in idle[:3]
        if gap
    ]
    if causes:
        text += f"; of the idle time: {', '.join(causes)}"
    if profile.emulated and idle[0]["cause"] == "host_late":
        text += " (this machine's host: says nothing about a Trainium host)"
    return f"{text}."


def _host_facts(profile: Profile, table: Operators) -> list[str]:
    text = empty_text(profile)
    facts = [text] if text else ["No device work in this range."]
    total = sum(row.self_cpu_ns for row in table.rows)
    if total:
        top = max(table.rows, key=lambda row: row.self_cpu_ns)
        facts.append(
            f"{top.name} takes {format_percent(top.self_cpu_ns / total)} of the operators' host time "
            f"({format_ns(top.self_cpu_ns)} of {format_ns(total)}, {plural(top.calls, 'call')})."
        )
    return facts
