"""Loads the device into torch, or says in one line why it can't be used.

`import torch` runs this through the `torch.backends` entry point, so nothing here may raise: whatever goes wrong is
kept, printed once, and raised when the device is used.
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata, util
from types import ModuleType
from typing import Any, NoReturn

import torch

from torch_neuronx._torch_version import TESTED_TORCH

VENDOR_DISTRIBUTION = "torch-neuronx"


class DeviceUnavailableError(RuntimeError, AttributeError):
    """The neuron device exists in name only; the message says why."""


def load() -> str | None:
    """Registers device `neuron`. Returns what is wrong, or None."""
    try:
        problem = obstacle()
        if problem is None:
            from torch_neuronx import _C

            _register(_C)
            return None
    except Exception as error:
        problem = _one_line(error)
    print(f"neuron device not available: {problem}", file=sys.stderr)  # noqa: T201
    _register_broken(problem)
    return problem


def obstacle() -> str | None:
    """Why the device can't be used here, with the fix; None where nothing is in the way."""
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}:
        return f"the emulator runs on Linux (x86-64, aarch64), this is {sys.platform} {platform.machine()}"
    if ".".join(torch.__version__.split(".")[:2]) != TESTED_TORCH:
        return (
            f"neuronscope-emulator is built for torch {TESTED_TORCH}, but torch is {torch.__version__}; "
            f"install 'torch=={TESTED_TORCH}.*' or rebuild neuronscope-emulator"
        )
    try:
        version = metadata.version(VENDOR_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        pass
    else:
        return (
            f"{VENDOR_DISTRIBUTION} {version}, the vendor's package for real NeuronCores, is installed here; "
            "uninstall neuronscope-emulator (the explorer works without it)"
        )
    if util.find_spec("torch_neuronx._C") is None:
        return "torch_neuronx._C is not built; run 'pip install --no-build-isolation -e emulator' or 'make setup'"
    return None


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if "undefined symbol" in text or "cannot open shared object" in text:
        text += " (rebuild neuronscope-emulator for this torch)"
    return text


def _register(extension: Any) -> None:
    from torch_neuronx import _initialize, neuron
    from torch_neuronx._eager import compile_call

    extension.register_hooks()
    extension.set_device_count_hook(_initialize.device_count)
    extension.set_initializer(_initialize.initialize)
    extension.register_miss_handler(compile_call)
    extension.register_ops(_initialize.registered_ops())
    _rename(neuron)
    _initialize.apply_environment()
    from torch_neuronx import _auto_compile, profiling

    profiling.install()
    _auto_compile.install()


def _rename(module: ModuleType) -> None:
    torch.utils.rename_privateuse1_backend("neuron")
    torch._register_device_module("neuron", module)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )


def _register_broken(problem: str) -> None:
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise DeviceUnavailableError(f"neuron device not available: {problem}")

    module = ModuleType("torch.neuron", "The neuron device could not be loaded.")
    module.is_available = lambda: False  # type: ignore[attr-defined]
    module.device_count = lambda: 0  # type: ignore[attr-defined]
    module._is_in_bad_fork = lambda: False  # type: ignore[attr-defined]
    module._lazy_init = refuse  # type: ignore[attr-defined]
    module.__getattr__ = refuse  # type: ignore[method-assign]
    try:
        _rename(module)
    except RuntimeError:
        torch.neuron = module  # another backend has the PrivateUse1 slot
