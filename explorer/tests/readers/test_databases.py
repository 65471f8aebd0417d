# ruff: noqa: E501 - tables stay as their tools write them
"""SQLite files of other profilers, made by hand after their published schemas: Nsight Systems, rocprofv3, RPD."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from neuronscope.formats.errors import FormatError
from neuronscope.store import Profile

Ingest = Callable[..., Profile]
PID = 0x0001_0000_0000_0000  # a virtual machine's number stands above the process


def glob_id(pid: int, tid: int = 0) -> int:
    return PID | pid << 24 | tid


def database(path: Path, script: str, **tables: list[tuple[Any, ...]]) -> Path:
    """A file with the script's tables and these rows in them."""
    with closing(sqlite3.connect(path)) as base:
        base.executescript(script)
        for table, rows in tables.items():
            marks = ",".join("?" * len(rows[0]))
            base.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        base.commit()
    return path


NSYS = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER,
    contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, "end" INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, "end" INTEGER NOT NULL, eventClass INTEGER,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, "end" INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, "end" INTEGER, eventClass INTEGER, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER, returnValue INTEGER, nestingLevel INTEGER, callchainId INTEGER);
CREATE TABLE SCHED_EVENTS (start INTEGER NOT NULL, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, timestampType INTEGER, source INTEGER, severity INTEGER, text TEXT);
"""
STRINGS = [(1, "void gemm<float>(float*)"), (2, "gemm"), (3, "cudaLaunchKernel_v7000"), (4, "cudaGraphLaunch_v10000")]


@pytest.fixture
def nsys(tmp_path: Path) -> Path:
    """Two processes whose correlation ids are the same, one of them launching a graph recorded as a whole."""
    kernels = [
        (2_000, 5_000, 0, 1, None, 7, 1, glob_id(11), 1, 2, None, 64, None),
        (3_000, 4_500, 1, 1, None, 7, 1, glob_id(22), 1, 2, None, 64, None),
    ]
    return database(
        tmp_path / "report.sqlite",
        NSYS,
        StringIds=[*STRINGS, (5, "pthread_cond_wait"), (6, "data loader"), (7, "layer 1")],
        CUPTI_ACTIVITY_KIND_KERNEL=kernels,
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[(6_000, 6_700, 0, 1, 7, 2, glob_id(11), 3, 4)],
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=[(2_000, 9_000, 0, 1, 7, 9, glob_id(11), 3, 0)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[
            (1_000, 1_200, 0, glob_id(11, 11), 1, 3, 0, None),
            (1_100, 1_300, 0, glob_id(22, 22), 1, 3, 0, None),
            (1_500, 1_700, 0, glob_id(11, 11), 2, 4, 0, None),
        ],
        NVTX_EVENTS=[
            (900, 1_400, 59, None, None, None, None, glob_id(11, 11), None, 7, 0),
            (950, 8_000, 60, 1, None, None, "request", glob_id(11, 11), glob_id(11, 12), None, 0),
            (960, None, 34, None, None, None, "mark", glob_id(11, 11), None, None, 0),
            (0, None, 75, None, None, None, "NCCL", glob_id(11, 11), None, None, 1),
        ],
        OSRT_API=[(1_800, 1_900, 0, glob_id(11, 13), 0, 5, 0, 0, None)],
        SCHED_EVENTS=[(1_000, 0, 1, glob_id(11, 11))],
        TARGET_INFO_GPU=[(0, "NVIDIA H200")],
        PROCESSES=[(glob_id(11), 11, "python")],
        ThreadNames=[(6, 0, glob_id(11, 13))],
        DIAGNOSTIC_EVENT=[(5, 0, 0, 1, "started"), (6, 0, 0, 2, "CUDA events were dropped")],
    )


def test_nsight_systems_rows_of_all_kinds_are_counted(ingest: Ingest, nsys: Path) -> None:
    result = ingest(nsys).result
    assert (result.format, result.events_in_file, result.stored, result.skipped) == ("Nsight Systems export", 12, 12, 0)
    assert (result.device_slices, result.device_time_ns, result.processes) == (3, 3_000 + 1_500 + 700, 2)
    said = {row.kind: row.message for row in result.warnings}
    assert "SCHED_EVENTS (1 rows)" in said["unread_table"]
    assert "were dropped" in said["producer_warning"]


def test_nsight_systems_correlation_ids_count_anew_in_each_process(ingest: Ingest, nsys: Path) -> None:
    query = """SELECT a.process_id AS host, b.process_id AS device, b.name FROM Flow
               JOIN SystemProfileEvents a ON a.id = in_id JOIN SystemProfileEvents b ON b.id = out_id
               WHERE dependency_type = 'launch' ORDER BY b.start_ts"""
    assert ingest(nsys).sql(query).to_pylist() == [
        {"host": 11, "device": 11, "name": "void gemm<float>(float*)"},
        {"host": 22, "device": 22, "name": "void gemm<float>(float*)"},
        {"host": 11, "device": 11, "name": "CUDA graph 3"},
    ]


def test_nsight_systems_names_threads_and_ranges(ingest: Ingest, nsys: Path) -> None:
    profile = ingest(nsys)
    names = set(profile.table("SystemProfileEvents")["name"].to_pylist())
    assert {"layer 1", "request", "mark", "pthread_cond_wait", "cudaGraphLaunch"} <= names
    assert profile.info["device_name"] == "NVIDIA H200"
    assert any("data loader" in str(row) for row in profile.table("Track").to_pylist())


ROCPD3 = """
CREATE TABLE rocpd_string_1a (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE rocpd_info_process_1a (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, ppid INTEGER, pid INTEGER);
CREATE TABLE rocpd_info_thread_1a (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER);
CREATE TABLE rocpd_info_agent_1a (id INTEGER PRIMARY KEY, guid TEXT, type TEXT, type_index INTEGER, product_name TEXT);
CREATE TABLE rocpd_info_kernel_symbol_1a (id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT, display_name TEXT);
CREATE TABLE rocpd_event_1a (id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER, stack_id INTEGER);
"""
ROCPD3_TABLES = """
CREATE TABLE rocpd_region_1a (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT,
    "end" BIGINT, name_id INTEGER, event_id INTEGER, extdata TEXT);
CREATE TABLE rocpd_kernel_dispatch_1a (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER,
    agent_id INTEGER, kernel_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT, "end" BIGINT,
    grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER,
    workgroup_size_z INTEGER, event_id INTEGER);
CREATE TABLE rocpd_memory_copy_1a (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER,
    start BIGINT, "end" BIGINT, name_id INTEGER, dst_agent_id INTEGER, size INTEGER, stream_id INTEGER, event_id INTEGER);
"""
ROCPD4_TABLES = """
CREATE TABLE rocpd_timestamp_1a (id INTEGER PRIMARY KEY, guid TEXT, value BIGINT, track_id INTEGER);
CREATE TABLE rocpd_track_1a (id INTEGER PRIMARY KEY, guid TEXT, pid INTEGER, tid INTEGER, agent_id INTEGER,
    stream_id INTEGER);
CREATE TABLE rocpd_kernel_dispatch_1a (id INTEGER PRIMARY KEY, guid TEXT, track_id INTEGER, kernel_id INTEGER,
    start_id INTEGER, end_id INTEGER, event_id INTEGER);
"""
COMMON: dict[str, list[tuple[Any, ...]]] = {
    "rocpd_string_1a": [
        *((1, "1a", "HIP_RUNTIME_API"), (2, "1a", "hipLaunchKernel"), (3, "1a", "KERNEL_DISPATCH")),
        *((4, "1a", "MEMORY_COPY_HOST_TO_DEVICE"), (5, "1a", "MARKER_CORE_API"), (6, "1a", "roctxRangePush")),
    ],
    "rocpd_info_process_1a": [(1, "1a", 1, 1, 4242)],
    "rocpd_info_thread_1a": [(1, "1a", 1, 1, 4243)],
    "rocpd_info_agent_1a": [(1, "1a", "CPU", 0, "EPYC"), (5, "1a", "GPU", 0, "AMD Instinct MI300X")],
    "rocpd_info_kernel_symbol_1a": [(9, "1a", "_Z4axpy", "axpy(float*)")],
    "rocpd_event_1a": [(1, "1a", 1, 77), (2, "1a", 3, 77), (3, "1a", 3, 78), (4, "1a", 5, 0)],
}


def test_a_rocprofv3_database_of_schema_3(ingest: Ingest, tmp_path: Path) -> None:
    path = database(
        tmp_path / "4242_results.db",
        ROCPD3 + ROCPD3_TABLES,
        **COMMON,
        rocpd_region_1a=[
            (1, "1a", 1, 1, 1, 1_000, 1_400, 2, 1, "{}"),
            (2, "1a", 1, 1, 1, 900, 9_000, 6, 4, '{"message": "step 1"}'),
        ],
        rocpd_kernel_dispatch_1a=[(1, "1a", 1, 1, 1, 5, 9, 1, 2, 2_000, 5_000, 64, 1, 1, 256, 1, 1, 2)],
        rocpd_memory_copy_1a=[(1, "1a", 1, 1, 1, 6_000, 6_500, 4, 5, 4096, 2, 3)],
    )
    profile = ingest(path)
    result = profile.result
    assert (result.format, result.events_in_file, result.stored, result.processes) == ("rocprofv3 database", 4, 4, 1)
    assert (result.device_slices, result.device_time_ns) == (2, 3_500)
    columns = ["name", "kind", "device", "stream_id", "process_id", "bytes_read"]
    assert profile.table("Execution", columns).to_pylist() == [
        dict(zip(columns, ("axpy(float*)", "exec", 0, 2, 4242, -1), strict=True)),
        dict(zip(columns, ("MEMORY_COPY_HOST_TO_DEVICE", "memcpy", 0, 2, 4242, 4096), strict=True)),
    ]
    assert "step 1" in profile.table("SystemProfileEvents")["name"].to_pylist()
    assert "launch" in profile.table("Flow")["dependency_type"].to_pylist()
    assert profile.info["device_name"] == "AMD Instinct MI300X"


def test_a_rocprofv3_database_of_schema_4(ingest: Ingest, tmp_path: Path) -> None:
    path = database(
        tmp_path / "results.db",
        ROCPD3 + ROCPD4_TABLES,
        **COMMON,
        rocpd_timestamp_1a=[(1, "1a", 2_000, 1), (2, "1a", 5_000, 1)],
        rocpd_track_1a=[(1, "1a", 1, 1, 5, 3)],
        rocpd_kernel_dispatch_1a=[(1, "1a", 1, 9, 1, 2, 2)],
    )
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE VIEW rocpd_pmc_event AS SELECT 1 AS id")
        base.commit()
    profile = ingest(path)
    assert profile.table("Execution", ["name", "duration_ns", "stream_id"]).to_pylist() == [
        {"name": "axpy(float*)", "duration_ns": 3_000, "stream_id": 3}
    ]
    assert "rocpd_pmc_event (1 rows)" in {row.kind: row.message for row in profile.result.warnings}["unread_table"]


def test_an_rpd_profile(ingest: Ingest, tmp_path: Path) -> None:
    path = database(
        tmp_path / "trace.rpd",
        """CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT);
        CREATE TABLE rocpd_api (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, start INTEGER, "end" INTEGER,
            apiName_id INTEGER, args_id INTEGER);
        CREATE TABLE rocpd_op (id INTEGER PRIMARY KEY, gpuId INTEGER, queueId INTEGER, sequenceId INTEGER,
            start INTEGER, "end" INTEGER, description_id INTEGER, opType_id INTEGER);
        CREATE TABLE rocpd_api_ops (id INTEGER PRIMARY KEY, api_id INTEGER, op_id INTEGER);""",
        rocpd_string=[
            *((1, "hipLaunchKernel"), (2, "KernelExecution"), (3, "relu<float>"), (4, "UserMarker"), (5, "layer 3")),
            *((6, "CopyHostToDevice"), (7, "")),
        ],
        rocpd_api=[(1, 31, 32, 100, 150, 1, 7), (2, 31, 32, 90, 400, 4, 5)],
        rocpd_op=[(1, 2, 0, 0, 200, 260, 3, 2), (2, 2, 0, 0, 300, 310, 7, 6)],
        rocpd_api_ops=[(1, 1, 1)],
    )
    profile = ingest(path)
    assert (profile.result.format, profile.result.stored, profile.result.device_time_ns) == ("RPD profile", 4, 70)
    names = set(profile.table("SystemProfileEvents")["name"].to_pylist())
    assert {"relu<float>", "layer 3", "CopyHostToDevice"} <= names
    assert "launch" in profile.table("Flow")["dependency_type"].to_pylist()


def test_another_database_lists_what_was_looked_for(ingest: Ingest, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"CUPTI_ACTIVITY_KIND_KERNEL.*rocpd_kernel_dispatch"):
        ingest(database(tmp_path / "other.db", "CREATE TABLE things (id INTEGER)"))


def test_counters_of_one_dispatch_are_one_kernel(ingest: Ingest) -> None:
    head = "Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Kernel_Name,Counter_Name,Counter_Value"
    rows = [f"1,1,4,1,9,9,axpy,{counter},12,1000,3000" for counter in ("SQ_WAVES", "GRBM_COUNT")]
    text = "\n".join((f"{head},Start_Timestamp,End_Timestamp", *rows))
    result = ingest(text, "1_counter_collection.csv").result
    assert (result.device_slices, result.device_time_ns, result.events_in_file, result.stored) == (1, 2_000, 2, 2)


def test_rocprof_columns_of_version_1(ingest: Ingest) -> None:
    head = '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","BeginNs","EndNs","DurationNs"'
    profile = ingest(f'{head}\n0,"axpy(float*) [clone .kd]",1,0,2,77,78,5000,6500,1500\n', "results.csv")
    (row,) = profile.table("Execution", ["name", "device", "duration_ns"]).to_pylist()
    assert row == {"name": "axpy(float*) [clone .kd]", "device": 1, "duration_ns": 1_500}


def test_tables_with_a_version_in_their_names_are_the_same(ingest: Ingest, nsys: Path) -> None:
    plain = ingest(nsys).result
    with closing(sqlite3.connect(nsys)) as base:
        for table, version in (
            ("NVTX_EVENTS", 3),
            ("CUPTI_ACTIVITY_KIND_KERNEL", 2),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", 2),
        ):
            base.execute(f"ALTER TABLE {table} RENAME TO {table}_V{version}")
        base.commit()
    assert ingest(nsys).result.as_json() == plain.as_json()


NSYS_SMALL = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, "end" INTEGER NOT NULL, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
CREATE TABLE MPI_RANKS (globalTid INTEGER, rank INTEGER);
"""


