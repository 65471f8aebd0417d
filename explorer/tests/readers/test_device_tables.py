"""Device tables of a hand-made NTFF: load two tiles, transpose one and multiply, evict, store. Every number by hand."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from neuronscope.analysis.chain import chain
from neuronscope.analysis.profile import Profile as AnalysisProfile
from neuronscope.formats import container, neff
from neuronscope.formats.container_pb2 import Container
from neuronscope.formats.errors import FormatError
from neuronscope.schema.own import OWN_TABLES
from neuronscope.schema.published import ADDED, table_names
from neuronscope.store import Profile, Store

START = 5_000_000
HARDWARE = {
    "neuroncore_version": 3, "partitions": 128, "sbuf_bytes_per_partition": 200_000, "psum_banks": 8,
    "psum_bank_bytes": 2048, "dma_engines": 16, "dma_engine_bytes_per_second": 2e10,
    "hbm_stack_bytes_per_second": 4e11, "hbm_bytes_per_second": 2e11, "tensor_clock_hz": 1e9, "vector_clock_hz": 1e9,
    "scalar_clock_hz": 1e9, "gpsimd_clock_hz": 1e9, "sync_clock_hz": 1e9,
    "tensor_peak_flops_per_second.bf16": 32_768e9, "tensor_peak_flops_per_second.fp32": 8_192e9,
}  # fmt: skip
MATMUL = 2 * 128 * 128 * 64
TURN = 2 * 128 * 128 * 128

# engine, opcode, start, duration, wait, done, flops, dtype, transposes, sbuf r/w, psum r/w, transfer, waits, signals
WAIT: list[tuple[tuple[str, int], ...]] = [(("qLoad", 16),), (("qLoad", 32),), (("Tensor", 2),), (("Vector", 1),)]
INSTRUCTIONS: list[tuple[Any, ...]] = [
    ("Sync", "dma_copy", 0, 50, 0, 1_300, 0, "bf16", 0, 0, 32_768, 0, 0, 0, (), "qLoad+16"),
    ("Sync", "dma_copy", 50, 50, 0, 2_300, 0, "fp32", 0, 0, 32_768, 0, 0, 1, (), "qLoad+16"),
    ("Tensor", "nc_transpose", 1300, 100, 1300, 1400, 0, "bf16", TURN, 32_768, 0, 0, 32_768, -1, WAIT[0], "Tensor+1"),
    ("Tensor", "nc_matmul", 2_300, 200, 900, 2_600, MATMUL, "fp32", 0, 65_536, 0, 0, 32_768, -1, WAIT[1], "Tensor+1"),
    ("Vector", "tensor_copy", 2_600, 100, 2_600, 2_700, 0, "fp32", 0, 0, 16_384, 32_768, 0, -1, WAIT[2], "Vector+1"),
    ("Scalar", "dma_copy", 2_700, 50, 2_700, 4_000, 0, "bf16", 0, 16_384, 0, 0, 0, 2, WAIT[3], "qStore+16"),
]  # fmt: skip
OPERANDS = {
    0: "dst=<a bf16 p0+128 f1*128> src=<x bf16 p0+128*128 f1*128>",
    1: "dst=<b fp32 p0+128 f1*64> src=<spill fp32 p0+128*64 f1*64 o8>",
    5: "dst=<y bf16 p0+128*64 f1*64> src=<c bf16 p0+128 f1*64>",
}
# queue, first byte, duration, trigger, done, bytes, from, to, variable, type
TRANSFERS: list[tuple[Any, ...]] = [
    ("qLoad", 1_000, 200, 0, 1_300, 32_768, "HBM", "SBUF", "x", "input"),
    ("qLoad", 1_900, 300, 50, 2_300, 32_768, "HBM", "SBUF", "spill", "data"),
    ("qStore", 3_700, 200, 2_700, 4_000, 16_384, "SBUF", "HBM", "y", "output"),
]


def tables(name: str) -> dict[str, Any]:
    """The NTFF's tables."""
    count, moves = len(INSTRUCTIONS), len(TRANSFERS)
    column = list(zip(*INSTRUCTIONS, strict=True))
    move = list(zip(*TRANSFERS, strict=True))
    waits = [(i, *wait) for i, row in enumerate(INSTRUCTIONS) for wait in row[14]]
    return {
        "programs": {
            "neff": [name], "name": ["block"], "target": ["trn2"], "duration_ns": [4_000], "estimated_ns": [0],
            "instructions": [count], "dma_transfers": [moves], "bytes_read": [65_536], "bytes_written": [16_384],
            "flops": [MATMUL], "model_flops": [MATMUL],
        },
        "program_executions": {
            "execution_id": [1, 2], "neff": [name] * 2, "start_ns": [START, START + 10_000], "nc_idx": [0, 3],
        },
        "instructions": {
            "neff": [name] * count, "id": list(range(count)), "engine": column[0], "opcode": column[1],
            "operands": [OPERANDS.get(i, "") for i in range(count)], "pc": [0, 1, 0, 1, 0, 0],
            "offset_ns": column[2], "duration_ns": column[3], "wait_ns": column[4], "done_offset_ns": column[5],
            "op": ["aten.mm.default"] * count, "source": ["model.py:7"] * count, "flops": column[6],
            "sbuf_read_bytes": column[9], "sbuf_write_bytes": column[10], "psum_read_bytes": column[11],
            "psum_write_bytes": column[12],
        },
        "dma_transfers": {
            "neff": [name] * moves, "id": list(range(moves)), "queue": move[0], "queue_idx": [0, 0, 1],
            "engines": [16, 16, 16], "offset_ns": move[1], "duration_ns": move[2], "trigger_offset_ns": move[3],
            "done_offset_ns": move[4], "bytes": move[5], "rows": [128] * moves, "from_memory": move[6],
            "to_memory": move[7], "variable": move[8], "queue_type": move[9], "op": ["aten.mm.default"] * moves,
        },
        "instruction_details": {
            "neff": [name] * count, "instruction_id": list(range(count)), "transfer_id": column[13],
            "dtype": column[7], "performance_mode": ["", "", "", "", "2x", ""], "transpose_flops": column[8],
            "signals": column[15],
        },
        "waits": {
            "neff": [name] * len(waits), "instruction_id": [w[0] for w in waits],
            "semaphore": [w[1] for w in waits], "value": [w[2] for w in waits],
        },
        "allocations": {
            "neff": [name] * 3, "memory": ["SBUF", "SBUF", "PSUM"], "name": ["a", "b", "t"], "address": [0, 256, 1024],
            "bytes": [256, 256, 2048], "start_partition": [0, 0, 0], "partitions": [128, 64, 128],
            "start_offset_ns": [0, 50, 1_300], "end_offset_ns": [1_400, 2_600, 2_700], "instruction_id": [0, 1, 2],
        },
        "tensors": {
            "neff": [name] * 3, "name": ["x", "spill", "y"], "kind": ["input", "temporary", "output"],
            "dtype": ["bf16", "fp32", "bf16"], "shape": ["[16384]", "[8192]", "[8192]"],
            "bytes": [32_768, 32_768, 16_384],
        },
        "hardware": {
            "name": list(HARDWARE), "value": [float(v) for v in HARDWARE.values()],
            "status": ["published"] * len(HARDWARE),
        },
    }  # fmt: skip


