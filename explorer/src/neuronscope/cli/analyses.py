"""The commands of the analyses (`steps`, `insights`, `overlap`, …): one for each of `analysis.catalog.ANALYSES`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuronscope.cli.options import DataPath, Json, OnePath

if TYPE_CHECKING:
    from neuronscope.analysis.catalog import Found

__all__ = ["commands"]

Row = dict[str, Any]
Limit = Annotated[int, typer.Option("--limit", "-l", min=1, help="How many rows to print.")]
_COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "overlap": (("category", ""), ("rank", "rank"), ("device", "device"), ("executions", "count"), ("time_ns", "time"),
                ("hidden_ns", "hidden"), ("exposed_ns", "exposed"), ("share", "hidden")),
    "ranks": (("rank", "rank"), ("step_ns", "step"), ("compute_ns", "computing"), ("compute_skew", "skew"),
              ("communication_ns", "comm."), ("wait_ns", "waits"), ("last", "last"), ("caused_ns", "caused"),
              ("offset_ns", "clock")),
    "memory": (("place", ""), ("rank", "rank"), ("series", "series"), ("peak_bytes", "peak"), ("peak_step", "step"),
               ("last_bytes", "at end"), ("share", "share")),
    "at_peak": (("name", "alive at the peak, by operator"), ("rank", "rank"), ("place", "place"),
                ("allocations", "count"), ("alive_bytes", "alive"), ("share", "of peak")),
    "launches": (("name", "call"), ("calls", "calls"), ("executions", "exec."), ("call_median_ns", "call"),
                 ("call_p95_ns", "p95"), ("delay_median_ns", "delay"), ("delay_p95_ns", "p95"),
                 ("executions_shorter_than_call", "shorter")),
    "averages": (("name", "operator"), ("calls", "calls"), ("self_cpu_ns", "self CPU"), ("torch_self_cpu_ns", "torch"),
                 ("self_device_ns", "device"), ("torch_self_device_ns", "torch"), ("share", "share")),
    "throttling": (("kind", "kind"), ("core", "core"), ("periods", "periods"), ("time_ns", "time"),
                   ("limit_share", "limit"), ("share", "share")),
    "lanes": (("label", "track"), ("slices", "slices"), ("busy_ns", "busy"), ("share", "share")),
}  # fmt: skip
_SHORT = {
    "no_more_work": "tail",
    "outside_operators": "outside",
    "communication": "comm.",
    "memory_copy": "copies",
    "launch_latency": "latency",
    "launch_cost": "launch",
    "execution_gap": "exec.gap",
    "other_step": "others",
}
_NOTES = {
    "overlap": "hidden: while something computed on the same device; last column: of the time in which they ran.",
    "ranks": "waits: in collectives, for the last rank; last: collectives it starts last; caused: how much later than "
    "the last but one; skew: computing against the median rank; clock: offset, aligned on the ends of collectives.",
    "memory": "share: of the place's reserved memory.",
    "launches": "medians of one call on the host; delay: from the start of the call to that of its work; shorter: "
    "executions shorter than their call.",
    "averages": "torch: as its own key_averages() has it; share: of the range's device time (without any: of the "
    "operators' own host time).",
    "lanes": "busy: at least one slice open; share: of the range's span.",
    "hierarchy": "share: of the time of all instructions of the range.",
    "throttling": "limit: utilization allowed meanwhile; share: of the range's span.",
    "tree": "share: of the range's device time, or of the top-level calls' host time without any.",
    "insights": "Bounds of different rules overlap: they don't add up.",
}


def commands() -> Iterator[tuple[str, Callable[..., None]]]:
    """Name and function of each command."""
    from neuronscope.analysis.catalog import ANALYSES

    for name, analysis in ANALYSES.items():
        yield name, _command(name, analysis.title, analysis.ranged, analysis.whole)


def _command(name: str, title: str, ranged: bool, whole: bool) -> Callable[..., None]:
    def show(path: str, limit: int, selected: str, as_json: bool, data_path: Any) -> None:
        from neuronscope.analysis.catalog import analyse
        from neuronscope.cli.opening import open_profiles

        profile = open_profiles([path], None, data_path)[0]
        chosen = {"": None, "all": profile.whole_range, "last": profile.default_range}[selected]
        found = analyse(profile, name, chosen)
        if as_json:
            typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
            return
        for line in _lines(found, limit):
            typer.echo(line)

    def everything(
        path: OnePath,
        limit: Limit = 20,
        everything: Annotated[
            bool, typer.Option("--all", help="The whole profile instead of the last complete step.")
        ] = False,
        as_json: Json = False,
        data_path: DataPath = None,
    ) -> None:
        show(path, limit, "all" if everything else "", as_json, data_path)

    def last(
        path: OnePath,
        limit: Limit = 20,
        last: Annotated[bool, typer.Option("--last", help="The last complete step instead of all.")] = False,
        as_json: Json = False,
        data_path: DataPath = None,
    ) -> None:
        show(path, limit, "last" if last else "", as_json, data_path)

    def fixed(path: OnePath, limit: Limit = 20, as_json: Json = False, data_path: DataPath = None) -> None:
        show(path, limit, "", as_json, data_path)

    command: Callable[..., None] = last if whole else everything if ranged else fixed
    command.__doc__ = title
    command.__name__ = name
    return command


def _lines(found: Found, limit: int) -> Iterator[str]:
    from neuronscope.cli.text import wrap

    name = found.analysis.name
    if found.reason:
        yield wrap(found.reason)
        return
    if name == "insights":
        yield from _insight_lines(found, limit)
    else:
        for fact in found.facts:
            yield wrap(f"- {fact}")
        yield ""
        if name == "steps":
            yield from _step_lines(found.rows, limit)
        elif name == "tree":
            yield from _tree_lines(found.rows, limit)
        elif name == "hierarchy":
            yield from _hierarchy_lines(found.rows, limit)
        else:
            yield from _plain_lines(name, found.rows, limit)
    for table, rows in found.more.items():
        if rows and table in _COLUMNS:
            yield ""
            yield from _plain_lines(table, rows, limit)
    text = f"Range: {found.range_text}." if found.range_text else ""
    yield wrap(" ".join(part for part in (_NOTES.get(name, ""), text) if part))


def _plain_lines(name: str, rows: Sequence[Row], limit: int) -> Iterator[str]:
    from neuronscope.cli.text import table

    columns = _COLUMNS[name]
    columns = tuple(
        (key, header)
        for key, header in columns
        if key != "rank" or name == "ranks" or any(row["rank"] >= 0 for row in rows)
    )
    yield table(
        [header for _, header in columns], [[_cell(key, row[key]) for key, _ in columns] for row in rows[:limit]]
    )
    if len(rows) > limit:
        yield f"  … {len(rows) - limit:,} more (--limit, --json)"


def _cell(key: str, value: Any) -> str:
    from neuronscope.analysis.units import format_bytes, format_ns, format_share

    if value is None:
        return "-"
    if key == "compute_skew":
        return f"{value * 100:+.1f} %"
    if key in ("share", "limit_share"):
        return format_share(value)
    if key.endswith("_ns"):
        return format_ns(value)
    if key.endswith("_bytes"):
        return format_bytes(value)
    if key in ("category", "name", "place", "series", "label", "kind"):
        return str(value).replace("_", " ") if key == "category" else str(value)
    return "-" if value == -1 else f"{value:,}"


def _step_lines(rows: Sequence[Row], limit: int) -> Iterator[str]:
    """One row per step and rank, one column per category: shares of the step's span."""
    from neuronscope.analysis.findings import CATEGORIES
    from neuronscope.analysis.units import format_ns, format_share
    from neuronscope.cli.text import table, wrap

    cells: dict[tuple[int, int], dict[str, float]] = {}
    spans: dict[tuple[int, int], int] = {}
    totals: dict[str, int] = {}
    for row in rows:
        key = row["step"], row["rank"]
        cells.setdefault(key, {})[row["category"]] = row["share"] or 0.0
        spans[key] = row["span_ns"]
        totals[row["category"]] = totals.get(row["category"], 0) + row["time_ns"]
    shown = sorted(sorted(totals, key=lambda name: -totals[name])[:5], key=list(CATEGORIES).index)
    rest = [name for name in CATEGORIES if name in totals and name not in shown]
    ranked = any(rank >= 0 for _, rank in cells)
    header = [
        "step",
        "span",
        *(_SHORT.get(name, name.replace("_", " ")) for name in shown),
        *(["rest"] if rest else []),
    ]
    lines = []
    for (step, rank), parts in list(cells.items())[:limit]:
        label = ("all" if step < 0 else f"{step}") + (f" rank {rank}" if ranked and rank >= 0 else "")
        line = [label, format_ns(spans[step, rank]), *(format_share(parts.get(name, 0.0)) for name in shown)]
        lines.append([*line, format_share(sum(parts.get(name, 0.0) for name in rest))] if rest else line)
    yield table(header, lines)
    if len(cells) > limit:
        yield f"  … {len(cells) - limit:,} more (--limit, --json)"
    words = "; ".join(f"{_SHORT[name]}: {CATEGORIES[name]}" for name in shown if name in _SHORT)
    others = f"rest: {', '.join(CATEGORIES[name] for name in rest)}" if rest else ""
    yield wrap(
        "Shares of the step's span; they add up to it. " + "; ".join(part for part in (words, others) if part) + "."
    )


