"""Profiles built in memory for the tests of analysis, server and command line: small, exact, no reader involved."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from neuronscope.analysis.library import open_profile
from neuronscope.analysis.profile import Profile
from neuronscope.schema import own

ORIGIN = 1_759_000_000_000_000_000


@dataclass
class Work:
    """One execution: operator, launch cost and program time in ns, idle time before it, traffic."""

    op: str
    launch: int = 385_000
    program: int = 3_000
    gap: int = 13_000
    cause: str = "execution_gap"
    read: int = 8192
    written: int = 4096
    flops: int = 2048
    estimated: int = 0
    kind: str = "exec"
    step: int = 3


RMSNORM = [
    Work("aten::mul"),
    Work("aten::mean"),
    Work("aten::add"),
    Work("aten::rsqrt"),
    Work("aten::mul"),
    Work("aten::mul"),
]


def build(
    works: Sequence[Work], *, lnc: int = 2, split: bool = True, info: dict[str, str] | None = None
) -> dict[str, pa.Table]:
    """Tables of a profile in which `works` run one after another on one device, each launched by one operator call."""
    rows: dict[str, list[dict[str, Any]]] = {spec.name: [] for spec in own.OWN_TABLES}
    rows["SystemProfileEvents"] = []
    names: dict[str, int] = {}

    def name_id(name: str) -> int:
        return names.setdefault(name, len(names))

    tracks = [
        "framework/TID:0",
        "framework/Stream:0",
        "neuron_rt/NC:0",
        *(f"neuron_hw/NC0:{4 + core}" for core in range(lnc)),
    ]
    kinds = ["framework", "stream", "runtime"] + ["device"] * lnc
    for index, (short, kind) in enumerate(zip(tracks, kinds, strict=True)):
        rows["Track"].append(
            {
                "track_id": index,
                "label": f"i-emulated/PID:1/{short}",
                "short": short,
                "group_label": "i-emulated/PID:1",
                "kind": kind,
                "subtitle": kind,
                "provenance": "emulated" if kind == "device" else "measured",
                "lanes": 1,
                "physical_core": index - 3 if kind == "device" else -1,
            }
        )
    next_id = 1
    slices = []

    def event(
        track: int, name: str, op: str, start: int, end: int, flow: int, launch: int = 0, estimated: bool = False
    ) -> int:
        nonlocal next_id
        identity, next_id = next_id, next_id + 1
        rows["SystemProfileEvents"].append(
            {
                "id": identity,
                "name": name,
                "start_ts": start,
                "end_ts": end,
                "duration_ns": end - start,
                "trace_event_source": ("framework", "framework", "neuron_rt")[track] if track < 3 else "neuron_hw",
                "instance_id": "i-emulated",
                "process_id": 1,
                "thread_id": 7,
                "nc_idx": 0,
                "pcore_idx": track - 3 if track > 2 else None,
                "flow_id": [str(flow)],
                "framework_stream_id": "0" if track == 1 else None,
                "extra_attributes_json": json.dumps({"correlation": flow}),
            }
        )
        slices.append(
            {
                "event_id": identity,
                "track_id": track,
                "lane": 0,
                "start_ts": start,
                "end_ts": end,
                "name_id": name_id(name),
                "op_id": name_id(op),
                "launch_ns": launch,
                "estimated": estimated,
            }
        )
        return identity

    clock = ORIGIN + 40_000
    previous: list[int] = []
    for index, work in enumerate(works):
        flow = 101 + index
        host = ORIGIN + index * 30_000
        op_event = event(0, work.op, work.op, host, host + 20_000, flow)
        rows["HostOp"].append(
            {
                "event_id": op_event,
                "parent_id": -1,
                "name": work.op,
                "thread_id": 7,
                "start_ts": host,
                "end_ts": host + 20_000,
                "self_cpu_ns": 20_000,
                "external_id": flow,
                "step": work.step,
            }
        )
        start = clock + (work.gap if index else 0)
        end = start + work.launch + work.program
        event(1, "privateuse1_driver", work.op, host + 8_000, end, flow)
        event(2, "nrta_execute_schedule", work.op, host + 10_000, host + 16_000, flow)
        hardware = [
            event(
                3 + core, "nc_exec_running", work.op, start, end, flow, work.launch if split else 0, work.estimated > 0
            )
            for core in range(lnc)
        ]
        rows["Execution"].append(
            {
                "execution_id": flow,
                "event_id": hardware[0],
                "op_event_id": op_event,
                "kind": work.kind,
                "name": work.op,
                "op": work.op,
                "overload": f"{work.op}.Tensor",
                "neff": str(hash_of(work)),
                "device": 0,
                "stream_id": 0,
                "process_id": 1,
                "correlation": flow,
                "launch_ts": host + 5_000,
                "enqueue_ts": host + 12_000,
                "start_ts": start,
                "end_ts": end,
                "duration_ns": end - start,
                "launch_ns": work.launch if split else -1,
                "program_ns": work.program if split else -1,
                "estimated_ns": work.estimated,
                "gap_ns": work.gap if index else -1,
                "gap_cause": work.cause if index else "first",
                "bytes_read": work.read,
                "bytes_written": work.written,
                "flops": work.flops,
                "shapes": "[4,512] x [512]",
                "dtypes": "bf16 x bf16",
                "module_path": "",
                "source": "naive.py:17",
                "step": work.step,
                "physical_cores": lnc,
                "provenance": "simulated" if split else "recorded",
            }
        )
        if previous and work.gap:
            rows["Gap"].extend(
                {
                    "gap_id": index * 10 + core,
                    "track_id": 3 + core,
                    "start_ts": clock,
                    "end_ts": start,
                    "cause": work.cause,
                    "text": f"{work.gap / 1000:.0f} us idle: {work.cause}",
                    "previous_event_id": before,
                    "next_event_id": after,
                }
                for core, (before, after) in enumerate(zip(previous, hardware, strict=True))
            )
        clock, previous = end, hardware
    for number in sorted({work.step for work in works}):
        mine = [r for r in rows["Execution"] if r["step"] == number]
        ops = [r for r in rows["HostOp"] if r["step"] == number]
        rows["Step"].append(
            {
                "number": number,
                "name": f"ProfilerStep#{number}",
                "start_ts": min(r["start_ts"] for r in ops),
                "end_ts": max(r["end_ts"] for r in mine),
                "complete": True,
            }
        )
    rows["Slice"] = sorted(slices, key=lambda r: (r["track_id"], r["lane"], r["start_ts"]))
    rows["Name"] = [{"name_id": identity, "name": name} for name, identity in names.items()]
    facts = {
        "format": "neuronscope session",
        "path": "build/demo",
        "label": "emulated · trn2",
        "emulated": "true",
        "target": "trn2",
        "model_version": "0.1",
        "dropped": "0",
        "lnc": str(lnc),
        "device_cost_status.launch_cost": "calibrated",
        **(info or {}),
    }
    rows["ProfileInfo"] = [{"key": key, "value": value} for key, value in facts.items()]
    rows["IngestReport"] = [
        {
            "kind": "stored",
            "count": len(slices),
            "offset": -1,
            "file": "ntrace.pb",
            "action": "stored",
            "message": f"{len(slices)} events stored",
        }
    ]
    tables = {
        spec.name: pa.Table.from_pylist([{**_defaults(spec), **row} for row in rows[spec.name]], schema=spec.schema)
        for spec in own.OWN_TABLES
        if rows[spec.name]
    }
    tables["SystemProfileEvents"] = pa.Table.from_pylist(rows["SystemProfileEvents"])
    return tables


def _defaults(spec: Any) -> dict[str, Any]:
    """-1 or nothing for the columns that these profiles say nothing about."""
    values = {"string": "", "bool": False}
    return {column.name: values.get(column.type, -1) for column in spec.columns}


def hash_of(work: Work) -> int:
    """A stand-in for the executable's content hash: equal work, equal hash."""
    return sum(map(ord, work.op)) * 1_000_003 + work.program