def write_pair(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda _tables: None) -> None:
    """The NEFF and the NTFF, after `change` of its tables."""
    data = neff.pack({"name": "block", "target": "trn2"}, "", [])
    name = neff.unpack(data).hash
    neff.write(folder / f"neff_{name}.neff", data)
    facts = container.Session(
        "test", "1", emulated=True, model_version="1", target="trn2", target_hash="", instance_id="i-1", process_id=1,
        session_id=1, lnc=2, modes=("DEVICE",), start_ns=0, stop_ns=1,
    )  # fmt: skip
    made = tables(name)
    change(made)
    container.write(folder / f"profile_{name}.ntff", "ntff", facts, made)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    folder = tmp_path_factory.mktemp("pair")
    write_pair(folder)
    return Store(tmp_path_factory.mktemp("store")).add(folder)


def test_executables_of_one_file_keep_their_own_semaphores(tmp_path: Path) -> None:
    def add(made: dict[str, Any]) -> None:
        """A second executable that uses none of the first one's semaphores but the first."""
        for name in ("programs", "instructions", "instruction_details", "dma_transfers", "program_executions"):
            table = made[name]
            for column, values in table.items():
                new = {"neff": "7", "signals": "qLoad+16", "execution_id": 9}.get(column, next(iter(values)))
                table[column] = [*values, new]

    write_pair(tmp_path, add)
    stored = Store(tmp_path / "store").add(tmp_path)
    found = rows(stored, "SELECT id, value FROM SemaphoreUpdate WHERE device_profile_name LIKE 'neff_7_%'")
    assert found == [{"id": "qLoad", "value": 16}]


