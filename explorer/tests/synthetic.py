# ruff: noqa: E501 - rows of JSON stay on their line
"""A deterministic CUDA trace as Kineto writes it: steps of operators, each with a nested call, a launch, a kernel, an arrow.

Times are exact in nanoseconds and every figure that a reader should find is known beforehand (`Expected`). A file is
written as it is made, so that one of 10 million events needs no memory.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

BASE_NS = 1_751_410_836_000_000_000
ORIGIN_US = 1_419_247_332_500
KERNELS = (
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float*)", "aten::add"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_execute_segment_k_off_kernel__5x_cublas", "aten::mm"),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(float*)",
        "aten::mean",
    ),
)
_CALLS_PER_COUNTER = 10
EVENTS_PER_CALL = 7  # outer operator, inner operator, Python frame, launch, kernel, two arrow ends


@dataclass(frozen=True)
class Expected:
    """What a reader must find."""

    events: int
    kernels: int
    kernel_total_ns: int
    span_ns: int
    host_late: int


def expected(steps: int, calls: int, counters: bool = False) -> Expected:
    """Figures of the trace that `write` makes."""
    count = steps * calls
    return Expected(
        events=count * EVENTS_PER_CALL + steps + 4 + (count // _CALLS_PER_COUNTER if counters else 0),
        kernels=count,
        kernel_total_ns=sum(_kernel_ns(i) for i in range(count)),
        span_ns=(count - 1) * 20_000 + _kernel_ns(count - 1),
        host_late=count - 1,
    )


def _kernel_ns(index: int) -> int:
    return 3_001 + 1_000 * (index % 7)


def _us(ns: int) -> str:
    return f"{ORIGIN_US + ns // 1000}.{ns % 1000:03d}"


def rows(steps: int, calls: int, counters: bool = False) -> Iterator[str]:
    """The events as JSON texts."""
    host, device = '"pid": 4121, "tid": 4121', '"pid": 0, "tid": 7'
    call_ns = 20_000  # one call each 20 us; kernels take 3 to 9 us, so the device waits for the host every time
    for index in range(steps * calls):
        kernel, op = KERNELS[index % len(KERNELS)]
        at = 100_000 + index * call_ns
        correlation, external = 8_192 + index, 2 * index + 1
        inputs = '"Input Dims": [[4, 512], [512]], "Input type": ["c10::BFloat16", "c10::BFloat16"]'
        yield (
            f'{{\n    "ph": "X", "cat": "cpu_op", "name": "{op}", {host},\n    "ts": {_us(at)}, "dur": 15.000,\n'
            f'    "args": {{\n      "External id": {external},"Record function id": 0, {inputs}, "Ev Idx": {index}\n    }}\n  }}'
        )
        yield (
            f'{{\n    "ph": "X", "cat": "cpu_op", "name": "{op}_out", {host},\n    "ts": {_us(at + 1_000)}, "dur": 12.500,\n'
            f'    "args": {{\n      "External id": {external + 1},"Record function id": 0, {inputs}, "Ev Idx": {index}\n    }}\n  }}'
        )
        yield (
            f'{{\n    "ph": "X", "cat": "python_function", "name": "model.py({10 + index % 40}): forward", {host},\n'
            f'    "ts": {_us(at - 1_000)}, "dur": 17.250,\n    "args": {{\n      "Python parent id": null, "Python id": {index}, '
            f'"Ev Idx": {index}\n    }}\n  }}'
        )
        yield (
            f'{{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {host},\n    "ts": {_us(at + 3_000)}, '
            f'"dur": 5.125,\n    "args": {{\n      "External id": {external + 1},"cbid": 211, "correlation": {correlation}\n    }}\n  }}'
        )
        yield (
            f'{{\n    "ph": "s", "id": {correlation}, {host}, "ts": {_us(at + 3_000)},\n    "cat": "ac2g", "name": "ac2g"\n  }}'
        )
        yield (
            f'{{\n    "ph": "X", "cat": "kernel", "name": "{kernel}", {device},\n    "ts": {_us(at + 9_000)}, '
            f'"dur": {_kernel_ns(index) // 1000}.{_kernel_ns(index) % 1000:03d},\n    "args": {{\n      "External id": {external + 1},'
            f'"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {correlation},\n      "registers per thread": 32, '
            f'"shared memory": 0, "blocks per SM": 0.5, "grid": [64, 1, 1], "block": [128, 1, 1], '
            f'"est. achieved occupancy %": 6\n    }}\n  }}'
        )
        yield (
            f'{{\n    "ph": "f", "id": {correlation}, {device}, "ts": {_us(at + 9_000)},\n    "cat": "ac2g", "name": "ac2g", '
            f'"bp": "e"\n  }}'
        )
        if counters and index % _CALLS_PER_COUNTER == _CALLS_PER_COUNTER - 1:
            yield (
                f'{{\n    "ph": "C", "name": "allocated bytes", {host}, "ts": {_us(at + 2_000)},\n'
                f'    "args": {{\n      "bytes": {4096 * (index % 997)}\n    }}\n  }}'
            )
    for step in range(steps):
        begin = 98_000 + step * calls * call_ns
        yield (
            f'{{\n    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step + 3}", {host},\n    "ts": {_us(begin)}, '
            f'"dur": {calls * call_ns // 1000 - 1}.500,\n    "args": {{\n      "Record function id": 0, "Ev Idx": {step}\n    }}\n  }}'
        )
    end = 100_000 + steps * calls * call_ns
    yield f'{{\n    "name": "process_name", "ph": "M", "ts": {_us(0)}, "pid": 4121, "tid": 0,\n    "args": {{\n      "name": "python"\n    }}\n  }}'
    yield f'{{\n    "name": "process_labels", "ph": "M", "ts": {_us(0)}, "pid": 0, "tid": 0,\n    "args": {{\n      "labels": "GPU 0"\n    }}\n  }}'
    yield (
        f'{{\n    "ph": "X", "cat": "Trace", "ts": {_us(0)}, "dur": {end // 1000 + 100}.000,\n    "pid": "Spans", '
        f'"tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {{\n      "Op count": 0\n    }}\n  }}'
    )
    yield f'{{\n    "name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": {_us(end)}\n  }}'


def write(
    path: Path, steps: int = 3, calls: int = 20, rank: int = 0, ranks: int = 1, counters: bool = False
) -> Expected:
    """Write the trace of one rank, gzipped when the name ends in .gz.

    Args:
        path: the file.
        steps: profiler steps.
        calls: operator calls per step, of `EVENTS_PER_CALL` events each.
        rank: of the process; a rank's clock is 7 us ahead of the one before.
        ranks: processes of the job.
        counters: also write samples of a counter.
    """
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "with_stack": 1,
    }
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
        file.write((json.dumps(header)[:-1] + ',\n  "traceEvents": [\n  ').encode())
        separator = b""
        for some in batched(rows(steps, calls, counters), 10_000):
            file.write(separator + ",\n  ".join(some).encode())
            separator = b",\n  "
        end = '\n  ],\n  "traceName": "[synthetic].json",\n  "displayTimeUnit": "ms",\n  '
        file.write(f'{end}"baseTimeNanoseconds": {BASE_NS + 7_000 * rank}\n}}\n'.encode())
    return expected(steps, calls, counters)


def write_ranks(folder: Path, ranks: int, steps: int = 3, calls: int = 20) -> list[Expected]:
    """Write one file per rank, named as torch's handler does (`rank<n>.<time>.pt.trace.json`)."""
    return [write(folder / f"rank{rank}.1751410836.pt.trace.json", steps, calls, rank, ranks) for rank in range(ranks)]


def batched(texts: Iterator[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` texts, the last one shorter."""
    while some := list(islice(texts, size)):
        yield some
