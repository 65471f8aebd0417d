"""A capture as the rows of the session's files: see `neuronscope.formats.tables` for what each column means."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from neuroncore.errors import NeuroncoreError
from neuroncore.runtime import Executable
from neuroncore.targets import Target
from neuroncore.timing.details import details, hardware
from neuronscope.formats import tables

Rows = dict[str, pa.Table]


class Launches:
    """The launches of a capture, as columns; `finished` tells those whose device end lies inside the window."""

    def __init__(self, columns: Mapping[str, Any], start_ns: int, stop_ns: int) -> None:
        self._columns = columns
        # The previous end lies before the window: for the profile this launch is the core's first.
        self.is_first = self["start_ns"] - self["gap_ns"] < start_ns
        self.kind = np.array(columns["kinds"], dtype=object)[columns["kind_index"]]
        self.end_ns = self["start_ns"] + self["launch_ns"] + self["program_ns"]
        self.finished = self.end_ns <= stop_ns
        self.is_execution = self.kind == "exec"
        self.neff = np.array([e["neff"] for e in columns["executables"]], dtype=object)[columns["executable_index"]]

    @classmethod
    def of(cls, capture: Mapping[str, Any]) -> Launches:
        """The launches of what `_C.profiler.take_capture` returned."""
        return cls(capture["launches"], capture["start_ns"], capture["stop_ns"])

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def text(self, values: str, index: str) -> pa.DictionaryArray:
        """A string column from its distinct values and the index of each row."""
        return dictionary(self[values], self[index])

    def of_executable(self, field: str) -> Any:
        """A field of each row's executable: numbers as numpy, text dictionary-encoded."""
        values = [executable[field] for executable in self["executables"]]
        if all(isinstance(value, str) for value in values):
            return dictionary(values, self["executable_index"])
        return np.array(values, dtype=np.int64)[self["executable_index"]]


def dictionary(values: Sequence[str], index: Any) -> pa.DictionaryArray:
    """Dictionary-encode without building a Python string per row; equal values share one entry."""
    distinct = {value: number for number, value in enumerate(dict.fromkeys(values))}
    remap = np.array([distinct[value] for value in values], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(remap[index], pa.int32()), pa.array(list(distinct), pa.string()))


def executions(launches: Launches) -> pa.Table:
    """The `executions` table: what finished inside the window."""
    columns: dict[str, Any] = {
        "execution_id": launches["execution_id"],
        "kind": launches.text("kinds", "kind_index"),
        "op": launches.of_executable("op"),
        "overload": launches.of_executable("overload"),
        "neff": launches.of_executable("neff"),
        "nc_idx": launches["device"],
        "stream_id": launches["stream"],
        "thread_id": launches["thread_id"],
        "correlation": launches["correlation"],
        "external_id": np.where(launches["external_id"] > 0, launches["external_id"], -1),
        "enqueue_ns": launches["enqueue_ns"],
        "start_ns": launches["start_ns"],
        "end_ns": launches.end_ns,
        "launch_ns": launches["launch_ns"],
        "program_ns": launches["program_ns"],
        "estimated_ns": launches.of_executable("estimated_ns"),
        "gap_ns": np.where(launches.is_first, -1, launches["gap_ns"]),
        "gap_cause": dictionary(
            [*launches["gap_causes"], "first"],
            np.where(launches.is_first, len(launches["gap_causes"]), launches["gap_cause_index"]),
        ),
        # A copy moves its bytes on the device's side only: into its memory, or out of it.
        "bytes_read": np.where(launches.kind == "memcpy_d2h", launches["bytes"], launches.of_executable("bytes_read")),
        "bytes_written": np.where(
            launches.kind == "memcpy_h2d", launches["bytes"], launches.of_executable("bytes_written")
        ),
        "flops": launches.of_executable("flops"),
        "shapes": launches.of_executable("shapes"),
        "dtypes": launches.of_executable("dtypes"),
        "bound": launches.of_executable("bound"),
        "module_path": launches.text("modules", "module_index"),
        "source": launches.text("sources", "source_index"),
        "step": launches["step"],
    }
    return _table(tables.EXECUTIONS, columns).filter(pa.array(launches.finished))


#: Runtime events by group, for `event_filters["types"]`.
HARDWARE_EVENTS = frozenset({"nc_exec_running", "cc_running", "cc_exec_barrier", "numerical_err", "hw_notify"})


#: The runtime call that each kind of launch appears as.
_SCHEDULE_CALLS = {"exec": "nrta_execute_schedule", "memcpy_h2d": "dmem_buf_copyin", "memcpy_d2h": "dmem_buf_copyout"}

_EVENT_DEFAULTS = {
    "start_ns": 0,
    "end_ns": 0,
    "thread_id": 0,
    "nc_idx": 0,
    "pcore_idx": -1,
    "execution_id": -1,
    "bytes": 0,
}