def test_tables_that_contradict_one_another_are_left_out_and_said(tmp_path: Path) -> None:
    write_pair(tmp_path, lambda made: made["instruction_details"].update(transfer_id=[99] * 6))
    with pytest.raises(FormatError, match="contradict one another"):
        Store(tmp_path / "store").add(tmp_path)


def rows(profile: Profile, query: str) -> list[dict[str, Any]]:
    return profile.sql(query).to_pylist()  # type: ignore[no-any-return]


def first(profile: Profile, table: str, columns: str, order: str = "ALL") -> list[tuple[Any, ...]]:
    """Rows of the first execution, times since its start."""
    found = rows(profile, f"SELECT {columns} FROM {table} WHERE execution_id = 1 ORDER BY {order}")
    return [tuple(row.values()) for row in found]


def test_each_executable_and_core_has_a_device_profile(profile: Profile) -> None:
    listed = rows(profile, "SELECT device_profile_name AS name, nc_id FROM DeviceProfileList ORDER BY 2")
    assert [(row["name"].rpartition("_vnc_")[2], row["nc_id"]) for row in listed] == [("0", 0), ("3", 3)]
    query = """SELECT s.nc_idx, s.execution_count AS runs, count(*) AS instructions FROM Summary s
               JOIN Instruction i USING (device_profile_name) GROUP BY ALL ORDER BY ALL"""
    assert rows(profile, query) == [
        {"nc_idx": 0, "runs": 1, "instructions": 6},
        {"nc_idx": 3, "runs": 1, "instructions": 6},
    ]


def test_arrows_lead_from_what_raised_a_semaphore_to_what_waited_for_it(profile: Profile) -> None:
    query = f"""
        WITH row AS (SELECT 'Instruction' AS kind, id, opcode AS name, start_ts, end_ts FROM Instruction
                     UNION ALL SELECT 'DmaPacketAggregated', id, variable, start_ts, end_ts FROM DmaPacketAggregated)
        SELECT a.name AS source, b.name AS target, dependency_type AS kind, gap_time AS gap FROM Flow
        JOIN row a ON a.id = in_id AND a.kind = in_table JOIN row b ON b.id = out_id AND b.kind = out_table
        WHERE a.start_ts < {START + 10_000} ORDER BY b.start_ts, kind"""
    assert [tuple(row.values()) for row in rows(profile, query)] == [
        ("dma_copy", "x", "dma_trigger", 950),
        ("x", "nc_transpose", "semaphore", 100),
        ("dma_copy", "spill", "dma_trigger", 1_800),
        ("spill", "nc_matmul", "semaphore", 100),
        ("nc_matmul", "tensor_copy", "semaphore", 100),
        ("tensor_copy", "dma_copy", "semaphore", 0),
        ("dma_copy", "y", "dma_trigger", 950),
    ]
    assert rows(profile, "SELECT count(*) AS n FROM Flow WHERE in_table <> 'SystemProfileEvents'") == [{"n": 14}]


