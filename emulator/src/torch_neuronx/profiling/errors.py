"""The error of a profiler used in the wrong order."""

from __future__ import annotations


class NRTProfilerError(RuntimeError):
    """The profiler can't do what was asked now: started twice, stopped while idle, nothing recorded to export."""
