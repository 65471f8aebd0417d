"""NTFF files → the device tables of the published schema, laid out at each execution.

A NTFF keeps an executable's timeline once. Here it is repeated at every time the executable ran, until that would be
too many rows; then it is shown at the first execution only, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.formats import container
from neuronscope.formats.container import ProfileFile, Session
from neuronscope.readers import device_series as series
from neuronscope.readers import device_summary as summary
from neuronscope.readers.device_program import DeviceProgram, programs_of
from neuronscope.readers.device_rows import instruction_columns, transfer_columns
from neuronscope.readers.exact import Int64, int64
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.tables import named_table
from neuronscope.readers.trace import Trace
from neuronscope.schema.published import SCHEMA_VERSION

__all__ = ["add_device_tables", "profile_name"]

#: Rows of all executions together; beyond it each executable's first execution only.
_MOST_ROWS = 2_000_000
_MOST_PACKETS = 1_000_000


@dataclass(frozen=True)
class _Run:
    """One execution: which, of what, where, when its program began."""

    execution_id: int
    neff: str
    core: int
    start_ns: int


def profile_name(neff: str, core: int) -> str:
    """Name of the device profile of an executable on a logical NeuronCore; that of its NEFF file."""
    return f"neff_{neff}_vnc_{core}"


def add_device_tables(
    trace: Trace, files: Sequence[ProfileFile], cores: Sequence[int], session: Session | None, name: str
) -> None:
    """Fill `trace.tables` and `trace.facts` from some NTFF files.

    Args:
        trace: its `executions`, where known, say which core ran what in files of version 1.
        files: decoded NTFFs.
        cores: the logical NeuronCore each file is of.
        session: what made the profile.
        name: of the profile.
    """
    programs = {program.neff: program for program in programs_of(list(files))}
    if not programs:
        return
    runs = _runs(trace, files, cores)
    drawn = _drawn(trace, programs, runs)
    tables = trace.tables
    _lay_out(tables, programs, drawn)
    _call_sites(trace)
    for program in programs.values():
        for key in ("name", "instructions", "dma_transfers", "duration_ns"):
            trace.facts[f"program.{program.neff}.{key}"] = str(program.facts[key])
    _execution_info(tables, programs, runs)
    _profiles(trace, programs, runs, session)
    packets = sum(int(p.ints("transfers", "engines").sum()) for run in drawn if (p := programs.get(run.neff)))
    if packets <= _MOST_PACKETS:
        _packets(tables, programs, drawn)
    else:
        text = f"{packets:,} DMA packets are not listed one by one; DmaPacketAggregated has their transfers"
        trace.report.append(IngestWarning("dma_packets", packets, -1, "*.ntff", "summed up", text))
    _metadata(trace, programs, runs, session, name)
    for file in files:
        if file.tables["hardware"].num_rows:
            tables["Hardware"] = named_table("Hardware", {c: file.tables["hardware"][c] for c in _HARDWARE_COLUMNS})
            break


def _runs(trace: Trace, files: Sequence[ProfileFile], cores: Sequence[int]) -> list[_Run]:
    known: dict[int, int] = {}
    if trace.executions is not None:
        identities, places = (trace.executions[column].to_pylist() for column in ("execution_id", "nc_idx"))
        known = dict(zip(identities, places, strict=True))
    runs: dict[int, _Run] = {}
    for file, core in zip(files, cores, strict=True):
        table = file.tables["program_executions"]
        columns = (table[column].to_pylist() for column in ("execution_id", "neff", "nc_idx", "start_ns"))
        for identity, neff, place, start in zip(*columns, strict=True):
            where = place if place >= 0 else known.get(identity, core)
            runs.setdefault(identity, _Run(identity, neff, where, start))
    return sorted(runs.values(), key=lambda run: (run.start_ns, run.execution_id))


def _drawn(trace: Trace, programs: Mapping[str, DeviceProgram], runs: list[_Run]) -> list[_Run]:
    sizes = {
        neff: sum(table.num_rows for table in (p.instructions, p.transfers, p.waits, p.allocations))
        for neff, p in programs.items()
    }
    runs = [run for run in runs if run.neff in programs]
    if sum(sizes[run.neff] for run in runs) <= _MOST_ROWS:
        return runs
    first = list({run.neff: run for run in reversed(runs)}.values())
    text = "instructions and DMA of each NEFF's first execution only; all others are the same"
    if len(first) == len(runs):
        return runs
    trace.report.append(IngestWarning("device_rows_once", len(runs) - len(first), -1, "*.ntff", "summed up", text))
    return sorted(first, key=lambda run: (run.start_ns, run.execution_id))


@dataclass(frozen=True)
class _Layout:
    """Where each drawn run's rows of one kind of table begin; `bases` are the ids of its first rows, by table."""

    runs: list[_Run]
    bases: Mapping[str, Int64]

    def table(
        self,
        name: str,
        columns_of: Mapping[str, Mapping[str, Any]],
        times: Sequence[str],
        ids: Mapping[str, Callable[[Mapping[str, Any]], Any] | str],
        constants: Mapping[str, Any],
    ) -> pa.Table | None:
        """A table of all runs from columns per executable; None when there are no rows.

        Args:
            name: of the table.
            columns_of: columns per NEFF, of equal names, times relative to the program.
            times: columns to shift by each run's start.
            ids: columns of row numbers → the table whose rows they number, or what says so per row.
            constants: values of whole columns; None is null.
        """
        full = {neff: columns for neff, columns in columns_of.items() if columns and _length(columns)}
        runs = [(number, run) for number, run in enumerate(self.runs) if run.neff in full]
        if not runs:
            return None
        places: dict[str, tuple[int, int]] = {}
        begin = 0
        for neff, columns in full.items():
            places[neff] = (begin, _length(columns))
            begin += _length(columns)
        index = np.concatenate([np.arange(places[run.neff][0], sum(places[run.neff])) for _, run in runs])
        counts = [places[run.neff][1] for _, run in runs]
        starts = np.repeat([run.start_ns for _, run in runs], counts)
        result: dict[str, Any] = dict(constants)
        for column in next(iter(full.values())):
            parts = [columns[column] for columns in full.values()]
            if isinstance(parts[0], pa.ChunkedArray | pa.Array):
                joined = pa.chunked_array([chunk for part in parts for chunk in _chunks(part)]).unify_dictionaries()
                result[column] = joined.combine_chunks().take(pa.array(index))
                continue
            values = np.concatenate([np.asarray(part) for part in parts])[index]
            if column in times:
                values = values + starts
            if column in ids:
                kind = ids[column]
                which = self.bases[kind] if isinstance(kind, str) else None
                if which is not None:
                    values = values + np.repeat([which[number] for number, _ in runs], counts)
                else:
                    assert callable(kind)
                    tables = np.concatenate([np.asarray(kind(columns)) for columns in full.values()])[index]
                    for other, bases in self.bases.items():
                        values = values + np.where(
                            tables == other, np.repeat([bases[number] for number, _ in runs], counts), 0
                        )
            result[column] = values
        names = [profile_name(run.neff, run.core) for _, run in runs]
        result["device_profile_name"] = _repeated(names, counts)
        result["execution_id"] = np.repeat([run.execution_id for _, run in runs], counts)
        result["pcore_idx"] = np.zeros(len(index), np.int64)
        return named_table(name, result)


