"""Small inputs of every format the readers know, for `fuzz.py`; each a folder or a file below the given folder."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import sys
import zipfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
GOLDEN = TESTS / "golden" / "session"

__all__ = ["EVENTS", "Seed", "chrome_text", "make"]

EVENTS = 40


@dataclass(frozen=True)
class Seed:
    """An input: the format's name, what to open, and the file in it that is damaged (itself, when it is a file)."""

    format: str
    path: Path
    files: tuple[Path, ...]


def chrome_text(indent: int | None = None) -> str:
    """A torch.profiler trace of `EVENTS` events of all phases, whose names differ."""
    events: list[dict[str, Any]] = []
    for i in range(EVENTS // 8):
        at, ids = 100 + 50.125 * i, {"External id": i + 1, "correlation": i + 1}
        host, gpu = {"pid": 9, "tid": 9}, {"pid": 0, "tid": 7}
        device = {"device": 0, "stream": 7, **ids}
        events += [
            {"ph": "X", "cat": "cpu_op", "name": f"aten::op{i}", **host, "ts": at, "dur": 40.5, "args": ids},
            {"ph": "X", "cat": "python_function", "name": f"m{i}.py(1): f", **host, "ts": at, "dur": 42},
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": f"cudaLaunchKernel{i}",
                **host,
                "ts": at + 2,
                "dur": 3,
                "args": ids,
            },
            {"ph": "X", "cat": "kernel", "name": f"kernel<{i}>", **gpu, "ts": at + 9, "dur": 20.25, "args": device},
            {"ph": "s", "cat": "ac2g", "name": f"arrow{i}", "id": i + 1, **host, "ts": at + 2},
            {"ph": "f", "cat": "ac2g", "name": f"arrow{i}", "id": i + 1, **gpu, "ts": at + 9, "bp": "e"},
            {"ph": "b", "cat": "io", "name": f"read{i}", "id": f"0x{i}", **host, "ts": at},
            {"ph": "e", "cat": "io", "name": f"read{i}", "id": f"0x{i}", **host, "ts": at + 30},
        ]
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H100"}], "distributedInfo": {"rank": 0}}
    body = ",\n".join(json.dumps(event, indent=indent) for event in events)
    return f'{json.dumps(head)[:-1]}, "traceEvents": [\n{body}\n], "traceName": "t[0].json"}}'


def make(folder: Path) -> list[Seed]:
    """Write every seed below `folder`, an empty directory."""
    found = [_file(folder, "chrome", "trace.json", chrome_text().encode())]
    found.append(_file(folder, "chrome indented", "indented.json", chrome_text(2).encode()))
    found.append(_file(folder, "gzip", "trace.json.gz", gzip.compress(chrome_text().encode())))
    found += [_zip(folder), *_rocprof(folder), *_neuron_json(folder), _nsys(folder), _rocpd(folder)]
    found += [_session(folder), _pair(folder), _parquet(folder), _ranks(folder), _alike(folder), *_exports(folder)]
    return found


def _file(folder: Path, kind: str, name: str, data: bytes) -> Seed:
    path = folder / name
    path.write_bytes(data)
    return Seed(kind, path, (path,))


def _zip(folder: Path) -> Seed:
    path = folder / "trace.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/trace.json", chrome_text())
    return Seed("zip", path, (path,))


def _alike(folder: Path) -> Seed:
    """Many events of the same few shapes, as a large trace has them: a tokenizer may take one for another."""
    events = []
    for i in range(700):
        ids = {"External id": i, "correlation": i, "Ev Idx": i * 7}
        at = f"{1700000000000 + i * 37}.{i % 1000:03d}"
        events += [
            f'{{"ph": "X", "cat": "cpu_op", "name": "aten::op{i % 9}", "pid": 9, "tid": {9 + i % 2}, "ts": {at}, '
            f'"dur": {i % 50}.125, "args": {json.dumps(ids)}}}',
            f'{{"ph": "X", "cat": "kernel", "name": "k{i % 5}", "pid": 0, "tid": 7, "ts": {at}, "dur": {i % 7}.5, '
            f'"args": {json.dumps({"device": 0, "stream": 7, **ids})}}}',
            f'{{"ph": "s", "id": {i}, "pid": 9, "tid": 9, "ts": {at}, "cat": "ac2g", "name": "ac2g"}}',
            f'{{"ph": "f", "id": {i}, "pid": 0, "tid": 7, "ts": {at}, "cat": "ac2g", "name": "ac2g", "bp": "e"}}',
        ]
    text = '{"schemaVersion": 1, "traceEvents": [' + ",\n".join(events) + '], "traceName": "t"}'
    return _file(folder, "chrome alike", "alike.json", text.encode())