def write(tables: dict[str, pa.Table], directory: Path) -> Path:
    """Store the tables as the Parquet files of a profile folder."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, directory / f"{name}.parquet")
    return directory


@pytest.fixture(scope="session")
def works() -> type[Work]:
    """The class that describes one execution of a built profile."""
    return Work


@pytest.fixture(scope="session")
def rmsnorm() -> list[Work]:
    """The walk-through's six executions."""
    return RMSNORM


@pytest.fixture(scope="session")
def build_tables() -> Callable[..., dict[str, pa.Table]]:
    """Builds a profile's tables from a list of executions."""
    return build


@pytest.fixture(scope="session")
def write_tables() -> Callable[[dict[str, pa.Table], Path], Path]:
    """Writes built tables as Parquet."""
    return write


JOB_RANKS = 3
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"


def _x(cat: str, name: str, ts: float, dur: float, pid: int = 100, tid: int = 100, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _rank_events(rank: int) -> list[dict[str, Any]]:
    """Three steps of a matmul and an all-reduce; the last rank is 300 us late, clocks are 50 us apart."""
    events: list[dict[str, Any]] = []
    ahead = 50 * rank
    for step in range(3):
        at, first = 1_000 + 3_000 * step + ahead, 10 * step + 1
        busy = 1_000 + (300 if rank == JOB_RANKS - 1 else 0) + rank
        events += [
            _x("user_annotation", f"ProfilerStep#{step + 1}", at, 2_500),
            _x("cpu_op", "aten::linear", at + 8, 40, **{"External id": first}),
            _x("cpu_op", "aten::mm", at + 10, 30, **{"External id": first + 1}),
            _x("cuda_runtime", "cudaLaunchKernel", at + 15, 5, correlation=first),
            _x("kernel", "gemm", at + 30, busy, 0, 7, device=0, stream=7, correlation=first),
            _x("cpu_op", "c10d::allreduce_", at + 50, 30, **{"External id": first + 2}),
            _x("cuda_runtime", "cudaLaunchKernel", at + 55, 5, correlation=first + 2),
            _x("kernel", NCCL, at + 32 + busy, 1_600 - busy, 0, 20, device=0, stream=20, correlation=first + 2),
        ]
        args = {"Bytes": 4096, "Addr": 7 + step, "Device Type": 1, "Device Id": 0, "Total Allocated": 4096 * (step + 1)}
        events.append({"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 100,
                       "ts": at + 20, "args": args})  # fmt: skip
    return events


@pytest.fixture(scope="session")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a distributed job of three ranks."""
    folder = tmp_path_factory.mktemp("job")
    for rank in range(JOB_RANKS):
        head = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": JOB_RANKS}}
        (folder / f"rank{rank}.json").write_text(json.dumps(head | {"traceEvents": _rank_events(rank)}))
    return folder


@pytest.fixture(scope="session")
def job(job_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """The same as a profile."""
    return open_profile(job_folder, data_path=tmp_path_factory.mktemp("library"))