def _tree_lines(rows: Sequence[Row], limit: int) -> Iterator[str]:
    """The largest calls, indented below their callers, larger ones first."""
    from neuronscope.analysis.units import format_ns, format_share
    from neuronscope.cli.text import table

    device = any(row["device_time_ns"] for row in rows)
    weight = "device_time_ns" if device else "cpu_ns"
    by_path = {tuple(row["path"]): row for row in rows}

    def rank(row: Row) -> tuple[tuple[int, str], ...]:
        path = tuple(row["path"])
        above = [by_path.get(path[:depth]) for depth in range(1, len(path) + 1)]
        return tuple((-(one[weight] if one else 0), name) for one, name in zip(above, path, strict=True))

    kept = {tuple(row["path"]) for row in sorted(rows, key=lambda row: -row[weight])[:limit]}
    kept |= {path[:depth] for path in kept for depth in range(1, len(path))}
    lines = []
    for row in sorted((by_path[path] for path in kept if path in by_path), key=rank):
        cells = [f"{'  ' * (row['depth'] - 1)}{row['name']}", f"{row['calls']:,}", format_ns(row["cpu_ns"])]
        cells += (
            [format_ns(row["device_time_ns"]), format_ns(row["self_device_ns"])]
            if device
            else [format_ns(row["self_cpu_ns"])]
        )
        lines.append([*cells, format_share(row["share"])])
    header = ["operator", "calls", "CPU", *(["device", "self"] if device else ["self CPU"]), "share"]
    yield table(header, lines)
    if len(rows) > len(lines):
        yield f"  … {len(rows) - len(lines):,} more (--limit, --json)"


