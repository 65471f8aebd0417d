"""`simulate`: play a program's instruction streams and DMA queues against the clock.

Engines are in order. An instruction starts when its engine is free and its semaphores have the values it waits for,
occupies the engine for its issue time, and its result is visible (its signals rise) a latency later. A DMA is
triggered by its engine, gets its descriptors from that engine's descriptor generator, then shares the DMA engines
(`dma.py`), and signals after its last byte.

Streams only run ahead of each other where no semaphore stops them, so engines are played as far as they go; when all
wait, the DMA engines advance to their next completion. No event queue is needed, which keeps it at a few microseconds
per instruction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from neuronscope.formats import tables

from neuroncore.errors import DeadlockError
from neuroncore.isa.program import ENGINES, Instruction, Program
from neuroncore.isa.text import print_operands
from neuroncore.targets import Target
from neuroncore.timing.costs import Price, Pricer
from neuroncore.timing.dma import DmaEngines

__all__ = ["Bounds", "Timeline", "bounds", "simulate"]

#: Opcode of the row that shows ScalarE loading a function table.
TABLE_LOAD = "act_table_load"


@dataclass(frozen=True)
class _Row:
    """One row of the instruction table: an instruction, or a table load (instruction None)."""

    instruction: Instruction | None
    engine: str
    start: float
    end: float
    visible: float
    wait: float
    price: Price | None


@dataclass(frozen=True)
class Timeline:
    """What a program costs. All times in integer nanoseconds since the program's start.

    Attributes:
        program_ns: start to the last visible result.
        bytes_read, bytes_written: HBM traffic.
        flops: multiplications and additions counted separately.
        busy_ns: per engine, time it executes instructions.
        dma_busy_ns: time at least one transfer is in flight.
        instructions: columns of `neuronscope.formats.tables.INSTRUCTIONS` without `neff`.
        dma_transfers: columns of `DMA_TRANSFERS` without `neff`.
    """

    program_ns: int
    bytes_read: int
    bytes_written: int
    flops: int
    busy_ns: dict[str, int]
    dma_busy_ns: int
    instructions: dict[str, Any]
    dma_transfers: dict[str, Any]

    def instruction_table(self, neff: str = "") -> pa.Table:
        """The INSTRUCTIONS table, its `neff` column filled."""
        return _table(tables.INSTRUCTIONS, self.instructions, neff)

    def dma_table(self, neff: str = "") -> pa.Table:
        """The DMA_TRANSFERS table, its `neff` column filled."""
        return _table(tables.DMA_TRANSFERS, self.dma_transfers, neff)


def _table(spec: tables.TableSpec, columns: dict[str, Any], neff: str) -> pa.Table:
    rows = len(columns["id"])
    arrays = []
    for column in spec.columns:
        values = [neff] * rows if column.name == "neff" else columns[column.name]
        if column.type == "string":
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values, spec.schema.field(column.name).type))
    return pa.Table.from_arrays(arrays, schema=spec.schema)


class _Semaphores:
    """Times at which each semaphore reached each value. One stream raises a semaphore, so its times never decrease."""

    def __init__(self) -> None:
        self.values: dict[str, list[int]] = {}
        self.times: dict[str, list[float]] = {}
        self.owner: dict[str, str] = {}

    def raise_(self, name: str, increment: int, time_ns: float, owner: str) -> None:
        values = self.values.get(name)
        if values is None:
            values = self.values[name] = []
            self.times[name] = []
            self.owner[name] = owner
        values.append((values[-1] if values else 0) + increment)
        self.times[name].append(time_ns)


def simulate(program: Program, target: Target) -> Timeline:
    """Time a program.

    Args:
        program: with semaphores (see `neuroncore.isa.synchronize`) and verified.
        target: whose clocks, rates and latencies to use.

    Raises:
        DeadlockError: instructions left whose waits nothing satisfies.
        UnsupportedInstructionError: an instruction that is declared, not modelled.
    """
    return _Simulation(program, target).run()


class _Simulation:
    def __init__(self, program: Program, target: Target) -> None:
        self.target = target
        self.program = program
        pricer = Pricer(program.buffers, target)
        self.instructions = list(program.instructions())
        self.prices = [pricer.price(i) for i in self.instructions]
        count = len(self.instructions)
        self.start = [0.0] * count
        self.end = [0.0] * count
        self.visible = [0.0] * count
        self.wait = [0.0] * count
        # Transfers: trigger (engine), first byte, last byte.
        self.first_byte: dict[int, float] = {}
        self.last_byte: dict[int, float] = {}
        self.table_loads: list[tuple[int, float, float]] = []  # before instruction, start, end
        self.semaphores = _Semaphores()
        self.waiting: dict[str, list[str]] = {}
        self._woken: list[str] = []
        self.dma = DmaEngines(target.dma_queue_interval_ns)
        self.queue_done: dict[str, float] = {}

    def run(self) -> Timeline:
        streams: dict[str, list[int]] = {}
        for index, instruction in enumerate(self.instructions):
            streams.setdefault(instruction.engine, []).append(index)
        players = {engine: self._player(engine, indices) for engine, indices in streams.items()}
        runnable = deque(e for e in ENGINES if e in players)
        unfinished = set(players)
        while True:
            while runnable:
                engine = runnable.popleft()
                if players[engine]():
                    unfinished.discard(engine)
                runnable.extend(self._woken)
                self._woken.clear()
            completions = self.dma.next_completions()
            if not completions:
                break
            for index, first, last in completions:
                self._complete(index, first, last)
            runnable.extend(self._woken)
            self._woken.clear()
        if unfinished:
            self._deadlock(streams, players)
        return self._timeline()

    def _player(self, engine: str, indices: list[int]) -> Callable[[], bool]:
        """A function that plays `engine` as far as it goes and says whether it has finished."""
        target, semaphores = self.target, self.semaphores
        instructions, prices = self.instructions, self.prices
        starts, ends, visibles, waits = self.start, self.end, self.visible, self.wait
        sem_values, sem_times, owner = semaphores.values, semaphores.times, semaphores.owner
        handoff = target.semaphore_ns
        tensor = engine == "Tensor" and target.tensor_warmup_rate < 1
        rate, warmup_ns, idle_ns = target.tensor_warmup_rate, target.tensor_warmup_ns, target.tensor_idle_ns
        position = 0
        free = 0.0
        last_visible = 0.0
        dge_free = 0.0
        table = ""
        cold = warmup_ns
        count = len(indices)

        def play() -> bool:
            nonlocal position, free, last_visible, dge_free, table, cold
            while position < count:
                index = indices[position]
                instruction = instructions[index]
                start = free
                for wait in instruction.waits:
                    name = wait.semaphore
                    values = sem_values.get(name)
                    if values is None or values[-1] < wait.value:
                        self.waiting.setdefault(name, []).append(engine)
                        return False
                    time = sem_times[name][bisect_left(values, wait.value)]
                    if owner[name] != engine:
                        time += handoff
                    start = max(start, time)
                price = prices[index]
                waits[index] = start - free
                if price.table and price.table != table:
                    table = price.table
                    self.table_loads.append((index, start, start + target.activation_table_load_ns))
                    start += target.activation_table_load_ns
                issue = price.issue_ns
                if tensor:
                    if start - free >= idle_ns:
                        cold = warmup_ns
                    if cold > 0:
                        slow = min(cold, issue / rate)
                        issue = slow + (issue - slow * rate)
                        cold -= slow
                starts[index] = start
                free = ends[index] = start + issue
                position += 1
                if price.transfer is not None:
                    # Software descriptors are built by the engine itself, within `issue`.
                    if engine == "GpSimd":
                        arrival = free + target.dma_software_start_ns
                    else:
                        begin = max(free, dge_free)
                        dge_free = begin + target.dge_fixed_ns + price.transfer.rows * target.dge_row_ns
                        arrival = begin + target.dma_start_ns
                    visibles[index] = free
                    self.dma.submit(instruction.queue, index, arrival, price.transfer)
                    continue
                last_visible = visibles[index] = max(last_visible, free + price.latency_ns)
                for signal in instruction.signals:
                    semaphores.raise_(signal.semaphore, signal.increment, last_visible, engine)
                    if signal.semaphore in self.waiting:
                        self._woken.extend(self.waiting.pop(signal.semaphore))
            return True

        return play

    def _complete(self, index: int, first: float, last: float) -> None:
        """A transfer's last byte has arrived."""
        instruction = self.instructions[index]
        self.first_byte[index] = first
        self.last_byte[index] = last
        # The handoff to the waiting engine is part of dma_done_ns.
        done = max(last + self.target.dma_done_ns, self.queue_done.get(instruction.queue, 0.0))
        self.queue_done[instruction.queue] = done
        self.visible[index] = done
        for signal in instruction.signals:
            self.semaphores.raise_(
                signal.semaphore, signal.increment, done - self.target.semaphore_ns, instruction.queue
            )
            if signal.semaphore in self.waiting:
                self._woken.extend(self.waiting.pop(signal.semaphore))

    def _deadlock(self, streams: dict[str, list[int]], players: dict[str, Callable[[], bool]]) -> None:
        stuck = []
        for name, engines in sorted(self.waiting.items()):
            stuck.append(
                f"{', '.join(sorted(set(engines)))} for {name} (reached {self.semaphores.values.get(name, [0])[-1]})"
            )
        raise DeadlockError(f"program {self.program.name!r}: waits for ever: {'; '.join(stuck)}")

    # Results

    def _timeline(self) -> Timeline:
        instructions, prices = self.instructions, self.prices
        starts = np.rint(np.array(self.start)).astype(np.int64)
        ends = np.rint(np.array(self.end)).astype(np.int64)
        visible = np.rint(np.array(self.visible)).astype(np.int64)
        waits = np.rint(np.array(self.wait)).astype(np.int64)
        program_ns = int(visible.max()) if len(visible) else 0
        is_dma = np.array([p.transfer is not None for p in prices], bool)
        # A slice lasts until its result is visible or the next one on its engine starts: what a profiler shows.
        loads = [(i, np.int64(round(a)), np.int64(round(b))) for i, a, b in self.table_loads]
        begin = starts.copy()  # start of what the engine does for an instruction, its table load included
        for index, first, _ in loads:
            begin[index] = first
        shown = np.where(is_dma, ends, visible)
        busy: dict[str, int] = {}
        pc = np.zeros(len(starts), np.int64)
        engines = np.array([i.engine for i in instructions], dtype=object)
        for engine in ENGINES:
            mine = np.flatnonzero(engines == engine) if len(instructions) else np.zeros(0, np.int64)
            if not len(mine):
                busy[engine] = 0
                continue
            following = np.append(begin[mine][1:], program_ns)
            shown[mine] = np.maximum(ends[mine], np.minimum(shown[mine], following))
            shown[mine] = np.minimum(shown[mine], np.maximum(following, starts[mine]))
            pc[mine] = np.arange(len(mine))
            busy[engine] = int((shown[mine] - starts[mine]).sum())
        columns = self._instruction_columns(starts, shown, done=visible, waits=waits, pc=pc, loads=loads, busy=busy)
        dma = self._dma_columns(starts)
        transfers = [p.transfer for p in prices if p.transfer is not None]
        return Timeline(
            program_ns,
            sum(t.hbm_read_bytes for t in transfers),
            sum(t.hbm_write_bytes for t in transfers),
            sum(p.flops for p in prices),
            busy,
            _union_ns(dma["offset_ns"], dma["duration_ns"]),
            columns,
            dma,
        )

    def _instruction_columns(
        self,
        starts: npt.NDArray[np.int64],
        shown: npt.NDArray[np.int64],
        *,
        done: npt.NDArray[np.int64],
        waits: npt.NDArray[np.int64],
        pc: npt.NDArray[np.int64],
        loads: list[tuple[int, np.int64, np.int64]],
        busy: dict[str, int],
    ) -> dict[str, Any]:
        instructions, prices = self.instructions, self.prices
        columns: dict[str, Any] = {
            "engine": [i.engine for i in instructions],
            "opcode": [i.opcode for i in instructions],
            "operands": [print_operands(i) for i in instructions],
            "pc": pc,
            "offset_ns": starts,
            "duration_ns": shown - starts,
            "wait_ns": waits,
            "done_offset_ns": done,
            "op": [i.op for i in instructions],
            "source": [i.source for i in instructions],
            "flops": [p.flops for p in prices],
            "sbuf_read_bytes": [p.sbuf_read_bytes for p in prices],
            "sbuf_write_bytes": [p.sbuf_write_bytes for p in prices],
            "psum_read_bytes": [p.psum_read_bytes for p in prices],
            "psum_write_bytes": [p.psum_write_bytes for p in prices],
        }
        for index, first, last in reversed(loads):  # insert each table load before its instruction
            busy["Scalar"] += int(last - first)
            own = {
                "engine": "Scalar", "opcode": TABLE_LOAD, "operands": f'table="{prices[index].table}"', "pc": pc[index],
                "offset_ns": first, "duration_ns": last - first, "wait_ns": waits[index], "done_offset_ns": last,
                "op": instructions[index].op, "source": instructions[index].source,
            }  # fmt: skip
            for name, values in columns.items():
                value = own.get(name, 0)
                if isinstance(values, list):
                    values.insert(index, value)
                else:
                    columns[name] = np.insert(values, index, value)
            columns["wait_ns"][index + 1] = 0
        columns["id"] = np.arange(len(columns["op"]), dtype=np.int64)
        return columns

    def _dma_columns(self, starts: npt.NDArray[np.int64]) -> dict[str, Any]:
        indices = [i for i, p in enumerate(self.prices) if p.transfer is not None]
        transfers = [t for p in self.prices if (t := p.transfer) is not None]
        numbers: dict[str, int] = {}
        for i in indices:
            numbers.setdefault(self.instructions[i].queue, len(numbers))
        first = np.rint(np.array([self.first_byte[i] for i in indices])).astype(np.int64)
        last = np.rint(np.array([self.last_byte[i] for i in indices])).astype(np.int64)
        return {
            "id": np.arange(len(indices), dtype=np.int64),
            "queue": [self.instructions[i].queue for i in indices],
            "queue_idx": [numbers[self.instructions[i].queue] for i in indices],
            "engines": [t.engines for t in transfers],
            "offset_ns": first,
            "duration_ns": last - first,
            "trigger_offset_ns": starts[indices] if indices else starts[:0],
            "done_offset_ns": np.rint(np.array([self.visible[i] for i in indices])).astype(np.int64),
            "bytes": [t.bytes for t in transfers],
            "rows": [t.rows for t in transfers],
            "from_memory": [t.from_memory for t in transfers],
            "to_memory": [t.to_memory for t in transfers],
            "variable": [t.variable for t in transfers],
            "queue_type": [t.queue_type for t in transfers],
            "op": [self.instructions[i].op for i in indices],
        }


