"""Two profiles step by step: which figures and operator paths changed, and whether the change can be told from noise.

Steps are samples. Partial steps and warm-up are left out and named. A row holds the median of each side and its spread
((largest - smallest) / median; of ten samples and more without the most extreme tenth at either end, so that one odd
step hides nothing); a change smaller than the wider spread is no difference that can be detected. Work is matched by
operator path (module, then the operators from the outermost in), so a kernel that was renamed still meets its
counterpart. Profiles without device work are compared by the host time of their operators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.answers import answer
from neuronscope.analysis.compare import compare
from neuronscope.analysis.condition import Condition, Test
from neuronscope.analysis.operators import totals_of
from neuronscope.analysis.units import format_ns, plural
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["Diff", "NotComparableError", "Row", "Samples", "diff", "diffs", "judge"]

_WARM_UP = 1.25  # a leading step that takes longer than this times the median of the later ones is warm-up
_METRICS = {  # metric → column of work_by_step()
    "device_time": "device_time_ns",
    "span": "span_ns",
    "busy": "busy_ns",
    "gaps": "gaps_ns",
    "launch": "launch_ns",
    "program": "program_ns",
    "executions": "executions",
    "copies": "copies",
    "bytes": "bytes_moved",
    "self_cpu": "self_cpu_ns",
}
_HOST_METRICS = {"self_cpu": "self_cpu_ns", "span": "span_ns", "calls": "calls"}
_DEVICE_FACTS = {
    "emulated": "emulated",
    "target": "target",
    "target_hash": "target file",
    "model_version": "model version",
    "device_name": "device",
    "lnc": "physical cores per logical core",
    "device_cost_ns.launch_cost": "launch cost (the capture mode sets it)",
}


class NotComparableError(NeuronscopeError, ValueError):
    """The two profiles can't be judged against each other; the message says why."""


@dataclass(frozen=True)
class Samples:
    """A figure's value in every step of one side; empty where the source does not say."""

    values: tuple[int, ...]

    @property
    def median(self) -> float | None:
        """Median, None without samples."""
        return median(self.values) if self.values else None

    @property
    def width(self) -> int:
        """Largest minus smallest, without a tenth of the samples at either end."""
        cut = len(self.values) // 10
        kept = sorted(self.values)[cut : len(self.values) - cut]
        return kept[-1] - kept[0] if kept else 0

    @property
    def spread(self) -> float | None:
        """`width` as a share of the median; None with fewer than two samples, or where the median is 0."""
        middle = self.median
        return self.width / middle if len(self.values) > 1 and middle else None


@dataclass(frozen=True)
class Row:
    """One figure or operator path of both sides; `note` names what else is to be known (a renamed kernel)."""

    name: str
    unit: str
    before: Samples
    after: Samples
    exact: bool = False
    note: str = ""

    @property
    def change(self) -> float | None:
        """Median after minus median before; an absent path counts as 0."""
        first, second = self.before.median, self.after.median
        return None if first is None or second is None else second - first

    @property
    def share(self) -> float | None:
        """`change` as a share of before; None where before is 0 or unknown."""
        return self.change / self.before.median if self.change is not None and self.before.median else None

    @property
    def n(self) -> int:
        """The smaller number of samples."""
        return min(len(self.before.values), len(self.after.values))

    @property
    def spread(self) -> float | None:
        """The wider spread of the two sides."""
        known = [side.spread for side in (self.before, self.after) if side.spread is not None]
        return max(known) if known else None

    @property
    def verdict(self) -> str:
        """`longer`/`more`, `shorter`/`fewer`, `same`, or why that can't be said."""
        change = self.change
        if change is None:
            return "unknown"
        if change == 0 and self.before.width == self.after.width == 0:
            return "same"
        if abs(change) <= max(self.before.width, self.after.width):
            spread = f", spread {self.spread * 100:.2g} %" if self.spread is not None else ""
            return f"no difference detectable (n = {self.n}{spread})"
        words = ("longer", "shorter") if self.unit == "ns" else ("more", "fewer")
        text = words[0] if change > 0 else words[1]
        return text if self.n > 1 or self.exact else f"{text}, spread unknown (n = {self.n})"

    @property
    def detectable(self) -> bool:
        """The change is larger than what either side varies by itself."""
        return self.change is not None and abs(self.change) > max(self.before.width, self.after.width)

    def to_dict(self) -> dict[str, Any]:
        """Everything, exact, for JSON."""
        return {
            "name": self.name,
            "unit": self.unit,
            "before": {"median": self.before.median, "spread": self.before.spread, "values": list(self.before.values)},
            "after": {"median": self.after.median, "spread": self.after.spread, "values": list(self.after.values)},
            "change": self.change,
            "share": self.share,
            "n": self.n,
            "detectable": self.detectable,
            "verdict": self.verdict,
            "note": self.note,
        }