def _chunks(part: Any) -> list[pa.Array]:
    return part.chunks if isinstance(part, pa.ChunkedArray) else [part]


def _length(columns: Mapping[str, Any]) -> int:
    return len(next(iter(columns.values())))


def _repeated(values: list[str], counts: list[int]) -> pa.DictionaryArray:
    distinct = {value: number for number, value in enumerate(dict.fromkeys(values))}
    codes = np.repeat(np.array([distinct[value] for value in values], np.int32), counts)
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(distinct)))


def _lay_out(tables: dict[str, pa.Table], programs: Mapping[str, DeviceProgram], runs: list[_Run]) -> None:
    def bases(count: Callable[[DeviceProgram], int]) -> Int64:
        sizes = np.array([count(programs[run.neff]) for run in runs], np.int64)
        return np.cumsum(sizes) - sizes

    layout = _Layout(
        runs,
        {
            "Instruction": bases(lambda p: p.instructions.num_rows),
            "DmaPacketAggregated": bases(lambda p: p.transfers.num_rows),
        },
    )
    # One table after the other: their columns together would be several times the memory.
    semaphores = {neff: series.Semaphores.of(program) for neff, program in programs.items()}
    arrows = {neff: series.flows(program, semaphores[neff]) for neff, program in programs.items()}
    made: dict[str, Callable[[DeviceProgram], Mapping[str, Any]]] = {
        "Flow": lambda program: arrows[program.neff][0],
        "Instruction": lambda program: instruction_columns(program, arrows[program.neff][1]),
        "DmaPacketAggregated": transfer_columns,
        "ActiveTime": series.active_time,
        "SemaphoreUpdate": lambda program: series.semaphore_updates(program, semaphores[program.neff]),
        "SbufAllocation": series.allocations,
        "SbufUsage": series.sbuf_usage,
        "PsumUsage": series.psum_usage,
        "HbmUsage": series.hbm_usage,
        "DmaUsage": series.dma_usage,
        "PendingDma": series.pending_dma,
    }
    times = ("start_ts", "end_ts", "timestamp", "trigger", "completion")
    for name, columns in made.items():
        ids: dict[str, Any] = {}
        if name in layout.bases:
            ids["id"] = name
        elif name == "Flow":
            ids = {"in_id": lambda columns: columns["in_table"], "out_id": lambda columns: columns["out_table"]}
        table = layout.table(name, {neff: columns(program) for neff, program in programs.items()}, times, ids, {})
        if table is not None:
            order = next((column for column in ("start_ts", "timestamp") if column in table.column_names), None)
            tables[name] = table.sort_by(order) if order else table


