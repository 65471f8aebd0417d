"""Inputs other than one trace or session: ranks, archives, other tools' files, device profiles."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from neuronscope.formats import neff
from neuronscope.formats.errors import FormatError
from neuronscope.readers import ranks
from neuronscope.store import Store


def test_a_folder_of_ranks_is_one_profile(synthetic: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    expected = synthetic.write_ranks(folder, 3, steps=2, calls=10)
    (folder / "rank1.1751410836.pt.trace.json").unlink()
    profile = Store(tmp_path / "store").add(folder)
    result = profile.result
    assert result.ranks == (0, 2)
    assert result.events_in_file == 2 * expected[0].events
    assert result.device_time_ns == 2 * expected[0].kernel_total_ns
    assert [row.count for row in result.warnings if row.kind == "missing_rank"] == [1]
    counts = profile.sql("SELECT rank, count(*) AS n FROM Execution GROUP BY rank ORDER BY rank").to_pylist()
    assert counts == [{"rank": 0, "n": 20}, {"rank": 2, "n": 20}]
    names = profile.sql(
        "SELECT DISTINCT t.rank, x.name = n.name AS same FROM Execution x JOIN Slice s USING (event_id) "
        "JOIN Name n USING (name_id) JOIN Track t USING (track_id) JOIN SystemProfileEvents e ON e.id = x.event_id "
        "WHERE e.name = x.name AND t.rank = x.rank ORDER BY 1"
    ).to_pylist()
    assert names == [{"rank": 0, "same": True}, {"rank": 2, "same": True}]


def test_64_ranks_are_one_profile_with_the_rank_in_every_table(synthetic: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    expected = synthetic.write_ranks(folder, 64, steps=2, calls=6)
    (folder / "rank7.1751410836.pt.trace.json").write_text('{"traceEvents": []}')
    profile = Store(tmp_path / "store").add(folder)
    result = profile.result
    read = [rank for rank in range(64) if rank != 7]
    assert result.ranks == tuple(read)
    assert [row.message.split(":")[0] for row in result.warnings if row.kind == "unreadable_rank"] == ["rank 7"]
    assert (result.events_in_file, result.stored) == (63 * expected[0].events,) * 2
    assert result.device_time_ns == 63 * expected[0].kernel_total_ns
    for table, rows in (("Execution", 12), ("HostOp", 24), ("Gap", 11), ("Step", 2), ("Track", 3)):
        counts = profile.sql(f'SELECT rank, count(*) AS n FROM "{table}" GROUP BY rank ORDER BY rank').to_pylist()
        assert counts == [{"rank": rank, "n": rows} for rank in read], table
    slices = profile.sql(
        "SELECT t.rank, count(*) AS n FROM Slice s JOIN Track t USING (track_id) GROUP BY 1 ORDER BY 1"
    ).to_pylist()
    assert [row["rank"] for row in slices] == read
    assert len({row["n"] for row in slices}) == 1
    owners = profile.sql(
        "SELECT count(*) AS wrong FROM Execution x JOIN SystemProfileEvents e ON e.id = x.event_id "
        "JOIN HostOp h ON h.event_id = x.op_event_id WHERE h.rank != x.rank OR e.instance_id != 'rank ' || x.rank"
    ).to_pylist()
    assert owners == [{"wrong": 0}]


def test_a_process_that_dies_costs_its_rank_only(
    synthetic: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    synthetic.write_ranks(folder, 5, steps=1, calls=5)
    real = ranks._Worker.read

    def read(self: ranks._Worker, path: Path, into: Path) -> object:
        if path.name.startswith("rank2."):
            self._process.kill()
        return real(self, path, into)

    monkeypatch.setattr(ranks._Worker, "read", read)
    result = Store(tmp_path / "store").add(folder).result
    assert result.ranks == (0, 1, 3, 4)
    assert [row.message for row in result.warnings if row.kind == "unreadable_rank"] == [
        f"rank 2: {folder}/rank2.1751410836.pt.trace.json: the process that read it ended with code -9 (out of memory?)"
    ]


def test_a_zip_of_one_trace_and_of_ranks(synthetic: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    expected = synthetic.write_ranks(folder, 2, steps=1, calls=10)
    files = sorted(folder.iterdir())
    for name, members in (("one.zip", files[:1]), ("all.zip", files)):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in members:
                archive.write(file, f"traces/{file.name}")
        profile = Store(tmp_path / "store").add(tmp_path / name)
        assert profile.source == tmp_path / name
        assert profile.result.stored == len(members) * expected[0].events
        assert [path for path in profile.path.iterdir() if path.name.startswith(".")] == []


def test_nsight_systems(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'gemm(float*)'), (2, 'gemm'), (3, 'cudaLaunchKernel_v7000');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2000, 5000, 0, 7, 11, 83886080, 1, 2, 64);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (6000, 6500, 0, 7, 12, 83886080, 4096, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, globalTid INTEGER,
                correlationId INTEGER, nameId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1000, 1500, 83886085, 11, 3);
            CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, text TEXT, globalTid INTEGER);
            INSERT INTO NVTX_EVENTS VALUES (900, 7000, 'step', 83886085), (950, NULL, 'mark', 83886085);
            """
        )
        base.commit()
    profile = Store(tmp_path / "store").add(path)
    result = profile.result
    assert (result.format, result.events_in_file, result.stored) == ("Nsight Systems export", 5, 5)
    assert (result.device_slices, result.device_time_ns) == (2, 3500)
    assert profile.sql("SELECT name, kind, bytes_read FROM Execution ORDER BY start_ts").to_pylist() == [
        {"name": "gemm(float*)", "kind": "exec", "bytes_read": -1},
        {"name": "Memcpy HtoD", "kind": "memcpy", "bytes_read": 4096},
    ]
    assert profile.table("Flow").num_rows >= 1


