"""What every reader hands to `model.build`: intervals with a role, arrows, facts. Columns, not objects."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.readers.exact import Int64
from neuronscope.readers.narrow import one_dictionary, rows_of
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.scratch import Column, Scratch, ranges, rows_where
from neuronscope.readers.texts import TextRows, Texts

if TYPE_CHECKING:
    from neuronscope.readers.file_rows import FileRows

__all__ = ["TEXT_PID", "ArrowEnds", "Buckets", "Events", "Role", "Trace", "concat_events", "merged", "order_by_start"]

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]


class Role(enum.IntEnum):
    """What an event is, whatever its producer calls it."""

    OP = 0  # framework operator call
    ANNOTATION = 1  # user's range, profiler step
    PYTHON = 2  # Python frame
    DISPATCH = 3  # PrivateUse1 runtime row: operator dispatch
    HOST = 4  # any other host interval
    RUNTIME = 5  # call of a device runtime (CUDA, HIP, …) on the host
    DRIVER = 6  # PrivateUse1 driver row: device interaction
    NRT = 7  # Neuron runtime call
    DEVICE = 8  # kernel or execution
    MEMCPY = 9
    MEMSET = 10
    DEVICE_ANNOTATION = 11  # a host range projected onto the device: never device time
    OVERHEAD = 12  # the profiler's own
    ASYNC = 13  # begin/end pairs that belong to no thread
    SPAN = 14  # the recording itself: stored, not drawn
    INSTANT = 15  # instants and counters: stored, not drawn
    ENGINE = 16  # an instruction or a transfer inside an execution: drawn, no device time of its own


TEXT_PID = -1000  # pids that are no numbers get this one and those below
HOST_ROLES = (Role.OP, Role.ANNOTATION, Role.PYTHON, Role.DISPATCH, Role.HOST)
DEVICE_ROLES = (Role.DEVICE, Role.MEMCPY, Role.MEMSET)


@dataclass(frozen=True)
class Events:
    """Intervals, one row each, in any order. Ids are -1 where missing.

    `name` and `category` are Arrow dictionary arrays, `args` JSON text as bytes. `pid`, `tid` are as in the file;
    `device` and `stream` say where device rows ran, `nc` and `pcore` on which NeuronCore. Times are of 64 bits; the
    other whole numbers may be held in fewer.
    """

    role: Int8
    name: pa.DictionaryArray
    category: pa.DictionaryArray
    start: Int64
    end: Int64
    pid: Int64
    tid: Int64
    device: Int64
    stream: Int64
    nc: Int64
    pcore: Int64
    correlation: Int64
    external_id: Int64
    execution_id: Int64
    bytes: Int64
    args: Texts

    def __len__(self) -> int:
        return len(self.start)

    def of(self, *roles: Role) -> Int64:
        """Rows of some roles, in order."""
        wanted = np.zeros(len(Role), np.bool_)
        wanted[list(roles)] = True
        return rows_where(len(self), lambda low, high: wanted[self.role[low:high]])

    def take(self, rows: npt.NDArray[Any]) -> Events:
        """The given rows (indices or a mask), in that order."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        values: dict[str, Any] = {}
        index = pa.array(rows)
        for name in self.__dataclass_fields__:
            column = getattr(self, name)
            if isinstance(column, np.ndarray):
                values[name] = rows_of(column, rows)
            else:
                values[name] = column.take(rows if isinstance(column, Texts) else index)
        return Events(**values)

    def sorted_by_start(self) -> Events:
        """All rows in order of start; of equal starts the longest first, so that parents precede children.

        Uses up the columns of this one on the way, so that both never take memory at once.
        """
        order = order_by_start(self.start, self.end)
        values: dict[str, Any] = {}
        index = pa.array(order)
        for name in self.__dataclass_fields__:
            column = getattr(self, name)
            object.__setattr__(self, name, None)
            if isinstance(column, np.ndarray):
                values[name] = rows_of(column, order)
            else:
                values[name] = column.take(order if isinstance(column, Texts) else index)
        return Events(**values)


def order_by_start(start: Int64, end: Int64) -> Int64:
    """Rows in order of start; of equal starts the longest first, so that parents precede children."""
    order = np.lexsort((start - np.maximum(end, start + 1), start))
    return order.astype(np.int32) if len(order) < 2**31 else order


