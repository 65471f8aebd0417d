"""Tables that follow from one executable's timeline: busy time, semaphores, arrows, memory in use, traffic over time.

Each function returns columns of the published table of its name, with times in ns since the program's start; `ntff`
lays them at the program's executions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuronscope.readers.device_program import DeviceProgram, union
from neuronscope.readers.exact import Int64

__all__ = [
    "Semaphores",
    "active_time",
    "allocations",
    "dma_packets",
    "dma_usage",
    "flows",
    "hbm_usage",
    "pending_dma",
    "psum_usage",
    "sbuf_usage",
    "semaphore_updates",
]

Columns = dict[str, Any]

_SBUF_PARTITIONS = (0, 32, 64, 96)


def active_time(program: DeviceProgram) -> Columns:
    """Merged busy intervals of each engine."""
    codes, names = program.texts("instructions", "engine")
    starts, ends, engines = [], [], []
    for code, name in enumerate(names):
        mine = (codes == code) & program.executed
        begin, end = union(program.start[mine], program.end[mine])
        kept = end > begin
        starts.append(begin[kept])
        ends.append(end[kept])
        engines += [name] * int(kept.sum())
    start, end = _joined(starts), _joined(ends)
    return {"start_ts": start, "end_ts": end, "engine": engines, "duration_ns": end - start}


@dataclass(frozen=True)
class Semaphores:
    """Every rise of every semaphore, sorted by semaphore and time; -1 for the transfer that raised none.

    Attributes:
        name: index into `names`.
        time: when it rose.
        value: its value then.
        instruction: row of the instruction that raised it (of a DMA: that triggered it).
        transfer: row of the transfer that did, -1 for a computation.
    """

    names: list[str]
    name: Int64
    time: Int64
    value: Int64
    instruction: Int64
    transfer: Int64

    @classmethod
    def of(cls, program: DeviceProgram) -> Semaphores:
        """The rises that follow from the signals of a program's instructions."""
        codes, texts = program.texts("details", "signals")
        signals = [_signals(text) for text in texts]
        names = sorted({name for one in signals for name, _ in one})
        number = {name: index for index, name in enumerate(names)}
        transfers = np.full(program.instructions.num_rows, -1, np.int64)
        known = program.trigger_rows >= 0
        transfers[program.trigger_rows[known]] = np.flatnonzero(known)
        rows, which, amounts = [], [], []
        for code, one in enumerate(signals):
            mine = program.detail_rows[codes == code]
            for name, increment in one:
                rows.append(mine)
                which.append(np.full(len(mine), number[name], np.int64))
                amounts.append(np.full(len(mine), increment, np.int64))
        row, rises, amount = _joined(rows), _joined(which), _joined(amounts)
        order = np.lexsort((row, program.done[row], rises))
        row, rises, amount = row[order], rises[order], amount[order]
        total = np.cumsum(amount)
        before = total - amount
        first = np.searchsorted(rises, rises)  # of each rise's semaphore
        value = total - before[first]
        return cls(names, rises, program.done[row], value, row, transfers[row])

    def reaching(self, name: str, values: Int64) -> Int64:
        """Index of the rise that lets a semaphore reach each of some values, -1 where none does."""
        if name not in self.names:
            return np.full(len(values), -1, np.int64)
        begin, end = np.searchsorted(self.name, [self.names.index(name), self.names.index(name) + 1])
        found = begin + np.searchsorted(self.value[begin:end], values)
        return np.where(found < end, found, -1)


def _signals(text: str) -> list[tuple[str, int]]:
    parts = [one.rpartition("+") for one in text.split()]
    return [(name, int(increment)) for name, _, increment in parts]


def semaphore_updates(program: DeviceProgram, semaphores: Semaphores) -> Columns:
    """Every rise of a semaphore, with what raised it."""
    engines, engine_names = program.texts("instructions", "engine")
    queues, queue_names = program.texts("transfers", "queue")
    moved = semaphores.transfer >= 0
    source = engines[semaphores.instruction]
    source[moved] = len(engine_names) + queues[semaphores.transfer[moved]]
    names = np.array([*engine_names, *queue_names], object)
    order = np.argsort(semaphores.time, kind="stable")
    return {
        "timestamp": semaphores.time[order],
        "id": np.array(semaphores.names, object)[semaphores.name[order]],
        "value": semaphores.value[order].astype(np.int32),
        "update_source": names[source[order]],
        "update_operation_type": np.full(len(order), "increment", object),
    }