def test_rocprof_csv_and_json(tmp_path: Path) -> None:
    table = tmp_path / "1_kernel_trace.csv"
    table.write_text(
        '"Kind","Agent_Id","Queue_Id","Thread_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
        '"KERNEL_DISPATCH","Agent 4",1,77,"axpy(float*, int)",5,1000,3000\n'
        '"KERNEL_DISPATCH","Agent 4",1,77,"axpy(float*, int)",6,,\n'
    )
    result = Store(tmp_path / "store").add(table).result
    assert (result.format, result.device_time_ns, result.skipped) == ("rocprof output", 2000, 1)
    record = {
        "start_timestamp": 10, "end_timestamp": 40, "correlation_id": {"internal": 3}, "thread_id": 9,
        "dispatch_info": {"kernel_id": 2, "agent_id": {"handle": 1}, "queue_id": {"handle": 1}},
    }  # fmt: skip
    document = {
        "rocprofiler-sdk-tool": [
            {
                "metadata": {"pid": 9},
                "kernel_symbols": [{"kernel_id": 2, "formatted_kernel_name": "relu"}],
                "buffer_records": {"kernel_dispatch": [record]},
            }
        ]
    }
    (tmp_path / "results.json").write_text(json.dumps(document))
    profile = Store(tmp_path / "store").add(tmp_path / "results.json")
    assert profile.table("Execution", ["name", "duration_ns"]).to_pylist() == [{"name": "relu", "duration_ns": 30}]


def test_a_parquet_folder_opens_by_column_names(golden: Path, tmp_path: Path) -> None:
    ours = Store(tmp_path / "store").add(golden)
    folder = tmp_path / "data" / "profiles" / "global" / "run@latest"
    folder.mkdir(parents=True)
    whole = pq.read_table(ours.path / "SystemProfileEvents.parquet").drop_columns(["framework_stream_id"])
    half = whole.num_rows // 2
    pq.write_table(
        whole.slice(0, half).append_column("new", whole["id"].slice(0, half)), folder / "SystemProfileEvents_0.parquet"
    )
    pq.write_table(whole.slice(half), folder / "SystemProfileEvents_1.parquet")
    shutil.copy(ours.path / "Instruction.parquet", folder)
    profile = Store(tmp_path / "store").add(tmp_path / "data")
    assert profile.result.stored == whole.num_rows
    assert profile.table("Instruction").num_rows == ours.table("Instruction").num_rows
    assert "unknown_column" in {row.kind for row in profile.result.warnings}
    assert profile.result.device_slices > 0


def test_a_neff_and_its_ntff_are_a_device_profile(golden: Path, tmp_path: Path) -> None:
    session = next(golden.glob("*/*"))
    executable = next(session.glob("*.neff"))
    number = executable.name.split("_")[1]
    folder = tmp_path / "pair"
    folder.mkdir()
    shutil.copy(executable, folder / f"neff_{number}.neff")
    shutil.copy(next(session.glob("*.ntff")), folder / f"{number}_instid_0_vnc_0.ntff")
    profile = Store(tmp_path / "store").add(folder / f"{number}_instid_0_vnc_0.ntff")
    assert profile.result.format == "NEFF and NTFF"
    assert profile.table("Instruction").num_rows > 0
    assert profile.result.device_slices > 0


