"""Device memory statistics; also `torch.neuron.memory`. `reserved >= allocated >= active` always holds."""

from __future__ import annotations

from typing import Any

from torch_neuronx import _C
from torch_neuronx._devices import DeviceLike, index_of

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Statistics of the caching allocator, bytes and counts.

    Both spellings in use are there: `stats["allocated_bytes"]["current"]` and `stats["allocated_bytes.all.current"]`.
    """
    stats: dict[str, Any] = {}
    for name, value in _C.memory_stats(index_of(device)).items():
        if not isinstance(value, dict):
            stats[name] = value
            continue
        stats[name] = value["all"]
        for pool, numbers in value.items():
            for key, number in numbers.items():
                stats[f"{name}.{pool}.{key}"] = number
    stats["allocation_requests"] = stats["allocation"]["allocated"]
    stats["num_tensor_frees"] = stats["allocation"]["freed"]
    return stats


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors hold now."""
    return int(memory_stats(device)["allocated_bytes.all.current"])


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Most bytes that tensors held since the start or `reset_peak_memory_stats`."""
    return int(memory_stats(device)["allocated_bytes.all.peak"])


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the allocator holds, for tensors or for reuse."""
    return int(memory_stats(device)["reserved_bytes.all.current"])


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Most bytes that the allocator held."""
    return int(memory_stats(device)["reserved_bytes.all.peak"])


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total bytes of the device."""
    free, total = _C.memory_info(index_of(device))
    return int(free), int(total)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Sets every peak to the current value."""
    _C.reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Sets every count of what was ever allocated and freed to zero."""
    _C.reset_accumulated_memory_stats(index_of(device))


def empty_cache() -> None:
    """Gives memory that no tensor holds back to the system."""
    _C.empty_cache()


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The statistics as a table."""
    index = index_of(device)
    stats = memory_stats(index)
    rows = ["allocated_bytes", "active_bytes", "reserved_bytes"]
    if not abbreviated:
        rows += ["requested_bytes", "allocation", "segment"]
    lines = [
        f"Neuron Memory Summary, Device {index}",
        f"{'':18}{'current':>16}{'peak':>16}{'allocated':>16}{'freed':>16}",
    ]
    for name in rows:
        numbers = stats[name]
        lines.append(f"{name:18}" + "".join(f"{numbers[key]:>16}" for key in ("current", "peak", "allocated", "freed")))
    lines.append(f"retries {stats['num_alloc_retries']}, out of memory {stats['num_ooms']}")
    return "\n".join(lines)
