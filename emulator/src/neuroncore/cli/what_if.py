"""`neuronscope what-if`: the same programs timed on other hardware, or with one of its numbers changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from neuroncore.cli._common import Loaded
    from neuroncore.targets import Target

__all__ = ["what_if"]

_NOT_NUMBERS = ("name", "provenance", "tensor_peak_flops_per_second")


def what_if(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A NEFF, or a session folder with NEFFs.")],
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="Time the programs on trn1, trn2, trn3 …")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a number of the target; KEY=x2 multiplies. Repeatable."
        ),
    ] = None,
    list_keys: Annotated[bool, typer.Option("--list", help="List the numbers that --set can change.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print exact numbers as JSON, and nothing else.")] = False,
) -> None:
    """Re-time programs as they are on another target, or with numbers of theirs changed: before and after."""
    from neuroncore.cli._common import CommandError, one_line
    from neuroncore.targets import load_target

    with one_line():
        executables, launches = _load(path)
        if list_keys:
            base = load_target(target) if target else executables[0].target
            for key, value in _numbers(base).items():
                note = base.provenance[key].status
                typer.echo(f"{key} = {value:g}  ({note})")
            return
        if target is None and not changes:
            raise CommandError("nothing to change: give --target NAME or --set KEY=VALUE (--list names the keys)")
        answer = _answer(executables, launches, target, changes or [])
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    for line in _lines(answer):
        typer.echo(line)


def _load(path: Path) -> tuple[list[Loaded], Counter[str]]:
    """The executables, and how often each ran where a session says so."""
    from neuronscope.formats import container

    from neuroncore.cli._common import CommandError, load_neff

    if not path.exists():
        raise CommandError(f"{path}: no such file or folder")
    if path.suffix == ".ntff":
        raise CommandError(f"{path}: a device profile holds no program. Give the NEFF it was recorded from")
    files = [path] if path.is_file() else sorted(path.rglob("*.neff"))
    if not files:
        raise CommandError(f"{path}: no *.neff in this folder. Capture with ProfileMode.DEVICE, or give a NEFF")
    by_hash = {loaded.hash: loaded for loaded in map(load_neff, files)}
    counts: Counter[str] = Counter()
    if path.is_dir():
        for trace in sorted(path.rglob("ntrace.pb")):
            counts.update(neff for neff in container.read(trace).tables["executions"]["neff"].to_pylist() if neff)
    return list(by_hash.values()), counts


def _numbers(target: Target) -> dict[str, float]:
    return {f.name: getattr(target, f.name) for f in fields(target) if f.name not in _NOT_NUMBERS}


def changed(target: Target, changes: Sequence[str]) -> Target:
    """The target with numbers replaced.

    Raises:
        CommandError: no KEY=VALUE, an unknown key, or no positive number.
    """
    import difflib

    from neuroncore.cli._common import CommandError

    known = _numbers(target)
    values: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        key, text = key.strip(), text.strip()
        if not equals:
            raise CommandError(f"--set {change}: write KEY=VALUE")
        if key not in known:
            near = [name for name in known if key in name][:3] or difflib.get_close_matches(key, known, 3, 0.5)
            raise CommandError(
                f"--set {change}: {target.name} has no number {key!r}"
                f"{'; do you mean ' + ' or '.join(near) + '?' if near else ' (--list names them)'}"
            )
        factor = text[:1] in ("×", "*", "x")
        try:
            number = float(text[1:] if factor else text) * (known[key] if factor else 1)
        except ValueError:
            raise CommandError(f"--set {change}: {text!r} is no number (x2 multiplies)") from None
        if not 0 <= number < float("inf"):
            raise CommandError(f"--set {change}: must be zero or more and finite")
        if number == 0 and not key.endswith(("_ns", "_cycles")):
            raise CommandError(f"--set {change}: must be more than zero")
        if number > 1 and key.endswith(("_rate", "_fraction")):
            raise CommandError(f"--set {change}: {key} is a share of one, at most 1")
        values[key] = round(number) if isinstance(known[key], int) else number
    return replace(target, **values)


def _answer(
    executables: list[Loaded], launches: Counter[str], target: str | None, changes: Sequence[str]
) -> dict[str, Any]:
    from neuroncore.errors import NeuroncoreError
    from neuroncore.isa import verify
    from neuroncore.targets import load_target
    from neuroncore.timing import simulate

    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for loaded in executables:
        new = changed(load_target(target) if target else loaded.target, changes)
        estimated_ns = sum(ns for _, _, ns in loaded.estimates)
        empty = not loaded.program.executed
        before = 0 if empty else simulate(loaded.program, loaded.target).program_ns
        refused = ""
        after: int | None = None
        try:
            if not empty:
                verify(loaded.program, new)
            after = 0 if empty else simulate(loaded.program, new).program_ns
        except NeuroncoreError as error:
            refused = " ".join(str(error).split())
        rows.append(
            {
                "name": loaded.name,
                "neff": loaded.hash,
                "executions": launches.get(loaded.hash, 0) if launches else None,
                "before_ns": before + estimated_ns,
                "after_ns": None if after is None else after + estimated_ns,
                "estimated_ns": estimated_ns,
                "launch_delta_ns": new.launch_cost_profiled_ns - loaded.target.launch_cost_profiled_ns,
                "refused": refused,
            }
        )
        notes += [f"{loaded.name}: {note}" for note in loaded.notes]
        if after is not None and after > before and _only_better(loaded.target, new):
            notes.append(
                f"{loaded.name}: {after - before:,} ns slower on hardware that is nowhere worse: transfers that start "
                "earlier take bandwidth from those others wait for, or TensorE waits longer and cools down. A program "
                f"that held them back would take at most the {before:,} ns of before"
            )
        if estimated_ns:
            notes.append(f"{loaded.name}: estimated parts are not timed anew; they stay as they are")
    if target == "trn3":
        notes.append("trn3 has no kernel-level publication: nothing was checked against it")
    notes.append("the same programs, not compiled anew: another target might get other programs")
    rows.sort(key=lambda row: -row["before_ns"] * max(row["executions"] or 1, 1))
    weights = [1 if row["executions"] is None else row["executions"] for row in rows]
    timed = all(row["after_ns"] is not None for row in rows)
    return {
        "change": " ".join([*([f"--target {target}"] if target else []), *(f"--set {change}" for change in changes)]),
        "rows": rows,
        "total": {
            "executions": sum(weights),
            "before_ns": sum(row["before_ns"] * n for row, n in zip(rows, weights, strict=True)),
            "after_ns": sum(row["after_ns"] * n for row, n in zip(rows, weights, strict=True)) if timed else None,
            "launch_delta_ns": sum(row["launch_delta_ns"] * n for row, n in zip(rows, weights, strict=True)),
        },
        "notes": list(dict.fromkeys(notes)),
    }


def _only_better(old: Target, new: Target) -> bool:
    """Whether no rate of the new target is lower and no time longer."""
    before, after = _numbers(old), _numbers(new)
    times = ("_ns", "_cycles")
    return all(after[k] <= v if k.endswith(times) else after[k] >= v for k, v in before.items())


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    from neuroncore.cli._common import format_ns, table

    def ratio(row: dict[str, Any]) -> str:
        return f"{row['before_ns'] / row['after_ns']:.2f}×" if row["after_ns"] else "-"

    def cells(name: str, row: dict[str, Any]) -> list[str]:
        about = "≈ " if row.get("estimated_ns") else ""
        after = "refused" if row["after_ns"] is None else about + format_ns(row["after_ns"])
        count = "-" if row["executions"] is None else f"{row['executions']:,}"
        return [name, count, about + format_ns(row["before_ns"]), after, ratio(row)]

    rows = [cells(row["name"], row) for row in answer["rows"]]
    if len(rows) > 1:
        rows.append(cells("total", answer["total"]))
    yield f"Engines and DMA with {answer['change']}, simulated:"
    yield table(["executable", "executions", "before", "after", "faster"], rows)
    for row in answer["rows"]:
        if row["refused"]:
            yield f"  {row['name']}: {row['refused']}"
    if any(row["refused"] for row in answer["rows"]):
        yield "  A refused program has to be compiled for that target: record with NEURON_PLATFORM_TARGET_OVERRIDE set."
    if answer["total"]["launch_delta_ns"]:
        yield f"  launch cost: {answer['total']['launch_delta_ns']:+,} ns in all, not in the table"
    for note in answer["notes"]:
        yield f"  ! {note}"
