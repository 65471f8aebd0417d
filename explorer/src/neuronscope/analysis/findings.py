"""Sentences about the rows of the analyses, and why a profile has none. Every share names its whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.operators import empty_text
from neuronscope.analysis.units import format_bytes, format_ns, format_percent, plural

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["CATEGORIES", "RULES"]

Row = dict[str, Any]

CATEGORIES = {
    "compute": "computing",
    "communication": "exposed communication",
    "memory_copy": "exposed copies",
    "launch_cost": "launch cost",
    "other_step": "work of other steps",
    "host_late": "host late",
    "launch_latency": "launch latency",
    "queued": "queued, not started",
    "execution_gap": "the device's gap between executions",
    "sync": "synchronization",
    "stream": "waiting for a stream",
    "no_more_work": "after the last device work",
    "outside_operators": "outside operators",
    "unknown": "idle, cause unknown",
}
"""Categories of `sql/step_split.sql` in the order to show them, and in words."""

RULES = {
    "host_late": (
        "The device waits for the host",
        "Launch earlier: less Python per operator, compile, or capture graphs.",
    ),
    "launch_latency": ("Launches take long to arrive", "Launch ahead of the device, or launch less often."),
    "launch_cost": ("Launch cost of many small executions", "Fuse or compile: fewer, larger executions."),
    "synchronization": (
        "The host waits for the device, then the device for the host",
        "Avoid .item() and synchronize().",
    ),
    "data_loading": ("The device waits for the DataLoader", "More workers, pinned memory, prefetching."),
    "exposed_communication": ("Collectives that nothing hides", "Overlap them with computing, or send less."),
    "exposed_copies": ("Copies that nothing hides", "Pin memory, copy asynchronously, keep data on the device."),
    "straggler": ("Ranks wait for the last one", "Balance the work of the rank that starts last."),
    "conversions": ("Copies, casts and layout changes", "Keep one type and layout."),
}
"""Rules of `sql/insights.sql`: title, and what usually helps."""


def steps(profile: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """What most of the steps' time went into, over all rows."""
    times: dict[str, int] = defaultdict(int)
    spans = {(row["step"], row["rank"]): row["span_ns"] for row in rows}
    for row in rows:
        times[row["category"]] += row["time_ns"]
    span = sum(spans.values())
    order = sorted(times, key=lambda name: -times[name])
    marked = any(step >= 0 for step, _ in spans)
    what = plural(len(spans), "step") if marked else "everything recorded (no step is marked)"
    if len({rank for _, rank in spans}) > 1:
        what = f"{what} of {len({rank for _, rank in spans})} ranks"
    listed = ", ".join(f"{CATEGORIES[name]} {format_percent(times[name] / span)}" for name in order[:5])
    yield f"Of the {format_ns(span)} of {what}: {listed}."
    if times["other_step"] > 0.05 * span:
        yield "Steps overlap: the host runs ahead, and a step's work queues behind that of the steps before."
    if profile.emulated and times["host_late"] > 0.05 * span:
        yield "Host late is this machine's host: it says nothing about a Trainium host."
    if not profile.has_device_rows:
        yield f"{empty_text(profile)} Computing is the time in operator calls of the host."


def no_steps(profile: Profile) -> str:
    """Why there is no split."""
    return empty_text(profile) or "Nothing was recorded in this range."


