"""Hardware targets: one TOML file per Trainium/Inferentia generation, loaded into a frozen `Target`.

Every value carries its unit in the key's name, and in the file its status and source. Statuses: *published* (printed
in the source), *measured* (read off a published profile or benchmark), *derived* (arithmetic on such numbers),
*calibrated* (fitted by `benchmarks/calibrate.py`), *estimated* (our judgement, no public number).
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from neuroncore.errors import TargetError

__all__ = ["DEFAULT_TARGET", "Provenance", "Target", "known_targets", "load_target"]

DEFAULT_TARGET = "trn2"
OVERRIDE_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
STATUSES = ("published", "measured", "derived", "calibrated", "estimated")

#: Fields no time depends on.
_NO_TIME = ("provenance", "hbm_stack_bytes_per_second")

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Provenance:
    """Where a target's number comes from."""

    status: str
    source: str


@dataclass(frozen=True)
class Target:
    """One hardware generation. Rates and times are per physical NeuronCore unless the name says otherwise.

    Attributes:
        name: "trn2" …
        neuroncore_version: 2, 3 or 4.
        physical_cores_per_chip: NeuronCores on a chip.
        physical_cores_per_logical_core: default LNC.
        hbm_bytes_per_chip: HBM capacity.
        hbm_bytes_per_second: a core's share of HBM bandwidth.
        hbm_stack_bytes_per_second: of a whole HBM stack, shared by cores; only for metrics that divide by it (MBU).
        tensor_peak_flops_per_second: dense peak per matmul dtype.
        sbuf_usable_bytes_per_partition: what the allocator may use; the rest is reserved.
        scalar_latency_cycles …: from issue to visible result, beyond the cycles of the instruction itself.
        tensor_warmup_rate: fraction of full rate during `tensor_warmup_ns` of activity after `tensor_idle_ns` of
            idling.
        dma_row_min_ns: shortest time of one descriptor (row) on a DMA engine.
        dma_queue_interval_ns: shortest time between the starts of two transfers of one queue; other queues go on
            meanwhile.
        dma_start_ns: from trigger to first byte.
        dma_done_ns: from last byte to the semaphore seen by an engine.
        dge_fixed_ns, dge_row_ns: time a descriptor generator is busy per DMA and per row.
        dge_software_ns: time GpSimd is busy building the descriptors of one DMA; its first byte follows
            `dma_software_start_ns` later.
        launch_cost_plain_ns: fixed device time of one execution without profiling.
        launch_cost_profiled_ns: the same while DEVICE and RUNTIME streams are captured.
        launch_latency_ns: from enqueue to device start on an idle core.
        execution_gap_ns: idle time of the core between executions queued back to back.
        provenance: status and source of each field.
    """

    name: str
    neuroncore_version: int
    physical_cores_per_chip: int
    physical_cores_per_logical_core: int
    partitions: int
    sbuf_bytes_per_partition: int
    sbuf_usable_bytes_per_partition: int
    psum_banks: int
    psum_bank_bytes: int
    hbm_bytes_per_chip: int
    hbm_bytes_per_second: float
    hbm_stack_bytes_per_second: float
    tensor_clock_hz: float
    vector_clock_hz: float
    scalar_clock_hz: float
    gpsimd_clock_hz: float
    sync_clock_hz: float
    tensor_peak_flops_per_second: Mapping[str, float]
    tensor_latency_cycles: float
    vector_latency_cycles: float
    scalar_latency_cycles: float
    gpsimd_latency_cycles: float
    semaphore_ns: float
    activation_table_load_ns: float
    tensor_warmup_rate: float
    tensor_warmup_ns: float
    tensor_idle_ns: float
    dma_engines: int
    dma_engine_bytes_per_second: float
    dma_row_min_ns: float
    dma_queue_interval_ns: float
    dma_row_max_bytes: int
    dma_rows_per_engine_group: int
    dma_start_ns: float
    dma_done_ns: float
    dma_trigger_ns: float
    dge_fixed_ns: float
    dge_row_ns: float
    dge_software_ns: float
    dma_software_start_ns: float
    dma_transpose_hbm_fraction: float
    dma_transpose_sbuf_fraction: float
    launch_cost_plain_ns: int
    launch_cost_profiled_ns: int
    launch_latency_ns: int
    execution_gap_ns: int
    host_to_device_bytes_per_second: float
    device_to_host_bytes_per_second: float
    host_copy_latency_ns: int
    provenance: Mapping[str, Provenance] = field(repr=False, compare=False)

    @property
    def hbm_bytes(self) -> int:
        """HBM capacity of one logical NeuronCore."""
        return self.hbm_bytes_per_chip * self.physical_cores_per_logical_core // self.physical_cores_per_chip

    @property
    def logical_cores_per_chip(self) -> int:
        """Logical NeuronCores of a chip at the default LNC."""
        return self.physical_cores_per_chip // self.physical_cores_per_logical_core

    @property
    def psum_bytes_per_partition(self) -> int:
        """PSUM capacity of a partition, all banks."""
        return self.psum_banks * self.psum_bank_bytes

    @property
    def dma_bytes_per_second(self) -> float:
        """What all DMA engines can move, or HBM can deliver, whichever is less."""
        return min(self.dma_engines * self.dma_engine_bytes_per_second, self.hbm_bytes_per_second)

    def clock_hz(self, engine: str) -> float:
        """Clock of an engine of `neuroncore.isa.ENGINES`."""
        return float(getattr(self, f"{engine.lower()}_clock_hz"))

    def peak_flops_per_second(self, dtype: str) -> float:
        """Dense matmul peak for a dtype; fp8 names fall back to bf16 where the generation has no faster fp8."""
        peaks = self.tensor_peak_flops_per_second
        return float(peaks.get(dtype) or peaks["bf16"])

    @cached_property
    def hash(self) -> str:
        """Hash of the numbers (16 hex digits): equal hashes give equal times."""
        values = {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name not in _NO_TIME}
        return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, Mapping) else value