def _hierarchy_lines(rows: Sequence[Row], limit: int) -> Iterator[str]:
    """The largest groups, indented below those around them; engines that did nothing are left out."""
    from neuronscope.analysis.units import format_ns, format_share
    from neuronscope.cli.text import table

    kept = {tuple(row["path"]) for row in sorted(rows, key=lambda row: -row["active_ns"])[:limit]}
    by_path = {tuple(row["path"]): row for row in rows}
    kept |= {path[:depth] for path in kept for depth in range(1, len(path)) if path[:depth] in by_path}

    def rank(path: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
        above = [by_path.get(path[:depth]) for depth in range(1, len(path) + 1)]
        return tuple((-(one["active_ns"] if one else 0), name) for one, name in zip(above, path, strict=True))

    engines = [
        name for name in ("tensor", "vector", "scalar", "gpsimd", "sync") if any(row[f"{name}_ns"] for row in rows)
    ]
    lines = [
        [
            f"{'  ' * (len(path) - 1)}{path[-1]}",
            f"{by_path[path]['instructions']:,}",
            *(format_ns(by_path[path][f"{name}_ns"]) for name in engines),
            format_share(by_path[path]["share"]),
        ]
        for path in sorted(kept, key=rank)
    ]
    yield table(["layer, HLO, opcode", "instr.", *engines, "share"], lines)
    if len(rows) > len(lines):
        yield f"  … {len(rows) - len(lines):,} more (--limit, --json)"


def _insight_lines(found: Found, limit: int) -> Iterator[str]:
    from neuronscope.analysis.units import format_ns
    from neuronscope.cli.text import clip, wrap

    for number, (row, fact) in enumerate(zip(found.rows[:limit], found.facts, strict=False), 1):
        yield wrap(f"{number}. {fact}")
        yield wrap(f"bound: {row['formula']}", "     ")
        for one in row["evidence"][:3]:
            yield f"     {format_ns(one['ns']):>8}  {clip(one['name'], 50)}  event {one['event_id']}"
        if row["count"] > 3:
            yield f"     … {row['count'] - 3:,} more"
        yield ""
