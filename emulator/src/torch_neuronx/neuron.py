"""`torch.neuron`: the device module that torch's generic code and users call."""

from __future__ import annotations

from typing import Any

import torch

from torch_neuronx import memory
from torch_neuronx._devices import (
    _is_in_bad_fork,
    _lazy_init,
    current_device,
    device,
    device_count,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
)
from torch_neuronx._random import (
    get_rng_state,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
)
from torch_neuronx._streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    query,
    record_event,
    set_stream,
    stream,
    synchronize,
    wait_event,
    wait_stream,
)
from torch_neuronx.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)

__all__ = [
    "Event", "Stream", "StreamContext", "_is_in_bad_fork", "_lazy_init", "_sleep", "current_device",
    "current_stream", "default_stream", "device", "device_count", "empty_cache", "get_amp_supported_dtype",
    "get_device_name", "get_device_properties", "get_rng_state", "init", "initial_seed", "is_available",
    "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_reserved", "mem_get_info", "memory", "memory_allocated", "memory_reserved", "memory_stats",
    "memory_summary", "query", "record_event", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
    "seed", "seed_all", "set_device", "set_rng_state", "set_stream", "stream", "synchronize", "wait_event",
    "wait_stream",
]  # fmt: skip


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types that autocast accepts."""
    return [torch.float32, torch.float16, torch.bfloat16]


def is_bf16_supported() -> bool:
    """Always true on NeuronCores."""
    return True


def _sleep(cycles: int) -> None:
    """Does nothing, as on the real device."""


def __getattr__(name: str) -> Any:
    if name in {"get_dynamo_metrics", "reset_dynamo_metrics"}:
        import torch_neuronx.compile as compiler

        return getattr(compiler, name)
    raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")
