"""`simulate`: what a program costs on a target, as tables.

`neuroncore.isa.columns` unrolls the program, `costs.py` prices each instruction of its text once, `play.py` plays the
streams against the clock. Here the result becomes the columns that profiles keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from neuronscope.formats import tables

from neuroncore.isa.columns import Columns, columns
from neuroncore.isa.program import ENGINES, Program
from neuroncore.isa.text import print_operands
from neuroncore.targets import Target
from neuroncore.timing.costs import Price, Pricer
from neuroncore.timing.play import Schedule, costs_of, play

__all__ = ["TextColumn", "Timeline", "simulate"]

#: Opcode of the row that shows ScalarE loading a function table.
TABLE_LOAD = "act_table_load"

Integers = npt.NDArray[np.int64]


class TextColumn(Sequence[str]):
    """A column of strings, few of them different: each row is a number in a list of words."""

    def __init__(self, words: Sequence[str], rows: npt.NDArray[Any]) -> None:
        self._words, self._rows = words, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> TextColumn: ...
    def __getitem__(self, row: int | slice) -> str | TextColumn:
        if isinstance(row, slice):
            return TextColumn(self._words, self._rows[row])
        return self._words[self._rows[row]]

    def __iter__(self) -> Iterator[str]:
        return map(self._words.__getitem__, self._rows.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self._words, dtype=object)[self._rows]

    def arrow(self) -> pa.DictionaryArray:
        """Dictionary-encoded, words in the order of their first row."""
        numbers: dict[str, int] = {}
        distinct = np.array([numbers.setdefault(word, len(numbers)) for word in self._words], np.int32)
        rows = distinct[self._rows] if len(self._words) else np.zeros(0, np.int32)
        used, first = np.unique(rows, return_index=True)
        order = used[np.argsort(first, kind="stable")]
        place = np.zeros(len(numbers), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        words = list(numbers)
        return pa.DictionaryArray.from_arrays(pa.array(place[rows]), pa.array([words[i] for i in order], pa.string()))


@dataclass(frozen=True)
class Timeline:
    """What a program costs. All times in integer nanoseconds since the program's start.

    Attributes:
        columns: the executed instructions (text, waits, signals).
        prices: of each instruction in the text.
        schedule: times before rounding, table loads apart.
        activation_table_load_ns: of the target.
    """

    columns: Columns
    prices: tuple[Price, ...]
    schedule: Schedule
    activation_table_load_ns: float

    @cached_property
    def program_ns(self) -> int:
        """Start to the last visible result."""
        return round(float(self.schedule.visible.max(initial=0.0)))

    @cached_property
    def bytes_read(self) -> int:
        """HBM traffic."""
        return self._total([p.transfer.hbm_read_bytes if p.transfer else 0 for p in self.prices])

    @cached_property
    def bytes_written(self) -> int:
        """HBM traffic."""
        return self._total([p.transfer.hbm_write_bytes if p.transfer else 0 for p in self.prices])

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions counted separately."""
        return self._total([p.flops for p in self.prices])

    def _total(self, values: list[int]) -> int:
        counts = np.bincount(self.columns.index, minlength=len(values))
        return sum(int(n) * value for n, value in zip(counts, values, strict=True) if value)

    @property
    def busy_ns(self) -> dict[str, int]:
        """Per engine, time it executes instructions."""
        return self._shown[1]

    @property
    def dma_busy_ns(self) -> int:
        """Time at least one transfer is in flight."""
        return _union_ns(self.dma_transfers["offset_ns"], self.dma_transfers["duration_ns"])

    @cached_property
    def instructions(self) -> dict[str, Any]:
        """Columns of `neuronscope.formats.tables.INSTRUCTIONS` without `neff`: integer arrays and `TextColumn`s.

        The operands of an instruction in a loop are printed with the loop's steps.
        """
        return _instruction_columns(self, self._shown[0])

    @cached_property
    def dma_transfers(self) -> dict[str, Any]:
        """Columns of `DMA_TRANSFERS` without `neff`, likewise."""
        return _dma_columns(self)

    @cached_property
    def _shown(self) -> tuple[_Shown, dict[str, int]]:
        return _slices(self)

    def instruction_table(self, neff: str = "") -> pa.Table:
        """The INSTRUCTIONS table, its `neff` column filled."""
        return _table(tables.INSTRUCTIONS, self.instructions, neff)

    def dma_table(self, neff: str = "") -> pa.Table:
        """The DMA_TRANSFERS table, its `neff` column filled."""
        return _table(tables.DMA_TRANSFERS, self.dma_transfers, neff)


