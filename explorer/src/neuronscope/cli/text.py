"""Plain tables that fit 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

__all__ = ["WIDTH", "clip", "free_table", "table", "wrap"]

WIDTH = 80
_GLUE = "\0"  # not a space to textwrap


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 2) -> str:
    """The first column left-aligned and shortened to fit, the others right-aligned in full."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    rest = sum(widths[1:]) + 2 * (len(widths) - 1) + indent
    widths[0] = max(min(widths[0], WIDTH - rest), 8)
    lines = []
    for row in [header, *rows]:
        cells = [clip(row[0], widths[0]).ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append(" " * indent + "  ".join(cells).rstrip())
    return "\n".join(lines)


def free_table(header: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> str:
    """A table of anything: numbers to the right and in full, text to the left and shortened where needed."""
    columns = list(zip(*rows, strict=True)) or [()] * len(header)
    texts = [["NULL" if value is None else " ".join(str(value).split()) for value in column] for column in columns]
    right = [all(value is None or isinstance(value, int | float) for value in column) for column in columns]
    longest = [max((len(text) for text in column), default=0) for column in texts]
    widths = [max(len(name), size) for name, size in zip(header, longest, strict=True)]
    least = [max(size, 4) if number else 8 for size, number in zip(longest, right, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        spare = [index for index, size in enumerate(widths) if size > least[index]]
        if not spare:
            break
        widths[max(spare, key=lambda index: widths[index])] -= 1
    lines = []
    for row in [list(header), *zip(*texts, strict=True)]:
        cells = [
            clip(cell, size).rjust(size) if number else clip(cell, size).ljust(size)
            for cell, size, number in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def clip(text: str, width: int) -> str:
    """`text` in at most `width` characters, the middle left out: both ends tell kernels apart."""
    if len(text) <= width:
        return text
    head = (width - 1) * 2 // 3
    tail = width - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :]}"


def wrap(text: str, indent: str = "  ") -> str:
    """A sentence broken at 80 columns, never between a number and its unit."""
    glued = re.sub(r"(?<=[\d≈×→]) (?=[\w%×→≈])", _GLUE, text)
    filled = textwrap.fill(
        glued,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace(_GLUE, " ")
