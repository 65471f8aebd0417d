"""Errors of compiled graphs."""

from __future__ import annotations

from torch_neuronx.compile.errors import NEFFCompilationError, NEFFExecutionError

__all__ = ["NEFFCompilationError", "NEFFExecutionError"]
