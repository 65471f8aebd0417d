"""Random number state of the devices: 16 bytes, seed and offset."""

from __future__ import annotations

import torch

from torch_neuronx import _C
from torch_neuronx._devices import DeviceLike, device_count, index_of


def _generator(device: DeviceLike = None) -> torch.Generator:
    return _C.default_generator(index_of(device))


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    """State of a device's generator: 16 bytes on the CPU."""
    return _generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: DeviceLike = None) -> None:
    """Restores a state (16 bytes), or seeds (8 bytes).

    Raises:
        RuntimeError: "RNG state is wrong size".
    """
    _generator(device).set_state(state)


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device; `torch.manual_seed` calls this."""
    for index in range(device_count()):
        _generator(index).manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device with a random number."""
    _generator().seed()


def seed_all() -> None:
    """Seeds every device with one random number."""
    manual_seed_all(_generator().seed())


def initial_seed() -> int:
    """Seed of the current device."""
    return int(_generator().initial_seed())
