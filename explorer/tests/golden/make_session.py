"""Write the golden session: a naive RMSNorm on an emulated trn2 as the emulator captures it, with hand-chosen numbers.

Run it after a change of a file format: ``python explorer/tests/golden/make_session.py``. Same script, same bytes.

Six operators (mul, mean, add, rsqrt, mul, mul) in ProfilerStep#3 on logical core 0 of two physical cores (LNC 2), and
the copy of the scalar for `add`. Launch cost 385 us each; programs of 2,800 … 3,900 ns; the third is half estimated.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuronscope.formats import container, neff

ROOT = Path(__file__).parent / "session"
INSTANCE, PID, TID, STAMP = "i-emulated00c0ffee", 4121, 4121, "20260928_120000_000000"
BASE_NS = 1_790_000_000_000_000_000
ORIGIN_NS = BASE_NS + 1_000_000_123  # the step's start; not a whole microsecond
LAUNCH_NS, LATENCY_NS, GAP_NS, COPY_NS = 385_000, 12_000, 11_500, 2_000
DEVICE_COSTS: dict[str, Any] = {
    "device_cost_ns": {"launch_cost": LAUNCH_NS, "launch_latency": LATENCY_NS, "execution_gap": GAP_NS},
    "device_cost_status": {"launch_cost": "calibrated", "launch_latency": "estimated", "execution_gap": "measured"},
}
CORRELATION = 1 << 30
COPY_BEFORE = 2  # the call whose scalar is copied to the device first


@dataclass(frozen=True)
class Call:
    """One operator call: what it is and how long its program takes."""

    op: str
    overload: str
    program_ns: int
    shapes: str
    dtypes: str
    read: int
    written: int
    flops: int
    source: str
    estimated_ns: int = 0
    cpu_ns: int = 20_000


CALLS = (
    Call("aten::mul", "aten::mul.Tensor", 3_100, "[4,512] x [4,512]", "bf16 x bf16", 8192, 4096, 2048, "naive.py:17"),
    Call("aten::mean", "aten::mean.dim", 3_900, "[4,512]", "bf16", 4096, 8, 2048, "naive.py:17"),
    Call("aten::add", "aten::add.Scalar", 2_800, "[4,1]", "bf16", 8, 8, 4, "naive.py:18", 1_400, 26_600),
    Call("aten::rsqrt", "aten::rsqrt", 2_900, "[4,1]", "bf16", 8, 8, 4, "naive.py:18", 0, 15_600),
    Call("aten::mul", "aten::mul.Tensor", 3_200, "[4,512] x [4,1]", "bf16 x bf16", 4104, 4096, 2048, "naive.py:18"),
    Call("aten::mul", "aten::mul.Tensor", 3_100, "[4,512] x [512]", "bf16 x bf16", 5120, 4096, 2048, "naive.py:18"),
)
CALL_EVERY_NS = 30_000


def programs() -> dict[tuple[str, str], tuple[str, bytes]]:
    """NEFF hash and bytes by (overload, shapes)."""
    found = {}
    for call in CALLS:
        info = {"name": call.overload, "target": "trn2", "compiler_version": "golden"}
        data = neff.pack(info, f"# {call.overload} {call.shapes}\n", [])
        found[call.overload, call.shapes] = (neff.unpack(data).hash, data)
    return found


def session() -> container.Session:
    """What made the profile."""
    return container.Session(
        producer="neuronscope-emulator",
        producer_version="golden",
        emulated=True,
        model_version="golden",
        target="trn2",
        target_hash="0123456789abcdef",
        instance_id=INSTANCE,
        process_id=PID,
        session_id=7,
        lnc=2,
        modes=("DEVICE", "RUNTIME", "CPU_UTIL", "HOST_MEMORY"),
        start_ns=ORIGIN_NS - 100_000,
        stop_ns=ORIGIN_NS + 3_000_000,
        dropped_events={},
        **DEVICE_COSTS,
    )


def timeline() -> list[dict[str, int]]:
    """Host and device times of every call, in ns."""
    rows: list[dict[str, int]] = []
    previous = 0  # end of the device's last work
    for index, call in enumerate(CALLS):
        begin = ORIGIN_NS + 10_000 + index * CALL_EVERY_NS
        enqueue = begin + 9_000
        if index == COPY_BEFORE:
            previous += GAP_NS + COPY_NS
        start = max(enqueue + LATENCY_NS, previous + GAP_NS if previous else 0)
        end = start + LAUNCH_NS + call.program_ns
        rows.append(
            {
                "begin": begin,
                "enqueue": enqueue,
                "start": start,
                "end": end,
                "gap": start - previous if previous else -1,
                "copy_end": previous,
                "id": 101 + index,
                "external": 11 + index,
            }
        )
        previous = end
    return rows


def us(ns: int) -> str:
    """Microseconds since the base, exact, as the framework writes them."""
    return f"{(ns - BASE_NS) // 1000}.{(ns - BASE_NS) % 1000:03d}"


def duration(ns: int) -> str:
    """A duration in microseconds, exact."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def trace_rows() -> list[str]:
    """Rows of trace.json."""
    hashes = programs()
    rows: list[str] = []

    def row(category: str, name: str, pid: int, tid: int, start: int, length: int, args: dict[str, Any]) -> None:
        rows.append(
            f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
            f'    "ts": {us(start)}, "dur": {duration(length)},\n    "args": {json.dumps(args)}\n  }}'
        )

    def arrow(phase: str, number: int, pid: int, tid: int, at: int) -> None:
        end = ', "bp": "e"' if phase == "f" else ""
        rows.append(
            f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {us(at)},\n'
            f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
        )

    last = timeline()[-1]
    row("user_annotation", "ProfilerStep#3", PID, TID, ORIGIN_NS, last["end"] + 20_000 - ORIGIN_NS, {"External id": 10})
    for call, when in zip(CALLS, timeline(), strict=True):
        common = {
            "correlation": CORRELATION + when["id"],
            "device": 0,
            "stream": 0,
            "execution_id": when["id"],
            "neff": hashes[call.overload, call.shapes][0],
            "shapes": call.shapes,
            "dtypes": call.dtypes,
            "launch_ns": LAUNCH_NS,
            "program_ns": call.program_ns,
            "estimated_ns": call.estimated_ns,
            "source": call.source,
            "step": 3,
            "External id": when["external"],
        }
        row("cpu_op", call.op, PID, TID, when["begin"], call.cpu_ns, {"External id": when["external"]})
        row("privateuse1_runtime", call.overload, PID, TID, when["begin"] + 2_000, 12_000, common)
        arrow("s", CORRELATION + when["id"], PID, TID, when["begin"] + 2_000)
        row("privateuse1_driver", call.overload, 0, 0, when["enqueue"], when["end"] - when["enqueue"], common)
        name = f"nc_exec_running {call.overload}"
        row("kernel", name, 0, 1 << 20, when["start"], when["end"] - when["start"], common)
        arrow("f", CORRELATION + when["id"], 0, 1 << 20, when["start"])
    copied = timeline()[COPY_BEFORE]
    copy = {
        "correlation": CORRELATION + 90,
        "device": 0,
        "stream": 0,
        "execution_id": 90,
        "bytes": 2,
        "External id": 13,
    }
    row("privateuse1_runtime", "dmem_buf_copyin", PID, TID, copied["begin"] + 500, 1_000, copy)
    start = ORIGIN_NS - 100_000
    rows.append(
        f'  {{\n    "ph": "X", "cat": "gpu_user_annotation", "name": "neuron capture", "pid": 0, "tid": {1 << 20},\n'
        f'    "ts": {us(start)}, "dur": 0.000,\n    "args": {{}}\n  }}'
    )
    for pid, name in ((0, "NeuronCore 0 (emulated)"), (PID, "python")):
        rows.append(
            f'  {{\n    "ph": "M", "name": "process_name", "pid": {pid}, "tid": 0, "ts": {us(start)},\n'
            f'    "args": {{"name": "{name}"}}\n  }}'
        )
    rows.append(
        f'  {{\n    "ph": "X", "cat": "Trace", "ts": {us(start)}, "dur": {duration(3_100_000)}, "pid": "Spans",\n'
        f'    "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {{"Op count": 0}}\n  }}'
    )
    return rows


