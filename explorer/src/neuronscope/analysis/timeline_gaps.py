"""Idle intervals on device tracks, found by time and least length without looking at all of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from neuronscope.analysis.arrays import Arrays, kept_arrays

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["Gaps"]

Ints = npt.NDArray[np.int64]

_BLOCK = 64
_EMPTY: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Gaps:
    """Gaps in order of (track, start), times relative to the profile's origin, in blocks that no two tracks share.

    Attributes:
        identity, track, start, duration: of each gap.
        block_first: each block's first gap.
        block_longest: duration of its longest gap.
        block_reach: latest end of this block's gaps and of those before it on its track.
        track_block: each track's first block.
    """

    identity: Ints
    track: Ints
    start: Ints
    duration: Ints
    block_first: Ints
    block_longest: Ints
    block_reach: Ints
    track_block: Ints

    @classmethod
    def of(cls, identity: Ints, track: Ints, start: Ints, end: Ints) -> Gaps:
        """From columns in order of (track, start)."""
        return cls(**_indexed(identity, track, start, end))

    @classmethod
    def of_profile(cls, profile: Profile) -> Gaps:
        """Those of a profile's Gap table, kept beside it."""

        def make() -> Arrays:
            columns = profile.columns("SELECT gap_id, track_id, start_ts, end_ts FROM Gap")
            identity, track, start, end = columns.values()
            if ((track[1:] < track[:-1]) | ((track[1:] == track[:-1]) & (start[1:] < start[:-1]))).any():
                order = np.lexsort((start, track))
                identity, track, start, end = (column[order] for column in (identity, track, start, end))
            return _indexed(identity, track, start - profile.origin_ns, end - profile.origin_ns)

        return cls(**kept_arrays(profile, "gaps", ("Gap", "Slice"), make, ("start", "block_reach")))

    @classmethod
    def none(cls) -> Gaps:
        """No gaps."""
        return cls.of(_EMPTY, _EMPTY, _EMPTY, _EMPTY)

    def within(self, start: int, end: int, least: int, tracks: set[int] | None) -> Ints:
        """Rows of the gaps of at least `least` ns that are seen between two times, on the given tracks or on all."""
        found = []
        bounds = [*self.track_block.tolist(), len(self.block_first)]
        for low, high in itertools.pairwise(bounds):
            if tracks is not None and int(self.track[self.block_first[low]]) not in tracks:
                continue
            first = low + int(np.searchsorted(self.block_reach[low:high], start, "right"))
            last = self._begun(first, high, end)
            long = np.flatnonzero(self.block_longest[first:last] >= least) + first
            firsts = self.block_first[long].astype(np.int64)
            rows = (firsts[:, None] + np.arange(_BLOCK)).ravel()
            lasts = np.repeat(self._block_last(long), _BLOCK)
            rows = rows[rows < lasts]
            begin, duration = self.start[rows], self.duration[rows]
            found.append(rows[(begin < end) & (begin + duration > start) & (duration >= least)])
        return np.concatenate(found) if found else _EMPTY

    def _begun(self, low: int, high: int, end: int) -> int:
        """The first of the blocks in which no gap starts before `end`."""
        while low < high:
            middle = (low + high) // 2
            if self.start[self.block_first[middle]] < end:
                low = middle + 1
            else:
                high = middle
        return low

    def _block_last(self, blocks: Ints) -> Ints:
        following = np.minimum(blocks + 1, len(self.block_first) - 1)
        return np.where(blocks + 1 < len(self.block_first), self.block_first[following], len(self.start))


def _indexed(identity: Ints, track: Ints, start: Ints, end: Ints) -> dict[str, Ints]:
    cuts = np.flatnonzero(track[1:] != track[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(track)] if len(track) else [0]
    firsts, reaches, blocks = [], [], [0]
    for low, high in itertools.pairwise(bounds):
        first = np.arange(low, high, _BLOCK)
        last = np.append(first[1:], high) - 1
        firsts.append(first)
        reaches.append(np.maximum.accumulate(end[low:high])[last - low])
        blocks.append(blocks[-1] + len(first))
    block_first = np.concatenate(firsts) if firsts else _EMPTY
    duration = end - start
    return {
        "identity": identity,
        "track": track,
        "start": start,
        "duration": duration,
        "block_first": block_first,
        "block_longest": np.maximum.reduceat(duration, block_first) if firsts else _EMPTY,
        "block_reach": np.concatenate(reaches) if reaches else _EMPTY,
        "track_block": np.array(blocks[:-1], np.int64),
    }
