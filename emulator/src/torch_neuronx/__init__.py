"""The neuron device for PyTorch, emulated. `import torch` registers it; start reading at `torch_neuronx.neuron`.

`torch.zeros(4, device="neuron")` works after a plain `import torch`. This package adds what scripts written for
Trainium import by name: device functions, op tracking, profiling and the `torch.compile` backend.
"""

from __future__ import annotations

from typing import Any


def _autoload() -> None:
    """Entry point that `import torch` calls. The work is done when this module is imported, in either order."""


# `import torch` may import this module (entry point) and the other way round; `_autoload` must exist before.
import torch  # noqa: E402, F401

from torch_neuronx import _load  # noqa: E402

_problem = _load.load()

if _problem is None:
    from torch_neuronx import _executables, neuron, utils  # noqa: F401 - captures look up _executables
    from torch_neuronx.neuron import (
        Event,
        Stream,
        StreamContext,
        current_device,
        current_stream,
        default_stream,
        device,
        device_count,
        empty_cache,
        get_device_properties,
        max_memory_allocated,
        max_memory_reserved,
        memory_allocated,
        memory_reserved,
        memory_stats,
        memory_summary,
        reset_accumulated_memory_stats,
        reset_peak_memory_stats,
        set_device,
        set_stream,
        stream,
        synchronize,
    )
    from torch_neuronx.neuron import is_initialized as is_neuron_runtime_initialized
    from torch_neuronx.tracking import clear_op_tracking, get_executed_ops, get_fallback_ops

    _lazy_init = neuron._lazy_init

    __all__ = [
        "Event", "Stream", "StreamContext", "clear_op_tracking", "current_device", "current_stream",
        "default_stream", "device", "device_count", "empty_cache", "get_device_properties", "get_executed_ops",
        "get_fallback_ops", "is_neuron_runtime_initialized", "max_memory_allocated", "max_memory_reserved",
        "memory_allocated", "memory_reserved", "memory_stats", "memory_summary", "neuron",
        "reset_accumulated_memory_stats", "reset_peak_memory_stats", "set_device", "set_stream", "stream",
        "synchronize", "utils",
    ]  # fmt: skip


def __getattr__(name: str) -> Any:
    if _problem is not None and not name.startswith("__"):
        raise _load.DeviceUnavailableError(f"neuron device not available: {_problem}")
    # Late: these need numpy and Arrow, or torch's compiler, which importing torch must not.
    if name in {"NeuronProfiler", "profiling"}:
        from torch_neuronx import profiling

        return profiling if name == "profiling" else profiling.NeuronProfiler
    if name in {"get_dynamo_metrics", "reset_dynamo_metrics"}:
        import torch_neuronx.compile as compiler

        return getattr(compiler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