def events(
    launches: Launches,
    hosts: Mapping[str, Any],
    physical_cores: Callable[[int], Sequence[int]],
    wanted: Callable[[str], bool] = lambda _name: True,
) -> pa.Table:
    """The `events` table: runtime calls of the host, and one row per physical core and execution.

    Args:
        launches: executions and copies.
        hosts: host intervals that are no launch (compilation, waits), as columns.
        physical_cores: the physical cores of a logical NeuronCore.
        wanted: says by name which events to keep.
    """
    # A lost execution has no row in `executions`; its schedule call happened and points nowhere.
    owner = np.where(launches.finished, launches["execution_id"], -1)
    parts: list[dict[str, Any]] = []
    for kind, name in _SCHEDULE_CALLS.items():
        rows = launches.kind == kind
        parts.append(
            {
                "name": name,
                "source": "neuron_rt",
                "start_ns": launches["schedule_begin_ns"][rows],
                "end_ns": launches["schedule_end_ns"][rows],
                "thread_id": launches["thread_id"][rows],
                "nc_idx": launches["device"][rows],
                "execution_id": owner[rows],
                "bytes": launches["bytes"][rows],
            }
        )
    ran = launches.is_execution & launches.finished
    for core in np.unique(launches["device"][ran]).tolist():
        rows = ran & (launches["device"] == core)
        parts.extend(
            {
                "name": "nc_exec_running",
                "source": "neuron_hw",
                "start_ns": launches["start_ns"][rows],
                "end_ns": launches.end_ns[rows],
                "nc_idx": core,
                "pcore_idx": physical,
                "execution_id": launches["execution_id"][rows],
            }
            for physical in physical_cores(core)
        )
    for number, name in enumerate(hosts["names"]):
        rows = hosts["name_index"] == number
        parts.append(
            {
                "name": name,
                "source": "neuron_rt",
                "start_ns": hosts["begin_ns"][rows],
                "end_ns": hosts["end_ns"][rows],
                "thread_id": hosts["thread_id"][rows],
                "nc_idx": hosts["device"][rows],
            }
        )
    kept = [part for part in parts if len(part["start_ns"]) and wanted(part["name"])]
    lengths = [len(part["start_ns"]) for part in kept]
    index = np.repeat(np.arange(len(kept)), lengths)
    columns: dict[str, Any] = {
        "id": np.arange(len(index)),
        "name": dictionary([part["name"] for part in kept], index),
        "source": dictionary([part["source"] for part in kept], index),
    }
    for column, default in _EVENT_DEFAULTS.items():
        filled = [np.broadcast_to(part.get(column, default), (n,)) for part, n in zip(kept, lengths, strict=True)]
        columns[column] = np.concatenate([np.empty(0, np.int64), *filled])
    return _table(tables.EVENTS, columns)


def ntff(launches: Launches, core: int, programs: Mapping[str, Executable], target: Target) -> Rows:
    """The tables of one NTFF: the timelines of the executables that ran on a core, once each, and when they ran."""
    rows = launches.is_execution & launches.finished & (launches["device"] == core)
    names = [neff for neff in dict.fromkeys(launches.neff[rows].tolist()) if neff in programs]
    found = [programs[neff] for neff in names]
    known = rows & np.isin(launches.neff.astype(str), names)
    used = {
        "programs": _table(
            tables.PROGRAMS,
            {
                "neff": dictionary(names, np.arange(len(names))),
                "name": dictionary([p.name for p in found], np.arange(len(names))),
                "target": dictionary([target.name] * len(names), np.arange(len(names))),
                "duration_ns": [p.program_ns for p in found],
                "estimated_ns": [p.estimated_ns for p in found],
                "instructions": [p.instructions.num_rows for p in found],
                "dma_transfers": [p.dma_transfers.num_rows for p in found],
                "bytes_read": [p.bytes_read for p in found],
                "bytes_written": [p.bytes_written for p in found],
                "flops": [p.flops for p in found],
                "model_flops": [p.model_flops for p in found],
            },
        ),
        "program_executions": _table(
            tables.PROGRAM_EXECUTIONS,
            {
                "execution_id": launches["execution_id"][known],
                "neff": launches.of_executable("neff").filter(pa.array(known)),
                "start_ns": launches["start_ns"][known] + launches["launch_ns"][known],
                "nc_idx": launches["device"][known],
            },
        ),
    }
    told = [_details(p, target, neff) for p, neff in zip(found, names, strict=True)]
    used["hardware"] = _table(tables.HARDWARE, hardware(target))
    for spec, parts in (
        (tables.INSTRUCTIONS, [p.instructions for p in found]),
        (tables.DMA_TRANSFERS, [p.dma_transfers for p in found]),
        *((spec, [one[spec.name] for one in told]) for spec in tables.DETAILS),
    ):
        schema = spec.schema
        conformed = [part.select(schema.names).cast(schema) for part in parts]
        used[spec.name] = pa.concat_tables(conformed).unify_dictionaries() if conformed else schema.empty_table()
    return used


def _details(executable: Executable, target: Target, neff: str) -> Rows:
    """What the program says beside its timeline; nothing, with a warning, where the two don't fit: our mistake."""
    try:
        return details(executable.program, target, executable.instructions, executable.dma_transfers, neff)
    except NeuroncoreError as error:
        warnings.warn(
            f"{executable.name}: its device profile lacks waits and memory; please report: {error}", stacklevel=2
        )
        return {spec.name: spec.schema.empty_table() for spec in tables.DETAILS}


def _table(spec: tables.TableSpec, columns: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in spec.schema], schema=spec.schema)
