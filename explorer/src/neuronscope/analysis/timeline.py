"""Timeline tiles: what a screen of a given width can show of a range, exactly, at any profile size.

The Slice table is sorted by (track, lane, start) and slices of one lane do not overlap, so each pixel of a lane is one
run of neighbouring rows. Runs are found by binary search; count and busy time come from positions and prefix sums, the
longest slice of a run from a range-maximum index (blocks of 32 slices, sparse table over blocks). The cost grows with
pixels × lanes and the logarithm of the slices, not with their number. Lanes whose slices overlap after all are answered
row by row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.analysis.arrays import Arrays, Room, search
from neuronscope.analysis.timeline_gaps import Gaps
from neuronscope.analysis.timeline_index import slice_arrays
from neuronscope.index.longest import LongestIndex
from neuronscope.index.slices import COLUMNS, fill, limits_of

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["TILE_SCHEMA", "Gaps", "Timeline"]

Ints = npt.NDArray[np.int64]

TILE_SCHEMA = pa.schema(
    [
        ("event_id", pa.int64()),
        ("track", pa.int32()),
        ("lane", pa.int32()),
        ("start", pa.int64()),
        ("duration", pa.int64()),
        ("name_id", pa.int32()),
        ("op_id", pa.int32()),
        ("count", pa.int32()),
        ("busy", pa.float32()),
        ("launch_ns", pa.int64()),
        ("estimated", pa.bool_()),
        ("kind", pa.int8()),
    ]
)


@dataclass(frozen=True)
class _Lane:
    track: int
    lane: int
    first: int
    last: int
    overlaps: bool


class Timeline:
    """The slices of a profile as arrays, times relative to its origin, and the index over them.

    Args:
        event_id, track, lane, start, end, name_id, op_id, launch_ns, estimated: columns of the Slice table, any order.
        gaps: idle intervals to show on device tracks.
    """

    def __init__(
        self,
        *,
        event_id: Ints,
        track: Ints,
        lane: Ints,
        start: Ints,
        end: Ints,
        name_id: Ints,
        op_id: Ints,
        launch_ns: Ints,
        estimated: npt.NDArray[np.bool_],
        gaps: Gaps | None = None,
    ) -> None:
        order = np.lexsort((start, lane, track))
        given = (event_id, track, lane, start, end - start, name_id, op_id, launch_ns, estimated.astype(np.int64))
        slices = {name: column[order] for name, column in zip(COLUMNS, given, strict=True)}
        room = Room(None)
        fill(room, [slices], limits_of(slices), len(order))
        self._set(room.arrays(), gaps or Gaps.none())

    def _set(self, arrays: Arrays, gaps: Gaps) -> None:
        self.event_id, self.track, self.lane = arrays["event_id"], arrays["track"], arrays["lane"]
        self.start, self.duration = arrays["start"], arrays["duration"]
        self.name_id, self.op_id = arrays["name_id"], arrays["op_id"]
        self.launch_ns, self.estimated = arrays["launch_ns"], arrays["estimated"]
        self.gaps = gaps
        self._busy_before, self._estimated_before = arrays["busy_before"], arrays["estimated_before"]
        self._longest = LongestIndex.unpacked(self.duration, arrays["longest"])
        self._row_of = arrays.get("row_of")
        self._order, self._identities = arrays.get("order"), arrays.get("identities")
        firsts = arrays["lane_first"].tolist()
        lasts = [*firsts[1:], len(self.start)][: len(firsts)]
        self.lanes = [
            _Lane(int(self.track[first]), int(self.lane[first]), first, last, bool(overlaps))
            for first, last, overlaps in zip(firsts, lasts, arrays["lane_overlaps"].tolist(), strict=True)
        ]

    @classmethod
    def of(cls, profile: Profile) -> Timeline:
        """Load the index of a profile's Slice and Gap tables, or make it from there."""
        timeline = cls.__new__(cls)
        timeline._set(slice_arrays(profile), Gaps.of_profile(profile))
        return timeline

    def before(self, position: int) -> int | None:
        """Position of the slice that begins last of those that begin earlier on the same track; None: the first."""
        begun = int(self.start[position])
        found = None
        for lane in self.lanes:
            if lane.track != self.track[position]:
                continue
            at = lane.first + int(search(self.start[lane.first : lane.last], [begun])[0]) - 1
            if at >= lane.first and (found is None or self.start[at] > self.start[found]):
                found = at
        return found

    def __len__(self) -> int:
        """Number of slices."""
        return len(self.start)

    def tile(self, start: int, end: int, width: int, tracks: Iterable[int] | None = None) -> pa.Table:
        """What to draw of `start <= time < end` on `width` pixels, one row per item (see docs/http-api.md).

        A slice at least one pixel wide is an item of its own with its true start and duration, also where it reaches
        beyond the range. Narrower slices that start in the same pixel of a lane are one item: from the first start to
        the last end, `event_id`, `name_id` and `op_id` of the longest (the first of equals), `busy` the covered share.
        Gaps of at least one pixel come last, as kind 1.

        Args:
            start: relative to the profile's origin, ns.
            end: likewise, excluded.
            width: pixels, at least 1.
            tracks: only these; None for all.
        """
        length = max(end - start, 1)
        chosen = None if tracks is None else set(tracks)
        parts = []
        runs_first, runs_last = [], []
        singles = []
        bounds = start - (-np.arange(width + 1, dtype=object if length * width > 2**62 else np.int64) * length // width)
        bounds = bounds.astype(np.int64)  # pixel k holds the starts in [bounds[k], bounds[k+1])
        for lane in self.lanes:
            if chosen is not None and lane.track not in chosen:
                continue
            if lane.overlaps:
                parts.append(self._row_by_row(lane, bounds, start, end, length, width))
                continue
            starts = self.start[lane.first : lane.last]
            cuts = np.searchsorted(starts, bounds, "left") + lane.first
            before = int(cuts[0]) - 1
            if before >= lane.first and self.start[before] + self.duration[before] > start:
                if self.duration[before] >= -(-length // width):
                    singles.append(np.array([before], np.int64))
                else:
                    runs_first.append(np.array([before], np.int64))
                    runs_last.append(np.array([before + 1], np.int64))
            used = cuts[1:] > cuts[:-1]
            first, last = cuts[:-1][used], cuts[1:][used]
            wide = self._wide(last - 1, length, width)  # only a pixel's last slice can reach a pixel's width
            singles.append(last[wide] - 1)
            last = last - wide
            left = last > first
            runs_first.append(first[left])
            runs_last.append(last[left])
        if runs_first:
            parts.append(self._merge(np.concatenate(runs_first), np.concatenate(runs_last)))
        if singles:
            parts.append(self._single(np.concatenate(singles)))
        parts.append(self._gap_items(start, end, length, width, chosen))
        return pa.concat_tables(parts).combine_chunks()

    def _wide(self, positions: Ints, length: int, width: int) -> npt.NDArray[np.bool_]:
        return self.duration[positions] >= -(-length // width)

    def _single(self, positions: Ints) -> pa.Table:
        ones = np.ones(len(positions))
        return _items(
            self.event_id[positions],
            self.track[positions],
            self.lane[positions],
            self.start[positions],
            self.duration[positions],
            self.name_id[positions],
            self.op_id[positions],
            ones,
            ones,
            self.launch_ns[positions],
            self.estimated[positions],
            0,
        )

    def _merge(self, first: Ints, last: Ints) -> pa.Table:
        longest = self._longest.longest(first, last)
        count = last - first
        start = self.start[first]
        duration = self.start[last - 1] + self.duration[last - 1] - start
        busy_ns = self._busy_before[last] - self._busy_before[first]
        return self._merged(
            first,
            longest,
            count,
            start,
            duration,
            busy_ns,
            self._estimated_before[last] > self._estimated_before[first],
        )

    def _merged(
        self,
        first: Ints,
        longest: Ints,
        count: Ints,
        start: Ints,
        duration: Ints,
        busy_ns: Ints,
        estimated: npt.NDArray[np.bool_],
    ) -> pa.Table:
        busy = np.where(duration > 0, np.minimum(busy_ns / np.maximum(duration, 1), 1.0), 1.0)
        return _items(
            self.event_id[longest],
            self.track[first],
            self.lane[first],
            start,
            duration,
            self.name_id[longest],
            self.op_id[longest],
            count,
            busy,
            np.where(count == 1, self.launch_ns[longest], 0),
            estimated,
            0,
        )

    def _row_by_row(self, lane: _Lane, bounds: Ints, start: int, end: int, length: int, width: int) -> pa.Table:
        """The same answer for a lane in which slices overlap."""
        starts = self.start[lane.first : lane.last]
        ends = starts + self.duration[lane.first : lane.last]
        seen = np.nonzero((starts < end) & ((ends > start) | (starts >= start)))[0] + lane.first
        wide = self._wide(seen, length, width)
        narrow = seen[~wide]
        parts = [self._single(seen[wide])]
        if len(narrow):
            pixel = np.searchsorted(bounds, self.start[narrow], "right") - 1
            runs = np.concatenate(([0], np.nonzero(pixel[1:] != pixel[:-1])[0] + 1))
            order = np.lexsort((narrow, -self.duration[narrow], pixel))
            first = narrow[runs]
            begin = self.start[first]
            parts.append(
                self._merged(
                    first,
                    narrow[order][runs],
                    np.diff(np.concatenate((runs, [len(narrow)]))),
                    begin,
                    np.maximum.reduceat(self.start[narrow] + self.duration[narrow], runs) - begin,
                    np.add.reduceat(self.duration[narrow], runs, dtype=np.int64),
                    np.logical_or.reduceat(self.estimated[narrow], runs),
                )
            )
        return pa.concat_tables(parts)

    def _gap_items(self, start: int, end: int, length: int, width: int, chosen: set[int] | None) -> pa.Table:
        gaps = self.gaps
        at = gaps.within(start, end, -(-length // width), chosen)
        zeros, none, ones = np.zeros(len(at)), np.full(len(at), -1), np.ones(len(at))
        return _items(
            gaps.identity[at],
            gaps.track[at],
            zeros,
            gaps.start[at],
            gaps.duration[at],
            none,
            none,
            ones,
            zeros,
            zeros,
            zeros,
            1,
        )

    def position(self, event_id: int) -> int | None:
        """Row of an event's slice, None when the timeline has none."""
        at = int(self.positions(np.array([event_id], np.int64))[0])
        return at if at >= 0 else None

    def positions(self, event_ids: Ints) -> Ints:
        """Rows of the events' slices, -1 where the timeline has none."""
        if self._row_of is not None:
            known = (event_ids >= 0) & (event_ids < len(self._row_of))
            rows = np.full(len(event_ids), -1, np.int64)
            rows[known] = self._row_of[event_ids[known]]
            return rows
        assert self._order is not None
        assert self._identities is not None
        at = np.minimum(search(self._identities, event_ids), len(self._identities) - 1)
        return np.where(self._identities[at] == event_ids, self._order[at], -1)

    def neighbour(self, event_id: int, step: int) -> int | None:
        """Event id of the slice `step` rows further in the same lane (1 next, -1 previous), None at its ends."""
        at = self.position(event_id)
        if at is None:
            return None
        other = at + step
        if not 0 <= other < len(self) or (self.track[at], self.lane[at]) != (self.track[other], self.lane[other]):
            return None
        return int(self.event_id[other])


def _items(*columns: Any) -> pa.Table:
    size = len(columns[0])
    arrays = []
    for field, values in zip(TILE_SCHEMA, columns, strict=True):
        filled = np.full(size, values) if np.isscalar(values) else values
        arrays.append(pa.array(np.asarray(filled).astype(field.type.to_pandas_dtype()), field.type))
    return pa.Table.from_arrays(arrays, schema=TILE_SCHEMA)