def trace_json() -> str:
    """The framework's trace."""
    origin = {
        "emulated": True,
        "producer_version": "golden",
        "model_version": "golden",
        "target": "trn2",
        "target_hash": "0123456789abcdef",
        "instance_id": INSTANCE,
        "session_id": 7,
        "lnc": 2,
        "modes": ["DEVICE", "RUNTIME", "CPU_UTIL", "HOST_MEMORY"],
        **DEVICE_COSTS,
    }
    return (
        '{\n  "schemaVersion": 1,\n  "deviceProperties": [],\n  "neuronscope": '
        + json.dumps(origin)
        + ',\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": '
        + str(BASE_NS)
        + ',\n  "traceEvents": [\n'
        + ",\n".join(trace_rows())
        + '\n  ],\n  "traceName": "trace.json"\n}\n'
    )


def executions() -> dict[str, list[Any]]:
    """Table `executions` of ntrace.pb."""
    hashes = programs()
    rows = []
    for index, (call, when) in enumerate(zip(CALLS, timeline(), strict=True)):
        rows.append(
            {
                "execution_id": when["id"],
                "kind": "exec",
                "op": call.op,
                "overload": call.overload,
                "neff": hashes[call.overload, call.shapes][0],
                "nc_idx": 0,
                "stream_id": 0,
                "thread_id": TID,
                "correlation": CORRELATION + when["id"],
                "external_id": when["external"],
                "enqueue_ns": when["enqueue"],
                "start_ns": when["start"],
                "end_ns": when["end"],
                "launch_ns": LAUNCH_NS,
                "program_ns": call.program_ns,
                "estimated_ns": call.estimated_ns,
                "gap_ns": when["gap"],
                "gap_cause": "execution_gap" if index else "first",
                "bytes_read": call.read,
                "bytes_written": call.written,
                "flops": call.flops,
                "shapes": call.shapes,
                "dtypes": call.dtypes,
                "bound": "",
                "module_path": "norm",
                "source": call.source,
                "step": 3,
            }
        )
    copied = timeline()[COPY_BEFORE]
    rows.append(
        {
            **rows[COPY_BEFORE],
            "execution_id": 90,
            "kind": "memcpy_h2d",
            "op": "",
            "overload": "",
            "neff": "",
            "correlation": CORRELATION + 90,
            "enqueue_ns": copied["begin"] + 1_200,
            "start_ns": copied["copy_end"] - COPY_NS,
            "end_ns": copied["copy_end"],
            "launch_ns": 0,
            "program_ns": COPY_NS,
            "estimated_ns": 0,
            "gap_ns": GAP_NS,
            "gap_cause": "execution_gap",
            "bytes_read": 0,
            "bytes_written": 2,
            "flops": 0,
            "shapes": "",
            "dtypes": "",
        }
    )
    return {name: [row[name] for row in rows] for name in rows[0]}


