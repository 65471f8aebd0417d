"""Small functions that scripts for Trainium import by name."""

from __future__ import annotations

import os

from torch_neuronx import _C, _initialize

__all__ = [
    "get_logical_neuron_cores",
    "get_neuron_registered_ops",
    "get_platform_target",
    "is_sync_mode_enabled",
    "use_mlir_aten_ops",
]


def is_sync_mode_enabled() -> bool:
    """Whether NEURON_LAUNCH_BLOCKING makes each op complete before it returns."""
    return _initialize.flag("NEURON_LAUNCH_BLOCKING")


def use_mlir_aten_ops() -> bool:
    """Accepted for compatibility; the emulator has one implementation."""
    return _initialize.flag("TORCH_NEURONX_MLIR_ATEN_OPS")


def get_neuron_registered_ops(as_sorted: bool = False, keep_variant: bool = False) -> set[str] | list[str]:
    """Ops with a device kernel, without "aten::"; base names unless `keep_variant`."""
    names = {name.removeprefix("aten::") for name in _C.device_op_names()}
    if not keep_variant:
        names = {name.partition(".")[0] for name in names}
    return sorted(names) if as_sorted else names


def get_logical_neuron_cores() -> str:
    """Physical cores of a logical NeuronCore ("2"), as a string."""
    return str(_initialize.logical_core_size())


def get_platform_target() -> str:
    """The target whose numbers are used ("trn2")."""
    return os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or "trn2"
