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

_BLOCK = 32
_EMPTY: Ints = np.zeros(0, np.int64)


class LongestIndex:
    """Range-maximum index over durations: the position of the longest slice of a run, the first of equals."""

    def __init__(self, durations: Ints) -> None:
        self._durations = durations
        count = len(durations)
        blocks = -(-count // _BLOCK)
        if not count:
            self._levels: list[Ints] = []
            return
        padded = np.full(blocks * _BLOCK, -1, np.int64)
        padded[:count] = durations
        best = padded.reshape(blocks, _BLOCK).argmax(axis=1) + np.arange(blocks, dtype=np.int64) * _BLOCK
        self._levels = [best]
        width = 1
        while 2 * width <= blocks:
            last = self._levels[-1]
            self._levels.append(self._longer(last[:-width], last[width:]))
            width *= 2

    def _longer(self, left: Ints, right: Ints) -> Ints:
        """Elementwise the position of the longer slice; the left one, which comes first, on a tie."""
        return np.where(self._durations[right] > self._durations[left], right, left)

    def longest(self, first: Ints, last: Ints) -> Ints:
        """For each non-empty run `first[i] <= position < last[i]` the position of its longest slice."""
        if not len(first):
            return _EMPTY
        left_block = -(-first // _BLOCK)
        right_block = last // _BLOCK
        whole = right_block > left_block
        # Loose ends: up to a block on each side, or the whole run where it holds no full block.
        left_end = np.where(whole, left_block * _BLOCK, last)
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
            tail = self._scan(end * _BLOCK, last[inner])
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


@dataclass(frozen=True)
class Gaps:
    """Idle intervals by device track, sorted by (track, start); times relative to the profile's origin."""

    identity: Ints
    track: Ints
    start: Ints
    end: Ints


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
        order: Any = slice(None)
        sorted_already = not len(start) or bool(
            np.all(
                (track[1:] > track[:-1])
                | ((track[1:] == track[:-1]) & (lane[1:] > lane[:-1]))
                | ((track[1:] == track[:-1]) & (lane[1:] == lane[:-1]) & (start[1:] >= start[:-1]))
            )
        )
        if not sorted_already:
            order = np.lexsort((start, lane, track))
        self.event_id, self.track, self.lane = event_id[order], track[order], lane[order]
        self.start, self.end = start[order], end[order]
        self.name_id, self.op_id = name_id[order], op_id[order]
        self.launch_ns, self.estimated = launch_ns[order], estimated[order]
        self.gaps = gaps or Gaps(_EMPTY, _EMPTY, _EMPTY, _EMPTY)
        self._duration = self.end - self.start
        self._busy_before = np.zeros(len(self.start) + 1, np.int64)
        np.cumsum(self._duration, out=self._busy_before[1:])
        self._estimated_before = np.zeros(len(self.start) + 1, np.int64)
        np.cumsum(self.estimated, out=self._estimated_before[1:])
        self._longest = LongestIndex(self._duration)
        self.lanes = self._find_lanes()
        self._by_event: tuple[Ints, Ints] | None = None

    @classmethod
    def of(cls, profile: Profile) -> Timeline:
        """Load the Slice and Gap tables of a profile."""
        origin = profile.origin_ns
        table = profile.query("SELECT * FROM Slice ORDER BY track_id, lane, start_ts")
        gap_table = profile.query("SELECT gap_id, track_id, start_ts, end_ts FROM Gap ORDER BY track_id, start_ts")

        def column(source: pa.Table, name: str) -> Ints:
            return source[name].to_numpy().astype(np.int64)

        return cls(
            event_id=column(table, "event_id"),
            track=column(table, "track_id"),
            lane=column(table, "lane"),
            start=column(table, "start_ts") - origin,
            end=column(table, "end_ts") - origin,
            name_id=column(table, "name_id"),
            op_id=column(table, "op_id"),
            launch_ns=column(table, "launch_ns"),
            estimated=table["estimated"].to_numpy().astype(np.bool_),
            gaps=Gaps(
                column(gap_table, "gap_id"),
                column(gap_table, "track_id"),
                column(gap_table, "start_ts") - origin,
                column(gap_table, "end_ts") - origin,
            ),
        )

    def __len__(self) -> int:
        """Number of slices."""
        return len(self.start)

    def _find_lanes(self) -> list[_Lane]:
        if not len(self.start):
            return []
        (cuts,) = np.nonzero((self.track[1:] != self.track[:-1]) | (self.lane[1:] != self.lane[:-1]))
        firsts = np.concatenate(([0], cuts + 1))
        lasts = np.concatenate((cuts + 1, [len(self.start)]))
        # Without overlap, ends never exceed the next start inside a lane.
        bad = self.end[:-1] > self.start[1:]
        bad[cuts] = False
        bad_before = np.concatenate(([0], np.cumsum(bad), [int(bad.sum())]))
        return [
            _Lane(int(self.track[a]), int(self.lane[a]), int(a), int(b), bool(bad_before[b - 1] > bad_before[a]))
            for a, b in zip(firsts, lasts, strict=True)
        ]

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
            if before >= lane.first and self.end[before] > start:
                if self._duration[before] >= -(-length // width):
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
        return self._duration[positions] >= -(-length // width)

    def _single(self, positions: Ints) -> pa.Table:
        ones = np.ones(len(positions))
        return _items(
            self.event_id[positions],
            self.track[positions],
            self.lane[positions],
            self.start[positions],
            self._duration[positions],
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
        duration = self.end[last - 1] - start
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
        starts, ends = self.start[lane.first : lane.last], self.end[lane.first : lane.last]
        seen = np.nonzero((starts < end) & ((ends > start) | (starts >= start)))[0] + lane.first
        wide = self._wide(seen, length, width)
        narrow = seen[~wide]
        parts = [self._single(seen[wide])]
        if len(narrow):
            pixel = np.searchsorted(bounds, self.start[narrow], "right") - 1
            runs = np.concatenate(([0], np.nonzero(pixel[1:] != pixel[:-1])[0] + 1))
            order = np.lexsort((narrow, -self._duration[narrow], pixel))
            first = narrow[runs]
            begin = self.start[first]
            parts.append(
                self._merged(
                    first,
                    narrow[order][runs],
                    np.diff(np.concatenate((runs, [len(narrow)]))),
                    begin,
                    np.maximum.reduceat(self.end[narrow], runs) - begin,
                    np.add.reduceat(self._duration[narrow], runs),
                    np.logical_or.reduceat(self.estimated[narrow], runs),
                )
            )
        return pa.concat_tables(parts)

    def _gap_items(self, start: int, end: int, length: int, width: int, chosen: set[int] | None) -> pa.Table:
        gaps = self.gaps
        duration = gaps.end - gaps.start
        seen = (gaps.start < end) & (gaps.end > start) & (duration >= -(-length // width))
        if chosen is not None:
            seen &= np.isin(gaps.track, list(chosen))
        (at,) = np.nonzero(seen)
        zeros, none, ones = np.zeros(len(at)), np.full(len(at), -1), np.ones(len(at))
        return _items(
            gaps.identity[at],
            gaps.track[at],
            zeros,
            gaps.start[at],
            duration[at],
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
        if self._by_event is None:
            order = np.argsort(self.event_id, kind="stable")
            self._by_event = order, self.event_id[order]
        order, identities = self._by_event
        at = int(np.searchsorted(identities, event_id))
        return int(order[at]) if at < len(identities) and identities[at] == event_id else None

    def neighbour(self, event_id: int, step: int) -> int | None:
        """Event id of the slice `step` rows further in the same lane (1 next, -1 previous), None at its ends."""
        at = self.position(event_id)
        if at is None:
            return None
        other = at + step
        if not 0 <= other < len(self) or (self.track[at], self.lane[at]) != (self.track[other], self.lane[other]):
            return None
        return int(self.event_id[other])


class Occupancy:
    """How busy a set of intervals keeps each pixel, and which of them is the longest there."""

    def __init__(self, start: Ints, end: Ints, label: Ints) -> None:
        order = np.argsort(start, kind="stable")
        self._start, self._end, self._label = start[order], end[order], label[order]
        reach = np.maximum.accumulate(self._end) if len(order) else _EMPTY
        fresh = np.ones(len(order), bool)
        fresh[1:] = self._start[1:] > reach[:-1]
        (heads,) = np.nonzero(fresh)
        self._union_start = self._start[heads]
        self._union_end = reach[np.concatenate((heads[1:] - 1, [len(order) - 1]))] if len(order) else _EMPTY
        self._before = np.concatenate(([0], np.cumsum(self._union_end - self._union_start)))
        self._longest = LongestIndex(self._end - self._start)

    def _busy_until(self, times: Ints) -> Ints:
        """Busy time before each moment."""
        at = np.searchsorted(self._union_start, times, "right")
        last = np.maximum(at - 1, 0)
        if not len(self._union_start):
            return np.zeros(len(times), np.int64)
        over = np.where(at > 0, np.maximum(self._union_end[last] - times, 0), 0)
        return self._before[at] - over

    def pixels(self, start: int, end: int, width: int) -> tuple[list[float], list[int]]:
        """Busy share and label of the longest interval for each of `width` pixels; label -1 where nothing runs."""
        bounds = np.linspace(start, end, width + 1)
        edges = np.round(bounds).astype(np.int64)
        sizes = np.maximum(np.diff(edges), 1)
        busy = np.minimum(np.diff(self._busy_until(edges)) / sizes, 1.0)
        labels = np.full(width, -1, np.int64)
        if len(self._start):
            first = np.searchsorted(self._start, edges[:-1], "left")
            last = np.searchsorted(self._start, edges[1:], "left")
            best = np.full(width, -1, np.int64)
            (some,) = np.nonzero(last > first)
            best[some] = self._longest.longest(first[some], last[some])
            carried = first - 1  # the one that may reach in from before the pixel
            reaches = (carried >= 0) & (self._end[np.maximum(carried, 0)] > edges[:-1])
            length = self._end - self._start
            better = reaches & ((best < 0) | (length[np.maximum(carried, 0)] >= length[np.maximum(best, 0)]))
            best = np.where(better, carried, best)
            labels[best >= 0] = self._label[best[best >= 0]]
        # rounding keeps answers short, but must not make a short operator vanish
        return [max(round(float(value), 4), 1e-4) if value > 0 else 0.0 for value in busy], labels.tolist()


def _items(*columns: Any) -> pa.Table:
    size = len(columns[0])
    arrays = []
    for field, values in zip(TILE_SCHEMA, columns, strict=True):
        filled = np.full(size, values) if np.isscalar(values) else values
        arrays.append(pa.array(np.asarray(filled).astype(field.type.to_pandas_dtype()), field.type))
    return pa.Table.from_arrays(arrays, schema=TILE_SCHEMA)


def overview(profile: Profile, start: int, end: int, width: int) -> list[dict[str, Any]]:
    """Busy share per pixel of host operators and of device work; `name_id` is that of the operator that dominates.

    Where the range holds no operator call, the host's band shows the slices of the framework's lanes: a step or a
    Python function is then all there is to see.
    """
    occupancies = _occupancies(profile)
    answers = []
    for kind, fallback in (("framework", "host"), ("device", None)):
        occupancy = occupancies.get(kind)
        busy, labels = occupancy.pixels(start, end, width) if occupancy else ([], [])
        if fallback in occupancies and not any(busy):
            busy, labels = occupancies[fallback].pixels(start, end, width)
        if busy:
            answers.append({"kind": kind, "busy": busy, "name_id": labels})
    return answers


def _occupancies(profile: Profile) -> dict[str, Occupancy]:
    cached: dict[str, Occupancy] | None = profile.__dict__.get("_occupancies")
    if cached is None:
        origin = profile.origin_ns
        queries = {
            "framework": "SELECT start_ts, end_ts, coalesce(name_id, -1) AS label FROM HostOp "
            "LEFT JOIN Name USING (name) WHERE parent_id < 0",
            "host": "SELECT start_ts, end_ts, name_id AS label FROM Slice JOIN Track USING (track_id) "
            "WHERE kind = 'framework'",
            "device": "SELECT start_ts, end_ts, coalesce(name_id, -1) AS label FROM Execution LEFT JOIN Name "
            "ON Name.name = CASE WHEN op = '' THEN Execution.name ELSE op END",
        }
        cached = {}
        for kind, query in queries.items():
            table = profile.query(query)
            if table.num_rows:
                start, end, label = (
                    table[name].to_numpy().astype(np.int64) for name in ("start_ts", "end_ts", "label")
                )
                cached[kind] = Occupancy(start - origin, end - origin, label)
        profile.__dict__["_occupancies"] = cached
    return cached