def events() -> dict[str, list[Any]]:
    """Table `events` of ntrace.pb: schedule call and a row per physical core for each execution, the copy, the wait."""
    rows: list[tuple[str, str, int, int, int, int, int, int]] = []
    for when in timeline():
        rows.append(
            ("nrta_execute_schedule", "neuron_rt", when["begin"] + 8_000, when["begin"] + 9_500, TID, -1, when["id"], 0)
        )
        rows.extend(
            ("nc_exec_running", "neuron_hw", when["start"], when["end"], 0, core, when["id"], 0) for core in (4, 5)
        )
    copied = timeline()[COPY_BEFORE]["begin"]
    rows.append(("dmem_buf_copyin", "neuron_rt", copied + 600, copied + 1_300, TID, -1, 90, 2))
    end = timeline()[-1]["end"]
    rows.append(("nrt_synchronize", "neuron_rt", ORIGIN_NS + 210_000, end, TID, -1, -1, 0))
    columns = ("name", "source", "start_ns", "end_ns", "thread_id", "pcore_idx", "execution_id", "bytes")
    table: dict[str, list[Any]] = {name: [row[i] for row in rows] for i, name in enumerate(columns)}
    return {**table, "id": list(range(len(rows))), "nc_idx": [0] * len(rows)}


def ntff() -> dict[str, dict[str, list[Any]]]:
    """Tables of the NTFF: each program loads, computes on the Vector engine and stores."""
    hashes = programs()
    programs_: list[dict[str, Any]] = []
    instructions: list[dict[str, Any]] = []
    transfers: list[dict[str, Any]] = []
    for call in {(c.overload, c.shapes): c for c in CALLS}.values():
        name = hashes[call.overload, call.shapes][0]
        programs_.append(
            {
                "neff": name,
                "name": call.overload,
                "target": "trn2",
                "duration_ns": call.program_ns,
                "estimated_ns": call.estimated_ns,
                "instructions": 1,
                "dma_transfers": 2,
                "bytes_read": call.read,
                "bytes_written": call.written,
                "flops": call.flops,
                "model_flops": 0,
            }
        )
        instructions.append(
            {
                "neff": name,
                "id": 0,
                "engine": "Vector",
                "opcode": "tensor_tensor",
                "operands": "sbuf0 sbuf1 -> sbuf2",
                "pc": 0,
                "offset_ns": 1_500,
                "duration_ns": 300,
                "wait_ns": 1_400,
                "done_offset_ns": 1_800,
                "op": call.op,
                "source": call.source,
                "flops": call.flops,
                "sbuf_read_bytes": call.read,
                "sbuf_write_bytes": call.written,
                "psum_read_bytes": 0,
                "psum_write_bytes": 0,
            }
        )
        for index, (queue, offset, size, source, target) in enumerate(
            (("qLoad", 100, call.read, "HBM", "SBUF"), ("qStore", 1_800, call.written, "SBUF", "HBM"))
        ):
            transfers.append(
                {
                    "neff": name,
                    "id": index,
                    "queue": queue,
                    "queue_idx": index,
                    "engines": 16,
                    "offset_ns": offset,
                    "duration_ns": 1_000,
                    "trigger_offset_ns": offset - 100,
                    "done_offset_ns": offset + 1_000,
                    "bytes": size,
                    "rows": 4,
                    "from_memory": source,
                    "to_memory": target,
                    "variable": f"arg{index}",
                    "queue_type": "input" if index == 0 else "output",
                    "op": call.op,
                }
            )
    runs = [
        {
            "execution_id": when["id"],
            "neff": hashes[call.overload, call.shapes][0],
            "start_ns": when["start"] + LAUNCH_NS,
            "nc_idx": 0,
        }
        for call, when in zip(CALLS, timeline(), strict=True)
    ]
    tables = {
        "programs": programs_,
        "program_executions": runs,
        "instructions": instructions,
        "dma_transfers": transfers,
    }
    return {name: {key: [row[key] for row in rows] for key in rows[0]} for name, rows in tables.items()}


