"""A part of a profile as a profile of its own: chosen cores, instances, event types, or one half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neuronscope.analysis.profile import Profile
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEVICE_TABLES", "FilterError", "filtered"]

DEVICE_TABLES = (
    "ActiveTime",
    "DmaPacket",
    "DmaPacketAggregated",
    "DmaUsage",
    "DmaQueuesInfo",
    "DmaUsageSummary",
    "ExecutionInfo",
    "HbmUsage",
    "HbmUsageSummaryByType",
    "Instruction",
    "NeffHeader",
    "OpcodeSummary",
    "PendingDma",
    "PsumUsage",
    "SbufAllocation",
    "SbufUsage",
    "SemaphoreUpdate",
    "Summary",
    "TensorInfo",
    "Throttle",
    "ThrottleSummary",
)
"""Tables of the published schema that a device profile fills."""

_BUFFERS = ("SbufUsage", "PsumUsage", "SbufAllocation")
_HOST_TABLES = ("CpuUsage", "HostMemUsage")
_BY_EVENT = {
    "Slice": "event_id",
    "HostOp": "event_id",
    "Execution": "event_id",
    "Gap": "next_event_id",
    "Flow": "out_id",
}
_GROUPS = {"hardware": "neuron_hw", "software": "neuron_rt"}


class FilterError(NeuronscopeError, ValueError):
    """A filter leaves nothing, or names what the profile doesn't have."""


def filtered(
    profile: Profile,
    *,
    cores: Sequence[int] | None = None,
    event_types: Sequence[str] | None = None,
    instances: Sequence[str] | None = None,
    system: bool = True,
    device: bool = True,
    buffers: bool = True,
) -> Profile:
    """The profile without what the filters leave out, in memory.

    Args:
        profile: the whole.
        cores: logical NeuronCores (or devices) whose events stay; host events, which have none, stay too.
        event_types: names of runtime and hardware events to keep; `hardware` and `software` name a group, `^name`
            leaves one out. Framework rows stay.
        instances: instance ids whose events stay.
        system: False leaves out host rows (framework, runtime, CPU and memory samples); executions stay.
        device: False leaves out what came from device profiles (instructions, DMA, on-chip memory).
        buffers: False leaves out the use of SBUF and PSUM over time.

    Raises:
        FilterError: no event is left.
    """
    if cores is None and event_types is None and instances is None and system and device and buffers:
        return profile
    _check(profile, cores, instances)
    conditions = ["true"]
    parameters: dict[str, object] = {}
    if cores is not None:
        conditions.append("(nc_idx IS NULL OR nc_idx < 0 OR list_contains($cores::BIGINT[], nc_idx))")
        parameters["cores"] = list(cores)
    if instances is not None:
        conditions.append("list_contains($instances::VARCHAR[], instance_id)")
        parameters["instances"] = list(instances)
    if not system:
        conditions.append("trace_event_source = 'neuron_hw' OR id IN (SELECT event_id FROM Execution)")
    if not device:
        engines = "SELECT event_id FROM Slice JOIN Track USING (track_id) WHERE kind = 'engine'"
        conditions.append(f"id NOT IN ({engines})")
    if event_types is not None:
        out = [name[1:] for name in event_types if name.startswith("^")]
        kept = [name for name in event_types if not name.startswith("^")]
        sources = [_GROUPS[name] for name in kept if name in _GROUPS]
        named = [name for name in kept if name not in _GROUPS]
        conditions.append(
            "trace_event_source NOT IN ('neuron_rt', 'neuron_hw') OR ("
            "NOT list_contains($out::VARCHAR[], name) AND ($every OR list_contains($named::VARCHAR[], name) "
            "OR list_contains($sources::VARCHAR[], trace_event_source)))"
        )
        parameters |= {"out": out, "named": named, "sources": sources, "every": not kept}
    where = " AND ".join(f"({text})" for text in conditions)
    chosen = f"SELECT id FROM SystemProfileEvents WHERE {where}"
    tables: dict[str, pa.Table] = {}
    for name in profile.tables:
        if (not device and name in DEVICE_TABLES) or (not system and name in _HOST_TABLES):
            continue
        if not buffers and name in _BUFFERS:
            continue
        text = f'SELECT * FROM "{name}"'
        if name == "SystemProfileEvents":
            text = f"{text} WHERE {where}"
        elif name in _BY_EVENT:
            text = f"{text} WHERE {_BY_EVENT[name]} IN ({chosen})"
            if name == "Flow":
                text = f"{text} AND in_id IN ({chosen}) AND in_table = 'SystemProfileEvents'"
                if device:
                    text += f" UNION ALL SELECT * FROM \"{name}\" WHERE in_table <> 'SystemProfileEvents'"
        elif name == "Track":
            text = f"{text} WHERE track_id IN (SELECT track_id FROM Slice WHERE event_id IN ({chosen}))"
        tables[name] = profile.query(text, parameters)
    if not tables["SystemProfileEvents"].num_rows:
        raise FilterError(f"{profile.name}: the filters leave no event")
    return Profile(profile.name, tables, profile.source, profile.ingest_result)


def _check(profile: Profile, cores: Sequence[int] | None, instances: Sequence[str] | None) -> None:
    """A filter that names nothing the profile has is a mistake, not an empty profile."""
    known = profile.rows(
        "SELECT list(DISTINCT instance_id) AS instances, list(DISTINCT nc_idx) FILTER (nc_idx >= 0) AS cores "
        "FROM SystemProfileEvents"
    )[0]
    for what, wanted, found in (("NeuronCore", cores, known["cores"]), ("instance", instances, known["instances"])):
        if wanted is not None and not set(wanted) & set(found or []):
            listed = ", ".join(str(one) for one in sorted(found or [])) or "none"
            asked = ", ".join(str(one) for one in wanted)
            raise FilterError(f"{profile.name}: no events of {what} {asked}; it has: {listed}")