def known_targets() -> tuple[str, ...]:
    """Names of the targets that have a file."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*.toml")))


def load_target(name: str | None = None) -> Target:
    """A target by name; None takes NEURON_PLATFORM_TARGET_OVERRIDE, or trn2.

    Raises:
        TargetError: unknown name, or a malformed file.
    """
    origin = "" if name else f" (from {OVERRIDE_VARIABLE})"
    name = name or os.environ.get(OVERRIDE_VARIABLE) or DEFAULT_TARGET
    if name not in known_targets():
        raise TargetError(f"unknown target {name!r}{origin}; known: {', '.join(known_targets())}")
    return _load(name)


@cache
def _load(name: str) -> Target:
    return read_target(_FOLDER / f"{name}.toml")


def read_target(path: Path) -> Target:
    """A target from a TOML file with one `{value, status, source}` table per field.

    Raises:
        TargetError: a field missing, unknown, or without a known status and a source.
    """
    data = tomllib.loads(path.read_text())
    names = {f.name for f in fields(Target)} - {"name", "provenance"}
    if names != data.keys():
        missing, extra = sorted(names - data.keys()), sorted(data.keys() - names)
        raise TargetError(f"target file {path.name}: missing {missing or 'nothing'}, unknown {extra or 'nothing'}")
    provenance: dict[str, Provenance] = {}
    values: dict[str, Any] = {}
    types = {f.name: f.type for f in fields(Target)}
    for key, entry in data.items():
        if entry.get("status") not in STATUSES or not entry.get("source") or "value" not in entry:
            raise TargetError(
                f"target file {path.name}: {key} needs value, source and a status of {', '.join(STATUSES)}"
            )
        provenance[key] = Provenance(entry["status"], entry["source"])
        value = entry["value"]
        if isinstance(value, dict):
            values[key] = MappingProxyType(value)
        else:
            values[key] = float(value) if types[key] == "float" else int(value)
    return Target(name=path.stem, provenance=MappingProxyType(provenance), **values)