def _call_sites(trace: Trace) -> None:
    """Source line of instructions that have none of their own: the line that launched the execution.

    One eager executable serves many call sites, so the line is the execution's; a compiled graph's is its own.
    """
    instructions, executions = trace.tables.get("Instruction"), trace.executions
    if instructions is None or executions is None or not executions.num_rows:
        return
    own = instructions["bir_debug_info_source_location"].cast(pa.string())
    places = executions["source"].cast(pa.string()).combine_chunks()
    row = pc.index_in(instructions["execution_id"], executions["execution_id"].combine_chunks())
    launched = places.take(row.combine_chunks())
    empty = pc.equal(own, "").combine_chunks()
    filled = pc.if_else(empty, launched, own.combine_chunks())
    filled = pc.if_else(pc.equal(filled, ""), pa.scalar(None, pa.string()), filled)
    position = instructions.schema.get_field_index("bir_debug_info_source_location")
    field = pa.field("bir_debug_info_source_location", pa.dictionary(pa.int32(), pa.string()))
    trace.tables["Instruction"] = instructions.set_column(position, field, filled.dictionary_encode())


def _packets(tables: dict[str, pa.Table], programs: Mapping[str, DeviceProgram], runs: list[_Run]) -> None:
    sizes = np.array([programs[run.neff].transfers.num_rows for run in runs], np.int64)
    layout = _Layout(runs, {"DmaPacketAggregated": np.cumsum(sizes) - sizes})
    columns_of = {neff: series.dma_packets(program) for neff, program in programs.items()}
    table = layout.table(
        "DmaPacket",
        columns_of,
        ("start_ts", "end_ts"),
        {"packet_aggregation_id": "DmaPacketAggregated"},
        {"id": None, "crc": None},
    )
    if table is not None:
        table = table.sort_by([("start_ts", "ascending"), ("packet_aggregation_id", "ascending")])
        position = table.schema.get_field_index("id")
        tables["DmaPacket"] = table.set_column(position, "id", pa.array(np.arange(table.num_rows), pa.int64()))
    names: dict[str, dict[str, Any]] = {}
    for program in programs.values():
        queue = zip(
            *(program.transfers[column].to_pylist() for column in ("queue", "queue_type", "queue_idx")), strict=True
        )
        for name, kind, number in queue:
            names.setdefault(name, {"name": name, "type": kind, "idx": number})
    if names:
        columns: dict[str, Any] = {key: [row[key] for row in names.values()] for key in ("name", "type", "idx")}
        unknown = dict.fromkeys(("engine_idx", "axi_port", "dram_channel"))
        tables["DmaQueuesInfo"] = named_table("DmaQueuesInfo", {**columns, "pcore_idx": [0] * len(names), **unknown})