def flows(program: DeviceProgram, semaphores: Semaphores) -> tuple[Columns, Int64]:
    """Arrows from what raised a semaphore to what waited for it, and from a trigger to its transfer.

    Returns:
        columns of Flow with row numbers as ids, and per instruction the part of its wait that was for a DMA.
    """
    rows = np.searchsorted(program.ints("instructions", "id"), program.ints("waits", "instruction_id"))
    codes, names = program.texts("waits", "semaphore")
    values = program.ints("waits", "value")
    rise = np.full(len(rows), -1, np.int64)
    for code, name in enumerate(names):
        mine = codes == code
        rise[mine] = semaphores.reaching(name, values[mine])
    rows, rise = rows[rise >= 0], rise[rise >= 0]
    transfer = semaphores.transfer[rise]
    moved = transfer >= 0
    producer = np.where(moved, transfer, semaphores.instruction[rise])
    ended = np.where(moved, _at(program.last_byte, transfer), program.end[semaphores.instruction[rise]])
    triggers = np.flatnonzero(program.trigger_rows >= 0)
    trigger = program.trigger_rows[triggers]
    table = np.array(["Instruction", "DmaPacketAggregated"], object)
    columns = {
        "in_id": np.concatenate([producer, trigger]),
        "in_table": table[np.concatenate([moved.astype(int), np.zeros(len(trigger), int)])],
        "out_id": np.concatenate([rows, triggers]),
        "out_table": table[np.concatenate([np.zeros(len(rows), int), np.ones(len(triggers), int)])],
        "dependency_type": np.array(["semaphore"] * len(rows) + ["dma_trigger"] * len(trigger), object),
        "gap_time": np.concatenate([program.start[rows] - ended, program.first_byte[triggers] - program.end[trigger]]),
    }
    # Of several waits of an instruction the one that rose last held it up.
    waited = np.zeros(program.instructions.num_rows, np.int64)
    order = np.lexsort((semaphores.time[rise], rows))
    last = np.append(rows[order][1:] != rows[order][:-1], True) if len(order) else np.zeros(0, np.bool_)
    held = order[last]
    waits = program.ints("instructions", "wait_ns")
    waited[rows[held]] = np.where(moved[held], waits[rows[held]], 0)
    return columns, waited


def allocations(program: DeviceProgram) -> Columns:
    """What lies where in SBUF and when, one row per stretch of time (its first partition stands for all)."""
    mine = program.is_text("allocations", "memory", "SBUF") & (program.ints("allocations", "address") >= 0)
    rows = np.searchsorted(program.ints("instructions", "id"), program.ints("allocations", "instruction_id"))[mine]
    opcodes, names = program.texts("instructions", "opcode")
    ops, op_names = program.texts("instructions", "op")
    address = program.ints("allocations", "address")[mine]
    tiles, tile_names = program.texts("allocations", "name")
    return {
        "start_ts": program.ints("allocations", "start_offset_ns")[mine],
        "end_ts": program.ints("allocations", "end_offset_ns")[mine],
        "start_address": address,
        "end_address": address + program.ints("allocations", "bytes")[mine],
        "partition": program.ints("allocations", "start_partition")[mine],
        "op_source_type": np.full(int(mine.sum()), "instruction", object),
        "opcode": np.array([*names, ""], object)[opcodes[rows]],
        "tensor_name": np.array([*tile_names, ""], object)[tiles[mine]],
        "hlo_name": np.array([*op_names, ""], object)[ops[rows]],
    }


def sbuf_usage(program: DeviceProgram) -> Columns:
    """Used part of SBUF (0..1) whenever it changes: of all partitions together and of four of them."""
    capacity = program.hardware.get("sbuf_bytes_per_partition", 0)
    partitions = program.hardware.get("partitions", 0)
    mine = program.is_text("allocations", "memory", "SBUF")
    if not capacity or not partitions or not mine.any():
        return {}
    start, end, size, first, count = (program.ints("allocations", name)[mine] for name in _EXTENT)
    times, level = _levels(start, end, size * count)
    columns = {"timestamp": times, "avg_util_percent": (level / (capacity * partitions)).astype(np.float32)}
    for partition in _SBUF_PARTITIONS:
        there = (first <= partition) & (partition < first + count)
        _, level = _levels(start, end, np.where(there, size, 0))
        columns[f"partition_{partition}_util_percent"] = (level / capacity).astype(np.float32)
    return columns


