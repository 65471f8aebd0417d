"""Errors of compiled graphs.

::

    RuntimeError
    ├── NEFFCompilationError   a graph could not be compiled
    └── NEFFExecutionError     a compiled graph was called with inputs it can't take
"""

from __future__ import annotations

__all__ = ["NEFFCompilationError", "NEFFExecutionError"]


class NEFFCompilationError(RuntimeError):
    """A graph could not be compiled; the message names the graph and the reason."""


class NEFFExecutionError(RuntimeError):
    """A compiled graph was called with inputs it can't take; the message says which."""
