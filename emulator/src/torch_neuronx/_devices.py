"""Device selection: numbers, properties, the current device, initialization."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

import torch

from torch_neuronx import _C, _initialize

#: What torch accepts as a device; None is the current one.
DeviceLike: TypeAlias = torch.device | int | str | None


def index_of(device: Any, optional: bool = True) -> int:
    """Device index of an int, "neuron:1", torch.device, or (None) the current device.

    Raises:
        ValueError: another kind of device or type.
        RuntimeError: no such index.
    """
    if device is None and optional:
        return current_device()
    if isinstance(device, bool) or not isinstance(device, (int, str, torch.device)):
        message = f"Expected an int, a string such as 'neuron:0' or a torch.device, got: {device!r}"
        raise ValueError(message)  # noqa: TRY004 - as on the real device
    if isinstance(device, int):
        index = device
    else:
        parsed = torch.device(device)
        if parsed.type != "neuron":
            raise ValueError(f"Expected Neuron device, got: {parsed}")
        index = current_device() if parsed.index is None else parsed.index
    count = device_count()
    if not 0 <= index < count:
        raise RuntimeError(f"Device index {index} is out of range. Valid range is 0 to {count - 1} for this process")
    return index


def is_available() -> bool:
    """Whether there is a device. Never raises."""
    try:
        return device_count() > 0
    except Exception:
        return False


def is_initialized() -> bool:
    """Whether the runtime has been started."""
    return bool(_C.is_initialized())


def init() -> None:
    """Starts the runtime now instead of at the first use."""
    _C.init()


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return bool(_C.is_in_bad_fork())


def device_count() -> int:
    """Logical NeuronCores that this process can use."""
    return int(_C.device_count())


def current_device() -> int:
    """Index of this thread's device."""
    return int(_C.current_device())


def set_device(device: DeviceLike) -> None:
    """Makes a device this thread's current one; None leaves it.

    Raises:
        ValueError: no such device.
    """
    if device is None:
        return
    if isinstance(device, int) and not 0 <= device < device_count():
        raise ValueError(f"Invalid device id: {device}. Valid range is 0 to {device_count() - 1}")
    try:
        index = index_of(device)
    except RuntimeError as error:
        index = torch.device(device).index
        raise ValueError(f"Invalid device id: {index}. Valid range is 0 to {device_count() - 1}") from error
    _C.set_device(index)


class device:  # noqa: N801 - torch's name
    """Context manager that makes a device the current one and restores the previous one."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = current_device()
        if self.idx >= 0:
            _C.set_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C.set_device(self.prev_idx)


@dataclass(frozen=True)
class DeviceProperties:
    """`name` is the instance family ("trn2"), `total_memory` the HBM of one logical NeuronCore in bytes."""

    name: str
    total_memory: int


def get_device_name(device: DeviceLike = 0) -> str:
    """The string "neuron:<index>".

    Raises:
        ValueError: no device of this kind.
    """
    return f"neuron:{index_of(device)}"


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Name of the emulated instance family and memory of the device."""
    from torch_neuronx.utils import get_platform_target

    index_of(device)
    return DeviceProperties(get_platform_target(), _initialize.memory_bytes())
