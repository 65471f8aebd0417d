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

from neuronscope.analysis.arrays import Arrays, kept_arrays, search

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
_WIDE = ("start", "union_start", "union_end", "before", "busy_before")
_EMPTY: Ints = np.zeros(0, np.int64)


class LongestIndex:
    """Range-maximum index over durations: the position of the longest slice of a run, the first of equals."""

    def __init__(self, durations: Ints, levels: list[Ints] | None = None) -> None:
        self._durations = durations
        count = len(durations)
        blocks = -(-count // _BLOCK)
        self._levels: list[Ints] = levels or []
        if levels is not None or not count:
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

    @property
    def packed(self) -> Ints:
        """All levels in one array; `unpacked` takes it apart again."""
        return np.concatenate(self._levels) if self._levels else _EMPTY

    @classmethod
    def unpacked(cls, durations: Ints, packed: Ints) -> LongestIndex:
        """An index from its `packed` levels, nothing computed."""
        blocks = -(-len(durations) // _BLOCK)
        levels, at, width = [], 0, 1
        while width <= blocks:
            size = blocks - width + 1
            levels.append(packed[at : at + size])
            at, width = at + size, width * 2
        return cls(durations, levels)

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
        arrays = _indexed(event_id, track, lane, start, end, name_id, op_id, launch_ns, estimated)
        self._set(arrays, gaps)

    def _set(self, arrays: Arrays, gaps: Gaps | None) -> None:
        self.event_id, self.track, self.lane = arrays["event_id"], arrays["track"], arrays["lane"]
        self.start, self.duration = arrays["start"], arrays["duration"]
        self.name_id, self.op_id = arrays["name_id"], arrays["op_id"]
        self.launch_ns, self.estimated = arrays["launch_ns"], arrays["estimated"]
        self.gaps = gaps or Gaps(_EMPTY, _EMPTY, _EMPTY, _EMPTY)
        self._busy_before, self._estimated_before = arrays["busy_before"], arrays["estimated_before"]
        self._longest = LongestIndex.unpacked(self.duration, arrays["longest"])
        self._order, self._identities = arrays["order"], arrays["identities"]
        firsts = arrays["lane_first"].tolist()
        lasts = [*firsts[1:], len(self.start)][: len(firsts)]
        self.lanes = [
            _Lane(int(self.track[first]), int(self.lane[first]), first, last, bool(overlaps))
            for first, last, overlaps in zip(firsts, lasts, arrays["lane_overlaps"].tolist(), strict=True)
        ]

    @classmethod
    def of(cls, profile: Profile) -> Timeline:
        """Load the index of a profile's Slice table, or make it from there; the Gap table is read each time."""
        origin = profile.origin_ns

        def column(source: pa.Table, name: str) -> Ints:
            return source[name].to_numpy().astype(np.int64)

        def make() -> Arrays:
            table = profile.query("SELECT * FROM Slice ORDER BY track_id, lane, start_ts")
            return _indexed(
                event_id=column(table, "event_id"),
                track=column(table, "track_id"),
                lane=column(table, "lane"),
                start=column(table, "start_ts") - origin,
                end=column(table, "end_ts") - origin,
                name_id=column(table, "name_id"),
                op_id=column(table, "op_id"),
                launch_ns=column(table, "launch_ns"),
                estimated=table["estimated"].to_numpy().astype(np.bool_),
            )

        def make_gaps() -> Arrays:
            gap_table = profile.query("SELECT gap_id, track_id, start_ts, end_ts FROM Gap ORDER BY track_id, start_ts")
            return {
                "identity": column(gap_table, "gap_id"),
                "track": column(gap_table, "track_id"),
                "start": column(gap_table, "start_ts") - origin,
                "end": column(gap_table, "end_ts") - origin,
            }

        timeline = cls.__new__(cls)
        gaps = kept_arrays(profile, "gaps", ("Gap", "Slice"), make_gaps)
        timeline._set(kept_arrays(profile, "timeline", ("Slice",), make, _WIDE), Gaps(**gaps))
        return timeline

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
        at = int(search(self._identities, event_id))
        found = at < len(self._identities) and self._identities[at] == event_id
        return int(self._order[at]) if found else None

    def positions(self, event_ids: Ints) -> Ints:
        """Rows of the events' slices, -1 where the timeline has none."""
        if not len(self._identities):
            return np.full(len(event_ids), -1, np.int64)
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


def _indexed(
    event_id: Ints,
    track: Ints,
    lane: Ints,
    start: Ints,
    end: Ints,
    name_id: Ints,
    op_id: Ints,
    launch_ns: Ints,
    estimated: npt.NDArray[np.bool_],
) -> Arrays:
    """Columns of the Slice table in order of (track, lane, start), and all that tiles are answered from."""
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
    event_id, track, lane, start, end = event_id[order], track[order], lane[order], start[order], end[order]
    estimated = estimated[order]
    duration = end - start
    by_event = np.argsort(event_id, kind="stable")
    (cuts,) = np.nonzero((track[1:] != track[:-1]) | (lane[1:] != lane[:-1]))
    lane_first = np.concatenate(([0], cuts + 1)) if len(start) else _EMPTY
    lane_last = np.concatenate((cuts + 1, [len(start)])) if len(start) else _EMPTY
    # Without overlap, ends never exceed the next start inside a lane.
    bad = end[:-1] > start[1:]
    bad[cuts] = False
    bad_before = np.concatenate(([0], np.cumsum(bad)))
    return {
        "event_id": event_id,
        "track": track,
        "lane": lane,
        "start": start,
        "duration": duration,
        "name_id": name_id[order],
        "op_id": op_id[order],
        "launch_ns": launch_ns[order],
        "estimated": estimated,
        "busy_before": np.concatenate(([0], np.cumsum(duration))),
        "estimated_before": np.concatenate(([0], np.cumsum(estimated))),
        "longest": LongestIndex(duration).packed,
        "order": by_event,
        "identities": event_id[by_event],
        "lane_first": lane_first,
        "lane_overlaps": (bad_before[lane_last - 1] > bad_before[lane_first]) if len(start) else np.zeros(0, np.bool_),
    }


class Occupancy:
    """How busy a set of intervals keeps each pixel, and which of them is the longest there."""

    def __init__(self, start: Ints, end: Ints, label: Ints) -> None:
        self._set(_occupied(start, end, label))

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Occupancy:
        """From what `_occupied` made."""
        made = cls.__new__(cls)
        made._set(arrays)
        return made

    def _set(self, arrays: Arrays) -> None:
        self._start, self._duration, self._label = arrays["start"], arrays["duration"], arrays["label"]
        self._union_start, self._union_end = arrays["union_start"], arrays["union_end"]
        self._before = arrays["before"]
        self._longest = LongestIndex.unpacked(self._duration, arrays["longest"])

    def __len__(self) -> int:
        """Number of intervals."""
        return len(self._start)

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
            held = np.maximum(carried, 0)
            reaches = (carried >= 0) & (self._start[held] + self._duration[held] > edges[:-1])
            length = self._duration
            better = reaches & ((best < 0) | (length[np.maximum(carried, 0)] >= length[np.maximum(best, 0)]))
            best = np.where(better, carried, best)
            labels[best >= 0] = self._label[best[best >= 0]]
        # rounding keeps answers short, but must not make a short operator vanish
        return [max(round(float(value), 4), 1e-4) if value > 0 else 0.0 for value in busy], labels.tolist()


def _occupied(start: Ints, end: Ints, label: Ints) -> Arrays:
    order = np.argsort(start, kind="stable")
    start, end, label = start[order], end[order], label[order]
    reach = np.maximum.accumulate(end) if len(order) else _EMPTY
    fresh = np.ones(len(order), bool)
    fresh[1:] = start[1:] > reach[:-1]
    (heads,) = np.nonzero(fresh)
    union_start = start[heads]
    union_end = reach[np.concatenate((heads[1:] - 1, [len(order) - 1]))] if len(order) else _EMPTY
    duration = end - start
    return {
        "start": start,
        "duration": duration,
        "label": label,
        "union_start": union_start,
        "union_end": union_end,
        "before": np.concatenate(([0], np.cumsum(union_end - union_start))),
        "longest": LongestIndex(duration).packed,
    }


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
    answers = []
    for kind, fallback in (("framework", "host"), ("device", None)):
        occupancy = _occupancy(profile, kind)
        busy, labels = occupancy.pixels(start, end, width) if len(occupancy) else ([], [])
        if fallback is not None and not any(busy) and len(other := _occupancy(profile, fallback)):
            busy, labels = other.pixels(start, end, width)
        if busy:
            answers.append({"kind": kind, "busy": busy, "name_id": labels})
    return answers


_OCCUPIED = {
    "framework": "SELECT start_ts, end_ts, coalesce(name_id, -1) AS label FROM HostOp "
    "LEFT JOIN Name USING (name) WHERE parent_id < 0",
    "host": "SELECT start_ts, end_ts, name_id AS label FROM Slice JOIN Track USING (track_id) WHERE kind = 'framework'",
    "device": "SELECT start_ts, end_ts, coalesce(name_id, -1) AS label FROM Execution LEFT JOIN Name "
    "ON Name.name = CASE WHEN op = '' THEN Execution.name ELSE op END",
}


def _occupancy(profile: Profile, kind: str) -> Occupancy:
    """One of `_OCCUPIED`, made when first asked for."""
    cache: dict[str, Occupancy] = profile.__dict__.setdefault("_occupancies", {})
    if kind not in cache:
        origin = profile.origin_ns

        def make() -> Arrays:
            table = profile.query(_OCCUPIED[kind])
            start, end, label = (table[name].to_numpy().astype(np.int64) for name in ("start_ts", "end_ts", "label"))
            return _occupied(start - origin, end - origin, label)

        tables = ("HostOp", "Slice", "Execution", "Name", "Track")
        cache[kind] = Occupancy.of_arrays(kept_arrays(profile, f"occupancy-{kind}", tables, make, _WIDE))
    return cache[kind]
