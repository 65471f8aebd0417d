"""The DMA engines as a shared resource: which queue moves how fast, and when each transfer ends.

Queues share the DMA engines and the HBM bandwidth fairly (round robin at packet granularity, here as a fluid): every
active queue gets an equal share, and what a queue cannot use, because its rows are short or it reaches few engines,
goes to the others. Inside a queue transfers are in order, and their starts a minimum interval apart.
"""

from __future__ import annotations

from collections import deque

__all__ = ["DmaEngines"]

_DONE_BYTES = 1e-6


class DmaEngines:
    """Transfers in flight. Times are float nanoseconds since the program's start."""

    def __init__(self, queue_interval_ns: float) -> None:
        self._queue_interval_ns = queue_interval_ns
        self._now = 0.0
        self._next_start: dict[int, float] = {}
        self._queues: dict[int, deque[tuple[float, int, float, float, float]]] = {}
        # Active transfers: queue -> [index, remaining bytes, share per byte/ns, largest share, first byte].
        self._active: dict[int, list[float]] = {}
        self._rates: dict[int, float] | None = None

    def submit(self, queue: int, index: int, arrival_ns: float, size: float, share: float, largest: float) -> None:
        """Queue a transfer.

        Args:
            queue: number of its queue; numbers follow the queues' names.
            index: of the transfer, given back when it completes.
            arrival_ns: when its first byte can move, not before a completion already reported.
            size: bytes.
            share: fraction of the DMA engines' and HBM's capacity it needs to move one byte per ns.
            largest: the largest fraction it can use, alone.
        """
        self._queues.setdefault(queue, deque()).append((arrival_ns, index, size, share, largest))

    def next_completions(self) -> list[tuple[int, float, float]]:
        """Advance to the next completion: (index, first byte, last byte) of what ends then; empty when idle."""
        active = self._active
        while True:
            arrival = self._start_ready()
            if not active:
                if arrival is None:
                    return []
                self._now = max(self._now, arrival)
                continue
            if self._rates is None:
                self._rates = self._fair_rates()
            rates = self._rates
            end = min(self._now + entry[1] / rates[queue] for queue, entry in active.items())
            if arrival is not None and arrival < end:
                self._advance(arrival)
                continue
            self._advance(end)
            finished = [
                q
                for q, entry in active.items()
                if entry[1] <= _DONE_BYTES or self._now + entry[1] / rates[q] <= self._now
            ]
            completions = []
            for queue in finished:
                entry = active.pop(queue)
                completions.append((int(entry[0]), entry[4], self._now))
            self._rates = None
            return completions

    def _start_ready(self) -> float | None:
        """Start every queue's head that has arrived; the earliest arrival still to come."""
        upcoming: float | None = None
        for queue, waiting in self._queues.items():
            if queue in self._active or not waiting:
                continue
            arrival, index, size, share, largest = waiting[0]
            arrival = max(arrival, self._next_start.get(queue, 0.0))
            if arrival <= self._now:
                waiting.popleft()
                self._active[queue] = [index, size, share, largest, self._now]
                self._next_start[queue] = self._now + self._queue_interval_ns
                self._rates = None
            elif upcoming is None or arrival < upcoming:
                upcoming = arrival
        return upcoming

    def _fair_rates(self) -> dict[int, float]:
        """Bytes per ns of each active queue: equal shares, unused parts handed on."""
        left, count = 1.0, len(self._active)
        rates = {}
        for queue, entry in sorted(self._active.items(), key=lambda item: (item[1][3], item[0])):
            share = min(entry[3], left / count)
            rates[queue] = share / entry[2]
            left -= share
            count -= 1
        return rates

    def _advance(self, time_ns: float) -> None:
        elapsed = time_ns - self._now
        rates = self._rates
        assert rates is not None
        for queue, entry in self._active.items():
            entry[1] -= elapsed * rates[queue]
        self._now = time_ns
