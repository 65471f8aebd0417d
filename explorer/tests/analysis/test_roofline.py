"""What bounds an executable, with peaks chosen so that every figure can be checked by head."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from neuronscope.analysis.profile import Profile, Range
from neuronscope.analysis.roofline import RooflineError, roofline
from neuronscope.schema.published import arrow_schema

FLOPS, BANDWIDTH = 1_000e9, 100e9  # 1000 FLOP and 100 B per ns: they meet at 10 FLOP/B


def execution(number, *, neff, launch, program, flops, read, written=0):
    return {
        "execution_id": number, "event_id": number, "op_event_id": -1, "kind": "exec", "name": f"kernel {neff}",
        "op": "aten::mm", "overload": f"aten::mm.{neff}", "neff": neff, "device": 0, "stream_id": 0, "process_id": 1,
        "correlation": -1, "enqueue_ts": -1, "start_ts": number * 100_000,
        "end_ts": number * 100_000 + max(launch, 0) + program, "duration_ns": max(launch, 0) + program,
        "launch_ns": launch, "program_ns": program if launch >= 0 else -1, "estimated_ns": 0, "gap_ns": -1,
        "gap_cause": "unknown", "bytes_read": read, "bytes_written": written, "flops": flops, "shapes": "",
        "dtypes": "",
        "module_path": "", "source": "", "step": -1, "physical_cores": 1, "rank": -1, "provenance": "recorded",
    }  # fmt: skip


@pytest.fixture
def opened(build_tables, rmsnorm):
    def run(executions, info=(), **tables):
        built = build_tables(rmsnorm)
        schema = built["Execution"].schema
        names = set(schema.names)
        defaults = {f.name: "" if pa.types.is_string(f.type) or pa.types.is_dictionary(f.type) else -1 for f in schema}
        rows = [defaults | {k: v for k, v in row.items() if k in names} for row in executions]
        built["Execution"] = pa.Table.from_pylist(rows, schema=schema)
        facts = [row for row in built["ProfileInfo"].to_pylist() if row["key"] != "target"]
        facts += [{"key": key, "value": value} for key, value in info]
        built["ProfileInfo"] = pa.Table.from_pylist(facts, schema=arrow_schema("ProfileInfo"))
        for name, values in tables.items():
            loose = pa.schema([pa.field(f.name, f.type) for f in arrow_schema(name)])
            built[name] = pa.Table.from_pylist(values, schema=loose)
        profile = Profile("work", built)
        return profile, Range(0, 1 << 60, -1, "everything")

    return run


def placed(opened_profile, **peaks):
    profile, selected = opened_profile
    found = roofline(profile, selected, **({"peak_flops": FLOPS, "peak_bandwidth": BANDWIDTH} | peaks))
    return {row.neff: row for row in found.rows}, found


def test_each_executable_is_bound_by_launch_memory_or_compute(opened):
    rows, found = placed(
        opened(
            [
                execution(1, neff="launch", launch=9_000, program=1_000, flops=100_000, read=10_000),
                execution(2, neff="memory", launch=1_000, program=4_000, flops=100_000, read=150_000, written=50_000),
                execution(3, neff="compute", launch=0, program=8_000, flops=4_000_000, read=100_000),
                execution(4, neff="compute", launch=0, program=8_000, flops=4_000_000, read=100_000),
            ]
        )
    )
    assert {neff: row.bound for neff, row in rows.items()} == {
        "launch": "launch",
        "memory": "memory",
        "compute": "compute",
    }
    memory, compute = rows["memory"], rows["compute"]
    assert (memory.intensity, memory.memory_ns, memory.compute_ns, memory.reached) == (0.5, 2_000, 100, 0.5)
    assert (compute.executions, compute.device_time_ns, compute.compute_ns, compute.reached) == (2, 16_000, 4_000, 0.5)
    assert compute.achieved_flops_per_second == pytest.approx(500e9)
    assert memory.achieved_bytes_per_second == pytest.approx(50e9)
    assert rows["launch"].text == (
        "launch cost is 90% of device time; engine and DMA time reaches 10% of the memory roof (HBM share), the rest "
        "is latency and waiting"
    )
    assert found.far == 1
    assert [row.device_time_ns for row in found.rows] == sorted(
        (row.device_time_ns for row in found.rows), reverse=True
    )
    assert found.roofs.ridge == 10


def test_matrix_products_count_at_their_own_peak_and_other_engines_by_their_time(opened):
    summary = {
        "neff": "fp32", "hardware_flops": 500_000, "transpose_flops": 100_000, "adjusted_hardware_flops": 2_000_000,
        "adjusted_transpose_flops": 400_000, "elementwise_flops": 1_000, "hbm_read_bytes": 1_000, "hbm_write_bytes": 0,
        "vector_engine_active_time": 1e-6,
    }  # fmt: skip
    busy = summary | {"neff": "vector", "adjusted_hardware_flops": 400_000, "vector_engine_active_time": 3e-6}
    rows, _ = placed(
        opened(
            [
                execution(1, neff="fp32", launch=0, program=4_000, flops=401_000, read=1_000),
                execution(2, neff="vector", launch=0, program=4_000, flops=401_000, read=1_000),
            ],
            Summary=[summary, busy],
        )
    )
    assert (rows["fp32"].compute_ns, rows["fp32"].compute_limit) == (1_600, "TensorE peak")
    assert rows["fp32"].flops == 401_000
    assert rows["vector"].compute_ns == pytest.approx(3_000)
    assert rows["vector"].compute_limit == "Vector busy"


def test_what_is_not_recorded_is_said_and_not_guessed(opened):
    rows, _ = placed(
        opened(
            [
                execution(1, neff="a", launch=-1, program=4_000, flops=-1, read=10),
                execution(2, neff="b", launch=-1, program=4_000, flops=10, read=-1),
            ]
        )
    )
    assert {(row.bound, row.reached, row.launch_share) for row in rows.values()} == {("", None, None)}
    assert rows["a"].text == "not placed: the profile has no FLOPs of it"
    assert rows["b"].text == "not placed: the profile has no bytes of it"


def test_peaks_come_from_the_profile_its_metadata_or_the_caller(opened):
    work = [execution(1, neff="a", launch=0, program=4_000, flops=10, read=10)]
    profile, selected = opened(work)
    with pytest.raises(RooflineError, match=r"not known here\. Give both: --peak-flops"):
        roofline(profile, selected)
    with pytest.raises(RooflineError, match="more than zero"):
        roofline(profile, selected, peak_flops=0.0, peak_bandwidth=1.0)
    hardware = {"tensor_peak_flops_per_second.bf16": 5e12, "hbm_bytes_per_second": 2e11}
    rows = [{"name": name, "value": value, "status": "published"} for name, value in hardware.items()]
    recorded = roofline(*opened(work, info=[("target", "trn2")], Hardware=rows)).roofs
    assert (recorded.flops_per_second, recorded.bytes_per_second, recorded.unit) == (5e12, 2e11, "one core of trn2")
    metadata = {"tensor_engine_num_rows": 128, "tensor_engine_num_cols": 128, "tensor_engine_clock_freq": 2.5,
                "hbm_ddr_bandwidth": 4e11}  # fmt: skip
    vendor = roofline(*opened(work, Metadata=[metadata])).roofs
    assert (vendor.flops_per_second, vendor.bytes_per_second) == (2 * 128 * 128 * 2.5e9, pytest.approx(4e11))
    listed = roofline(*opened(work, info=[("target", "trn1")])).roofs
    assert listed.flops_per_second == pytest.approx(91.75e12)
    mixed = roofline(*opened(work, info=[("target", "trn1")]), peak_bandwidth=1e12).roofs
    assert (mixed.flops_per_second, mixed.bytes_per_second) == (pytest.approx(91.75e12), 1e12)


def test_the_command_names_its_denominators(capsys, tmp_path):
    from neuronscope.cli.app import run

    golden = str(Path(__file__).parents[1] / "golden" / "session")
    assert run(["analysis", golden, "--data-path", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "78.6 TFLOP/s in bf16, 363 GB/s; they meet at 217 FLOP/B" in text
    assert "more than 50% of device time" in text
    assert "reached: that time over engine and DMA time" in text
    assert run(["analysis", golden, "--data-path", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["rows"]) == 6
    assert {row["bound"] for row in answer["rows"]} == {"launch"}
    assert answer["device_time_ns"] == sum(row["device_time_ns"] for row in answer["rows"])
