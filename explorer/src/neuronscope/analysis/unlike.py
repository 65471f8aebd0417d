"""What makes the figures of two profiles less comparable, one line each: device, options, shapes, ranges, losses."""

from __future__ import annotations

from collections.abc import Sequence

from neuronscope.analysis.compared import Compared
from neuronscope.analysis.ranges import RANGE_ARGUMENTS
from neuronscope.analysis.units import format_percent

__all__ = ["differences"]

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


def differences(compared: Sequence[Compared]) -> list[str]:
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
        FROM executions{RANGE_ARGUMENTS}
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
