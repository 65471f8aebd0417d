"""What an event is (`Role`) by its category, as Kineto and those like it name them."""

from __future__ import annotations

import re

from neuronscope.readers.trace import Role

__all__ = ["EXPORTED", "KNOWN", "device_role_of", "role_of"]

_ROLES = {
    "cpu_op": Role.OP,
    "operator": Role.OP,
    "user_annotation": Role.ANNOTATION,
    "python_function": Role.PYTHON,
    "privateuse1_runtime": Role.DISPATCH,
    "privateuse1_driver": Role.DRIVER,
    "kernel": Role.DEVICE,
    "concurrent_kernel": Role.DEVICE,
    "gpu_memcpy": Role.MEMCPY,
    "memcpy": Role.MEMCPY,
    "gpu_memset": Role.MEMSET,
    "memset": Role.MEMSET,
    "gpu_user_annotation": Role.DEVICE_ANNOTATION,
    "mtia_ccp_events": Role.DEVICE,
    "cuda_sync": Role.DEVICE_ANNOTATION,  # a stream waits: drawn on the device, never its time
    "cuda_event": Role.DEVICE_ANNOTATION,
    "mtia_insight": Role.DEVICE_ANNOTATION,
    "hpu_op": Role.RUNTIME,
    "overhead": Role.OVERHEAD,
    "runtime": Role.RUNTIME,
    "driver": Role.RUNTIME,
    "trace": Role.SPAN,
}
EXPORTED = {  # categories of our export: kinds of tracks
    "framework": Role.OP,
    "stream": Role.DRIVER,
    "runtime": Role.RUNTIME,
    "device": Role.DEVICE,
    "copy": Role.MEMCPY,
    "engine": Role.ENGINE,
    "queue": Role.ENGINE,
}
_RUNTIME = re.compile(r"(cuda|hip|roc|xpu|mtia|hpu|npu|glow|musa|maca)\w*_(runtime|driver)$")
KNOWN = frozenset(_ROLES) | {"ac2g", "fwdbwd", "cpu_instant_event"}


def role_of(category: str) -> Role:
    """The role of rows of a category; a host interval where it says nothing."""
    lower = category.lower()
    if lower in _ROLES:
        return _ROLES[lower]
    return Role.RUNTIME if _RUNTIME.match(lower) else Role.HOST


def device_role_of(category: str) -> Role:
    """The role of a row that says on which device and stream it ran, by what its category is called."""
    lower = category.lower()
    for word, role in (("annotation", Role.DEVICE_ANNOTATION), ("memcpy", Role.MEMCPY), ("memset", Role.MEMSET)):
        if word in lower:
            return role
    return Role.DEVICE
