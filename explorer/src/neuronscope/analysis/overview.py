"""The strip above the timeline: how busy host and device are in each pixel, and with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neuronscope.analysis.arrays import Arrays, kept_arrays
from neuronscope.index.longest import LongestIndex

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["Occupancy", "overview"]

Ints = npt.NDArray[np.int64]

_WIDE = ("start", "union_start", "union_end", "before")
_EMPTY: Ints = np.zeros(0, np.int64)


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
            start, end, label = profile.columns(_OCCUPIED[kind]).values()
            return _occupied(start - origin, end - origin, label)

        tables = ("HostOp", "Slice", "Execution", "Name", "Track")
        cache[kind] = Occupancy.of_arrays(kept_arrays(profile, f"occupancy-{kind}", tables, make, _WIDE))
    return cache[kind]
