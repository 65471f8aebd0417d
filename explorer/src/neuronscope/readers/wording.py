"""Sentences for people: durations, causes of gaps, points in time."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.readers.exact import Int64
from neuronscope.readers.keys import combined, first_rows
from neuronscope.readers.narrow import Coded

__all__ = ["duration_text", "gap_texts", "iso_time", "printable", "without_endings"]


def printable(path: Path, *, name_only: bool = False) -> str:
    """A path, or its last part, as text; a name's bytes that are not UTF-8 become U+FFFD, so that it can be printed."""
    return os.fsencode(path.name if name_only else path).decode("utf-8", "replace")


def without_endings(name: str) -> str:
    """A file's name as people call the profile: without the endings of traces, archives and compression."""
    return (
        re.sub(r"(?i)(\.pt)?(\.trace)?(\.json|\.tar|\.sqlite|\.db)?(\.gz|\.zip|\.zst|\.bz2|\.xz)?$", "", name) or name
    )


def duration_text(duration_ns: int) -> str:
    """A duration, three significant digits: 212 us, 3.91 ms, 85 ns."""
    size = abs(duration_ns)
    if size < 1_000:
        return f"{duration_ns} ns"
    if size < 999_500:
        return f"{duration_ns / 1_000:.3g} us"
    if size < 999_500_000:
        return f"{duration_ns / 1_000_000:.3g} ms"
    seconds = duration_ns / 1_000_000_000
    return f"{seconds:.3g} s" if size < 999_500_000_000 else f"{seconds:.0f} s"


def gap_texts(gap: Int64, cause: Coded, called: Int64, before: Int64, start: Int64) -> pa.DictionaryArray:
    """One sentence per gap: its length and why it is there. -1 in `called`: no launch call is known."""
    known = called >= 0
    heads = [_CAUSES.get(reason, "") for reason in cause.texts] or [""]
    unknown = np.array([not head for head in heads], np.bool_)[cause.codes]
    late, latency = cause.equal("host_late") & (called > before), cause.equal("launch_latency") & known
    earlier = unknown & known
    told = np.select([late, latency, earlier, unknown], [1, 2, 3, 4], 0)  # index into _OPENINGS
    since = np.select([late, latency, earlier], [called - before, start - called, before - called], 0)
    gap, since = _five_digits(gap), _five_digits(since)
    alike = pa.array(combined(gap, since, told, cause.codes)).dictionary_encode().indices
    rows = first_rows(alike.to_numpy())
    heads = [head or "cause unknown" for head in heads]
    texts = pc.binary_join_element_wise(
        _durations(gap[rows]),
        pa.scalar(" idle: "),
        pa.array(heads).take(pa.array(cause.codes[rows])),
        pa.array(_OPENINGS).take(pa.array(told[rows])),
        pc.if_else(pa.array((told[rows] > 0) & (told[rows] < 4)), _durations(since[rows]), ""),
        pa.array(_CLOSINGS).take(pa.array(told[rows])),
        "",
    )
    return pa.DictionaryArray.from_arrays(alike, texts)


_OPENINGS = [
    "",
    " (next launch call began ",
    " (the device began ",
    " (the launch call began ",
    " (no launch call in the file)",
]
_CLOSINGS = ["", " after)", " after the call)", " before the previous end)", ""]
_CAUSES = {
    "host_late": "host late",
    "launch_latency": "launch latency",
    "execution_gap": "fixed gap between two executions",
    "sync": "the host waited for the device",
    "stream": "waiting for another stream",
}


def _five_digits(values: Int64) -> Int64:
    """Times rounded to five digits, of which three are printed."""
    size = np.abs(values)
    step = np.power(10, np.clip(np.floor(np.log10(np.maximum(size, 1))).astype(np.int64) - 4, 0, None))
    return np.sign(values) * ((size + step // 2) // step * step)


def _durations(values: Int64) -> pa.Array:
    """`duration_text` of each; equal durations are printed once."""
    coded = pa.array(values).dictionary_encode()
    texts = pa.array([duration_text(value) for value in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def iso_time(time_ns: int) -> str:
    """A time since the epoch as ISO 8601 with nanoseconds, UTC."""
    stamp = np.datetime64(time_ns, "ns")
    return f"{np.datetime_as_string(stamp, unit='ns')}Z"
