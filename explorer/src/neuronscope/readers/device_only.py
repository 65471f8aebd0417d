"""Profiles of a device alone: executions made from what its tables say, so that there is something to click."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def events_of(tables: Mapping[str, pa.Table], name: str) -> Events:
    """One device row per execution: of ExecutionInfo, else one over all instructions. None without either."""
    rows: list[tuple[str, int, int]] = []
    info = tables.get("ExecutionInfo")
    if info is not None:
        for row in info.to_pylist():
            start, end = row["execution_start_ts"], row["execution_end_ts"]
            if start is not None and end is not None:
                rows.append((str(row["neff_name"] or name), int(start), max(int(start), int(end))))
    instructions = tables.get("Instruction")
    if not rows and instructions is not None and instructions.num_rows:
        first, last = pc.min(instructions["start_ts"]).as_py(), pc.max(instructions["end_ts"]).as_py()
        if first is not None and last is not None:
            rows.append((name, int(first), int(last)))
    count = len(rows)
    none: Any = constant(-1, count)
    zero: Any = constant(0, count)
    return Events(
        role=np.full(count, Role.DEVICE, np.int8),
        name=pa.array([row[0] for row in rows], pa.string()).dictionary_encode(),
        category=pa.array([""] * count, pa.string()).dictionary_encode(),
        start=np.array([row[1] for row in rows], np.int64),
        end=np.array([row[2] for row in rows], np.int64),
        pid=zero,
        tid=zero,
        device=zero,
        stream=none,
        nc=zero,
        pcore=none,
        correlation=none,
        external_id=none,
        execution_id=np.arange(1, count + 1, dtype=np.int64),
        bytes=none,
        args=Texts.of(pa.array([b""] * count, pa.binary())),
    )
