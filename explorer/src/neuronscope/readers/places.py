"""What the processes of a trace stand for where rows have no categories: told by the names their writers give them.

Ascend's `trace_view.json`, the Chrome JSON of rocprof (versions 1 and 2), and the autograd profiler of torch before
Kineto lay out devices and runtimes as processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from neuronscope.readers.trace import Role

__all__ = ["Place", "of_processes"]

_GPU = re.compile(r"(?:\d+ )?GPU(\d+)$")
_ROCPROF = (
    (re.compile(r"(?:\d+ )?(?:CPU )?(?:HIP|HSA|KFD) API$"), Role.RUNTIME),
    (re.compile(r"(?:\d+ )?COPY$"), Role.MEMCPY),
    (re.compile(r"(?:\d+ )?Markers and Ranges$"), Role.ANNOTATION),
)


@dataclass(frozen=True)
class Place:
    """What the rows of a process are, and on which device; None: on none, or for device rows the thread's number."""

    role: Role
    device: int | None = None


def of_processes(names: Mapping[int, str], labels: Mapping[int, str]) -> dict[int, Place]:
    """The processes that stand for something else, by number.

    Args:
        names: of processes, as metadata events tell them.
        labels: texts of process ids that are no numbers.
    """
    found: dict[int, Place] = {}
    for device, pid in enumerate(sorted(pid for pid, name in names.items() if name == "Ascend Hardware")):
        found[pid] = Place(Role.DEVICE, device)
    found |= {pid: Place(Role.RUNTIME) for pid, name in names.items() if name == "CANN"}
    gpus = {pid: match for pid, name in names.items() if (match := _GPU.match(name))}
    runtimes = {pid: role for pid, name in names.items() for form, role in _ROCPROF if form.match(name)}
    if gpus and Role.RUNTIME in runtimes.values():
        found |= {pid: Place(Role.DEVICE, int(match[1])) for pid, match in gpus.items()}
        found |= {pid: Place(role, 0 if role == Role.MEMCPY else None) for pid, role in runtimes.items()}
    if "CUDA functions" in labels.values() or "CPU functions" in labels.values():
        roles = {"CPU functions": Role.OP, "CUDA functions": Role.DEVICE}
        found |= {pid: Place(roles[text]) for pid, text in labels.items() if text in roles}
    return found
