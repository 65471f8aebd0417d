"""Profiles of several machines in one file: ids are unique in a machine only, so that its processes are kept apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuronscope.readers.exact import Int64
from neuronscope.readers.result import IngestWarning

__all__ = ["apart", "several_instances"]

_STEP = 10_000_000  # more than a process id


def apart(pid: Int64, instances: Sequence[str]) -> Int64:
    """Process ids that no two machines share: those of the first as they are, of the others moved by a step each."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(instances))}
    if len(numbers) < 2:
        return pid
    return pid + np.array([numbers[name] for name in instances], np.int64) * _STEP


def several_instances(instances: Sequence[str]) -> IngestWarning | None:
    """The report's row about a file of several machines."""
    names = list(dict.fromkeys(instances))
    if len(names) < 2:
        return None
    listed = ", ".join(name or "(none)" for name in names[:8])
    text = (
        f"{len(names)} instances ({listed}); process ids of the second are moved by {_STEP}, of the third by twice that"
    )
    return IngestWarning("several_instances", len(names), -1, "", "kept", text)
