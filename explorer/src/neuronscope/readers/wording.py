"""Sentences for people: durations, causes of gaps, points in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from neuronscope.readers.exact import Int64

__all__ = ["duration_text", "gap_texts", "iso_time"]


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


def gap_texts(gap: Int64, cause: npt.NDArray[Any], called: Int64, before: Int64, start: Int64) -> list[str]:
    """One sentence per gap: its length and why it is there. -1 in `called`: no launch call is known."""
    texts = []
    columns = (gap.tolist(), cause.tolist(), called.tolist(), before.tolist(), start.tolist())
    for length, reason, call, previous, begin in zip(*columns, strict=True):
        text = f"{duration_text(length)} idle: "
        if reason == "host_late":
            text += "host late"
            if call > previous:
                text += f" (next launch call began {duration_text(call - previous)} after)"
        elif reason == "launch_latency":
            text += "launch latency"
            if call >= 0:
                text += f" (the device began {duration_text(begin - call)} after the call)"
        elif reason == "execution_gap":
            text += "fixed gap between two executions"
        elif reason == "sync":
            text += "the host waited for the device"
        elif reason == "stream":
            text += "waiting for another stream"
        elif call >= 0:
            text += f"cause unknown (the launch call began {duration_text(previous - call)} before the previous end)"
        else:
            text += "cause unknown (no launch call in the file)"
        texts.append(text)
    return texts


def iso_time(time_ns: int) -> str:
    """A time since the epoch as ISO 8601 with nanoseconds, UTC."""
    stamp = np.datetime64(time_ns, "ns")
    return f"{np.datetime_as_string(stamp, unit='ns')}Z"
