"""One executable's timeline in a NTFF as numpy columns, for `device_rows`, `device_series` and `device_summary`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from neuronscope.formats.container import ProfileFile
from neuronscope.readers.exact import Int64

__all__ = ["DTYPE_BYTES", "DeviceProgram", "programs_of", "union"]

#: Bytes of the element types that programs are printed with.
DTYPE_BYTES = {
    "fp64": 8, "int64": 8, "uint64": 8, "fp32": 4, "int32": 4, "uint32": 4, "bf16": 2, "fp16": 2, "int16": 2,
    "uint16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


@dataclass(frozen=True)
class DeviceProgram:
    """What a NTFF holds of one executable. Times are ns since the program's start.

    Attributes:
        facts: its row of table `programs`.
        instructions, transfers, details, waits, allocations, tensors: its rows of the NTFF's tables.
        hardware: the target's numbers by name; empty in files of version 1.
    """

    facts: Mapping[str, Any]
    instructions: pa.Table
    transfers: pa.Table
    details: pa.Table
    waits: pa.Table
    allocations: pa.Table
    tensors: pa.Table
    hardware: Mapping[str, float]

    @property
    def neff(self) -> str:
        """Hash of the executable."""
        return str(self.facts["neff"])

    @property
    def duration_ns(self) -> int:
        """Length of the timeline."""
        return int(self.facts["duration_ns"])

    @property
    def complete(self) -> bool:
        """Whether the file says more than the timeline (version 2)."""
        return bool(self.hardware)

    def ints(self, table: str, column: str) -> Int64:
        """An integer column."""
        return np.asarray(getattr(self, table)[column].to_numpy(), np.int64)

    def texts(self, table: str, column: str) -> tuple[Int64, list[str]]:
        """A text column as codes and the texts they stand for."""
        array = getattr(self, table)[column].combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], pa.string())
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        return np.asarray(array.indices.to_numpy(zero_copy_only=False), np.int64), array.dictionary.to_pylist()

    def is_text(self, table: str, column: str, *wanted: str) -> Any:
        """Which rows have one of some texts."""
        codes, names = self.texts(table, column)
        return np.array([name in wanted for name in names] or [False], np.bool_)[codes]

    @cached_property
    def start(self) -> Int64:
        """Start of each instruction."""
        return self.ints("instructions", "offset_ns")

    @cached_property
    def end(self) -> Int64:
        """End of each instruction, as shown."""
        return self.start + self.ints("instructions", "duration_ns")

    @cached_property
    def done(self) -> Int64:
        """When each instruction's result is visible."""
        done = self.ints("instructions", "done_offset_ns")
        return np.where(done < 0, self.end, done)

    @cached_property
    def first_byte(self) -> Int64:
        """Start of each transfer."""
        return self.ints("transfers", "offset_ns")

    @cached_property
    def last_byte(self) -> Int64:
        """End of each transfer."""
        return self.first_byte + self.ints("transfers", "duration_ns")

    def of_rows(self, column: str, missing: int) -> Int64:
        """An integer column of the details for every instruction."""
        values = np.full(self.instructions.num_rows, missing, np.int64)
        values[self.detail_rows] = self.ints("details", column)
        return values

    @cached_property
    def detail_rows(self) -> Int64:
        """Row among the instructions of each row of the details."""
        return np.searchsorted(self.ints("instructions", "id"), self.ints("details", "instruction_id"))

    @cached_property
    def trigger_rows(self) -> Int64:
        """Row among the instructions that triggered each transfer, -1 unknown."""
        rows = np.full(self.transfers.num_rows, -1, np.int64)
        transfer = self.ints("details", "transfer_id")
        triggers = transfer >= 0
        rows[np.searchsorted(self.ints("transfers", "id"), transfer[triggers])] = self.detail_rows[triggers]
        return rows

    @cached_property
    def hbm_bytes(self) -> tuple[Int64, Int64]:
        """HBM bytes that each transfer reads and writes."""
        size = self.ints("transfers", "bytes")
        reads, writes = self.is_text("transfers", "from_memory", "HBM"), self.is_text("transfers", "to_memory", "HBM")
        return np.where(reads, size, 0), np.where(writes, size, 0)

    @cached_property
    def executed(self) -> Any:
        """Which rows are an engine's own work: all but those that stand for an op without instructions."""
        return ~self.is_text("instructions", "opcode", "estimate")

    @cached_property
    def temporary(self) -> Any:
        """Which transfers move an HBM tensor that is neither input nor output: intermediates that found no room."""
        kinds = dict(zip(self.tensors["name"].to_pylist(), self.tensors["kind"].to_pylist(), strict=True))
        codes, names = self.texts("transfers", "variable")
        return np.array([kinds.get(name) == "temporary" for name in names] or [False], np.bool_)[codes]


def programs_of(files: list[ProfileFile]) -> Iterator[DeviceProgram]:
    """The executables of some NTFF files, each once."""
    seen: set[str] = set()
    for file in files:
        hardware = dict(
            zip(file.tables["hardware"]["name"].to_pylist(), file.tables["hardware"]["value"].to_pylist(), strict=True)
        )
        parts = {
            name: _by_neff(file.tables[name])
            for name in ("instructions", "dma_transfers", "instruction_details", "waits", "allocations", "tensors")
        }
        for row in file.tables["programs"].to_pylist():
            if row["neff"] in seen:
                continue
            seen.add(row["neff"])
            found = [parts[name].get(row["neff"], file.tables[name].slice(0, 0)) for name in parts]
            instructions, transfers, details, waits, allocations, tensors = found
            yield DeviceProgram(row, instructions, transfers, details, waits, allocations, tensors, hardware)


def _by_neff(table: pa.Table) -> dict[str, pa.Table]:
    column = table["neff"].unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], pa.string()).dictionary_encode()
    codes = np.asarray(column.indices.to_numpy(zero_copy_only=False))
    if not len(codes):
        return {}
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        table, codes = table.take(pa.array(order)), codes[order]
    table = table.combine_chunks()
    first = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    names = column.dictionary.to_pylist()
    return {
        names[codes[begin]]: table.slice(begin, end - begin)
        for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(codes)], strict=True)
    }


def union(begin: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Starts and ends of the union of some intervals, in order of time; touching ones are one."""
    if not len(begin):
        return begin, end
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    reached = np.maximum.accumulate(end)
    first = np.append(True, begin[1:] > reached[:-1])
    last = np.append(first[1:], True)
    return begin[first], reached[last]
