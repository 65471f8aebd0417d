"""Stack frames of instructions, where a device profile has them (tables StackFrame, StackFrameFileLocation, …)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["stack_frames"]

_DEEPEST = 64

_FRAMES = """
SELECT frame.id AS id, frame.parent_frame_id AS parent, file.name AS file, function.name AS function,
       place.line_number AS line
FROM StackFrame AS frame
LEFT JOIN StackFrameFileLocation AS place ON place.id = frame.file_location_id::VARCHAR
LEFT JOIN StackFrameFileName AS file ON file.id = place.file_name_id::VARCHAR
LEFT JOIN StackFrameFunctionName AS function ON function.id = place.function_name_id::VARCHAR
"""


def stack_frames(profile: Profile, identities: Any) -> str:
    """`model.py:12 forward; layers.py:3 __call__`, the outermost frame first; empty where the profile has none.

    Args:
        profile: whose tables.
        identities: `Instruction.stack_frame_ids`: numbers, however separated; the first is the innermost frame.
    """
    numbers = re.findall(r"\d+", str(identities or ""))
    if not numbers or "StackFrame" not in profile.tables:
        return ""
    known = {str(row["id"]): row for row in profile.rows(_FRAMES)}
    texts: list[str] = []
    at: str | None = numbers[0]
    while at in known and len(texts) < _DEEPEST:
        row = known[at]
        line = "" if row["line"] is None else f":{row['line']}"
        texts.append(f"{row['file'] or '?'}{line} {row['function'] or ''}".strip())
        at = None if row["parent"] is None else str(row["parent"])
    return "; ".join(reversed(texts))