def report(path: Path, pid: int, epoch: int | None = None, rank: int | None = None) -> Path:
    tables: dict[str, list[tuple[Any, ...]]] = {
        "StringIds": [(1, "gemm"), (3, "cudaLaunchKernel_v7000")],
        "CUPTI_ACTIVITY_KIND_KERNEL": [(2_000, 5_000, 0, 7, 1, glob_id(pid), 1)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [(1_000, 1_200, glob_id(pid, pid), 1, 3)],
    }
    if epoch is not None:
        tables["TARGET_INFO_SESSION_START_TIME"] = [(epoch,)]
    if rank is not None:
        tables["MPI_RANKS"] = [(glob_id(pid, pid), rank)]
    path.parent.mkdir(exist_ok=True)
    return database(path, NSYS_SMALL, **tables)


def test_reports_of_one_run_are_one_profile_on_one_clock(ingest: Ingest, tmp_path: Path) -> None:
    report(tmp_path / "run" / "a.sqlite", 11, 1_700_000_000_000_000_000)
    report(tmp_path / "run" / "b.sqlite", 11, 1_700_000_000_000_000_500)
    profile = ingest(tmp_path / "run")
    result = profile.result
    assert (result.format, result.events_in_file, result.stored, result.skipped) == ("Nsight Systems export", 4, 4, 0)
    assert (result.device_slices, result.device_time_ns, result.processes, result.ranks) == (2, 6_000, 2, ())
    executions = profile.table("Execution").to_pylist()
    assert [(row["start_ts"], row["launch_ts"], row["rank"]) for row in executions] == [
        (2_000, 1_000, -1), (2_500, 1_500, -1),
    ]  # fmt: skip
    assert {row["group_label"].split("/")[0] for row in profile.table("Track").to_pylist()} == {"a", "b"}


@pytest.mark.parametrize("names", [("report.rank1.sqlite", "report.rank0.sqlite"), ("x.sqlite", "y.sqlite")])
def test_reports_that_tell_their_rank_are_ranks(ingest: Ingest, tmp_path: Path, names: tuple[str, str]) -> None:
    for rank, name in zip((1, 0), names, strict=True):
        report(tmp_path / "run" / name, 40 + rank, rank=rank)
    profile = ingest(tmp_path / "run")
    assert profile.result.ranks == (0, 1)
    assert sorted(profile.table("Execution")["rank"].to_pylist()) == [0, 1]


def test_reports_of_different_times_are_different_profiles(ingest: Ingest, tmp_path: Path) -> None:
    report(tmp_path / "runs" / "monday.sqlite", 11, 1_700_000_000_000_000_000)
    report(tmp_path / "runs" / "tuesday.sqlite", 11, 1_700_086_400_000_000_000)
    with pytest.raises(FormatError, match="2 profiles in it"):
        ingest(tmp_path / "runs")


ROCPD_SMALL = """
CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE rocpd_info_process (id INTEGER, guid TEXT, pid INTEGER, environment TEXT);
CREATE TABLE rocpd_info_kernel_symbol (id INTEGER, guid TEXT, kernel_name TEXT);
CREATE TABLE rocpd_kernel_dispatch (id INTEGER, guid TEXT, pid INTEGER, tid INTEGER, agent_id INTEGER,
    kernel_id INTEGER, queue_id INTEGER, start BIGINT, "end" BIGINT);
"""


def rocpd_of(path: Path, pid: int, start: int, environment: str = "{}") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    database(
        path,
        ROCPD_SMALL,
        rocpd_info_process=[(1, "g", pid, environment)],
        rocpd_info_kernel_symbol=[(9, "g", "axpy")],
        rocpd_kernel_dispatch=[(1, "g", 1, 1, 0, 9, 0, start, start + 700)],
    )


def test_databases_of_the_processes_of_a_run_are_one_profile(ingest: Ingest, tmp_path: Path) -> None:
    for host, pid in (("node1", 500), ("node1", 501), ("node2", 500)):
        rocpd_of(tmp_path / "run" / host / f"{pid}_results.db", pid, 1_000 + pid)
    profile = ingest(tmp_path / "run")
    assert (profile.result.format, profile.result.device_slices, profile.result.ranks) == ("rocprofv3 database", 3, ())
    assert profile.result.device_time_ns == 2_100
    groups = {row["group_label"].rpartition("/")[0] for row in profile.table("Track").to_pylist()}
    assert groups == {"node1/500_results", "node1/501_results", "node2/500_results"}


def test_a_rank_in_the_environment_is_the_rank(ingest: Ingest, tmp_path: Path) -> None:
    for rank in (3, 2):
        rocpd_of(tmp_path / "run" / f"{rank}_results.db", 500 + rank, 10**rank, f'{{"OMPI_COMM_WORLD_RANK": "{rank}"}}')
    assert ingest(tmp_path / "run").result.ranks == (2, 3)


def test_what_else_is_in_the_folder_is_told(ingest: Ingest, tmp_path: Path) -> None:
    report(tmp_path / "run" / "a.sqlite", 11)
    (tmp_path / "run" / "trace.json").write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1}]}')
    (tmp_path / "run" / "settings.json").write_text('{"lr": 0.1}')
    profile = ingest(tmp_path / "run")
    (row,) = [row for row in profile.result.warnings if row.kind == "not_opened"]
    assert row.count == 1
    assert "trace.json" in row.message
    assert row.message in profile.table("Warning")["message"].to_pylist()


def test_ranks_open_beside_a_trace_of_none(ingest: Ingest, tmp_path: Path) -> None:
    event = '{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'
    for name in ("rank0.json", "rank1.json", "other.json"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / name).write_text(event)
    (tmp_path / "run" / "settings.json").write_text('{"lr": 0.1}')
    result = ingest(tmp_path / "run").result
    assert result.ranks == (0, 1)
    assert [row.message for row in result.warnings if row.kind == "not_opened"] == [
        "traces that tell no rank are not shown: other.json"
    ]
