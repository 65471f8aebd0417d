"""Which ops ran on the device and which fell back to the CPU, since the start or the last `clear_op_tracking()`."""

from __future__ import annotations

from torch_neuronx import _C

__all__ = ["clear_op_tracking", "get_executed_ops", "get_fallback_ops"]


def get_executed_ops() -> list[str]:
    """Full names ("aten::mul.Tensor") of the ops that ran as device executions, sorted."""
    return list(_C.executed_ops())


def get_fallback_ops() -> list[str]:
    """Full names of the ops that ran on the host because the device doesn't implement them, sorted."""
    return list(_C.fallback_ops())


def clear_op_tracking() -> None:
    """Forgets both lists."""
    _C.clear_op_tracking()