@dataclass(frozen=True)
class _Shown:
    """Rounded times of the executed instructions, and of the table loads before some of them."""

    starts: Integers
    durations: Integers
    visible: Integers
    waits: Integers
    pc: Integers
    loaded: Integers
    ready: Integers


def _table(spec: tables.TableSpec, values: dict[str, Any], neff: str) -> pa.Table:
    rows = len(values["id"])
    arrays = []
    for column in spec.columns:
        given = TextColumn([neff], np.zeros(rows, np.int32)) if column.name == "neff" else values[column.name]
        if isinstance(given, TextColumn):
            arrays.append(given.arrow())
        else:
            arrays.append(pa.array(given, spec.schema.field(column.name).type))
    return pa.Table.from_arrays(arrays, schema=spec.schema)


def simulate(program: Program, target: Target, *, plain: bool = False) -> Timeline:
    """Time a program.

    Args:
        program: with semaphores, written out (see `neuroncore.isa.synchronize`) or derived, and verified.
        target: whose clocks, rates and latencies to use.
        plain: use the plain Python twins of the compiled kernels; the result is the same.

    Raises:
        DeadlockError: instructions left whose waits nothing satisfies.
        UnsupportedInstructionError: an instruction that is declared, not modelled.
    """
    executed = columns(program, plain=plain)
    pricer = Pricer(program.buffers, target)
    _, first = np.unique(executed.kind, return_index=True)  # kinds are numbered from 0
    kinds = [pricer.price(executed.text[number]) for number in first.tolist()]
    schedule = play(program.name, executed, costs_of(executed, kinds, target), target, plain=plain)
    prices = tuple([kinds[kind] for kind in executed.kind.tolist()])
    return Timeline(executed, prices, schedule, target.activation_table_load_ns)


def _slices(timeline: Timeline) -> tuple[_Shown, dict[str, int]]:
    """When each instruction is shown, and how long each engine is busy."""
    executed, schedule, program_ns = timeline.columns, timeline.schedule, timeline.program_ns
    starts, ends, visible, waits = (
        np.rint(c).astype(np.int64) for c in (schedule.start, schedule.end, schedule.visible, schedule.wait)
    )
    is_dma = np.array([p.transfer is not None for p in timeline.prices], bool)[executed.index]
    loaded = np.rint(schedule.load_start).astype(np.int64)
    ready = np.rint(schedule.load_start + timeline.activation_table_load_ns).astype(np.int64)
    # A slice lasts until its result is visible or the next one on its engine starts: what a profiler shows.
    begin = starts.copy()  # start of what the engine does for an instruction, its table load included
    begin[schedule.loads] = loaded
    shown = np.where(is_dma, ends, visible)
    busy: dict[str, int] = {}
    pc = np.zeros(len(starts), np.int64)
    engines = np.array([ENGINES.index(i.engine) for i in executed.text], np.int8)[executed.index]
    for number, engine in enumerate(ENGINES):
        mine = np.flatnonzero(engines == number)
        if not len(mine):
            busy[engine] = 0
            continue
        following = np.append(begin[mine][1:], program_ns)
        shown[mine] = np.maximum(ends[mine], np.minimum(shown[mine], following))
        shown[mine] = np.minimum(shown[mine], np.maximum(following, starts[mine]))
        pc[mine] = np.arange(len(mine))
        busy[engine] = int((shown[mine] - starts[mine]).sum())
    busy["Scalar"] += int((ready - loaded).sum())
    return _Shown(starts, shown - starts, visible, waits, pc, loaded, ready), busy


