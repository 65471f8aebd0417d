"""The compiled form of what linking does row after row, where it was built; `lanes` and `arguments` define it."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import Any

__all__ = ["linking"]

_linking: Any = None
with contextlib.suppress(ImportError):  # a wheel without it
    _linking = importlib.import_module("neuronscope.readers._linking")


def linking() -> Any:
    """The module; None where it is not there, or where NEURONSCOPE_TOKENIZER=plain asks for plain Python."""
    return None if os.environ.get("NEURONSCOPE_TOKENIZER") == "plain" else _linking
