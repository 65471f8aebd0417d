"""What the profiling tests share: the walk-through's run, and reading a session back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_neuronx  # noqa: F401 - registers the device
from neuronscope.formats import container
from torch.profiler import ProfilerActivity, profile, schedule
from torch_neuronx.profiling import NeuronConfig, NeuronProfiler


@dataclass
class Run:
    """A finished profile and its session directory."""

    prof: Any
    directory: Path

    def trace(self) -> list[dict[str, Any]]:
        return json.loads((self.directory / "trace.json").read_text())["traceEvents"]

    def table(self, name: str, file: str = "ntrace.pb") -> list[dict[str, Any]]:
        return container.read(self.directory / file).tables[name].to_pylist()

    def session(self, file: str = "ntrace.pb") -> container.Session:
        return container.read(self.directory / file).session

    def rows(self) -> dict[str, Any]:
        """key_averages() rows that carry device time, by name."""
        return {row.key: row for row in self.prof.key_averages() if row.self_device_time_total > 0}


def session_directories(output: Path) -> list[Path]:
    return sorted(output.glob("i-*_pid_*/*/"))


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


@pytest.fixture
def capture(tmp_path: Path) -> Callable[..., Run]:
    """Profile `body` for one recorded step, as the walk-through does, and export its trace."""

    def run(
        body: Callable[[], Any],
        *,
        synchronize: bool = True,
        profile_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Run:
        options.setdefault("correlate_device_time", True)
        options.setdefault("profile_output_dir", tmp_path / "profiles")
        config = NeuronConfig(**options)
        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
            schedule=schedule(wait=2, warmup=1, active=1),
            experimental_config=config,
            on_trace_ready=NeuronProfiler(config).export_trace,
            **(profile_options or {}),
        ) as prof:
            for _ in range(4):
                body()
                if synchronize:
                    torch.neuron.synchronize()
                prof.step()
        return Run(prof, session_directories(Path(options["profile_output_dir"]))[-1])

    return run


@pytest.fixture
def naive_rms_norm() -> Callable[[], torch.Tensor]:
    x = torch.randn(4, 512, dtype=torch.bfloat16).to("neuron")
    weight = torch.ones(512, dtype=torch.bfloat16, device="neuron")

    def body() -> torch.Tensor:
        with torch.no_grad():
            return rms_norm(x, weight)

    return body