def _instruction_columns(timeline: Timeline, shown: _Shown) -> dict[str, Any]:
    executed, prices, schedule = timeline.columns, timeline.prices, timeline.schedule
    text, index, loads = executed.text, executed.index, schedule.loads
    before = np.arange(len(loads)) + loads  # row of each table load: just before its instruction
    rows = np.insert(index, loads, index[loads])

    def words(of: list[str], load: str | None = None) -> TextColumn:
        if load is None:
            return TextColumn(of, rows)
        own = rows.copy()
        own[before] = len(of)
        return TextColumn([*of, load], own)

    def numbers(values: Integers, load: Any = 0) -> Integers:
        return cast(Integers, np.insert(values, loads, load))

    def sizes(name: str) -> Integers:
        return numbers(np.array([getattr(p, name) for p in prices], np.int64)[index])

    operands = [print_operands(i) for i in text]
    tables = sorted({prices[t].table for t in index[loads].tolist()})
    shown_operands = rows.copy()
    named = [len(text) + tables.index(prices[t].table) for t in index[loads].tolist()]
    shown_operands[before] = named
    wait_ns = numbers(shown.waits, shown.waits[loads])
    wait_ns[before + 1] = 0
    return {
        "id": np.arange(len(rows), dtype=np.int64),
        "engine": words([i.engine for i in text]),
        "opcode": words([i.opcode for i in text], TABLE_LOAD),
        "operands": TextColumn([*operands, *(f'table="{t}"' for t in tables)], shown_operands),
        "pc": numbers(shown.pc, shown.pc[loads]),
        "offset_ns": numbers(shown.starts, shown.loaded),
        "duration_ns": numbers(shown.durations, shown.ready - shown.loaded),
        "wait_ns": wait_ns,
        "done_offset_ns": numbers(shown.visible, shown.ready),
        "op": words([i.op for i in text]),
        "source": words([i.source for i in text]),
        "flops": sizes("flops"),
        "sbuf_read_bytes": sizes("sbuf_read_bytes"),
        "sbuf_write_bytes": sizes("sbuf_write_bytes"),
        "psum_read_bytes": sizes("psum_read_bytes"),
        "psum_write_bytes": sizes("psum_write_bytes"),
    }


def _dma_columns(timeline: Timeline) -> dict[str, Any]:
    executed, prices, schedule = timeline.columns, timeline.prices, timeline.schedule
    chosen = np.flatnonzero(np.array([p.transfer is not None for p in prices], bool)[executed.index])
    rows = executed.index[chosen]
    text = executed.text
    transfers = [p.transfer for p in prices]
    numbers: dict[str, int] = {}
    for t in rows[np.sort(np.unique(rows, return_index=True)[1])].tolist():  # by first appearance
        numbers.setdefault(text[t].queue, len(numbers))

    def words(name: str) -> TextColumn:
        return TextColumn([str(getattr(t, name)) if t else "" for t in transfers], rows)

    def sizes(name: str) -> Integers:
        values = np.array([getattr(t, name) if t else 0 for t in transfers], np.int64)
        return values[rows]

    def rounded(values: npt.NDArray[np.float64]) -> Integers:
        return cast(Integers, np.rint(values[chosen]).astype(np.int64))

    first, last = rounded(schedule.first_byte), rounded(schedule.last_byte)
    return {
        "id": np.arange(len(rows), dtype=np.int64),
        "queue": TextColumn([i.queue for i in text], rows),
        "queue_idx": np.array([numbers.get(i.queue, 0) for i in text], np.int64)[rows],
        "engines": sizes("engines"),
        "offset_ns": first,
        "duration_ns": last - first,
        "trigger_offset_ns": rounded(schedule.start),
        "done_offset_ns": rounded(schedule.visible),
        "bytes": sizes("bytes"),
        "rows": sizes("rows"),
        "from_memory": words("from_memory"),
        "to_memory": words("to_memory"),
        "variable": words("variable"),
        "queue_type": words("queue_type"),
        "op": TextColumn([i.op for i in text], rows),
    }


def _union_ns(offsets: Integers, durations: Integers) -> int:
    """Total length of the union of intervals."""
    if not len(offsets):
        return 0
    order = np.argsort(offsets, kind="stable")
    begin, end = offsets[order], (offsets + durations)[order]
    reached = np.maximum.accumulate(end)
    gaps = np.maximum(begin[1:] - reached[:-1], 0).sum()
    return int(reached[-1] - begin[0] - gaps)