def psum_usage(program: DeviceProgram) -> Columns:
    """Used part of PSUM (0..1) whenever it changes: of all banks together and of each."""
    bank_bytes, banks = (int(program.hardware.get(name, 0)) for name in ("psum_bank_bytes", "psum_banks"))
    partitions = program.hardware.get("partitions", 0)
    mine = program.is_text("allocations", "memory", "PSUM")
    if not bank_bytes or not partitions or not mine.any():
        return {}
    start, end, size, _, count = (program.ints("allocations", name)[mine] for name in _EXTENT)
    address = program.ints("allocations", "address")[mine]
    times, level = _levels(start, end, size * count)
    whole = bank_bytes * banks * partitions
    columns = {"timestamp": times, "avg_util_percent": (level / whole).astype(np.float32)}
    for bank in range(banks):
        low, high = bank * bank_bytes, (bank + 1) * bank_bytes
        inside = np.maximum(np.minimum(address + size, high) - np.maximum(address, low), 0)
        _, level = _levels(start, end, np.where(address >= 0, inside * count, 0))
        columns[f"bank_{bank}_util_percent"] = (level / (bank_bytes * partitions)).astype(np.float32)
    return columns


_EXTENT = ("start_offset_ns", "end_offset_ns", "bytes", "start_partition", "partitions")


def hbm_usage(program: DeviceProgram) -> Columns:
    """HBM throughput whenever it changes, and the bytes moved until then."""
    read, written = program.hbm_bytes
    return _throughput(program.first_byte, program.last_byte, read + written)


def dma_usage(program: DeviceProgram) -> Columns:
    """The same for all DMA traffic."""
    return _throughput(program.first_byte, program.last_byte, program.ints("transfers", "bytes"))


def pending_dma(program: DeviceProgram) -> Columns:
    """Transfers triggered and not complete, whenever their number changes."""
    begin = program.ints("transfers", "trigger_offset_ns")
    end = program.ints("transfers", "done_offset_ns")
    times, level = _levels(begin, end, np.ones(len(begin), np.int64))
    return {"timestamp": times, "value": level.astype(np.int32)}


def dma_packets(program: DeviceProgram) -> Columns:
    """One row per transfer and DMA engine that takes part: rows go to the engines by groups of partitions."""
    engines = np.maximum(program.ints("transfers", "engines"), 1)
    owner = np.repeat(np.arange(len(engines)), engines)
    index = np.arange(len(owner)) - np.repeat(np.cumsum(engines) - engines, engines)
    size = program.ints("transfers", "bytes")
    part = size[owner] * (index + 1) // engines[owner] - size[owner] * index // engines[owner]
    duration = program.ints("transfers", "duration_ns")[owner]
    types, type_names = program.texts("transfers", "queue_type")
    queues, queue_names = program.texts("transfers", "queue")
    variables, variable_names = program.texts("transfers", "variable")
    return {
        "start_ts": program.first_byte[owner],
        "end_ts": program.last_byte[owner],
        "duration_ns": duration,
        "packet_idx": index.astype(np.int32),
        "packet_aggregation_id": owner,
        "engine_idx": index,
        "read_bytes": part,
        "write_bytes": part,
        "transfer_bytes": part,
        "throughput": (part * 1e9 / np.maximum(duration, 1)).astype(np.float32),
        "queue_type": np.array([*type_names, ""], object)[types[owner]],
        "variable": np.array([*variable_names, ""], object)[variables[owner]],
        "queue_name": np.array([*queue_names, ""], object)[queues[owner]],
        "queue_idx": program.ints("transfers", "queue_idx")[owner],
    }


def _throughput(begin: Int64, end: Int64, size: Int64) -> Columns:
    moved = size > 0
    begin, end, size = begin[moved], np.maximum(end, begin + 1)[moved], size[moved]
    rate = size * 1e9 / (end - begin)
    times, level = _levels(begin, end, rate)
    level = np.where(level < 1e-3 * (rate.min() if len(rate) else 0), 0.0, level)  # what rounding leaves
    done = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times) / 1e9)]) if len(times) else level
    return {
        "timestamp": times,
        "current_throughput": level.astype(np.float32),
        "total_transfer_bytes": np.rint(done).astype(np.int64),
    }


def _levels(begin: Int64, end: Int64, amount: Any) -> tuple[Int64, Any]:
    """Times at which a sum over overlapping intervals changes, and the sum from each on."""
    times = np.concatenate([begin, end])
    steps = np.concatenate([amount, -amount])
    order = np.argsort(times, kind="stable")
    times, total = times[order], np.cumsum(steps[order])
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, np.bool_)
    return times[last], total[last]


def _at(values: Int64, index: Int64) -> Int64:
    """`values[index]`, anything where the index is -1 and there are no values."""
    return values[index] if len(values) else np.zeros(len(index), np.int64)


def _joined(parts: list[Int64]) -> Int64:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
