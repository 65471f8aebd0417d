"""Samples of the host while a capture records: CPU utilization and memory, taken by one thread each."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

_PERIOD_SECONDS = 0.05


class Sampler:
    """Calls `sample` at start, every 50 ms, and at stop, so that the shortest capture has a row."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        """Take the first sample and start the thread."""
        self.sample()
        self._thread.start()

    def stop(self) -> None:
        """End the thread and take the last sample."""
        self._stopped.set()
        self._thread.join()
        self.sample()

    def sample(self) -> None:
        """Take one sample."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._stopped.wait(_PERIOD_SECONDS):
            self.sample()


class CpuSampler(Sampler):
    """Rows of the `cpu_util` table: per core and on average, from the difference of two readings of /proc/stat."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[Any]] = {"timestamp_ns": [], "cpu_id": [], "util_percent": []}
        self._last: dict[str, tuple[int, int]] = {}

    def sample(self) -> None:
        """Read /proc/stat; the first reading only sets the base."""
        now = time.time_ns()
        for line in Path("/proc/stat").read_text().splitlines():
            if not line.startswith("cpu"):
                break
            name, *fields = line.split()
            ticks = list(map(int, fields[:8]))  # guest time is already part of user time
            total, idle = sum(ticks), ticks[3] + ticks[4]
            before = self._last.get(name)
            self._last[name] = (total, idle)
            if before is None:
                continue
            passed = total - before[0]
            # Two readings within one kernel tick differ by nothing; that interval says nothing about utilization.
            busy = 100.0 * (passed - (idle - before[1])) / passed if passed > 0 else 0.0
            self.rows["timestamp_ns"].append(now)
            self.rows["cpu_id"].append(name[3:] or "average")
            self.rows["util_percent"].append(min(max(busy, 0.0), 100.0))


class MemorySampler(Sampler):
    """Rows of the `host_mem` table: resident set of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[int]] = {"timestamp_ns": [], "used_bytes": [], "total_bytes": []}
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._total_bytes = os.sysconf("SC_PHYS_PAGES") * self._page_bytes

    def sample(self) -> None:
        """Read /proc/self/statm."""
        resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.rows["timestamp_ns"].append(time.time_ns())
        self.rows["used_bytes"].append(resident_pages * self._page_bytes)
        self.rows["total_bytes"].append(self._total_bytes)
