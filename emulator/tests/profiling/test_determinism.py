"""Device times are a property of the program, not of the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from neuronscope.formats import container

SCRIPT = """
import json, sys
import torch
from neuronscope.formats import container
from pathlib import Path
from torch.profiler import ProfilerActivity, profile
from torch_neuronx.profiling import NeuronConfig, NeuronProfiler

config = NeuronConfig(profile_output_dir=sys.argv[1], correlate_device_time=True)
x = torch.ones(64, 256, device="neuron")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], experimental_config=config,
             on_trace_ready=NeuronProfiler(config).export_trace) as prof:
    y = torch.softmax(x @ x.T, -1)
    (y.relu() + 1).sum()
    torch.neuron.synchronize()
(path,) = Path(sys.argv[1]).glob("i-*/*/ntrace.pb")
rows = container.read(path).tables["executions"].to_pylist()
print(json.dumps({
    "executions": [[r["overload"], r["neff"], r["launch_ns"], r["program_ns"], r["estimated_ns"]] for r in rows],
    "table": sorted((r.key, round(r.self_device_time_total * 1000)) for r in prof.key_averages()),
}))
"""


def test_two_processes_measure_the_same_device_time_to_the_nanosecond(tmp_path: Path):
    def run(name: str) -> dict:
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / name)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(result.stdout.splitlines()[-1])

    first, second = run("a"), run("b")
    assert first["executions"] == second["executions"]
    assert len([row for row in first["executions"] if row[1]]) >= 4
    assert first["table"] == second["table"]


def test_a_target_without_a_calibration_says_so_in_every_file(tmp_path: Path):
    environment = {**os.environ, "NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "trn3")]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    (directory,) = (tmp_path / "trn3").glob("i-*/*")
    session = container.read(directory / "ntrace.pb").session
    head = json.loads((directory / "trace.json").read_text())["neuronscope"]
    assert session.target == head["target"] == "trn3"
    assert session.device_cost_status["launch_cost"] == head["device_cost_status"]["launch_cost"] == "estimated"
    assert session.device_cost_ns == head["device_cost_ns"]
