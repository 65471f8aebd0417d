"""Facts in the head of a trace file → `Trace`: devices, rank, host, and what our emulator says of itself."""

from __future__ import annotations

from typing import Any

from neuronscope.readers.exact import int64
from neuronscope.readers.trace import Role, Trace

__all__ = ["describe"]


def describe(trace: Trace, header: dict[str, Any]) -> None:
    """Fill in what the head of the file tells about the recording."""
    devices = header.get("deviceProperties")
    names = [str(d.get("name", "")) for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    distributed = header.get("distributedInfo")
    if isinstance(distributed, dict) and 0 <= int64(distributed.get("rank")) < 2**31:
        trace.ranks = (int64(distributed.get("rank")),)
        trace.facts["world_size"] = str(distributed.get("world_size", ""))
    host = header.get("host_name")
    if isinstance(host, str) and host:
        trace.instance = host
    if any(name == "Ascend Hardware" for name in trace.process_names.values()):
        names = names or ["Ascend NPU"]
    if names:
        trace.facts["device_name"] = names[0]
    for key in ("trace_id", "with_stack", "record_shapes", "profile_memory", "cuda_runtime_version", "traceName"):
        if key in header and isinstance(header[key], str | int):
            trace.facts[f"notes.{key}"] = str(header[key])
    ev = trace.events
    trace.neuron = bool((ev.execution_id[ev.of(Role.DISPATCH, Role.DRIVER)] >= 0).any())
    origin = header.get("neuronscope")
    if trace.neuron and isinstance(origin, dict):
        _describe_emulated(trace, origin)
    spans = ev.of(Role.SPAN)
    if len(spans):
        trace.recording = (int(trace.events.start[spans].min()), int(trace.events.end[spans].max()))


def _describe_emulated(trace: Trace, origin: dict[str, Any]) -> None:
    """Facts that our emulator writes into the head of its trace.json."""
    trace.facts["device_name"] = f"AWS {origin['target']}" if origin.get("target") else "AWS Neuron"
    trace.facts["emulated"] = "true" if origin.get("emulated") else "false"
    for key in ("target", "target_hash", "model_version", "lnc", "session_id"):
        if isinstance(origin.get(key), str | int):
            trace.facts[key] = str(origin[key])
    for key in ("device_cost_ns", "device_cost_status"):
        costs = origin.get(key)
        if isinstance(costs, dict):
            trace.facts.update({f"{key}.{name}": str(value) for name, value in sorted(costs.items())})
    if isinstance(origin.get("modes"), list):
        trace.facts["modes"] = " ".join(str(mode) for mode in origin["modes"])
    trace.facts["producer"] = f"neuronscope-emulator {origin.get('producer_version', '')}".strip()
    trace.instance = str(origin.get("instance_id") or trace.instance)