def test_semaphores_count_up(profile: Profile) -> None:
    assert first(profile, "SemaphoreUpdate", f"timestamp - {START}, id, value, update_source") == [
        (1_300, "qLoad", 16, "qLoad"),
        (1_400, "Tensor", 1, "Tensor"),
        (2_300, "qLoad", 32, "qLoad"),
        (2_600, "Tensor", 2, "Tensor"),
        (2_700, "Vector", 1, "Vector"),
        (4_000, "qStore", 16, "qStore"),
    ]


def test_busy_time_waits_for_dma_and_pending_transfers(profile: Profile) -> None:
    busy = first(profile, "ActiveTime", f"engine, start_ts - {START}, duration_ns")
    assert busy == [
        ("Scalar", 2_700, 50),
        ("Sync", 0, 100),
        ("Tensor", 1_300, 100),
        ("Tensor", 2_300, 200),
        ("Vector", 2_600, 100),
    ]
    waits = first(profile, "Instruction", "opcode, evt_wait_time_ns, dma_wait_time_ns", "start_ts")
    assert waits[2:5] == [("nc_transpose", 1_300, 1_300), ("nc_matmul", 900, 900), ("tensor_copy", 2_600, 0)]
    pending = first(profile, "PendingDma", f"timestamp - {START}, value")
    assert pending == [(0, 1), (50, 2), (1_300, 1), (2_300, 0), (2_700, 1), (4_000, 0)]


def test_memory_in_use_as_fractions(profile: Profile) -> None:
    sbuf = first(profile, "SbufUsage", f"timestamp - {START}, avg_util_percent, partition_0_util_percent, "
                                        "partition_96_util_percent", "timestamp")  # fmt: skip
    one = 256 / 200_000
    expected = [(0, one, one, one), (50, 1.5 * one, 2 * one, one), (1_400, 0.5 * one, one, 0), (2_600, 0, 0, 0)]
    assert [row[0] for row in sbuf] == [row[0] for row in expected]
    assert [row[1:] for row in sbuf] == [pytest.approx(row[1:]) for row in expected]
    psum = first(profile, "PsumUsage", f"timestamp - {START}, avg_util_percent, bank_0_util_percent, "
                                        "bank_1_util_percent, bank_2_util_percent", "timestamp")  # fmt: skip
    assert psum == [(1_300, 0.125, 0.5, 0.5, 0.0), (2_700, 0, 0, 0, 0)]
    where = first(profile, "SbufAllocation", f"tensor_name, start_address, end_address, end_ts - {START}, opcode")
    assert where == [("a", 0, 256, 1_400, "dma_copy"), ("b", 256, 512, 2_600, "dma_copy")]


def test_traffic_over_time_adds_up(profile: Profile) -> None:
    usage = first(profile, "HbmUsage", f"timestamp - {START}, current_throughput, total_transfer_bytes", "timestamp")
    assert [row[0] for row in usage] == [1_000, 1_200, 1_900, 2_200, 3_700, 3_900]
    assert [row[1] for row in usage] == pytest.approx([32_768 / 200e-9, 0, 32_768 / 300e-9, 0, 16_384 / 200e-9, 0])
    assert [row[2] for row in usage] == [0, 32_768, 32_768, 65_536, 65_536, 81_920]
    packets = rows(profile, "SELECT count(*) AS n, sum(transfer_bytes) AS b, count(DISTINCT id) AS ids FROM DmaPacket")
    assert packets == [{"n": 2 * 3 * 16, "b": 2 * 81_920, "ids": 96}]


def test_transfers_say_what_they_read_and_write(profile: Profile) -> None:
    columns = (
        "variable, read_shape, read_offset, read_steps, read_num_sbuf_partitions, write_sbuf_partitions, semaphore_id"
    )
    assert first(profile, "DmaPacketAggregated", columns, "start_ts") == [
        ("x", "[128,128]", "0", "[128,1]", 0, "0-127", "qLoad"),
        ("spill", "[128,64]", "8", "[64,1]", 0, "0-127", "qLoad"),
        ("y", "[128,64]", "0", "[1,1]", 128, "", "qStore"),
    ]