@dataclass(frozen=True)
class Diff:
    """The result: figures of the whole, operator paths (largest change first), what was left out, warnings."""

    before: str
    after: str
    metrics: tuple[Row, ...]
    paths: tuple[Row, ...]
    excluded: tuple[str, ...]
    warnings: tuple[str, ...]
    unlike: tuple[str, ...] = ()
    sentence: str = field(default="")

    def to_dict(self) -> dict[str, Any]:
        """Everything, exact, for JSON."""
        return {
            "before": self.before,
            "after": self.after,
            "sentence": self.sentence,
            "metrics": [row.to_dict() for row in self.metrics],
            "paths": [row.to_dict() for row in self.paths],
            "excluded": list(self.excluded),
            "warnings": list(self.warnings),
            "unlike": list(self.unlike),
        }


@dataclass(frozen=True)
class _Side:
    """One profile's samples."""

    profile: Profile
    steps: tuple[int, ...]
    metrics: Mapping[str, Samples]
    paths: Mapping[str, Samples]
    kernels: Mapping[str, frozenset[str]]
    excluded: tuple[str, ...]
    shapes: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def diff(before: Profile, after: Profile) -> Diff:
    """Compare two profiles.

    Raises:
        NotComparableError: one of them has no device work and the other has, or both have no operator calls either.
    """
    on_host = not before.has_device_rows and not after.has_device_rows
    modules = _has_modules(before) and _has_modules(after)  # one side alone would meet no counterpart
    sides = [_side(profile, on_host, modules) for profile in (before, after)]
    for side in sides:
        if not side.metrics["self_cpu" if on_host else "device_time"].values:
            what = "no operator calls" if on_host else "no device work"
            raise NotComparableError(f"{side.profile.name} has {what}: nothing to compare")
    first, second = sides
    exact = dict.fromkeys(("device_time", "launch", "program"), first.profile.emulated and second.profile.emulated)
    metrics = [
        Row(
            name,
            "" if name in ("executions", "copies", "calls") else "B" if name == "bytes" else "ns",
            first.metrics[name],
            second.metrics[name],
            exact.get(name, name in ("executions", "copies", "calls", "bytes")),
        )
        for name in (_HOST_METRICS if on_host else _METRICS)
        if first.metrics[name].values or second.metrics[name].values
    ]
    paths = _path_rows(first, second, exact["device_time"] and not on_host)
    comparison = compare([before, after])
    unlike = tuple(_unlike(before, after))
    excluded = tuple(f"{side.profile.name}: {text}" for side in sides for text in side.excluded)
    counts = [len(side.steps) for side in sides]
    warnings = list(comparison.warnings)
    warnings += _other_shapes(first, second)
    if counts[0] != counts[1]:
        warnings.append(f"Different numbers of steps: {before.name} {counts[0]}, {after.name} {counts[1]}.")
    return Diff(
        before.name, after.name, tuple(metrics), tuple(paths), excluded, tuple(warnings), unlike, _sentence(metrics[0])
    )


def judge(found: Diff, condition: Condition, allow_unlike: bool = False) -> tuple[bool, list[str]]:
    """Whether B is worse by the condition, and one line per test that says why or why not.

    A test holds only where the change can also be told from the spread of the samples.

    Raises:
        NotComparableError: a metric is unknown on one side, or the profiles were made by different devices, models or
            capture modes (unless `allow_unlike`).
    """
    if found.unlike and not allow_unlike:
        raise NotComparableError(
            f"{found.before} and {found.after} are not comparable: {' '.join(found.unlike)} "
            f"--allow-unlike judges them all the same"
        )
    lines: list[str] = []
    worse = False
    for tests in condition.alternatives:
        held = [_holds(found, test, lines) for test in tests]  # every test gets its line
        worse |= all(held)
    return worse, lines


