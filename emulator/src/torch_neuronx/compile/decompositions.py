"""Which ops of a captured graph torch takes apart before the compiler sees them: those it has no lowering for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from neuroncore.runtime import is_lowered
from torch._decomp import core_aten_decompositions

__all__ = ["decompositions"]


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Torch's core decompositions of ops that would otherwise be estimates; ops with a lowering stay whole."""
    return {
        op: function
        for op, function in core_aten_decompositions().items()
        if isinstance(op, torch._ops.OpOverload) and not is_lowered(str(op)) and "out" not in op._overloadname
    }
