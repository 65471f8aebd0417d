"""Joins over columns of ids: look-ups, codes for tuples, pairs of arrow ends. Plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.readers import lanes
from neuronscope.readers.exact import Int64

__all__ = ["codes_of", "latest_row", "lookup", "lookup_sorted", "match_arrows", "pair_codes"]


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
    return codes_of(np.stack((first.astype(np.int64), second.astype(np.int64))))


def codes_of(keys: npt.NDArray[np.int64]) -> Int64:
    """One code per distinct column of `keys`."""
    code = np.zeros(keys.shape[1], np.int64)
    for row in keys:
        if len(row) and row[0] == row[-1] and (row == row[0]).all():
            continue
        found, count = _numbered(row)
        code = code * count + found
        if count > 1 and code.max(initial=0) > 2**40:
            code = _numbered(code)[0].astype(np.int64)
    return code


def _numbered(values: npt.NDArray[np.int64]) -> tuple[Int64, int]:
    """A dense number per distinct value, in order of appearance, and how many there are. Hashed, not sorted."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.indices.to_numpy(), len(encoded.dictionary)


def latest_row(group: Int64, end: Int64, rows: Int64) -> Int64:
    """Row of the latest end among earlier rows of the group, -1 for its first; sorted by (group, start)."""
    latest = np.full(len(end), -1, np.int64)
    for low, high in lanes.groups_of(group):
        reach = np.maximum.accumulate(end[low:high])
        index = np.arange(high - low)
        leads = np.concatenate(([True], end[low + 1 : high] > reach[:-1]))
        holder = np.maximum.accumulate(np.where(leads, index, 0))
        latest[low + 1 : high] = rows[low + holder[:-1]]
    return latest


def match_arrows(key: Int64, ts: Int64, phase: npt.NDArray[np.int8]) -> tuple[Int64, Int64, int]:
    """Pairs of flow rows (tail, head) and the number of rows that belong to no pair."""
    order = np.lexsort((phase, ts, key))
    sorted_key, sorted_phase = key[order], phase[order]
    follows = (sorted_key[1:] == sorted_key[:-1]) & (sorted_phase[1:] > 0) & (sorted_phase[:-1] < 2)
    tail, head = order[:-1][follows], order[1:][follows]
    # One start and one end whose clocks disagree: still a pair.
    backwards = (sorted_key[1:] == sorted_key[:-1]) & (sorted_phase[1:] == 0) & (sorted_phase[:-1] == 2)
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    lone = backwards & (counts[inverse[order[1:]]] == 2)
    tail = np.concatenate((tail, order[1:][lone]))
    head = np.concatenate((head, order[:-1][lone]))
    paired = np.zeros(len(key), np.bool_)
    paired[tail] = True
    paired[head] = True
    return tail, head, int((~paired).sum())
