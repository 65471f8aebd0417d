"""Range maxima over durations: which slice of a run is the longest, without looking at all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK", "LongestIndex", "levels"]

Ints = npt.NDArray[np.int64]

BLOCK = 32
_EMPTY: Ints = np.zeros(0, np.int64)


def levels(best: Ints, durations: Ints) -> Iterator[Ints]:
    """The sparse table over blocks: in level k the position of the longest slice of 2^k neighbouring blocks.

    Args:
        best: position of the longest slice of each block.
        durations: of those slices.
    """
    width = 1
    if len(best):
        yield best
    blocks = len(best)
    while 2 * width <= blocks:
        right = durations[width:] > durations[:-width]
        best = np.where(right, best[width:], best[:-width])
        durations = np.where(right, durations[width:], durations[:-width])
        yield best
        width *= 2


class LongestIndex:
    """Range-maximum index over durations: the position of the longest slice of a run, the first of equals.

    Blocks of 32 slices, and a sparse table over the blocks.
    """

    def __init__(self, durations: Ints, tables: Sequence[Ints] | None = None) -> None:
        self._durations = durations
        if tables is None:
            blocks = -(-len(durations) // BLOCK)
            padded = np.full(blocks * BLOCK, -1, np.int64)
            padded[: len(durations)] = durations
            best = padded.reshape(blocks, BLOCK).argmax(axis=1) if blocks else _EMPTY
            best = best + np.arange(blocks, dtype=np.int64) * BLOCK
            tables = list(levels(best, padded[best] if blocks else _EMPTY))
        self._levels = tables

    @property
    def packed(self) -> Ints:
        """All levels in one array; `unpacked` takes it apart again."""
        return np.concatenate(self._levels) if self._levels else _EMPTY

    @classmethod
    def unpacked(cls, durations: Ints, packed: Ints) -> LongestIndex:
        """An index from its `packed` levels, nothing computed."""
        tables, at = [], 0
        for size in cls.sizes(len(durations)):
            tables.append(packed[at : at + size])
            at += size
        return cls(durations, tables)

    @staticmethod
    def sizes(count: int) -> list[int]:
        """Lengths of the levels over `count` slices."""
        blocks = -(-count // BLOCK)
        return [blocks - (1 << power) + 1 for power in range(blocks.bit_length()) if 1 << power <= blocks]

    def _longer(self, left: Ints, right: Ints) -> Ints:
        """Elementwise the position of the longer slice; the left one, which comes first, on a tie."""
        return np.where(self._durations[right] > self._durations[left], right, left)

    def longest(self, first: Ints, last: Ints) -> Ints:
        """For each non-empty run `first[i] <= position < last[i]` the position of its longest slice."""
        if not len(first):
            return _EMPTY
        left_block = -(-first // BLOCK)
        right_block = last // BLOCK
        whole = right_block > left_block
        # Loose ends: up to a block on each side, or the whole run where it holds no full block.
        left_end = np.where(whole, left_block * BLOCK, last)
        result = self._scan(first, left_end)
        (inner,) = np.nonzero(whole)
        if len(inner):
            begin, end = left_block[inner], right_block[inner]
            level = np.frexp((end - begin).astype(np.float64))[1] - 1
            middle = np.empty(len(inner), np.int64)
            for power in np.unique(level):
                here = level == power
                table = self._levels[power]
                middle[here] = self._longer(table[begin[here]], table[end[here] - (1 << int(power))])
            head = result[inner]
            middle = np.where(head >= 0, self._longer(np.maximum(head, 0), middle), middle)
            tail = self._scan(end * BLOCK, last[inner])
            result[inner] = np.where(tail >= 0, self._longer(middle, np.maximum(tail, 0)), middle)
        return result

    def _scan(self, first: Ints, last: Ints) -> Ints:
        """Longest by looking at every slice of each run; -1 for empty runs."""
        result = np.full(len(first), -1, np.int64)
        (used,) = np.nonzero(last > first)
        if not len(used):
            return result
        lengths = last[used] - first[used]
        offsets = np.cumsum(lengths) - lengths
        positions = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(first[used] - offsets, lengths)
        values = self._durations[positions]
        highest = np.maximum.reduceat(values, offsets)
        (hits,) = np.nonzero(values == np.repeat(highest, lengths))
        run_of_hit = np.searchsorted(offsets, hits, "right") - 1
        first_hit = np.ones(len(hits), bool)
        first_hit[1:] = run_of_hit[1:] != run_of_hit[:-1]
        result[used] = positions[hits[first_hit]]
        return result
