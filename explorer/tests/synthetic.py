# ruff: noqa: E501 - rows of JSON stay on their line
"""A deterministic CUDA trace as Kineto writes it: steps of operators, each with a nested call, a launch, a kernel, an arrow.

Times are exact in nanoseconds and every figure that a reader should find is known beforehand (`Expected`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
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
EVENTS_PER_CALL = 7  # outer operator, inner operator, Python frame, launch, kernel, two arrow ends


@dataclass(frozen=True)
class Expected:
    """What a reader must find."""

    events: int
    kernels: int
    kernel_total_ns: int
    span_ns: int
    host_late: int


def expected(steps: int, calls: int) -> Expected:
    """Figures of the trace that `write` makes."""
    count = steps * calls
    return Expected(
        events=count * EVENTS_PER_CALL + steps + 4,
        kernels=count,
        kernel_total_ns=sum(_kernel_ns(i) for i in range(count)),
        span_ns=(count - 1) * 20_000 + _kernel_ns(count - 1),
        host_late=count - 1,
    )


def _kernel_ns(index: int) -> int:
    return 3_001 + 1_000 * (index % 7)


def _us(ns: int) -> str:
    return f"{ORIGIN_US + ns // 1000}.{ns % 1000:03d}"


def rows(steps: int, calls: int) -> Iterator[str]:
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


def write(path: Path, steps: int = 3, calls: int = 20) -> Expected:
    """Write the trace, gzipped when the name ends in .gz."""
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
        "with_stack": 1,
    }
    text = json.dumps(header)[:-1] + ',\n  "traceEvents": [\n  ' + ",\n  ".join(rows(steps, calls))
    text += '\n  ],\n  "traceName": "[synthetic].json",\n  "displayTimeUnit": "ms",\n  '
    text += f'"baseTimeNanoseconds": {BASE_NS}\n}}\n'
    data = text.encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return expected(steps, calls)
