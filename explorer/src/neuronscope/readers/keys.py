"""Joins over columns of ids: look-ups, codes for tuples, pairs of arrow ends. Plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.readers.exact import Int64
from neuronscope.readers.scratch import CHUNK_ROWS, ranges

__all__ = [
    "Numbering",
    "codes_of",
    "combined",
    "distinct",
    "first_rows",
    "groups",
    "lookup",
    "lookup_sorted",
    "match_arrows",
    "pair_codes",
    "stable_order",
]


_SPARSE = 4  # numbers up to this many times the number of rows are used as they are


def lookup(keys: Int64, values: Int64, wanted: Int64) -> Int64:
    """`values` of the first row whose key equals each wanted key, -1 none."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    return lookup_sorted(keys[order], values[order], wanted)


def lookup_sorted(keys: Int64, values: Int64, wanted: Int64) -> Int64:
    """Like `lookup`, for sorted keys."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], -1)


def pair_codes(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Int64:
    """One dense code per distinct pair."""
    return codes_of(first, second)


def codes_of(*keys: npt.NDArray[Any]) -> Int64:
    """One dense code per distinct tuple of values, in order of appearance."""
    return _numbered(combined(*keys))[0]


def groups(*keys: npt.NDArray[Any]) -> Int64:
    """One number per distinct tuple of values, from 0 to not much more than there are; in any order."""
    code = combined(*keys)
    low, high = int(code.min(initial=0)), int(code.max(initial=0))
    if high - low < _SPARSE * len(code):
        return code - low
    order = np.argsort(code, kind="stable")
    found = np.zeros(len(code), np.int64)
    found[order[1:]] = np.cumsum(code[order[1:]] != code[order[:-1]])
    return found


def combined(*keys: npt.NDArray[Any]) -> Int64:
    """One number per tuple of values, equal for equal ones; not dense."""
    code = np.zeros(len(keys[0]), np.int64)
    size = 1
    for key in keys:
        if not len(key) or key.strides == (0,):
            continue
        low, high = int(key.min()), int(key.max())
        count = high - low + 1
        if count == 1:
            continue
        part = key.astype(np.int64) - low if count < 2**62 else None
        if part is None or size * count >= 2**62:
            (code, size), (part, count) = _numbered(code), _numbered(key.astype(np.int64))
        code = code * count + part
        size *= count
    return code


def distinct(values: Int64) -> Int64:
    """Each value once, in order; faster than `np.unique` where they are in order already."""
    found = np.sort(values, kind="stable")
    return found[np.append(True, found[1:] != found[:-1])] if len(found) else found


def first_rows(codes: Int64) -> Int64:
    """The first row of each of some dense codes."""
    found = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    found[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return found


class Numbering:
    """Dense codes of tuples that come in parts, in order of appearance; `seen` are the tuples by code."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, ...], int] = {}

    def codes(self, *keys: npt.NDArray[Any]) -> Int64:
        """The codes of some more."""
        if not len(keys[0]):
            return np.zeros(0, np.int64)
        local, _ = _numbered(combined(*keys))
        first = first_rows(local)
        tuples = zip(*(key[first].tolist() for key in keys), strict=True)
        return np.array([self.seen.setdefault(key, len(self.seen)) for key in tuples], np.int64)[local]


def stable_order(codes: Int64, count: int) -> Int64:
    """Rows in order of small codes (below `count`), those of one code in their own order; -1 is left out.

    In parts, so that it takes no more memory than its answer.
    """
    if len(codes) <= CHUNK_ROWS:
        order = np.argsort(codes, kind="stable")
        return order[int((codes < 0).sum()) :]
    sizes = np.zeros(count + 1, np.int64)
    for low, high in ranges(len(codes)):
        sizes += np.bincount(codes[low:high].astype(np.int64) + 1, minlength=count + 1)
    at = np.cumsum(sizes) - sizes[0] - sizes
    found: Int64 = np.empty(len(codes) - int(sizes[0]), np.int32 if len(codes) < 2**31 else np.int64)
    for low, high in ranges(len(codes)):
        some = codes[low:high]
        order = np.argsort(some, kind="stable")
        here = np.bincount(some.astype(np.int64) + 1, minlength=count + 1)
        begin = int(here[0])
        for code in np.flatnonzero(here[1:]).tolist():
            size = int(here[code + 1])
            found[at[code + 1] : at[code + 1] + size] = low + order[begin : begin + size]
            at[code + 1] += size
            begin += size
    return found


def _numbered(values: npt.NDArray[np.int64]) -> tuple[Int64, int]:
    """A dense number per distinct value, in order of appearance, and how many there are. Hashed, not sorted."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def match_arrows(group: Int64, ts: Int64, phase: npt.NDArray[np.int8]) -> tuple[Int64, Int64, int]:
    """Pairs of flow rows (tail, head) of one group each, a dense code, and the number of rows that are in no pair."""
    order = np.argsort(group, kind="stable")
    sorted_group, sorted_phase, sorted_ts = group[order], phase[order], ts[order]
    same = sorted_group[1:] == sorted_group[:-1]
    late = (sorted_ts[1:] < sorted_ts[:-1]) | (
        (sorted_ts[1:] == sorted_ts[:-1]) & (sorted_phase[1:] < sorted_phase[:-1])
    )
    if (same & late).any():  # not in order of time, as nearly every file has the ends of an arrow
        order = np.lexsort((phase, ts, group))
        sorted_phase = phase[order]
    follows = same & (sorted_phase[1:] > 0) & (sorted_phase[:-1] < 2)
    tail, head = order[:-1][follows], order[1:][follows]
    # One start and one end whose clocks disagree: still a pair.
    backwards = np.flatnonzero(same & (sorted_phase[1:] == 0) & (sorted_phase[:-1] == 2))
    if len(backwards):
        lone = backwards[np.bincount(group)[sorted_group[backwards]] == 2]
        tail = np.concatenate((tail, order[lone + 1]))
        head = np.concatenate((head, order[lone]))
    paired = np.zeros(len(group), np.bool_)
    paired[tail] = True
    paired[head] = True
    return tail, head, int((~paired).sum())
