"""The device tables of a recorded model: what the explorer shows adds up to what the emulator simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from neuronscope.formats import container
from neuronscope.store import Profile, Store
from torch.profiler import ProfilerActivity, profile
from torch_neuronx.profiling import NeuronConfig, ProfileMode


def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ weight) * 2


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Profile, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("session")
    config = NeuronConfig(modes=[ProfileMode.DEVICE, ProfileMode.RUNTIME], profile_output_dir=str(folder))
    compiled = torch.compile(block, backend="neuron", fullgraph=True)
    x, weight = (torch.ones(256, 256, dtype=torch.bfloat16).to("neuron") for _ in range(2))
    with torch.no_grad():
        compiled(x, weight)
        torch.neuron.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], experimental_config=config):
            compiled(x, weight)
            block(x, weight)
            block(x, weight)
            torch.neuron.synchronize()
    (timeline,) = folder.rglob("*.ntff")
    stored = Store(tmp_path_factory.mktemp("store")).add(folder)
    return stored, {row["neff"]: row for row in container.read(timeline).tables["programs"].to_pylist()}


def test_every_summary_agrees_with_what_was_simulated(recorded: tuple[Profile, dict[str, Any]]) -> None:
    stored, programs = recorded
    summaries = {row["neff"]: row for row in stored.table("Summary").to_pylist()}
    assert summaries.keys() == programs.keys()
    assert len(summaries) >= 3
    for neff, row in summaries.items():
        program = programs[neff]
        assert row["total_time"] == pytest.approx(program["duration_ns"] / 1e9)
        assert (row["hbm_read_bytes"], row["hbm_write_bytes"]) == (program["bytes_read"], program["bytes_written"])
        useful = row["hardware_flops"] - row["transpose_flops"]
        assert useful + row["elementwise_flops"] == program["flops"]
        assert row["mfu_inst_estimated_percent"] <= row["hfu_estimated_percent"] <= 1
    products = [row for row in summaries.values() if row["model_flops"]]
    assert {row["model_flops"] for row in products} == {2 * 256**3}
    assert all(row["hardware_flops"] >= 2 * 256**3 for row in products)


def test_every_instruction_names_an_op_and_a_line(recorded: tuple[Profile, dict[str, Any]]) -> None:
    stored, _ = recorded
    rows = stored.table("Instruction").to_pylist()
    assert all(row["hlo_name"].startswith("aten") for row in rows)
    assert {row["bir_debug_info_source_location"].partition(":")[0].rpartition("/")[2] for row in rows} == {
        Path(__file__).name
    }


def test_arrows_never_point_back_in_time(recorded: tuple[Profile, dict[str, Any]]) -> None:
    stored, _ = recorded
    arrows = stored.sql(
        "SELECT dependency_type AS kind, min(gap_time) AS gap, count(*) AS n FROM Flow "
        "WHERE in_table <> 'SystemProfileEvents' GROUP BY 1 ORDER BY 1"
    ).to_pylist()
    assert [row["kind"] for row in arrows] == ["dma_trigger", "semaphore"]
    assert all(row["gap"] >= 0 for row in arrows)
    host = stored.sql("SELECT count(*) AS n FROM Flow WHERE in_table = 'SystemProfileEvents'").to_pylist()
    assert host[0]["n"] > 0  # the chain of each execution is in the same table
    transfers = stored.table("DmaPacketAggregated").num_rows
    assert arrows[0]["n"] == transfers


def test_on_chip_memory_is_used_and_given_back(recorded: tuple[Profile, dict[str, Any]]) -> None:
    stored, _ = recorded
    for table in ("SbufUsage", "PsumUsage", "HbmUsage"):
        value = "current_throughput" if table == "HbmUsage" else "avg_util_percent"
        query = f"SELECT max({value}) AS most, arg_max({value}, timestamp) AS last FROM {table} GROUP BY execution_id"
        for row in stored.sql(query).to_pylist():
            assert row["most"] > 0
            assert row["last"] == 0
            assert table == "HbmUsage" or row["most"] <= 1
