"""Parts of rows that are moved together: views of one buffer whose elements lie between each other in memory.

The halves of a rotary embedding, every second element, the results of a stack: alone each is many short transfers, a
descriptor for every run (reference/hw/compile_rules.md section 5). Together they are long rows; engines take their part
of the tile by an access pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np

from neuroncore.compiler.fuse import Layout
from neuroncore.compiler.hbm import Dims, merged
from neuroncore.targets import Target

__all__ = ["Joint", "join", "row_ns"]

K = TypeVar("K", bound=Hashable)
#: Longest joint row, elements.
_LONGEST = 16_384
#: How many elements may be moved for each that is used.
_WASTE = 4


@dataclass(frozen=True)
class Joint:
    """Rows of `width` contiguous elements that hold several parts.

    Attributes:
        layout: of the joint rows in HBM.
        width: elements of a row.
        parts: for every part its first element in the row and its (size, stride) axes.
    """

    layout: Layout
    width: int
    parts: tuple[tuple[int, Dims], ...]

    def pattern(self, number: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Offset and (stride, size) access pattern of a part within a tile of the rows."""
        first, dims = self.parts[number]
        return first, tuple((stride, size) for size, stride in dims) or ((1, 1),)


def row_ns(target: Target, dims: Dims, element_bytes: int) -> float:
    """Time of one row on one DMA engine: a descriptor for every contiguous run."""
    run, runs = 1, prod(size for size, _ in dims)
    if dims and dims[-1][1] == 1:
        run, runs = dims[-1][0], prod(size for size, _ in dims[:-1])
    return runs * max(target.dma_row_min_ns, run * element_bytes / target.dma_engine_bytes_per_second * 1e9)


def join(
    target: Target, parts: Sequence[tuple[K, int, Layout]], element_bytes: Callable[[K], int], *, whole: bool
) -> list[tuple[Joint, tuple[K, ...]]]:
    """Which parts to move together, and as what; parts not named move alone.

    Args:
        target: whose descriptor cost decides.
        parts: key, buffer and layout of every part.
        element_bytes: of a part in HBM.
        whole: the parts must fill their rows, as those to be stored do; else rows may hold elements nobody reads.
    """
    groups: dict[tuple[object, ...], list[tuple[K, Layout]]] = {}
    for key, buffer, layout in parts:
        if not layout.by_row and layout.rows and all(stride >= 0 for _, stride in layout.cols):
            groups.setdefault((buffer, merged(layout.rows)), []).append((key, layout))
    found = []
    for members in groups.values():
        members.sort(key=lambda member: member[1].offset)
        for some in (members, *([m] for m in members if len(members) > 1)):
            joint = _joint([layout for _, layout in some], whole=whole)
            if joint is None:
                continue
            size = element_bytes(some[0][0])
            alone = sum(row_ns(target, merged(layout.cols), size) for _, layout in some)
            if row_ns(target, joint.layout.cols, size) < 0.8 * alone:
                found.append((joint, tuple(key for key, _ in some)))
                if some is members:
                    break
    return found


def _joint(layouts: Sequence[Layout], *, whole: bool) -> Joint | None:
    start = min(layout.offset for layout in layouts)
    end = max(layout.offset + sum((n - 1) * s for n, s in layout.cols) + 1 for layout in layouts)
    width = end - start
    dims = [merged(layout.cols) for layout in layouts]
    used = _distinct(dims)
    if width > min(_LONGEST, _WASTE * used) or any(len(d) > 4 for d in dims):
        return None
    if whole:
        places = np.zeros(width, np.int64)
        for layout, one in zip(layouts, dims, strict=True):
            index = np.array([layout.offset - start])
            for size, stride in one:
                index = (index[:, None] + np.arange(size) * stride).reshape(-1)
            np.add.at(places, index, 1)
        if not (places == 1).all():
            return None
    rows = Layout(layouts[0].rows, ((width, 1),), start)
    return Joint(rows, width, tuple((layout.offset - start, d) for layout, d in zip(layouts, dims, strict=True)))


def _distinct(dims: Iterable[Dims]) -> int:
    return sum(prod(size for size, stride in one if stride) for one in dims)
