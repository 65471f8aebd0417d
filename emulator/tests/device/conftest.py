"""What the device tests share: fresh op tracking, and running a script in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
import torch
import torch_neuronx

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def clean_device() -> Iterator[None]:
    torch_neuronx.clear_op_tracking()
    yield
    torch.neuron.synchronize()


@pytest.fixture
def script() -> Script:
    """Runs Python source in a new process, warnings as errors; environment variables as keywords."""

    def run(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run
