"""`neuronscope diff`: did it get slower? For people, pull requests and CI."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer

from neuronscope.analysis.diff import Diff, Row
from neuronscope.analysis.units import format_bytes, format_ns
from neuronscope.cli.options import DataPath, Names
from neuronscope.cli.text import clip, table, wrap

__all__ = ["diff"]

_WORSE = 1


class Format(StrEnum):
    """How the result is printed."""

    text = "text"
    markdown = "markdown"
    json = "json"


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="The profile to compare with.")],
    after: Annotated[list[str], typer.Argument(metavar="B...", help="The profiles to judge, each against A.")],
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="EXPR",
            help="Exit with 1 when B is worse than A by this: 'device_time > 5%', 'gaps > 200us or executions > 0'.",
        ),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="text, markdown (for a pull request) or json.")
    ] = Format.text,
    allow_unlike: Annotated[
        bool, typer.Option("--allow-unlike", help="Judge profiles of different devices or capture modes too.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many operator paths to print.")] = 15,
    name: Names = None,
    data_path: DataPath = None,
) -> None:
    """Compare profiles with a first one step by step. Exits with 0: same or better, 1: worse, 2: not comparable."""
    from neuronscope.analysis import condition
    from neuronscope.analysis import diff as analysis
    from neuronscope.cli.opening import open_profiles

    wanted = condition.parse(fail_on) if fail_on is not None else None
    first, *others = open_profiles([before, *after], name, data_path)
    found = analysis.diffs(first, others)
    judged = [analysis.judge(one, wanted, allow_unlike) if wanted else (False, []) for one in found]
    if form is Format.json:
        answers = [
            one.to_dict() | {"fail_on": fail_on, "worse": worse if wanted else None, "tests": lines}
            for one, (worse, lines) in zip(found, judged, strict=True)
        ]
        typer.echo(json.dumps(answers[0] if len(answers) == 1 else answers, ensure_ascii=False))
    else:
        write = _markdown if form is Format.markdown else _text
        for number, (one, (_, lines)) in enumerate(zip(found, judged, strict=True)):
            if number:
                typer.echo("")
            for line in write(one, lines, limit):
                typer.echo(line)
    if any(worse for worse, _ in judged):
        raise typer.Exit(_WORSE)


def _value(row: Row, value: float | None) -> str:
    if value is None:
        return "unknown"
    if row.unit == "ns":
        return format_ns(value)
    return format_bytes(value) if row.unit == "B" else f"{value:,.0f}"


def _change(row: Row) -> str:
    if row.change is None:
        return "unknown"
    if row.share is None:
        return f"{'+' if row.change > 0 else '-' if row.change < 0 else ''}{_value(row, abs(row.change))}"
    return f"{row.share * 100:+.1f} %"


def _spread(row: Row) -> str:
    return "-" if row.spread is None else f"{row.spread * 100:.2g} %"


def _text(found: Diff, tests: list[str], limit: int) -> Iterator[str]:
    for title, rows in (("", found.metrics), ("operator path", found.paths[:limit])):
        header = [title, found.before[:12], found.after[:12], "change", "spread"]
        cells = [
            [row.name, _value(row, row.before.median), _value(row, row.after.median), _change(row), _spread(row)]
            for row in rows
        ]
        printed = table(header, cells)
        shortened = bool(title) and any(row.name not in printed for row in rows)
        if shortened:  # shortened paths look alike: numbers lead to them in full
            printed = table(header, [[f"{number} {cell[0]}", *cell[1:]] for number, cell in enumerate(cells, 1)])
        yield printed
        for number, row in enumerate(rows if title else (), 1):
            if row.note or row.name not in printed:
                label = f"{number} " if shortened else ""
                name = re.sub(r"(\S{40,70}\.)(?=\S{12})", r"\1 ", row.name)  # module paths have no spaces to break at
                yield wrap(label + ": ".join(part for part in (name, _short(row.note)) if part))
        yield ""
    if len(found.paths) > limit:
        yield f"  … {len(found.paths) - limit:,} operator paths more (--limit, --format json)"
    yield wrap(found.sentence)
    for row in found.metrics[1:]:
        if row.change and row.verdict.startswith("no difference"):
            yield wrap(f"{row.name}: {row.verdict}")
    for text in (*found.excluded, *(f"! {text}" for text in _warnings(found)), *tests):
        yield wrap(text)


def _warnings(found: Diff) -> list[str]:
    """What makes the two unlike, each once: the comparison's lines name the profiles."""
    told = {text.partition(":")[0] for text in found.warnings}
    return list(
        dict.fromkeys((*(text for text in found.unlike if text.partition(":")[0] not in told), *found.warnings))
    )


def _short(note: str) -> str:
    """A note with the names of kernels shortened."""
    kind, colon, names = note.partition(": ")
    if kind != "kernels":
        return note
    return f"{kind}{colon}{' → '.join(clip(name, 60) for name in names.split(' → '))}"


def _markdown(found: Diff, tests: list[str], limit: int) -> Iterator[str]:
    def cell(text: str) -> str:
        return text.replace("|", "\\|")

    yield f"**{cell(found.sentence)}**"
    for title, rows in (("", found.metrics), ("operator path", found.paths[:limit])):
        yield ""
        yield f"| {title} | {cell(found.before)} | {cell(found.after)} | change | verdict |"
        yield "|---|--:|--:|--:|---|"
        for row in rows:
            texts = (
                f"`{row.name}`",
                _value(row, row.before.median),
                _value(row, row.after.median),
                _change(row),
                f"{row.verdict}{f'; {row.note}' if row.note else ''}",
            )
            yield f"| {' | '.join(cell(text) for text in texts)} |"
    if len(found.paths) > limit:
        yield ""
        yield f"{len(found.paths) - limit:,} operator paths more."
    notes = [*found.excluded, *_warnings(found), *tests]
    if notes:
        yield ""
    for text in notes:
        yield f"- {cell(text)}"
