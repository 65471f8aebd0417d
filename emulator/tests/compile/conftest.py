"""What the compile tests share: a clean Dynamo, and the executions that a piece of code makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_neuronx
from neuronscope.formats import container
from torch.profiler import ProfilerActivity, profile
from torch_neuronx.profiling import NeuronConfig, NeuronProfiler, ProfileMode


@pytest.fixture(autouse=True)
def clean_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch_neuronx.reset_dynamo_metrics()
    yield
    torch._dynamo.reset()


@pytest.fixture
def executions(tmp_path: Path) -> Callable[[Callable[[], Any]], list[str]]:
    """Run code under a capture; the overloads of what the device executed, copies left out, in order."""

    def run(body: Callable[[], Any]) -> list[str]:
        folder = tmp_path / "capture"
        config = NeuronConfig(modes=[ProfileMode.RUNTIME], profile_output_dir=str(folder))
        activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
        handler = NeuronProfiler(config).export_trace
        with profile(activities=activities, experimental_config=config, on_trace_ready=handler):
            body()
            torch.neuron.synchronize()
        (file,) = folder.glob("*/*/ntrace.pb")
        rows = container.read(file).tables["executions"].to_pylist()
        return [row["overload"] for row in rows if row["kind"] == "exec"]

    return run