def _execution_info(tables: dict[str, pa.Table], programs: Mapping[str, DeviceProgram], runs: list[_Run]) -> None:
    lengths = [programs[run.neff].duration_ns if run.neff in programs else 0 for run in runs]
    tables["ExecutionInfo"] = named_table(
        "ExecutionInfo",
        {
            "execution_index": np.arange(len(runs), dtype=np.int32),
            "neff_name": [run.neff for run in runs],
            "execution_start_ts": [run.start_ns for run in runs],
            "execution_end_ts": [run.start_ns + length for run, length in zip(runs, lengths, strict=True)],
            "num_subgraphs": np.ones(len(runs), np.int32),
            "row_count": [programs[run.neff].instructions.num_rows if run.neff in programs else 0 for run in runs],
            "device_profile_name": [profile_name(run.neff, run.core) for run in runs],
            "execution_id": [run.execution_id for run in runs],
        },
    )


def _profiles(trace: Trace, programs: Mapping[str, DeviceProgram], runs: list[_Run], session: Session | None) -> None:
    """Names of the device profiles, and one summary of each."""
    counts: dict[tuple[str, int], int] = {}
    for run in runs:
        counts[run.neff, run.core] = counts.get((run.neff, run.core), 0) + 1
    places = [(neff, core) for neff, core in counts if neff in programs]
    places += [(neff, 0) for neff in programs if neff not in {neff for neff, _ in places}]
    places.sort(key=lambda place: (list(programs).index(place[0]), place[1]) if len(places) < 1000 else place)
    trace.tables["DeviceProfileList"] = _table(
        "DeviceProfileList",
        [
            {
                "device_profile_name": profile_name(neff, core),
                "instance_id": trace.instance,
                "process_id": session.process_id if session else 0,
                "nc_id": core,
                "session_id": session.session_id if session else None,
                "model_id": int64(neff),
            }
            for neff, core in places
        ],
    )
    rows = {neff: summary.summary_row(program) for neff, program in programs.items()}
    made: dict[str, Callable[[str, int], list[dict[str, Any]]]] = {
        "Summary": lambda neff, core: [{**rows[neff], "nc_idx": core, "execution_count": counts.get((neff, core), 0)}],
        "OpcodeSummary": lambda neff, _: summary.opcode_rows(programs[neff]),
        "TensorInfo": lambda neff, _: summary.tensor_rows(programs[neff]),
    }
    for name, of in made.items():
        listed = [
            {**row, "device_profile_name": profile_name(neff, core)} for neff, core in places for row in of(neff, core)
        ]
        if listed:
            trace.tables[name] = _table(name, listed)


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    names = dict.fromkeys(key for row in rows for key in row)
    return named_table(name, {key: [row.get(key) for row in rows] for key in names})


def _metadata(
    trace: Trace,
    programs: Mapping[str, DeviceProgram],
    runs: list[_Run],
    session: Session | None,
    name: str,
) -> None:
    starts = [run.start_ns for run in runs]
    ends = [run.start_ns + programs[run.neff].duration_ns for run in runs if run.neff in programs]
    first, last = (min(starts), max(ends)) if starts and ends else (0, 0)
    hardware = next((dict(p.hardware) for p in programs.values() if p.hardware), {})
    values: dict[str, Any] = {
        **dict.fromkeys(_HARDWARE),
        **summary.hardware_row(hardware),
        "profile_schema_version": SCHEMA_VERSION,
        "ntff_version": container.VERSION,
        "num_physical_cores": session.lnc if session else 1,
        "vnc_enabled": bool(session and session.lnc > 1),
        "first_hw_timestamp": first,
        "last_hw_timestamp": last,
        "first_ts": str(first),
        "last_ts": str(last),
        "ticks_per_nanosec": 1,
        "instance_type": session.target if session else None,
        "explorer_version": session.producer_version if session else None,
        "compiler_version": session.model_version if session else None,
        "profile_name": name,
        "is_simulation": bool(session and session.emulated),
    }
    trace.tables["Metadata"] = named_table(
        "Metadata", {key: None if value is None else [value] for key, value in values.items()}
    )


_HARDWARE_COLUMNS = ("name", "value", "status")
_HARDWARE = (
    "dma_ddr_bandwidth", "num_dma_engines_per_neuroncore", "hbm_ddr_bandwidth", "tensor_engine_num_rows",
    "tensor_engine_num_cols", "tensor_engine_clock_freq", "vector_engine_clock_freq", "vector_engine_num_channels",
    "scalar_engine_clock_freq", "scalar_engine_num_channels", "gpsimd_engine_clock_freq", "gpsimd_engine_num_channels",
    "neuroncore_clock_freq",
)  # fmt: skip
