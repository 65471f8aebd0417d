"""`bounds`: the limits a program's time lies between, each computed without playing it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from neuroncore.isa.columns import columns
from neuroncore.isa.program import ENGINES, Program
from neuroncore.targets import Target
from neuroncore.timing.costs import Pricer

__all__ = ["Bounds", "bounds", "critical_path_ns"]


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
    for instruction, times in program.counts():
        price = pricer.price(instruction)
        engine_ns[instruction.engine] += times * price.issue_ns
        slow = 1 / target.tensor_warmup_rate if instruction.engine == "Tensor" else 1.0
        one = price.issue_ns * slow + price.latency_ns + target.semaphore_ns
        if price.table:
            one += target.activation_table_load_ns
        if price.transfer is not None:
            dma_ns += times * price.transfer.bytes * price.transfer.share_per_ns
            start = max(target.dma_start_ns, target.dma_software_start_ns)
            dge = target.dge_fixed_ns + price.transfer.rows * target.dge_row_ns
            one += start + dge + target.dma_queue_interval_ns + price.transfer.alone_ns + target.dma_done_ns
        serial += times * one
    return Bounds(dma_ns, engine_ns, max(dma_ns, *engine_ns.values()), serial)


def critical_path_ns(program: Program, target: Target) -> float:
    """The longest chain of dependent work: what the program takes when queues don't share and TensorE is always warm.

    A lower bound on its time. Every step of it is a maximum or a sum of durations in a fixed order, so that no part of
    the hardware that gets faster can make it longer. Plain Python, a few microseconds per executed instruction.

    Args:
        program: with semaphores, written or derived.
        target: whose clocks, rates and latencies to use.
    """
    executed = columns(program)
    pricer = Pricer(program.buffers, target)
    prices = [pricer.price(i) for i in executed.text]
    reached: dict[int, tuple[list[int], list[float], str]] = {}  # semaphore: values, times, stream that raises it
    free: dict[str, float] = {}
    generator: dict[str, float] = {}
    visible: dict[str, float] = {}
    tables: dict[str, str] = {}
    queues: dict[str, tuple[float, float, float]] = {}  # last start, last byte, last completion
    longest = 0.0
    starts, names = executed.wait_start.tolist(), executed.wait_semaphore.tolist()
    values, signals = executed.wait_value.tolist(), executed.signal_start.tolist()
    raised, added = executed.signal_semaphore.tolist(), executed.signal_increment.tolist()
    for number, text in enumerate(executed.index.tolist()):
        instruction, price = executed.text[text], prices[text]
        engine, queue = instruction.engine, instruction.queue
        begin = free.get(engine, 0.0)
        for w in range(starts[number], starts[number + 1]):
            known, times, owner = reached.get(names[w], ([], [], ""))
            place = bisect_left(known, values[w])
            if place < len(known):
                begin = max(begin, times[place] + (target.semaphore_ns if owner != engine else 0.0))
        if price.table and tables.get(engine) != price.table:
            tables[engine] = price.table
            begin += target.activation_table_load_ns
        end = free[engine] = begin + price.issue_ns
        if price.transfer is None:
            seen = visible[engine] = max(visible.get(engine, 0.0), end + price.latency_ns)
            longest = max(longest, seen)
        else:
            if engine == "GpSimd":
                arrival = end + target.dma_software_start_ns
            else:
                begin = max(end, generator.get(engine, 0.0))
                generator[engine] = begin + target.dge_fixed_ns + price.transfer.rows * target.dge_row_ns
                arrival = begin + target.dma_start_ns
            start, last, done = queues.get(queue, (-target.dma_queue_interval_ns, 0.0, 0.0))
            start = max(arrival, last, start + target.dma_queue_interval_ns)
            last = start + price.transfer.alone_ns
            done = max(done, last + target.dma_done_ns)
            queues[queue] = start, last, done
            longest = max(longest, done)
            seen = done - target.semaphore_ns
        for s in range(signals[text], signals[text + 1]):
            known, times, _ = reached.setdefault(raised[s], ([], [], queue or engine))
            known.append((known[-1] if known else 0) + added[s])
            times.append(seen)
    return longest
