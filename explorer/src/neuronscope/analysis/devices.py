"""Peaks of devices we know, for "time at HBM peak" and the roofline. An unknown device gets None, never a guess."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["Peak", "peak_of"]


@dataclass(frozen=True)
class Peak:
    """Ceilings of the hardware one execution runs on."""

    target: str
    unit: str
    flops_per_second: float
    flops_dtype: str
    hbm_bytes_per_second: float
    source: str

    def time_for_bytes(self, size: int) -> int:
        """Nanoseconds to move `size` bytes at HBM peak: a lower bound, rounded up."""
        return -int(-size * 1_000_000_000 // self.hbm_bytes_per_second)


@functools.cache
def _peaks() -> dict[str, Peak]:
    data = tomllib.loads(resources.files("neuronscope.analysis").joinpath("devices.toml").read_text())
    return {name: Peak(target=name, **values) for name, values in data.items()}


def peak_of(profile: Profile) -> Peak | None:
    """The peak of the profile's target, None when it is not in `devices.toml`."""
    return _peaks().get(profile.info.get("target", "").lower())