def _holds(found: Diff, test: Test, lines: list[str]) -> bool:
    if test.metric == ("op_self_cpu" if found.metrics[0].name == "self_cpu" else "op_device_time"):
        met = [row for row in found.paths if _row_holds(row, test)]
        what = ", ".join(row.name for row in met[:3]) or "no operator path"
        lines.append(f"{'worse' if met else 'ok'}: {test.text}: {what}")
        return bool(met)
    row = next((row for row in found.metrics if row.name == test.metric), None)
    if row is None or row.change is None:
        raise NotComparableError(f"{test.metric} is not known for both profiles: {test.text!r} can't be judged")
    holds = _row_holds(row, test)
    share = "" if row.share is None else f" ({row.share * 100:+.3g} %)"
    change = f"{row.change:+,.0f}{f' {row.unit}' if row.unit else ''}{share}"
    lines.append(f"{'worse' if holds else 'ok'}: {test.text}: {change}, {row.verdict}")
    return holds


def _row_holds(row: Row, test: Test) -> bool:
    if not test.holds(row.before.median or 0, row.after.median or 0):
        return False
    # "The same or better" holds without a difference; a difference must be one that can be detected.
    return row.detectable or test.holds(0, 0)


def diffs(base: Profile, others: Sequence[Profile]) -> tuple[Diff, ...]:
    """Each of several profiles against one base; see `diff`."""
    return tuple(diff(base, other) for other in others)


def _has_modules(profile: Profile) -> bool:
    return bool(profile.rows("SELECT 1 FROM Execution WHERE module_path <> '' LIMIT 1"))


def _side(profile: Profile, on_host: bool, modules: bool) -> _Side:
    if on_host:
        return _host_side(profile)
    per_step = {row["step"]: row for row in answer(profile, "work_by_step")}
    cpu = {row["step"]: row["self_cpu_ns"] for row in answer(profile, "host_by_step")}
    chosen, excluded = _samples(profile, {step: row["span_ns"] for step, row in per_step.items()})
    rows: list[dict[str, Any]]
    if chosen:
        rows = [per_step[number] | {"self_cpu_ns": cpu.get(number, 0)} for number in chosen]
    else:
        totals = totals_of(profile, profile.whole_range)
        every = sum(cpu.values())
        split = totals["split"]
        whole = totals | {
            "self_cpu_ns": every,
            "launch_ns": totals["launch_ns"] if split else None,
            "program_ns": totals["program_ns"] if split else None,
        }
        rows = [whole] if totals["device_time_ns"] else []
        excluded.append("no complete step with device work: everything recorded is one sample")
    metrics = {}
    for name, column in _METRICS.items():
        values = [row[column] for row in rows]
        metrics[name] = Samples(() if None in values else tuple(int(value) for value in values))
    paths, kernels, shapes = _paths(profile, chosen, modules)
    return _Side(profile, tuple(chosen), metrics, paths, kernels, tuple(excluded), shapes)


def _host_side(profile: Profile) -> _Side:
    """Samples of a profile without device work: its operators' host time."""
    per_step = {row["step"]: row for row in answer(profile, "host_by_step")}
    chosen, excluded = _samples(profile, {step: row["span_ns"] for step, row in per_step.items() if step >= 0})
    rows = [per_step[step] for step in chosen]
    if not chosen and per_step:
        keys = ("self_cpu_ns", "calls")
        rows = [{key: sum(row[key] for row in per_step.values()) for key in keys} | {"span_ns": None}]
        excluded.append("no complete step with operator calls: everything recorded is one sample")
    metrics = {}
    for name, column in _HOST_METRICS.items():
        values = [row[column] for row in rows]
        metrics[name] = Samples(() if None in values else tuple(int(value) for value in values))
    times: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in answer(profile, "host_paths"):
        step = row["step"] if chosen else -1
        times[row["path"]][step] += row["self_cpu_ns"]
    order = chosen or [-1]
    paths = {
        path: Samples(tuple(found.get(step, 0) for step in order))
        for path, found in times.items()
        if any(step in found for step in order)
    }
    kernels = {path: frozenset((path,)) for path in paths}
    return _Side(profile, tuple(chosen), metrics, paths, kernels, tuple(excluded))