def _exports(folder: Path) -> list[Seed]:
    from neuronscope.analysis.export import export
    from neuronscope.analysis.library import open_profile

    profile = open_profile(folder / "trace.json", data_path=folder / ".library")
    found = []
    for form, name in (("json", "export.json"), ("perfetto", "chrome.json"), ("perfetto", "export.pftrace")):
        export(profile, form, folder / name)
        found.append(Seed(f"export {name}", folder / name, (folder / name,)))
    shutil.rmtree(folder / ".library")
    return found


def _rocprof(folder: Path) -> list[Seed]:
    head = '"Kind","Agent_Id","Queue_Id","Thread_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    rows = "".join(f'"KERNEL_DISPATCH","Agent 4",1,77,"axpy<{i}>",{i},{i * 1000},{i * 1000 + 700}\n' for i in range(30))
    record = {
        "start_timestamp": 10, "end_timestamp": 40, "correlation_id": {"internal": 3}, "thread_id": 9,
        "dispatch_info": {"kernel_id": 2, "agent_id": {"handle": 1}, "queue_id": {"handle": 1}},
    }  # fmt: skip
    tool = {
        "metadata": {"pid": 9},
        "kernel_symbols": [{"kernel_id": 2, "formatted_kernel_name": "relu"}],
        "strings": {"buffer_records": [{"kind": "HIP_API", "operations": ["hipMalloc", "hipLaunchKernel"]}]},
        "buffer_records": {
            "kernel_dispatch": [record] * 4,
            "hip_api": [{**record, "kind": "HIP_API", "operation": 1}] * 4,
            "memory_copy": [{**record, "bytes": 8, "dst_agent_id": {"handle": 1}}],
        },
    }
    text = json.dumps({"rocprofiler-sdk-tool": [tool]})
    return [
        _file(folder, "rocprof csv", "1_kernel_trace.csv", (head + rows).encode()),
        _file(folder, "rocprof json", "1_results.json", text.encode()),
    ]


def _neuron_json(folder: Path) -> list[Seed]:
    export = [
        {"name": "nc_exec_running", "timestamp": 1000 + 500 * i, "duration": 300, "exec_id": i,
         "device_core_idx": i % 2, "nc_idx": 0, "instance_id": "i-1", "process_id": 7}
        for i in range(20)
    ]  # fmt: skip
    runtime = [
        {
            "event_type": "nrt_execute",
            "phase": phase,
            "tracking_id": i,
            "timestamp_ns": 1000 * i + at,
            "data": {"exec_id": i},
        }
        for i in range(20)
        for phase, at in (("start", 0), ("stop", 400))
    ]
    return [
        _file(folder, "export json", "system_profile.json", json.dumps({"trace_event": export}).encode()),
        _file(folder, "runtime json", "events.json", json.dumps({"events": runtime}).encode()),
    ]