def test_summary_metrics_follow_their_definitions(profile: Profile) -> None:
    (summary,) = rows(profile, "SELECT * FROM Summary WHERE nc_idx = 0")
    peak, seconds, moved = 2 * 128 * 128 * 1e9, 4e-6, 81_920
    expected = {
        "total_time": seconds,
        "neuroncore_cycle_count": 4_000,
        "hardware_flops": MATMUL + TURN,
        "transpose_flops": TURN,
        "model_flops": MATMUL,
        "adjusted_hardware_flops": 4 * MATMUL + TURN,
        "hfu_estimated_percent": (4 * MATMUL + TURN) / peak / seconds,
        "mfu_inst_estimated_percent": 4 * MATMUL / peak / seconds,
        "mfu_estimated_percent": 4 * MATMUL / peak / seconds,
        "mm_arithmetic_intensity": MATMUL / moved,
        "peak_flops_bandwidth_ratio": peak / 4e11,
        "mfu_inst_max_achievable_estimated_percent": 4 * MATMUL / moved / (peak / 4e11),
        "mbu_estimated_percent": moved / seconds / 4e11,
        "mbu_min_read_util_percent": 32_768 / seconds / 4e11,
        "tensor_engine_active_time_percent": 300 / 4_000,
        "tensor_engine_instruction_count": 2,
        "matmul_instruction_count": 2,
        "dma_active_time": 700e-9,
        "dma_packet_time": 16 * 700e-9,
        "dma_transfer_count": 3,
        "hbm_read_bytes": 65_536,
        "hbm_write_bytes": 16_384,
        "spill_save_bytes": 0,
        "spill_reload_bytes": 32_768,
        "useful_read_percent": 0.5,
        "psum_read_sbuf_write_bytes": 32_768,
        "psum_read_sbuf_write_count": 1,
        "input_queue_bytes": 32_768,
        "hardware_dynamic_dma_size_percent": 1.0,
        "static_dma_size": 0,
        "total_active_time": 1_250e-9,
    }
    assert {key: summary[key] for key in expected} == pytest.approx(expected, rel=1e-5)
    assert summary["weight_size_bytes"] is None  # which inputs are weights is not known
    loads = rows(profile, "SELECT variable_name AS name, load_to_sbuf_dma_count AS n, load_to_sbuf_repeat_factor AS f "
                          "FROM TensorInfo WHERE device_profile_name LIKE '%_vnc_0' ORDER BY 1")  # fmt: skip
    assert [tuple(row.values()) for row in loads] == [("spill", 1, 1.0), ("x", 1, 1.0), ("y", 0, 0.0)]


def test_instructions_sum_up_to_the_summary(profile: Profile) -> None:
    query = """SELECT sum(raw_flops) = any_value(hardware_flops) AND sum(flops_transpose) = any_value(transpose_flops)
        AND sum(adjusted_flops) = any_value(adjusted_hardware_flops)
        AND sum(i.hbm_read_bytes) = any_value(s.hbm_read_bytes)
        AND sum(i.spill_reload_bytes) = any_value(s.spill_reload_bytes)
        AND sum(i.psum_read_sbuf_write_bytes) = any_value(s.psum_read_sbuf_write_bytes) AS same
        FROM Instruction i JOIN Summary s USING (device_profile_name) WHERE execution_id = 1"""
    assert rows(profile, query) == [{"same": True}]
    kinds = first(profile, "Instruction", "tensor_instruction_type, performance_mode, layer", "start_ts")
    assert kinds[2:5] == [("transpose", None, "block"), ("matmul", None, "block"), (None, "2x", "block")]