def test_a_device_pair_is_matched_by_content_whatever_the_names(golden: Path, tmp_path: Path) -> None:
    session = next(golden.glob("*/*"))
    executable = next(session.glob("*.neff"))
    folder = tmp_path / "renamed"
    folder.mkdir()
    shutil.copy(executable, folder / "mine.neff")
    shutil.copy(next(session.glob("*.ntff")), folder / "out.ntff")
    for given in (folder, folder / "out.ntff", folder / "mine.neff"):
        profile = Store(tmp_path / "store").add(given)
        assert profile.result.format == "NEFF and NTFF"
        assert [row.count for row in profile.result.warnings if row.kind == "no_neff"] == [5]


def test_a_neff_of_another_compilation_is_refused_and_its_hash_named(golden: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pair"
    folder.mkdir()
    data = neff.pack({"name": "other"}, "other program", [])
    neff.write(folder / "other.neff", data)
    shutil.copy(next(golden.rglob("*.ntff")), folder / "out.ntff")
    other = neff.unpack(data).hash
    for given in (folder, folder / "other.neff"):
        with pytest.raises(
            FormatError, match=rf"out\.ntff holds executable \d+ .*other\.neff is {other}: the hashes must"
        ):
            Store(tmp_path / "store").add(given)
    profile = Store(tmp_path / "store").add(folder / "out.ntff")  # alone it opens, and says so
    (missing,) = (row for row in profile.result.warnings if row.kind == "no_neff")
    assert missing.count == 6
    assert f"other.neff is {other}" in missing.message
    assert profile.table("Instruction").num_rows == 6


def test_a_timeline_alone_opens_and_a_neff_alone_does_not(golden: Path, tmp_path: Path) -> None:
    folder = tmp_path / "alone"
    folder.mkdir()
    shutil.copy(next(golden.rglob("*.ntff")), folder / "out.ntff")
    assert Store(tmp_path / "store").add(folder).result.format == "NTFF"
    (folder / "out.ntff").unlink()
    shutil.copy(next(golden.rglob("*.neff")), folder / "mine.neff")
    with pytest.raises(FormatError, match="without its NTFF"):
        Store(tmp_path / "store").add(folder)


def test_a_vendors_session_names_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "i-1_pid_2" / "20260101"
    folder.mkdir(parents=True)
    (folder / "ntrace.pb").write_bytes(b"\x0a\x03abc")
    command = (
        r"run on the instance `neuron-explorer view -d .* --ingest-only --data-path OUT`, then here "
        r"`neuronscope view OUT`"
    )
    with pytest.raises(FormatError, match=command):
        Store(tmp_path / "store").add(folder)
    row = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    (folder / "trace.json").write_text(json.dumps({"traceEvents": [row]}))
    result = Store(tmp_path / "store").add(tmp_path).result
    (said,) = [warning.message for warning in result.warnings if warning.kind == "foreign_session"]
    assert re.search(command, said)
    assert "nc_exec_running" in said
    assert result.stored == 1


def test_output_folders_of_other_tools_open_as_they_are(tmp_path: Path) -> None:
    jax = tmp_path / "jax" / "plugins" / "profile" / "2026_01_01_00_00_00"
    jax.mkdir(parents=True)
    row = {"ph": "X", "name": "fusion", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2}
    (jax / "host.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": [row, {}]}).encode()))
    (jax / "host.xplane.pb").write_bytes(b"x")
    store = Store(tmp_path / "store")
    assert store.add(tmp_path / "jax").result.stored == 2
    rocprof = tmp_path / "rocprof" / "host1"
    rocprof.mkdir(parents=True)
    times = "Correlation_Id,Start_Timestamp,End_Timestamp"
    (rocprof / "9_kernel_trace.csv").write_text(f"Kind,Kernel_Name,{times}\nKERNEL_DISPATCH,axpy,5,1000,3000\n")
    (rocprof / "9_hip_api_trace.csv").write_text(f"Domain,Function,{times}\nHIP_RUNTIME_API,hipLaunchKernel,5,10,20\n")
    (rocprof / "9_agent_info.csv").write_text("Node_Id,Name\n1,gfx942\n")
    profile = store.add(tmp_path / "rocprof")
    assert (profile.result.stored, profile.result.device_time_ns) == (2, 2000)
    assert "launch" in profile.table("Flow")["dependency_type"].to_pylist()
    for rank in (0, 1):
        (tmp_path / "job" / f"rank{rank}").mkdir(parents=True)
        (tmp_path / "job" / f"rank{rank}" / "trace.json").write_text(json.dumps([row]))
    assert store.add(tmp_path / "job").result.ranks == (0, 1)
    (rocprof / "7_results.json").write_text(json.dumps([row]))
    (rocprof / "8_results.json").write_text(json.dumps([row]))
    with pytest.raises(FormatError, match=r"2 profiles in it \(host1/7_results.json, host1/8_results.json\)"):
        store.add(tmp_path / "rocprof")
