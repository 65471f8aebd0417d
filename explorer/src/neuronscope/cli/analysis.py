"""`neuronscope analysis`: the roofline of a profile's executables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from neuronscope.cli.options import DataPath, Json, OnePath

if TYPE_CHECKING:
    from neuronscope.analysis.roofline import Placed, Roofline

__all__ = ["analysis", "roofline_lines"]


def analysis(
    path: OnePath,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="How many rows.")] = 20,
    everything: Annotated[
        bool, typer.Option("--all", help="The whole profile instead of the last complete step.")
    ] = False,
    peak_flops: Annotated[
        float | None,
        typer.Option("--peak-flops", metavar="FLOP/S", help="Peak of dense matrix products, instead of the known one."),
    ] = None,
    peak_bandwidth: Annotated[
        float | None,
        typer.Option("--peak-bandwidth", metavar="B/S", help="Peak of device memory, instead of the known one."),
    ] = None,
    as_json: Json = False,
    data_path: DataPath = None,
) -> None:
    """Place each executable on the roofline and say whether launch, compute or memory bounds it."""
    from neuronscope.analysis.roofline import roofline
    from neuronscope.cli.opening import open_profiles

    profile = open_profiles([path], None, data_path)[0]
    selected = profile.whole_range if everything else None
    found = roofline(profile, selected, peak_flops=peak_flops, peak_bandwidth=peak_bandwidth)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    for line in roofline_lines(found, limit):
        typer.echo(line)


def roofline_lines(found: Roofline, limit: int) -> Iterator[str]:
    """The roofline as a table, what its columns are, and the engines' shares where they are known."""
    from neuronscope.analysis.roofline import LAUNCH_SHARE
    from neuronscope.analysis.units import format_ns, format_rate, significant
    from neuronscope.cli.text import table, wrap

    roofs = found.roofs
    if not found.rows:
        yield f"  No executable ran in this range ({found.selected.text})."
        return
    shown = found.rows[:limit]
    yield table(
        ["executable", "runs", "device", "launch", "FLOP/B", "FLOP/s", "reached", "bound"],
        [_cells(row) for row in shown],
    )
    if len(found.rows) > limit:
        yield f"  … {len(found.rows) - limit:,} more (--limit, --json)"
    flops, bandwidth = format_rate(roofs.flops_per_second, "FLOP/s"), format_rate(roofs.bytes_per_second, "B/s")
    dtype = f" in {roofs.flops_dtype}" if roofs.flops_dtype else ""
    yield wrap(
        f"Roofs of {roofs.unit} ({roofs.source}): {flops}{dtype}, {bandwidth}; they meet at "
        f"{significant(roofs.ridge)} FLOP/B."
    )
    yield wrap(
        f"bound: launch where the launch cost is more than {LAUNCH_SHARE:.0%} of device time; else what takes longer "
        "at its roof, arithmetic or bytes. reached: that time over engine and DMA time, and which it is. "
        f"FLOP/s: over engine and DMA time. device: {format_ns(found.device_time_ns)} in all, {found.selected.text}."
    )
    yield from _engine_lines(shown)
    if found.far:
        yield wrap(
            f"! {found.far:,} of {len(found.rows):,} executables reach less than half of their roof: their engine and "
            "DMA time is mostly latency and waiting (tables Instruction, Flow)."
        )
    lost = [row for row in found.rows if not row.bound]
    for text in dict.fromkeys(row.text for row in lost):
        count = sum(row.text == text for row in lost)
        yield wrap(f"! {count:,} {text}")


def _engine_lines(rows: Sequence[Placed]) -> Iterator[str]:
    """What each engine does of an executable's time; nothing where no device profile says."""
    from neuronscope.analysis.units import format_ns, format_percent
    from neuronscope.cli.text import table, wrap

    known = [row for row in rows if row.engines]
    if not known:
        return
    names = list(dict.fromkeys(name for row in known for name, share in row.engines.items() if share))
    metrics = ("HFU", "MFU", "MBU")

    def share(value: float | None) -> str:
        if value is None:
            return "-"
        return format_percent(value).replace("less than ", "<").replace("more than ", ">").removesuffix(" %")

    yield table(
        ["executable", "once", *names, *metrics],
        [
            [row.name, format_ns(row.program_ns / row.executions)]
            + [share(row.engines.get(name)) for name in names]
            + [share(value) for value in (row.hfu, row.mfu, row.mbu)]
            for row in known
        ],
    )
    yield wrap(
        "once: engine and DMA time of one execution. Percent of it in which each engine, and DMA, is active. HFU, MFU: "
        "percent of TensorE's bf16 peak, of all its FLOPs and of the model's; MBU: percent of a whole HBM stack's "
        "bandwidth: Neuron Explorer's definitions."
    )


def _cells(row: Placed) -> list[str]:
    from neuronscope.analysis.units import format_ns, format_percent, format_rate, format_share, significant

    about = "≈ " if row.estimated_ns else ""
    return [
        row.name,
        f"{row.executions:,}",
        about + format_ns(row.device_time_ns),
        "-" if row.launch_share is None else format_percent(row.launch_share),
        "-" if row.intensity is None else significant(row.intensity),
        "-" if row.achieved_flops_per_second is None else format_rate(row.achieved_flops_per_second, "").rstrip(),
        format_share(row.reached) if not row.roof else f"{format_share(row.reached)} {row.roof}",
        row.bound or "-",
    ]
