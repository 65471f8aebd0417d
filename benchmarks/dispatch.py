"""What issuing an op costs on neuron, as a ratio to plain CPU torch in the same run, and what recording a profile adds.

Medians of alternating rounds, one thread, microseconds of host time per call. `issued` is when the call returned
(values are computed in the background), `done` when all values were there. `ratio` is the case's `done` to its peer's.
A cache hit is what an op's signature and finding its program take, repeated within the call, apart from the rest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

NAME = "Dispatch and profiling overhead"

CALLS = 300
ROUNDS = 15
RECORDED_ROUNDS = 5
Call = Callable[[], Any]


def run() -> list[dict[str, object]]:
    """Measure every case.

    Raises:
        RuntimeError: there is no neuron device.
    """
    if not hasattr(torch, "neuron") or not torch.neuron.is_available():
        raise RuntimeError("no neuron device: run `make setup` and use .venv/bin/python")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            return [*_dispatch(), *_lookups(), *_profiling()]
    finally:
        torch.set_num_threads(threads)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def _dispatch() -> list[dict[str, object]]:
    x, weight = torch.randn(4, 512).bfloat16(), torch.ones(512).bfloat16()
    a = torch.randn(512, 512)
    nx, nweight, na = x.to("neuron"), weight.to("neuron"), a.to("neuron")
    compiled = torch.compile(_rms_norm, backend="neuron")
    cpu = "CPU torch"
    return [
        _row("mul, 4x512 bf16", cpu, lambda: x * x, lambda: nx * nx),
        _row("mul_, 4x512 bf16", cpu, lambda: x.mul_(1), lambda: nx.mul_(1)),
        _row("add a number, 4x512 bf16", cpu, lambda: x + 1e-6, lambda: nx + 1e-6),
        _row("mm, 512x512x512 fp32", cpu, lambda: a @ a, lambda: na @ na, calls=10),
        _row("RMSNorm, six ops", cpu, lambda: _rms_norm(x, weight), lambda: _rms_norm(nx, nweight)),
        _row("RMSNorm, compiled", "neuron, six ops", lambda: _rms_norm(nx, nweight), lambda: compiled(nx, nweight)),
    ]


def _lookups(entries: int = 2000) -> list[dict[str, object]]:
    """Finding the program of an op already compiled, apart from the rest of its dispatch, among many others."""
    from torch_neuronx import _C

    x = torch.randn(4, 512).bfloat16().to("neuron")
    many = [x] * 32
    for size in range(1, entries):  # as many signatures, made cheaply: views of one tensor
        x.view(-1)[:size].neg_()
    cases: dict[str, Call] = {
        "mul": lambda: x * x,
        "add a number": lambda: x + 1e-6,
        "sum over an axis": lambda: x.sum(-1),
        "foreach of 32": lambda: torch._foreach_mul_(many, 1.0),
    }
    rows: list[dict[str, object]] = []
    for name, call in cases.items():
        call()
        times = []
        for _ in range(ROUNDS):
            _C.set_lookup_repeats(1000)
            call()
            _C.set_lookup_repeats(0)
            times.append(_C.lookup_ns())
        rows.append({
            "case": f"cache hit, {name}, among {_C.cached_signatures()} signatures",
            "issued µs": round(statistics.median(times) / 1e3, 3),
            "done µs": "", "peer": "", "peer µs": "", "ratio": "",
        })  # fmt: skip
    torch.neuron.synchronize()
    return rows


def _profiling() -> list[dict[str, object]]:
    from torch_neuronx.profiling import NeuronConfig, ProfileMode

    x = torch.randn(4, 512).bfloat16()
    nx = x.to("neuron")
    both = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with tempfile.TemporaryDirectory() as folder:
        config = NeuronConfig(modes=[ProfileMode.RUNTIME], profile_output_dir=folder, correlate_device_time=True)
        return [
            _recorded("mul recorded, CPU torch", lambda: x * x, activities=[ProfilerActivity.CPU]),
            _recorded("mul recorded, neuron", lambda: nx * nx, activities=both, experimental_config=config),
        ]


def _recorded(what: str, call: Call, **options: Any) -> dict[str, object]:
    """Calls while a profiler records, against the same without; waits for the simulated device are left out."""
    plain, recorded = [], []
    _round(call, CALLS)
    for _ in range(RECORDED_ROUNDS):
        plain.append(_round(call, CALLS, done=False))
        with profile(**options):
            recorded.append(_round(call, CALLS, done=False))
            torch.neuron.synchronize()
    return _entry(what, "the same, not recorded", plain, recorded)


def _row(what: str, peer: str, peer_call: Call, call: Call, calls: int = CALLS) -> dict[str, object]:
    for warm in (peer_call, call):
        _round(warm, calls)
    peer_times, times = [], []
    for _ in range(ROUNDS):
        peer_times.append(_round(peer_call, calls))
        times.append(_round(call, calls))
    return _entry(what, peer, peer_times, times)


def _entry(
    what: str, peer: str, peer_times: list[tuple[float, float]], times: list[tuple[float, float]]
) -> dict[str, object]:
    issued = statistics.median(issued for issued, _ in times)
    mine = statistics.median(done for _, done in times)
    other = statistics.median(done for _, done in peer_times)
    return {
        "case": what,
        "issued µs": round(issued, 2),
        "done µs": round(mine, 2),
        "peer": peer,
        "peer µs": round(other, 2),
        "ratio": round(mine / other, 2),
    }


def _round(call: Call, calls: int, done: bool = True) -> tuple[float, float]:
    """Microseconds per call until the calls had returned, and until their values were there (`done`)."""
    torch.neuron.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(calls):
        call()
    issued = time.perf_counter_ns() - begin
    if done:
        torch.neuron.synchronize()
        return issued / calls / 1000, (time.perf_counter_ns() - begin) / calls / 1000
    return issued / calls / 1000, issued / calls / 1000


def main() -> None:
    """Print the table, or exact rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the rows as JSON, and nothing else")
    options = parser.parse_args()
    try:
        rows = run()
    except RuntimeError as error:
        sys.exit(str(error))
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
        return
    widths = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    for line in (dict(zip(widths, widths, strict=True)), *rows):
        print("  ".join(str(line[key]).ljust(width) for key, width in widths.items()).rstrip())


if __name__ == "__main__":
    main()
