"""What the three RMSNorm examples share: arguments, input, and the profiled loop.

Only public interfaces: torch, torch.profiler, torch_neuronx.profiling. The same lines run on a Trainium.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # Kineto writes progress to stderr otherwise; it reads this at import

import torch
from torch.profiler import ProfilerActivity, profile, schedule

EPS = 1e-6
RmsNorm = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def arguments(description: str) -> argparse.ArgumentParser:
    """The options all examples take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=_positive, default=4, help="rows of the input (default 4)")
    parser.add_argument("--cols", type=_positive, default=512, help="columns, normalised over (default 512)")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--out", type=Path, default=Path("profile_output"), help="folder for the profile")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def main(description: str, make: Callable[[], RmsNorm]) -> None:
    """Profile one warm iteration of an RMSNorm on the device, print the table, leave the session in --out."""
    options = arguments(description).parse_args()
    if not hasattr(torch, "neuron"):
        sys.exit("torch knows no neuron device: run `make setup` in the repository and use its .venv/bin/python")
    try:
        torch.neuron.init()
    except (RuntimeError, ValueError) as error:
        sys.exit(f"no neuron device: {' '.join(str(error).split())}")
    from torch_neuronx.profiling import NeuronConfig, NeuronProfiler, ProfileMode

    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    x = torch.randn(options.rows, options.cols, dtype=dtype).to("neuron")
    weight = torch.ones(options.cols, dtype=dtype, device="neuron")
    rms_norm = make()
    try:
        config = NeuronConfig(
            modes=[ProfileMode.DEVICE, ProfileMode.RUNTIME],
            capture_enabled_for_nc="0",
            profile_output_dir=str(options.out),
            correlate_device_time=True,
        )
    except OSError as error:  # --out can't be written
        sys.exit(str(error))
    with (
        torch.no_grad(),
        profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
            schedule=schedule(wait=2, warmup=1, active=1),
            experimental_config=config,
            on_trace_ready=NeuronProfiler(config).export_trace,
        ) as prof,
    ):
        for _ in range(4):
            rms_norm(x, weight)
            torch.neuron.synchronize()  # without it the capture may end before the device has
            prof.step()
    print(prof.key_averages().table(sort_by="self_privateuse1_time_total", row_limit=4))
    target = torch.neuron.get_device_properties().name
    print(f"Device time (NEURON) is emulated for {target}; host time (CPU) was measured on this machine.", flush=True)