def _samples(profile: Profile, spans: Mapping[int, int]) -> tuple[list[int], list[str]]:
    """Numbers of the steps that are samples, and what was left out and why."""
    complete = [step for step in profile.steps if step.complete and step.number in spans]
    excluded = [f"{step.name} left out: partial" for step in profile.steps if not step.complete]
    warm = _warm_up([spans[step.number] for step in complete])
    for step in complete[:warm]:
        later = median(spans[other.number] for other in complete[warm:])
        text = f"warm-up ({format_ns(spans[step.number])}, the later ones {format_ns(later)})"
        excluded.append(f"{step.name} left out: {text}")
    return [step.number for step in complete[warm:]], excluded


def _warm_up(spans: Sequence[int]) -> int:
    """How many leading steps are warm-up; at least two others must remain to say so."""
    count = 0
    while len(spans) - count > 2 and spans[count] > _WARM_UP * median(spans[count + 1 :]):
        count += 1
    return count


def _paths(
    profile: Profile, steps: Sequence[int], modules: bool
) -> tuple[dict[str, Samples], dict[str, frozenset[str]], dict[str, tuple[str, str]]]:
    chosen = set(steps)
    rows = [row for row in answer(profile, "op_paths", f"modules := {modules}") if not steps or row["step"] in chosen]
    order = list(steps) or [-1]
    times: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    kernels: dict[str, set[str]] = defaultdict(set)
    shapes: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        step = row["step"] if steps else -1
        times[row["path"]][step] += row["device_time_ns"]
        kernels[row["path"]].add(row["kernel"])
        shapes[row["path"]] |= {row["first_shapes"], row["last_shapes"]}
    samples = {path: Samples(tuple(found.get(step, 0) for step in order)) for path, found in times.items()}
    ends = {path: (min(texts), max(texts)) for path, texts in shapes.items()}
    return samples, {path: frozenset(names) for path, names in kernels.items()}, ends


def _path_rows(first: _Side, second: _Side, exact: bool) -> list[Row]:
    absent = [Samples((0,) * max(len(side.metrics["self_cpu"].values), 1)) for side in (first, second)]
    rows = []
    for path in dict.fromkeys([*first.paths, *second.paths]):
        old, new = first.kernels.get(path, frozenset()), second.kernels.get(path, frozenset())
        note = ""
        if not old or not new:
            note = f"only in {(second if not old else first).profile.name}"
        elif old != new:
            gone, come = sorted(old - new), sorted(new - old)
            note = f"kernels: {_listed(gone)} → {_listed(come)}"
        rows.append(Row(path, "ns", first.paths.get(path, absent[0]), second.paths.get(path, absent[1]), exact, note))
    return sorted(rows, key=lambda row: (-abs(row.change or 0), row.name))


def _other_shapes(first: _Side, second: _Side) -> list[str]:
    """Operator paths of both sides that worked on inputs of other shapes."""
    both = [path for path in first.shapes if path in second.shapes and first.shapes[path][1] and second.shapes[path][1]]
    other = [path for path in both if first.shapes[path] != second.shapes[path]]
    if not other:
        return []
    largest = max(other, key=lambda path: first.paths[path].median or 0)
    old, new = first.shapes[largest], second.shapes[largest]
    at = 0 if old[0] != new[0] else 1
    return [f"Different input shapes in {len(other)} of {len(both)} operator paths: {largest} {old[at]} → {new[at]}."]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:2]) or "none"
    return f"{shown} and {len(names) - 2} more" if len(names) > 2 else shown


def _unlike(before: Profile, after: Profile) -> list[str]:
    found = []
    for key, label in _DEVICE_FACTS.items():
        old, new = before.info.get(key, ""), after.info.get(key, "")
        if old != new:
            found.append(f"Different {label}: {old or 'unknown'} and {new or 'unknown'}.")
    return found


def _sentence(row: Row) -> str:
    """The verdict of the first figure, device time or the operators' host time, in a sentence."""
    what = "Device time" if row.name == "device_time" else "Operators' host time"
    n = plural(len(row.before.values), "step"), plural(len(row.after.values), "step")
    counted = f"{n[0]} of each" if n[0] == n[1] else f"{n[0]} against {n[1]}"
    before, after = format_ns(row.before.median or 0), format_ns(row.after.median or 0)
    if not row.detectable:
        return f"{what} {before} → {after}: {row.verdict}; {counted}."
    share = f"{abs(row.share or 0) * 100:.3g} % " if row.share else ""
    return f"{what} {before} → {after}: {share}{row.verdict}; median of {counted}."
