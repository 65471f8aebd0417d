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


MODEL = """
import hashlib, json, sys
import torch
from pathlib import Path
from neuronscope.formats import container, neff
from torch.profiler import ProfilerActivity, profile
from torch_neuronx.profiling import NeuronConfig, NeuronProfiler

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(64), torch.nn.Linear(64, 160), torch.nn.Linear(160, 64)
    def forward(self, x):
        q = x.view(2, 20, 4, 16).transpose(1, 2)
        y = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        x = x + y.transpose(1, 2).reshape(2, 20, 64)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

torch.manual_seed(0)
model = Block().to("neuron")
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
x, index = torch.randn(2, 20, 64).to("neuron"), torch.tensor([[1, 5], [0, 3]]).to("neuron")
compiled = torch.compile(model, backend="neuron")

def work():
    for step in (model, compiled):
        loss = step(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    table = torch.nn.functional.embedding(index, x[0])
    torch.topk(table, 3), table.sum(0).exp(), torch.nn.functional.dropout(table, 0.5)
    torch.nn.functional.max_pool2d(x[None], 3), torch.bmm(x, x.transpose(1, 2)).softmax(-1)
    torch.neuron.synchronize()

work()  # compiles
config = NeuronConfig(profile_output_dir="out", modes=["runtime", "device"], correlate_device_time=True)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], experimental_config=config,
             on_trace_ready=NeuronProfiler(config).export_trace):
    work()
(folder,) = Path("out").glob("i-*/*/")
rows = container.read(folder / "ntrace.pb").tables["executions"].to_pylist()
files = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("*.neff")}
hashes = {name: neff.read(folder / name).hash for name in files}
(ntff,) = folder.glob("*.ntff")
tables = container.read(ntff).tables
print(json.dumps({
    "executions": [[r["overload"], r["neff"], r["launch_ns"], r["program_ns"], r["estimated_ns"]] for r in rows],
    "files": files, "hashes": hashes,
    "timelines": [repr(tables[n].to_pydict()) for n in ("instructions", "dma_transfers")],
}))
"""


def test_bytes_and_nanoseconds_depend_on_nothing_around_the_process(tmp_path: Path):
    """Folder, hash seed, locale, temporary folder, threads and umask differ; a model's NEFFs and times do not."""

    def run(name: str, umask: int, **environment: str) -> dict:
        folder = tmp_path / name
        (folder / "temporary files").mkdir(parents=True)
        (folder / "model.py").write_text(MODEL)
        result = subprocess.run(
            [sys.executable, "model.py"],
            capture_output=True,
            text=True,
            cwd=folder,
            umask=umask,
            check=False,
            env={**os.environ, "TMPDIR": str(folder / "temporary files"), **environment},
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    first = run("a", 0o022, PYTHONHASHSEED="1", LC_ALL="C", OMP_NUM_THREADS="1", TZ="UTC")
    second = run("b/c", 0o077, PYTHONHASHSEED="77", LC_ALL="C.UTF-8", OMP_NUM_THREADS="2", TZ="Asia/Kolkata")
    assert len(first["files"]) > 20
    assert first == second


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