def concat_events(parts: Sequence[Events]) -> Events:
    """All rows of `parts`."""
    if len(parts) == 1:
        return parts[0]
    values: dict[str, Any] = {}
    for name in Events.__dataclass_fields__:
        columns = [getattr(part, name) for part in parts]
        if isinstance(columns[0], np.ndarray):
            values[name] = np.concatenate(columns)
        elif isinstance(columns[0], Texts):
            values[name] = Texts.concat(columns)
        else:
            values[name] = one_dictionary(columns)
    return Events(**values)


class Buckets:
    """Rows by ranges of time: what lies between two of the `limits` comes together, in the order of the rows."""

    def __init__(self, rows: Int64, times: Int64, limits: Int64, scratch: Scratch) -> None:
        """`times` are those of all rows, `rows` the ones to take."""
        column = scratch.column(np.int32 if len(times) < 2**31 else np.int64)
        self._runs: list[Int64] = []  # bounds of each bucket's rows, per run of rows that was sorted at once
        for low, high in ranges(len(rows)):
            some = rows[low:high]
            at = times[some]
            order = np.argsort(at, kind="stable")
            column.append(some[order])
            self._runs.append(low + np.concatenate(([0], np.searchsorted(at[order], limits), [high - low])))
            scratch.forget()
        self._rows = column.finish()

    def rows(self, number: int) -> Int64:
        """Rows of one bucket; of equal times in the order they were given."""
        parts = [self._rows[run[number] : run[number + 1]] for run in self._runs]
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def merged(parts: Iterable[Events], scratch: Scratch) -> Events:
    """All rows of `parts`, each in order of start and later than the one before, all with the same dictionaries.

    Codes and numbers go to `scratch`, so that memory holds a part at a time.
    """
    columns: dict[str, Column] = {}
    texts: dict[str, Any] = {}
    args = TextRows(scratch)
    for part in parts:
        for name in Events.__dataclass_fields__:
            value = getattr(part, name)
            if isinstance(value, Texts):
                args.append(value)
            else:
                if isinstance(value, pa.DictionaryArray):
                    texts[name], value = value.dictionary, value.indices.to_numpy()
                columns.setdefault(name, scratch.column()).append(value)
    values: dict[str, Any] = {name: column.finish() for name, column in columns.items()}
    for name, dictionary in texts.items():
        values[name] = pa.DictionaryArray.from_arrays(pa.array(values[name]), dictionary)
    return Events(**values, args=args.texts())


@dataclass(frozen=True)
class ArrowEnds:
    """Flow rows: `phase` 0 start, 1 step, 2 end; `kind` and `key` equal for ends of one arrow; `number`: id or -1.

    `row`: of the file, None where there is none.
    """

    phase: Int8
    key: Int64
    kind: pa.DictionaryArray
    ts: Int64
    pid: Int64
    tid: Int64
    number: Int64
    row: Int64 | None = None

    def __len__(self) -> int:
        return len(self.ts)


@dataclass
class Trace:
    """One profile as read, before links and lanes.

    Attributes:
        format: what the user is told it is.
        arrows: flow rows, None when there are none.
        facts: ProfileInfo key → value.
        instance: label of the machine.
        recording: start and end of the recording, None unknown.
        process_names, thread_names: labels by pid and (pid, tid).
        engine_names: of engines and DMA queues, by the stream number of their rows.
        process_labels: text of pids that are no numbers, by their (negative) number.
        executions: rows of `formats.tables.EXECUTIONS` when the profile has them.
        report: bookkeeping rows so far.
        ordered: the events are in order of start already, as `Events.sorted_by_start` makes it.
        scratch: for columns that are too large for memory.
        file_rows: the events as the file has them, for what is found about one later; None: the source has no bytes.
        tables: finished tables of the published schema (Instruction, CpuUsage, …).
    """

    format: str
    events: Events
    events_in_file: int
    bytes_read: int
    arrows: ArrowEnds | None = None
    facts: dict[str, str] = field(default_factory=dict)
    instance: str = "local"
    recording: tuple[int, int] | None = None
    process_names: dict[int, str] = field(default_factory=dict)
    thread_names: dict[tuple[int, int], str] = field(default_factory=dict)
    engine_names: dict[int, str] = field(default_factory=dict)
    process_labels: dict[int, str] = field(default_factory=dict)
    executions: pa.Table | None = None
    report: list[IngestWarning] = field(default_factory=list)
    file_rows: FileRows | None = None
    tables: dict[str, pa.Table] = field(default_factory=dict)
    repaired: int = 0
    skipped: int = 0
    merged: int = 0
    dropped: int | None = None
    ordered: bool = False
    scratch: Scratch = field(default_factory=Scratch)
    ranks: tuple[int, ...] = ()
    neuron: bool = False