def insights(profile: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """One sentence per rule."""
    for row in rows:
        title, advice = RULES[row["rule"]]
        yield (
            f"{title}: at most {format_ns(row['gain_ns'])}, {format_percent(row['share'])} of the "
            f"{format_ns(row['span_ns'])} of all steps. {advice}"
        )


def no_insights(profile: Profile) -> str:
    """Why there is none."""
    empty = empty_text(profile)
    return empty or "No rule found a reason: the device computes without pauses, collectives or copies in the way."


def overlap(_: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """Hidden and exposed time by category, over all devices."""
    for category, noun in (("communication", "Collectives run"), ("memory_copy", "Copies run")):
        chosen = [row for row in rows if row["category"] == category]
        total = sum(row["time_ns"] for row in chosen)
        if not total:
            continue
        exposed, span = sum(row["exposed_ns"] for row in chosen), sum(row["span_ns"] for row in chosen)
        where = f" on {len(chosen)} devices, summed" if len(chosen) > 1 else ""
        yield (
            f"{noun} {format_ns(total)}{where}: {format_percent(1 - exposed / total)} of it hidden behind computing, "
            f"{format_ns(exposed)} exposed ({format_percent(exposed / span)} of the device's span)."
        )
    if not any(row["category"] == "communication" for row in rows):
        yield "No collective in this range."


def no_overlap(profile: Profile) -> str:
    """Why there is nothing to hide."""
    return empty_text(profile) or "No collective and no copy ran in this range."


def ranks(_: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """Who starts last, what that costs, how far the clocks can be trusted."""
    matched = max((row["collectives"] for row in rows), default=0)
    if not matched:
        yield "No collective was found on several ranks: clocks can't be aligned, waits are unknown."
    else:
        worst = max(rows, key=lambda row: row["caused_ns"] or 0)
        residual = max((row["residual_ns"] or 0 for row in rows), default=0)
        largest = max((row["residual_max_ns"] or 0 for row in rows), default=0)
        if (worst["caused_ns"] or 0) > matched * residual:
            yield (
                f"Rank {worst['rank']} starts last in {worst['last']:,} of {matched:,} collectives: the others wait "
                f"{format_ns(worst['caused_ns'])} for it alone."
            )
        else:
            yield "No rank is later than the clocks' alignment can tell."
        yield (
            f"Clocks are aligned on the ends of {plural(matched, 'collective')}; what remains is {format_ns(residual)} "
            f"(median of the worst rank), {format_ns(largest)} at most."
        )
    skewed = [row for row in rows if row["compute_skew"] is not None]
    if len(skewed) > 1:
        most = max(skewed, key=lambda row: abs(row["compute_skew"]))
        sign = "more" if most["compute_skew"] > 0 else "less"
        if abs(most["compute_skew"]) < 0.005:
            yield "All ranks compute as long as the median rank, to half a percent."
            return
        yield (
            f"Rank {most['rank']} computes {format_percent(abs(most['compute_skew']))} {sign} than the median rank "
            f"({format_ns(most['compute_ns'])})."
        )
    if len(rows) < 2:
        yield "One rank alone: open the folder that holds the traces of all ranks to see who waits for whom."


def no_ranks(profile: Profile) -> str:
    """Why ranks can't be told apart."""
    world = profile.info.get("world_size", "")
    job = f" of a job of {world}" if world.isdigit() and int(world) > 1 else ""
    return f"The profile names no rank{job}: open a folder with one trace per rank of a distributed job."


def memory(profile: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """The peak of each place's allocated or used memory."""
    shown = [row for row in rows if row["series"] != "reserved"][:4]
    for row in shown:
        where = row["place"] if row["rank"] < 0 else f"rank {row['rank']} {row['place']}"
        when = f" in step {row['peak_step']}" if row["peak_step"] >= 0 else ""
        since = ", counted from the start of the recording" if row["relative"] else ""
        share = row["share"]
        held = f", {format_percent(share)} of what was reserved at most" if share is not None else ""
        at = format_ns(row["peak_ts"] - profile.origin_ns)
        yield (f"{where}, {row['series']}: {format_bytes(row['peak_bytes'])} at the peak{when} (at {at}){held}{since}.")


def no_memory(profile: Profile) -> str:
    """Why memory is unknown."""
    if profile.info.get("format", "").startswith("neuron"):
        return "No memory samples: record with NeuronConfig modes HOST_MEMORY, or with profile_memory=True."
    return "No memory events in this profile: record with torch.profiler.profile(profile_memory=True)."


def launches(_: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """Calls, their delay, and work shorter than its launch."""
    calls, executions = (sum(row[key] for row in rows) for key in ("calls", "executions"))
    shorter = sum(row["executions_shorter_than_call"] for row in rows)
    most = rows[0]
    yield (
        f"{plural(calls, 'launch call')} for {plural(executions, 'execution')}; {most['name']} takes "
        f"{format_ns(most['call_median_ns'])} on the host, its work starts {format_ns(most['delay_median_ns'])} "
        "after it began (medians)."
    )
    if shorter and executions:
        yield (
            f"{shorter:,} of {executions:,} executions ({format_percent(shorter / executions)}) are shorter than "
            "the call that launched them."
        )


def no_launches(profile: Profile) -> str:
    """Why launches are unknown."""
    return empty_text(profile) or "No launch call is linked to device work here: the trace has no runtime events."


def tree(profile: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """The largest top-level call."""
    top = max((row for row in rows if row["depth"] == 1), key=lambda row: row["share"] or 0, default=None)
    if top is None or not top["share"]:
        return
    device = profile.has_device_rows and top["device_time_ns"] > 0
    what, value = (
        ("device time", top["device_time_ns"]) if device else ("the top-level calls' host time", top["cpu_ns"])
    )
    yield f"{top['name']} and what it calls take {format_percent(top['share'])} of {what} ({format_ns(value)})."


def no_tree(profile: Profile) -> str:
    """Why there is no tree."""
    return empty_text(profile) or "No operator call in this range."


def averages(_: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """Whether torch's own table has the same figures, and if not why."""
    device, told = (sum(row[key] for row in rows) for key in ("self_device_ns", "torch_self_device_ns"))
    if device == told:
        yield "Device times are those of torch's key_averages()." if device else "No device time in this range."
    else:
        yield (
            f"torch's table has {format_ns(told)} of the {format_ns(device)} of device time: the rest carries no "
            "External id, which is all that torch goes by; here correlation ids, arrows and nesting count too."
        )
    host, own = (sum(row[key] for row in rows) for key in ("self_cpu_ns", "torch_self_cpu_ns"))
    if host != own:
        yield (
            f"Self CPU is {format_ns(host)}; in torch's table it is {format_ns(own)}, since calls of the device's "
            "runtime are rows of their own there."
        )


def lanes(_: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """The busiest and the idlest device track."""
    devices = [row for row in rows if row["kind"] == "device" and row["share"] is not None]
    if not devices:
        return
    most, least = max(devices, key=lambda row: row["share"]), min(devices, key=lambda row: row["share"])
    text = f"{most['label']} is busy {format_percent(most['share'])} of the range"
    if least["share"] < most["share"]:
        text += f", the idlest of {len(devices)} device tracks, {least['label']}, {format_percent(least['share'])}"
    yield f"{text}."


def no_lanes(_: Profile) -> str:
    """Why there are no tracks."""
    return "No slice in this range."


def hierarchy(_: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """The largest layer, and the engine that is active longest."""
    top = [row for row in rows if row["depth"] == 1]
    total = sum(row["active_ns"] for row in top)
    largest = max(top, key=lambda row: row["active_ns"])
    yield (
        f"{largest['name']} takes {format_percent(largest['share'] or 0)} of the {format_ns(total)} of all "
        f"instructions ({plural(largest['instructions'], 'instruction')})."
    )
    engines = {name: sum(row[f"{name.lower()}_ns"] for row in top) for name in _ENGINES}
    busiest = max(engines, key=lambda name: engines[name])
    if engines[busiest]:
        yield f"{busiest} is the engine with the most: {format_ns(engines[busiest])}."


_ENGINES = ("Tensor", "Vector", "Scalar", "GpSimd", "Sync")


def no_hierarchy(profile: Profile) -> str:
    """Why there is no instruction."""
    if profile.rows("SELECT 1 FROM Instruction LIMIT 1"):
        return "No instruction begins in this range."
    empty = empty_text(profile)
    return empty or "The profile has no instructions: record with the device profile on, on a Neuron device."


def throttling(_: Profile, rows: Sequence[Row]) -> Iterator[str]:
    """How long, and how far."""
    for row in rows[:3]:
        limit = "" if row["limit_share"] is None else f" to {format_percent(row['limit_share'])} of its cycles"
        yield (
            f"Core {row['core']} was held back ({row['kind']}){limit} for {format_ns(row['time_ns'])}, "
            f"{format_percent(row['share'] or 0)} of the range."
        )


def no_throttling(profile: Profile) -> str:
    """Why there is none."""
    if profile.emulated and profile.has_device_rows:
        return (
            "No throttling: the emulator has no thermal or power limits. That TensorE is slower after a pause is in "
            "the times of its instructions."
        )
    return empty_text(profile) or "No throttling was recorded (table Throttle is empty)."