def _nsys(folder: Path) -> Seed:
    path = folder / "report.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'gemm(float*)'), (2, 'gemm'), (3, 'cudaLaunchKernel_v7000');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, globalTid INTEGER,
                correlationId INTEGER, nameId INTEGER);
            CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, text TEXT, globalTid INTEGER);
            INSERT INTO NVTX_EVENTS VALUES (900, 7000, 'step', 83886085), (950, NULL, 'mark', 83886085);
            """
        )
        for i in range(10):
            at = 1000 * i
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,0,7,?,83886080,1,2,64)", (at + 500, at + 800, i)
            )
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,0,7,?,83886080,64,1)", (at + 810, at + 850, i)
            )
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,83886085,?,3)", (at, at + 90, i))
        base.commit()
    return Seed("nsys", path, (path,))


def _rocpd(folder: Path) -> Seed:
    path = folder / "1_results.db"
    with closing(sqlite3.connect(path)) as base:
        base.executescript(
            """
            CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
            INSERT INTO rocpd_string VALUES (1, 'g', 'HIP_RUNTIME_API'), (2, 'g', 'hipLaunchKernel'), (3, 'g', 'copy');
            CREATE TABLE rocpd_info_agent (id INTEGER, guid TEXT, type TEXT, type_index INTEGER, name TEXT);
            INSERT INTO rocpd_info_agent VALUES (5, 'g', 'GPU', 0, 'gfx942');
            CREATE TABLE rocpd_info_kernel_symbol (id INTEGER, guid TEXT, kernel_name TEXT);
            INSERT INTO rocpd_info_kernel_symbol VALUES (9, 'g', 'axpy');
            CREATE TABLE rocpd_event (id INTEGER, guid TEXT, category_id INTEGER, stack_id INTEGER);
            CREATE TABLE rocpd_region (id INTEGER, guid TEXT, pid INTEGER, tid INTEGER, start BIGINT, "end" BIGINT,
                name_id INTEGER, event_id INTEGER, extdata TEXT);
            CREATE TABLE rocpd_kernel_dispatch (id INTEGER, guid TEXT, pid INTEGER, tid INTEGER, agent_id INTEGER,
                kernel_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT, "end" BIGINT, event_id INTEGER);
            CREATE TABLE rocpd_memory_copy (id INTEGER, guid TEXT, pid INTEGER, start BIGINT, "end" BIGINT,
                name_id INTEGER, dst_agent_id INTEGER, size INTEGER, stream_id INTEGER, event_id INTEGER);
            """
        )
        for i in range(10):
            at = 1000 * i
            base.execute("INSERT INTO rocpd_event VALUES (?,'g',1,?)", (i, i + 1))
            base.execute("INSERT INTO rocpd_region VALUES (?,'g',1,1,?,?,2,?,'{}')", (i, at, at + 90, i))
            base.execute(
                "INSERT INTO rocpd_kernel_dispatch VALUES (?,'g',1,1,5,9,1,2,?,?,?)", (i, at + 100, at + 400, i)
            )
            base.execute("INSERT INTO rocpd_memory_copy VALUES (?,'g',1,?,?,3,5,64,2,?)", (i, at + 500, at + 550, i))
        base.commit()
    return Seed("rocpd", path, (path,))


def _session(folder: Path) -> Seed:
    target = folder / "session"
    shutil.copytree(GOLDEN, target)
    return Seed("session", target, tuple(sorted(path for path in target.rglob("*") if path.is_file())))


def _pair(folder: Path) -> Seed:
    source = next(GOLDEN.glob("*/*"))
    executable = next(iter(sorted(source.glob("*.neff"))))
    number = executable.name.split("_")[1]
    target = folder / "pair"
    target.mkdir()
    files = (target / f"neff_{number}.neff", target / f"{number}_instid_0_vnc_0.ntff")
    shutil.copy(executable, files[0])
    shutil.copy(next(source.glob("*.ntff")), files[1])
    return Seed("pair", target, files)


def _parquet(folder: Path) -> Seed:
    from neuronscope.readers import ingest

    target = folder / "parquet"
    ingest(GOLDEN, target)
    for path in target.glob("*.parquet"):
        if path.stem not in ("SystemProfileEvents", "Instruction", "DmaPacketTraces", "Metadata", "CpuUsage"):
            path.unlink()
    return Seed("parquet", target, tuple(sorted(target.glob("*.parquet"))))


def _ranks(folder: Path) -> Seed:
    sys.path.insert(0, str(TESTS))
    import synthetic  # type: ignore[import-not-found]

    target = folder / "ranks"
    target.mkdir()
    synthetic.write_ranks(target, 2, steps=1, calls=3)
    return Seed("ranks", target, tuple(sorted(target.iterdir())))
