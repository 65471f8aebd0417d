"""Profiles of a device alone: executions made from what its tables say, so that there is something to click."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.readers.narrow import constant
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import Events, Role

__all__ = ["events_of", "note"]


def note(file: str) -> IngestWarning:
    """What a user has to know about such a profile."""
    text = (
        "a device profile alone: no host and runtime rows; executions are drawn from the extent of their instructions"
    )
    return IngestWarning("device_only", 1, -1, file, "kept", text)


def events_of(tables: Mapping[str, pa.Table], name: str, names: Mapping[str, str] | None = None) -> Events:
    """One device row per execution: of ExecutionInfo, else one over all instructions. None without either.

    Args:
        tables: the profile's.
        name: of executions that have none.
        names: what to call the executables, by hash; executions of those carry their hash.
    """
    names = names or {}
    rows: list[dict[str, Any]] = []
    info = tables.get("ExecutionInfo")
    for row in info.to_pylist() if info is not None else ():
        start, end = row["execution_start_ts"], row["execution_end_ts"]
        if start is None or end is None:
            continue
        neff = row["neff_name"] or ""
        core = str(row.get("device_profile_name") or "").rpartition("_vnc_")[2]
        rows.append(
            {
                "name": names.get(neff) or neff or name,
                "start": int(start),
                "end": max(int(start), int(end)),
                "core": int(core) if core.isdecimal() else 0,
                "id": row.get("execution_id"),
                "args": msgspec.json.encode({"neff": neff}) if neff in names else b"",
            }
        )
    instructions = tables.get("Instruction")
    if not rows and instructions is not None and instructions.num_rows:
        first, last = pc.min(instructions["start_ts"]).as_py(), pc.max(instructions["end_ts"]).as_py()
        if first is not None and last is not None:
            rows.append({"name": name, "start": int(first), "end": int(last), "core": 0, "id": None, "args": b""})
    count = len(rows)
    none: Any = constant(-1, count)
    zero: Any = constant(0, count)
    cores = np.array([row["core"] for row in rows], np.int64)
    numbers = [number if row["id"] is None else row["id"] for number, row in enumerate(rows, 1)]
    return Events(
        role=np.full(count, Role.DEVICE, np.int8),
        name=pa.array([row["name"] for row in rows], pa.string()).dictionary_encode(),
        category=pa.array([""] * count, pa.string()).dictionary_encode(),
        start=np.array([row["start"] for row in rows], np.int64),
        end=np.array([row["end"] for row in rows], np.int64),
        pid=zero,
        tid=zero,
        device=cores,
        stream=none,
        nc=cores,
        pcore=none,
        correlation=none,
        external_id=none,
        execution_id=np.array(numbers, np.int64),
        bytes=none,
        args=Texts.of(pa.array([row["args"] for row in rows], pa.binary())),
    )