def test_the_hardware_is_told_and_unknown_stays_null(profile: Profile) -> None:
    (metadata,) = rows(profile, "SELECT * FROM Metadata")
    assert metadata["tensor_engine_clock_freq"] == 1.0
    assert metadata["hbm_ddr_bandwidth"] == pytest.approx(4e11)
    assert rows(profile, "SELECT DISTINCT crc FROM DmaPacket") == [{"crc": None}]
    assert rows(profile, "SELECT DISTINCT axi_port FROM DmaQueuesInfo") == [{"axi_port": None}]


def test_engines_and_queues_are_tracks_below_the_execution(profile: Profile) -> None:
    drawn = rows(
        profile,
        "SELECT short, kind, list(n.name ORDER BY start_ts) AS names FROM Slice JOIN Track USING (track_id) "
        f"JOIN Name n USING (name_id) WHERE start_ts < {START + 10_000} GROUP BY ALL ORDER BY min(track_id)",
    )
    assert [(row["short"].removeprefix("neuron_hw/NC0"), row["kind"], row["names"]) for row in drawn] == [
        ("", "device", ["block"]),
        ("/Tensor", "engine", ["nc_transpose", "nc_matmul"]),
        ("/Vector", "engine", ["tensor_copy"]),
        ("/Scalar", "engine", ["dma_copy"]),
        ("/Sync", "engine", ["dma_copy", "dma_copy"]),
        ("/DMA qLoad", "engine", ["x", "spill"]),
        ("/DMA qStore", "engine", ["y"]),
    ]
    assert profile.result.device_slices == 2  # instructions are parts of executions, no device work of their own
    (told,) = rows(
        profile, "SELECT extra_attributes_json AS a FROM SystemProfileEvents WHERE name = 'nc_matmul' LIMIT 1"
    )
    told = json.loads(told["a"])
    assert (told["op"], told["source"], told["wait_ns"]) == ("aten.mm.default", "model.py:7", 900)


def test_the_device_part_of_a_session_opens_alone(golden: Path, tmp_path: Path) -> None:
    (timeline,) = golden.rglob("*.ntff")
    stored = Store(tmp_path / "store").add(timeline)
    assert stored.result.format == "NEFF and NTFF"
    kinds = rows(stored, "SELECT kind, count(*) AS n FROM Track GROUP BY 1 ORDER BY 1")
    assert kinds == [{"kind": "device", "n": 1}, {"kind": "engine", "n": 3}]


def test_an_estimate_keeps_no_engine_busy(tmp_path: Path) -> None:
    def estimate(made: dict[str, Any]) -> None:
        made["instructions"]["opcode"] = ["dma_copy", "dma_copy", "nc_transpose", "nc_matmul", "estimate", "dma_copy"]
        made["instructions"]["engine"] = ["Sync", "Sync", "Tensor", "Tensor", "GpSimd", "Scalar"]
        made["programs"]["estimated_ns"] = [1_000]
        made["programs"]["bytes_read"] = [100_000]

    write_pair(tmp_path, estimate)
    stored = Store(tmp_path / "store").add(tmp_path)
    (summary,) = rows(stored, "SELECT * FROM Summary WHERE nc_idx = 0")
    assert (summary["gpsimd_engine_active_time"], summary["gpsimd_engine_instruction_count"]) == (0, 0)
    assert summary["estimated_percent"] == pytest.approx(0.25)
    assert summary["hbm_read_bytes"] == 100_000
    assert "GpSimd" not in [row["engine"] for row in rows(stored, "SELECT DISTINCT engine FROM ActiveTime")]