def main(root: Path = ROOT) -> Path:
    """Write the session below `root`, replacing what is there; returns its directory."""
    shutil.rmtree(root, ignore_errors=True)
    directory = root / f"{INSTANCE}_pid_{PID}" / STAMP
    directory.mkdir(parents=True)
    facts = session()
    container.write(directory / "trace_info.pb", "trace_info", facts)
    container.write(directory / "ntrace.pb", "ntrace", facts, {"executions": executions(), "events": events()})
    container.write(directory / "profile_nc_0_session_7.ntff", "ntff", facts, ntff())
    seconds = [ORIGIN_NS, ORIGIN_NS + 1_000_000_000]
    cpu = {"timestamp_ns": seconds, "cpu_id": ["0", "average"], "util_percent": [50.0, 25.0]}
    container.write(directory / "cpu_util.pb", "cpu_util", facts, {"cpu_util": cpu})
    memory = {"timestamp_ns": seconds, "used_bytes": [1 << 30, 1 << 30], "total_bytes": [1 << 34, 1 << 34]}
    container.write(directory / "host_mem.pb", "host_mem", facts, {"host_mem": memory})
    for name, data in programs().values():
        neff.write(directory / f"neff_{name}_vnc_0.neff", data)
    (directory / "trace.json").write_text(trace_json(), encoding="utf-8")
    return directory


if __name__ == "__main__":
    print(main())