def _union_ns(offsets: npt.NDArray[np.int64], durations: npt.NDArray[np.int64]) -> int:
    """Total length of the union of intervals."""
    if not len(offsets):
        return 0
    order = np.argsort(offsets, kind="stable")
    begin, end = offsets[order], (offsets + durations)[order]
    reached = np.maximum.accumulate(end)
    gaps = np.maximum(begin[1:] - reached[:-1], 0).sum()
    return int(reached[-1] - begin[0] - gaps)


@dataclass(frozen=True)
class Bounds:
    """What a program's time must lie between.

    Attributes:
        dma_ns: bytes over what DMA engines and HBM can move together.
        engine_ns: per engine, the sum of its issue times.
        roofline_ns: the largest of them: no schedule is faster.
        serial_ns: everything after one another, every latency paid: no schedule is slower.
    """

    dma_ns: float
    engine_ns: dict[str, float]
    roofline_ns: float
    serial_ns: float


def bounds(program: Program, target: Target) -> Bounds:
    """Lower and upper bounds on `simulate(program, target).program_ns`."""
    pricer = Pricer(program.buffers, target)
    engine_ns = dict.fromkeys(ENGINES, 0.0)
    dma_ns = serial = 0.0
    for instruction in program.instructions():
        price = pricer.price(instruction)
        engine_ns[instruction.engine] += price.issue_ns
        slow = 1 / target.tensor_warmup_rate if instruction.engine == "Tensor" else 1.0
        serial += price.issue_ns * slow + price.latency_ns + target.semaphore_ns
        if price.table:
            serial += target.activation_table_load_ns
        if price.transfer is not None:
            dma_ns += price.transfer.bytes * price.transfer.share_per_ns
            start = max(target.dma_start_ns, target.dma_software_start_ns)
            dge = target.dge_fixed_ns + price.transfer.rows * target.dge_row_ns
            serial += start + dge + target.dma_queue_interval_ns + price.transfer.alone_ns + target.dma_done_ns
    return Bounds(dma_ns, engine_ns, max(dma_ns, *engine_ns.values()), serial)
