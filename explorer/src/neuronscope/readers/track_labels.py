"""What a row of the timeline holds and is called: table Track."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from neuronscope.readers.trace import Trace
from neuronscope.schema.published import arrow_schema

__all__ = ["DMA_QUEUES", "Place", "Section", "track_table"]

#: Stream numbers of engine rows: engines below it, DMA queues from it on.
DMA_QUEUES = 100


class Section(enum.IntEnum):
    """Parts of a process's tracks."""

    FRAMEWORK = 0
    RUNTIME = 1
    OVERHEAD = 2
    ASYNC = 3
    STREAM = 4
    NRT = 5
    HARDWARE = 6
    TRANSFERS = 7
    DEVICE_NOTES = 8
    ENGINES = 9

    @property
    def order(self) -> int:
        """Place among the sections of a process, from the top."""
        return _ORDER.index(self)


_ORDER = (
    Section.FRAMEWORK,
    Section.ASYNC,
    Section.STREAM,
    Section.RUNTIME,
    Section.OVERHEAD,
    Section.NRT,
    Section.HARDWARE,
    Section.ENGINES,
    Section.TRANSFERS,
    Section.DEVICE_NOTES,
)


class Place(NamedTuple):
    """A track: process, section, then thread, device, stream or core, and what tells it apart among those."""

    process: int
    section: Section
    first: int
    second: int


def track_table(
    trace: Trace, main_pid: int, rank: int, found: Sequence[tuple[Place, int]], main_threads: Mapping[int, int]
) -> pa.Table:
    """The table of tracks, which come in drawing order with their numbers of lanes."""
    emulated = trace.facts.get("emulated") == "true"
    fixed_host = trace.facts.get("host_model") == "fixed"
    rows = []
    for index, (place, lanes) in enumerate(found):
        pid, section, first, second = place
        main = section != Section.FRAMEWORK or main_threads.get(pid) == first
        short, kind, subtitle = _label(trace, main_pid, place, main)
        group = f"{trace.instance}/PID:{trace.process_labels.get(pid, pid)}"
        device = kind in ("device", "copy")
        provenance = "emulated" if fixed_host else "measured"
        if device:
            provenance = "emulated" if emulated else "recorded"
        if section == Section.STREAM and emulated:
            provenance = "emulated"
        if section == Section.ENGINES:
            provenance = "emulated" if emulated else "recorded"
        rows.append(
            {
                "track_id": index,
                "label": f"{group}/{short}",
                "short": short,
                "group_label": group,
                "kind": kind,
                "subtitle": subtitle,
                "provenance": provenance,
                "lanes": lanes,
                "physical_core": second if section == Section.HARDWARE and trace.neuron else -1,
                "rank": rank,
            }
        )
    return pa.Table.from_pylist(rows, schema=arrow_schema("Track"))


def _label(trace: Trace, main_pid: int, place: Place, main: bool) -> tuple[str, str, str]:
    """Short name, kind, and a subtitle that says what the lane holds and where its times come from.

    `main`: of a framework lane, whether its thread is the one that dispatches most.
    """
    pid, section, first, second = place
    emulated = trace.facts.get("emulated") == "true"
    simulated = "emulated" if emulated else "recorded"
    timed = "fixed costs" if trace.facts.get("host_model") == "fixed" else "measured"
    host = f"host, {timed}"
    if section == Section.FRAMEWORK:
        thread = re.sub(r"^thread \d+ \((.*)\)$", r"\1", trace.thread_names.get((pid, first), ""))
        parts = ("dispatch" if main else thread, trace.process_names.get(pid, "") if pid != main_pid else "")
        return f"framework/TID:{first}", "framework", " · ".join(p for p in (*parts, host) if p)
    if section == Section.RUNTIME:
        return f"runtime/TID:{first}", "runtime", f"runtime calls · {host}"
    if section == Section.OVERHEAD:
        return f"overhead/TID:{first}", "runtime", f"the profiler's own time · {host}"
    if section == Section.ASYNC:
        return f"async/TID:{first}", "framework", f"belongs to no thread · {host}"
    if section == Section.STREAM:  # begins when the host enqueued, ends with the execution
        return f"framework/Stream:{first}", "stream", f"enqueue {timed} · end {simulated}"
    if section == Section.TRANSFERS:
        return f"neuron_hw/NC{first}:transfers", "copy", f"copies from and to the host · {simulated}"
    if section == Section.ENGINES:
        name = trace.engine_names.get(second, str(second))
        holds = "transfers of a DMA queue" if second >= DMA_QUEUES else "instructions"
        return f"neuron_hw/NC{first}/{name}", "engine", f"{holds} · {'simulated' if emulated else 'recorded'}"
    if section == Section.NRT:
        return f"neuron_rt/NC:{first}", "runtime", f"runtime calls · {host}"
    if section == Section.DEVICE_NOTES:
        return f"device/{first}:Stream{second} annotations", "stream", f"host ranges on the device · {simulated}"
    if trace.neuron:
        core = f":{second}" if second >= 0 else ""
        return f"neuron_hw/NC{first}{core}", "device", f"executions · {simulated}"
    name = trace.facts.get("device_name", "")
    return f"device/{first}:Stream{second}", "device", " · ".join(p for p in (name, "recorded") if p)
