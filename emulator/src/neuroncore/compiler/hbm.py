"""Cutting a strided matrix in HBM into the access patterns of DMA transfers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from neuroncore.compiler.fuse import Layout

__all__ = ["Piece", "merged", "pieces", "row_loops", "runs"]

Dims = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Piece:
    """One transfer: where its block starts inside the tile and its access pattern in HBM."""

    row: int
    rows: int
    column: int
    columns: int
    offset: int
    row_stride: int
    free: Dims


def runs(dims: Dims, start: int, count: int) -> Iterator[tuple[int, int, int, Dims]]:
    """Indices start .. start+count of a row-major space as (first, count, offset, (stride, size) pattern) blocks."""
    if not dims:
        yield start, 1, 0, ((1, 1),)
        return
    size, stride = dims[0]
    inner = prod(n for n, _ in dims[1:])
    if inner == 1:
        yield start, count, start * stride, ((stride, count),)
        return
    done = start
    while done < start + count:
        outer, within = divmod(done, inner)
        left = start + count - done
        if within == 0 and left >= inner:
            whole = left // inner
            pattern = tuple((s, n) for n, s in dims[1:])
            yield done, whole * inner, outer * stride, ((stride, whole), *pattern) if whole > 1 else pattern
            done += whole * inner
        else:
            part = min(left, inner - within)
            for first, n, offset, pattern in runs(dims[1:], within, part):
                yield outer * inner + first, n, outer * stride + offset, pattern
            done += part
    assert size >= 0


def pieces(layout: Layout, row: int, rows: int, column: int, columns: int) -> Iterator[Piece]:
    """The transfers that cover rows x columns of a matrix, starting at (row, column)."""
    for first, count, offset, free in _columns(layout, column, columns):
        for top, height, base, stride in _rows(layout.rows, row, rows):
            yield Piece(top - row, height, first - column, count, layout.offset + base + offset, stride, free)


def _columns(layout: Layout, column: int, columns: int) -> Iterator[tuple[int, int, int, Dims]]:
    if layout.by_row and layout.cols and columns > 1:
        yield column, columns, 0, ((0, columns),)
        return
    for first, count, offset, free in runs(layout.cols, column, columns):
        if len(free) <= 4:
            yield first, count, offset, free
            continue
        stride, size = free[0]
        inner = count // size
        for i in range(size):  # one dimension too many: a transfer each
            yield first + i * inner, inner, offset + i * stride, free[1:]


def _rows(dims: Dims, row: int, rows: int) -> Iterator[tuple[int, int, int, int]]:
    """(first row, count, offset, stride) runs with a single stride."""
    if not dims:
        yield row, rows, 0, 0
        return
    size, stride = dims[-1]
    outer = dims[:-1]
    done = row
    while done < row + rows:
        block, within = divmod(done, size)
        count = min(row + rows - done, size - within)
        offset = within * stride
        for n, s in reversed(outer):
            block, index = divmod(block, n)
            offset += index * s
        yield done, count, offset, stride
        done += count


def merged(dims: Dims) -> Dims:
    """(size, stride) axes with neighbours joined that one stride walks."""
    result: list[tuple[int, int]] = []
    for size, stride in dims:
        if size == 1:
            continue
        if result and result[-1][1] == stride * size:
            result[-1] = (result[-1][0] * size, stride)
        else:
            result.append((size, stride))
    return tuple(result)


def row_loops(axes: Iterable[Dims], rows: int, height: int) -> tuple[int, ...] | None:
    """Nested loops over tiles of `height` rows in each of which every one of `axes` advances by one stride.

    Args:
        axes: row axes of the layouts that are walked together, outermost first.
        rows: their product.
        height: rows of a tile.

    Returns:
        Counts of the loops, outermost first; the product is the number of whole tiles. Only a single loop may leave
        rows over. None where tiles would straddle axes unevenly.
    """
    cuts = set()
    for dims in axes:
        inner = 1
        for size, _ in reversed(merged(dims)[1:]):
            inner *= size
            cuts.add(inner)
    counts: list[int] = []
    size = height
    for cut in sorted(cuts):
        if height % cut == 0:
            continue  # a tile is whole groups of `cut` rows: a transfer each, all alike
        if cut % size or rows % cut:
            return None
        counts.insert(0, cut // size)
        size = cut
    return (rows // size, *counts)
