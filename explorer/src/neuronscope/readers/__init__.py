"""Read any profile into Parquet. Start at `ingest` (detection.py); one module per format, each a `Reader`.

The way of an event: `detect` picks the reader → `json_events`, `chrome` and `session` turn bytes into columns (`trace`)
→ `model` gives them processes, operators and steps, `executions`, `gaps`, `tracks` and `flows` the rest → `write` makes
the Parquet tables. What is as long as the file lies in `scratch` columns.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuronscope.readers.detection import (
        FormatError,
        IngestResult,
        IngestWarning,
        Progress,
        Reader,
        detect,
        ingest,
    )

__all__ = ["FormatError", "IngestResult", "IngestWarning", "Progress", "Reader", "detect", "ingest"]


def __getattr__(name: str) -> Any:
    """Loaded when asked for: a helper process, which needs little of this package, starts in half the time."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    collecting = gc.isenabled()
    gc.disable()  # loading makes nothing to collect; looking for it takes a tenth of the time
    try:
        from neuronscope.readers import detection
    finally:
        if collecting:
            gc.enable()
    return getattr(detection, name)
