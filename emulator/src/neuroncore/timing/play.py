"""`play`: the instruction streams and DMA queues of a program against the clock.

Engines are in order. An instruction starts when its engine is free and its semaphores have the values it waits for,
occupies the engine for its issue time, and its result is visible (its signals rise) a latency later. A DMA is
triggered by its engine, gets its descriptors from that engine's descriptor generator, then shares the DMA engines
(`dma.py`), and signals after its last byte.

Streams only run ahead of each other where no semaphore stops them, so engines are played as far as they go; when all
wait, the DMA engines advance to their next completion. No event queue is needed.

`neuroncore._native` plays some millions of instructions a second; `_plain` below is its twin, the definition of the
model and the tests' oracle: both give the same nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroncore.errors import DeadlockError
from neuroncore.isa.columns import Columns, native
from neuroncore.isa.program import ENGINES
from neuroncore.targets import Target
from neuroncore.timing.costs import Price
from neuroncore.timing.dma import DmaEngines

__all__ = ["Costs", "Schedule", "costs_of", "play"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

#: Fields of a target that the streams depend on.
_RATES = (
    "semaphore_ns", "activation_table_load_ns", "tensor_warmup_rate", "tensor_warmup_ns", "tensor_idle_ns",
    "dma_software_start_ns", "dma_start_ns", "dge_fixed_ns", "dma_done_ns", "dma_queue_interval_ns",
)  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """Per instruction of a program's text, what playing it needs.

    Attributes:
        engine: number in `ENGINES`.
        queue: number in `queues`, -1 for what is no DMA.
        table: number of the activation table it needs, 0 none.
        issue_ns, latency_ns: see `Price`.
        generator_ns: time of the descriptor generator, its fixed part aside.
        bytes, share, largest: see `dma.py`.
        queues: names, sorted.
    """

    engine: Ints
    queue: Ints
    table: Ints
    issue_ns: Floats
    latency_ns: Floats
    generator_ns: Floats
    bytes: Floats
    share: Floats
    largest: Floats
    queues: tuple[str, ...]


@dataclass(frozen=True)
class Schedule:
    """Per executed instruction, float nanoseconds since the program's start.

    Attributes:
        start, end: while it occupies its engine.
        visible: when its result is (a DMA's: when it has signalled).
        wait: how long its engine stood still before.
        first_byte, last_byte: of a DMA's transfer, else 0.
        loads: numbers of the instructions before which an activation table was loaded, in program order.
        load_start: when each of these loads began.
    """

    start: Floats
    end: Floats
    visible: Floats
    wait: Floats
    first_byte: Floats
    last_byte: Floats
    loads: Ints
    load_start: Floats


def costs_of(columns: Columns, kinds: Sequence[Price], target: Target) -> Costs:
    """The prices of a program's text as columns, from one price of each kind (see `Columns.kind`)."""
    engines = {engine: number for number, engine in enumerate(ENGINES)}
    used = [i.queue for i in columns.text]
    queues = {q: n for n, q in enumerate(sorted(set(used) - {""}))}
    numbers = {**queues, "": -1}
    tables: dict[str, int] = {"": 0}
    moves = [p.transfer for p in kinds]
    kind = columns.kind

    def each(values: list[float]) -> Floats:
        return np.array(values, np.float64)[kind]

    return Costs(
        np.array([engines[i.engine] for i in columns.text], np.int32),
        np.array([numbers[queue] for queue in used], np.int32),
        np.array([tables.setdefault(p.table, len(tables)) for p in kinds], np.int32)[kind],
        each([p.issue_ns for p in kinds]),
        each([p.latency_ns for p in kinds]),
        each([t.rows * target.dge_row_ns if t else 0.0 for t in moves]),
        each([t.bytes if t else 0.0 for t in moves]),
        each([t.share_per_ns if t else 0.0 for t in moves]),
        each([t.bytes * t.share_per_ns / t.alone_ns if t else 0.0 for t in moves]),
        tuple(queues),
    )


def play(name: str, columns: Columns, costs: Costs, target: Target, *, plain: bool = False) -> Schedule:
    """Play a program.

    Args:
        name: of the program, for errors.
        columns: its executed instructions.
        costs: of the instructions in its text.
        target: whose latencies to use.
        plain: use the twin in Python although the compiled kernel is there.

    Raises:
        DeadlockError: instructions left whose waits nothing satisfies.
    """
    rates = {field: float(getattr(target, field)) for field in _RATES}
    kernels = None if plain else native()
    if kernels is None:
        return _Plain(name, columns, costs, rates).run()
    arrays = {field: getattr(columns, field) for field in columns.__dataclass_fields__ if field != "text"}
    numbers = {
        "engines": len(ENGINES), "queues": len(costs.queues), "tensor": ENGINES.index("Tensor"),
        "gpsimd": ENGINES.index("GpSimd"),
    }  # fmt: skip
    found: dict[str, Any] = kernels.play(arrays, {**vars(costs), **numbers}, rates)
    if "stuck" in found:
        _deadlock(name, columns, found["stuck"])
    order = np.argsort(found["loads"], kind="stable")
    return Schedule(**{**found, "loads": found["loads"][order], "load_start": found["load_start"][order]})


def _deadlock(name: str, columns: Columns, stuck: Sequence[tuple[int, int, int]]) -> None:
    waiting: dict[str, tuple[set[str], int]] = {}
    for semaphore, engine, reached in stuck:
        waiting.setdefault(columns.semaphores[semaphore], (set(), reached))[0].add(ENGINES[engine])
    text = "; ".join(
        f"{', '.join(sorted(engines))} for {semaphore} (reached {reached})"
        for semaphore, (engines, reached) in sorted(waiting.items())
    )
    raise DeadlockError(f"program {name!r}: waits for ever: {text}")


class _Semaphore:
    """Times at which a semaphore reached each value. One stream raises it, so its times never decrease."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.times: list[float] = []
        self.owner = -1  # engine that raises it, -1: a queue
        self.waiting: list[int] = []


class _Plain:
    """The model in plain Python."""

    def __init__(self, name: str, columns: Columns, costs: Costs, rates: dict[str, float]) -> None:
        self.name, self.columns, self.rates = name, columns, rates
        count = len(columns)
        self.index = columns.index.tolist()
        self.queue = costs.queue.tolist()
        self.costs = costs
        self.start, self.end, self.visible, self.wait, self.first_byte, self.last_byte = (
            [0.0] * count for _ in range(6)
        )
        self.loads: list[tuple[int, float]] = []
        self.semaphores = [_Semaphore() for _ in columns.semaphores]
        self.runnable: deque[int] = deque()
        self.dma = DmaEngines(rates["dma_queue_interval_ns"])
        self.queue_done = [0.0] * len(costs.queues)
        starts = columns.signal_start.tolist()
        pairs = list(zip(columns.signal_semaphore.tolist(), columns.signal_increment.tolist(), strict=True))
        self.signals = [pairs[a:b] for a, b in pairwise(starts)]

    def run(self) -> Schedule:
        streams: list[list[int]] = [[] for _ in ENGINES]
        engine = self.costs.engine.tolist()
        for number, text in enumerate(self.index):
            streams[engine[text]].append(number)
        players = [self._player(number, stream) for number, stream in enumerate(streams)]
        unfinished = set(range(len(ENGINES)))
        self.runnable.extend(unfinished)
        while True:
            while self.runnable:
                number = self.runnable.popleft()
                if players[number]():
                    unfinished.discard(number)
            completions = self.dma.next_completions()
            if not completions:
                break
            for number, first, last in completions:
                self._complete(number, first, last)
        if unfinished:
            stuck = [
                (number, engine, semaphore.values[-1] if semaphore.values else 0)
                for number, semaphore in enumerate(self.semaphores)
                for engine in semaphore.waiting
            ]
            _deadlock(self.name, self.columns, stuck)
        self.loads.sort()
        return Schedule(
            np.array(self.start),
            np.array(self.end),
            np.array(self.visible),
            np.array(self.wait),
            np.array(self.first_byte),
            np.array(self.last_byte),
            np.array([i for i, _ in self.loads], np.int32),
            np.array([t for _, t in self.loads], np.float64),
        )

    def _raise(self, number: int, increment: int, time_ns: float, owner: int) -> None:
        semaphore = self.semaphores[number]
        if not semaphore.values:
            semaphore.owner = owner
        semaphore.values.append((semaphore.values[-1] if semaphore.values else 0) + increment)
        semaphore.times.append(time_ns)
        if semaphore.waiting:
            self.runnable.extend(semaphore.waiting)
            semaphore.waiting = []

    def _player(self, engine: int, stream: list[int]) -> Callable[[], bool]:
        """A function that plays `engine` as far as it goes and says whether it has finished."""
        rates, costs, semaphores, index, queue = self.rates, self.costs, self.semaphores, self.index, self.queue
        wait_start, wait_semaphore = self.columns.wait_start.tolist(), self.columns.wait_semaphore.tolist()
        wait_value = self.columns.wait_value.tolist()
        issue_ns, latency_ns, tables = costs.issue_ns.tolist(), costs.latency_ns.tolist(), costs.table.tolist()
        moves = [c.tolist() for c in (costs.generator_ns, costs.bytes, costs.share, costs.largest)]
        starts, ends, visibles, waits, signals = self.start, self.end, self.visible, self.wait, self.signals
        handoff, load_ns = rates["semaphore_ns"], rates["activation_table_load_ns"]
        rate, warmup_ns, idle_ns = rates["tensor_warmup_rate"], rates["tensor_warmup_ns"], rates["tensor_idle_ns"]
        warms = engine == ENGINES.index("Tensor") and rate < 1
        software = engine == ENGINES.index("GpSimd")
        position = table = 0
        free = last_visible = generator_free = 0.0
        cold = warmup_ns

        def play() -> bool:
            nonlocal position, free, last_visible, generator_free, table, cold
            while position < len(stream):
                number = stream[position]
                text = index[number]
                start = free
                for w in range(wait_start[number], wait_start[number + 1]):
                    semaphore, value = semaphores[wait_semaphore[w]], wait_value[w]
                    if not semaphore.values or semaphore.values[-1] < value:
                        semaphore.waiting.append(engine)
                        return False
                    time = semaphore.times[bisect_left(semaphore.values, value)]
                    if semaphore.owner != engine:
                        time += handoff
                    start = max(start, time)
                waits[number] = start - free
                if tables[text] and tables[text] != table:
                    table = tables[text]
                    self.loads.append((number, start))
                    start += load_ns
                issue = issue_ns[text]
                if warms:
                    if start - free >= idle_ns:
                        cold = warmup_ns
                    if cold > 0:
                        slow = min(cold, issue / rate)
                        issue = slow + (issue - slow * rate)
                        cold -= slow
                starts[number] = start
                free = ends[number] = start + issue
                position += 1
                if queue[text] >= 0:
                    generator_ns, size, share, largest = (m[text] for m in moves)
                    if software:  # its descriptors are built by the engine itself, within `issue`
                        arrival = free + rates["dma_software_start_ns"]
                    else:
                        begin = max(free, generator_free)
                        generator_free = begin + rates["dge_fixed_ns"] + generator_ns
                        arrival = begin + rates["dma_start_ns"]
                    visibles[number] = free
                    self.dma.submit(queue[text], number, arrival, size, share, largest)
                    continue
                last_visible = visibles[number] = max(last_visible, free + latency_ns[text])
                for semaphore_number, increment in signals[text]:
                    self._raise(semaphore_number, increment, last_visible, engine)
            return True

        return play

    def _complete(self, number: int, first: float, last: float) -> None:
        """A transfer's last byte has arrived."""
        text = self.index[number]
        queue = self.queue[text]
        self.first_byte[number] = first
        self.last_byte[number] = last
        # The handoff to the waiting engine is part of dma_done_ns.
        done = max(last + self.rates["dma_done_ns"], self.queue_done[queue])
        self.queue_done[queue] = self.visible[number] = done
        for semaphore, increment in self.signals[text]:
            self._raise(semaphore, increment, done - self.rates["semaphore_ns"], -1)