def test_a_vendors_tables_of_the_same_schema_show_the_same(profile: Profile, tmp_path: Path) -> None:
    """As Neuron Explorer exports one: the published columns only, nothing of ours."""
    folder = tmp_path / "profiles" / "global" / "block@latest"
    folder.mkdir(parents=True)
    published_only = set(table_names()) - {spec.name for spec in OWN_TABLES} - {"SystemProfileEvents", "SchemaFields"}
    for name in published_only & set(profile.tables()):
        table = profile.table(name)
        if "device_profile_name" in table.column_names and name != "DeviceProfileList":
            table = table.filter([text.endswith("_vnc_0") for text in table["device_profile_name"].to_pylist()])
        ours = [column for column, _, _ in ADDED.get(name, ())]
        pq.write_table(table.drop_columns([c for c in ours if c in table.column_names]), folder / f"{name}.parquet")
    stored = Store(tmp_path / "store").add(tmp_path)
    assert stored.result.format == "neuron-explorer profile (Parquet)"
    tracks = "SELECT short, kind FROM Track ORDER BY track_id"
    assert rows(stored, tracks) == [row for row in rows(profile, tracks) if "NC3" not in row["short"]]
    same = "SELECT sum(raw_flops) AS flops, count(*) AS n FROM Instruction"
    assert rows(stored, same) == rows(profile, f"{same} WHERE execution_id = 1")
    opened = AnalysisProfile("vendor", stored.path)
    (row,) = opened.roofline(opened.whole_range).rows
    assert (row.bound, row.bytes, row.flops) == ("compute", 81_920, MATMUL)
    assert row.engines["Tensor"] == pytest.approx(0.075)


def test_the_neffs_header_is_told(profile: Profile) -> None:
    (header,) = rows(profile, "SELECT * FROM NeffHeader")
    assert (header["network_name"], header["header_size"], header["major_version"]) == ("block", 1024, 1)
    assert header["hash"] in rows(profile, "SELECT any_value(neff) AS neff FROM Summary")[0]["neff"]


def archive(members: dict[str, bytes]) -> bytes:
    """A NEFF of ours whose checksum is right, whatever is inside."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    data = buffer.getvalue()
    digest = hashlib.sha256(data).digest()
    header = struct.pack("<8sIIQQ32s", neff.MAGIC, 1, 0, neff.HEADER_BYTES, len(data), digest)
    return header.ljust(neff.HEADER_BYTES, b"\0") + data


@pytest.mark.parametrize("members", [{}, {"info.json": b"{"}, {"info.json": b"\xff"}, {"info.json": b"[1]"}])
def test_a_neff_without_readable_facts_is_refused(members: dict[str, bytes]) -> None:
    with pytest.raises(FormatError, match=r"x\.neff: .*info\.json"):
        neff.unpack(archive(members), "x.neff")


def test_a_table_with_nulls_or_other_types_is_refused(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (path,) = tmp_path.glob("*.ntff")
    message = Container()
    for value, reason in (([None], "holds nulls in"), (["text"], "has other types")):
        message.ParseFromString(path.read_bytes())
        (table,) = (one for one in message.tables if one.name == "waits")
        read = pa.ipc.open_stream(table.arrow_ipc).read_all()
        read = read.set_column(read.schema.get_field_index("value"), "value", pa.array(value * read.num_rows))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, read.schema) as writer:
            writer.write_table(read)
        table.arrow_ipc = sink.getvalue().to_pybytes()
        table.crc32 = zlib.crc32(table.arrow_ipc)
        damaged = tmp_path / "damaged.ntff"
        damaged.write_bytes(message.SerializeToString())
        with pytest.raises(FormatError, match=f"table waits {reason}"):
            container.read(damaged)


def test_an_instructions_chain_is_its_critical_path_and_what_waited_for_it(profile: Profile) -> None:
    opened = AnalysisProfile("block", profile.path)
    query = f"SELECT id FROM SystemProfileEvents WHERE name = 'nc_matmul' AND start_ts < {START + 10_000}"
    found = chain(opened, opened.rows(query)[0]["id"])
    told = [(event["name"], event["wait_ns"], event["wait_reason"]) for event in found["events"]]
    assert told == [
        ("dma_copy", 0, ""),
        ("x", 950, "DMA start"),
        ("spill", 700, "in order on its engine or queue"),  # triggered long before, but its queue was busy
        ("nc_matmul", 100, "semaphore"),
        ("tensor_copy", 100, "semaphore"),
    ]
    assert [len(found[side]) for side in ("upstream", "downstream")] == [3, 1]
