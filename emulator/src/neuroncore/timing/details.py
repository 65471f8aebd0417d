"""What a device profile holds beside the timeline: waits, signals, element types, the life of on-chip tiles, tensors.

All of it follows from the program; the timeline only adds when. It is made when a profile is written, not when a
program is compiled, and works on the program's rolled form: every instruction in the text is looked at once, however
often its loops execute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from neuronscope.formats import tables

from neuroncore.errors import VerifyError
from neuroncore.isa.columns import Columns, columns
from neuroncore.isa.costs import Use, performance_mode
from neuroncore.isa.instructions import instruction_spec
from neuroncore.isa.program import Access, Instruction, Loop, Program, Steps, Tensor, Tile
from neuroncore.targets import Target

__all__ = ["ROWS_WITHOUT_INSTRUCTION", "details", "hardware"]

#: Opcodes of timeline rows that no instruction of the program stands behind.
ROWS_WITHOUT_INSTRUCTION = ("act_table_load", "estimate")

#: Operands whose element type an instruction computes with, the first that it has.
_DATA = ("moving", "data", "data1", "src", "dst")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Unrolled:
    """A program's executed instructions: `written[i]` for i in `index`, in the iterations `loops[name]`."""

    written: list[Instruction]
    index: Ints
    loops: Mapping[str, Ints]

    def steps(self, steps: Steps, rows: Ints) -> Ints:
        """What affine terms add in each of the executed rows."""
        total = np.zeros(len(rows), np.int64)
        for name, step in steps:
            total += step * self.loops[name][rows]
        return total

    @cached_property
    def rows_of(self) -> list[Ints]:
        """Executed rows of every written instruction."""
        order = np.argsort(self.index, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.index, minlength=len(self.written)))[:-1])


def _unroll(program: Program) -> _Unrolled:
    written: list[Instruction] = []

    def walk(body: tuple[Instruction | Loop, ...]) -> tuple[Ints, dict[str, Ints]]:
        parts: list[Ints] = []
        counts: list[dict[str, Ints]] = []
        plain: list[int] = []

        def flush() -> None:
            if plain:
                parts.append(np.array(plain, np.int64))
                counts.append({})
                plain.clear()

        for item in body:
            if not isinstance(item, Loop):
                plain.append(len(written))
                written.append(item)
                continue
            flush()
            inner, loops = walk(item.body)
            parts.append(np.tile(inner, item.count))
            turned = {name: np.tile(values, item.count) for name, values in loops.items()}
            counts.append({**turned, item.name: np.repeat(np.arange(item.count), len(inner))})
        flush()
        names = {name for loops in counts for name in loops}
        sizes = [len(part) for part in parts]
        joined = {
            name: np.concatenate([c.get(name, np.zeros(n, np.int64)) for c, n in zip(counts, sizes, strict=True)])
            for name in names
        }
        return (np.concatenate(parts) if parts else np.zeros(0, np.int64)), joined

    index, loops = walk(program.body)
    return _Unrolled(written, index, loops)


def details(
    program: Program, target: Target, instructions: pa.Table, transfers: pa.Table, neff: str
) -> dict[str, pa.Table]:
    """Tables `instruction_details`, `waits`, `allocations` and `tensors` of one executable.

    Args:
        program: with its semaphores.
        target: what it was simulated for.
        instructions: its timeline, table INSTRUCTIONS of `neuronscope.formats.tables`.
        transfers: table DMA_TRANSFERS.
        neff: its hash.

    Raises:
        VerifyError: the timeline is of another program.
    """
    unrolled = _unroll(program)
    opcodes = instructions["opcode"].combine_chunks().dictionary_encode()
    blank = np.array([name in ROWS_WITHOUT_INSTRUCTION for name in opcodes.dictionary.to_pylist()] or [False], np.bool_)
    rows = np.flatnonzero(~blank[opcodes.indices.to_numpy()])
    if len(rows) != len(unrolled.index):
        raise VerifyError(f"{program.name}: {len(rows)} instructions on the timeline, {len(unrolled.index)} executed")
    ids = instructions["id"].to_numpy()[rows]
    is_dma = np.array([bool(one.queue) for one in unrolled.written] or [False], np.bool_)[unrolled.index]
    transfer_ids = np.full(len(rows), -1, np.int64)
    transfer_ids[is_dma] = transfers["id"].to_numpy()
    begin = instructions["offset_ns"].to_numpy()[rows].astype(np.int64)
    end = instructions["done_offset_ns"].to_numpy()[rows].astype(np.int64)
    facts = [_facts(one, program.buffers, target) for one in unrolled.written]
    executed = columns(program)
    described: dict[str, Any] = {
        "instruction_id": ids,
        "transfer_id": transfer_ids,
        **{
            name: _text([getattr(one, name) for one in facts], unrolled.index) for name in ("dtype", "performance_mode")
        },
        "signals": _text(_signals(executed), unrolled.index),
        "transpose_flops": np.array([one.transpose_flops for one in facts] or [0], np.int64)[unrolled.index],
    }
    return {
        "instruction_details": _table(tables.INSTRUCTION_DETAILS, described, neff),
        "waits": _waits(executed, ids, neff),
        "allocations": _allocations(program, unrolled, ids, begin, end, neff),
        "tensors": _table(
            tables.TENSORS,
            {
                "name": [t.name for t in program.tensors],
                "kind": [t.kind for t in program.tensors],
                "dtype": [t.dtype for t in program.tensors],
                "shape": [str(list(t.shape)).replace(" ", "") for t in program.tensors],
                "bytes": [t.bytes for t in program.tensors],
            },
            neff,
        ),
    }


def hardware(target: Target) -> dict[str, Any]:
    """The `hardware` table: every number of the target; of a mapping one row per entry."""
    names: list[str] = []
    values: list[float] = []
    for field in fields(Target):
        value = getattr(target, field.name)
        if field.name in ("name", "provenance"):
            continue
        entries = {f"{field.name}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else None
        for name, number in (entries or {field.name: value}).items():
            names.append(name)
            values.append(float(number))
    status = [target.provenance[name.split(".", 1)[0]].status for name in names]
    return {"name": names, "value": values, "status": status}


@dataclass(frozen=True)
class _Facts:
    dtype: str
    performance_mode: str
    transpose_flops: int


def _facts(instruction: Instruction, buffers: Mapping[str, Tensor | Tile], target: Target) -> _Facts:
    accesses = dict(instruction.accesses())
    dtype = next((accesses[name].dtype for name in _DATA if name in accesses), "")
    speed = 1.0
    if instruction.engine == "Vector" and instruction.opcode in ("tensor_copy", "tensor_scalar"):
        speed = performance_mode(Use(instruction, buffers, target.neuroncore_version))
    turned = 0
    if instruction.opcode == "nc_transpose" and instruction.engine == "Tensor":
        data = accesses["data"]  # a product with the identity: [partitions, elements].T @ [partitions, partitions]
        turned = 2 * data.partitions * data.partitions * data.free_elements
    return _Facts(dtype, f"{speed:.0f}x" if speed > 1 else "", turned)


def _signals(executed: Columns) -> list[str]:
    """What each written instruction signals, as text."""
    names, increments = executed.semaphores, executed.signal_increment.tolist()
    each = [f"{names[s]}+{n}" for s, n in zip(executed.signal_semaphore.tolist(), increments, strict=True)]
    starts = executed.signal_start.tolist()
    return [" ".join(each[a:b]) for a, b in pairwise(starts)]


def _waits(executed: Columns, ids: Ints, neff: str) -> pa.Table:
    if not len(executed.wait_value):
        return tables.WAITS.schema.empty_table()
    described = {
        "instruction_id": np.repeat(ids, np.diff(executed.wait_start)),
        "semaphore": _text(list(executed.semaphores), executed.wait_semaphore.astype(np.int64)),
        "value": executed.wait_value,
    }
    return _table(tables.WAITS, described, neff)


def _uses(instruction: Instruction) -> Iterator[tuple[Access, bool]]:
    """Its accesses, and whether each only writes."""
    spec = instruction_spec(instruction.opcode)
    for name, access in instruction.accesses():
        operand = spec.operand(name)
        role = operand.role if operand is not None else "read"
        yield access, role == "write" or (role == "update" and instruction.get("accumulate") is False)


def _allocations(program: Program, unrolled: _Unrolled, ids: Ints, begin: Ints, end: Ints, neff: str) -> pa.Table:
    tiles = {tile.name: number for number, tile in enumerate(program.tiles)}
    rows, owners, writes = [], [], []
    for number, instruction in enumerate(unrolled.written):
        for access, only_writes in _uses(instruction):
            if access.buffer in tiles:
                rows.append(unrolled.rows_of[number])
                owners.append(tiles[access.buffer])
                writes.append(only_writes)
    if not rows:
        return tables.ALLOCATIONS.schema.empty_table()
    counts = [len(mine) for mine in rows]
    row, tile = np.concatenate(rows), np.repeat(owners, counts)
    write = np.repeat(writes, counts)
    # By tile, in program order; of one instruction its reads first.
    order = np.lexsort((write, row, tile))
    row, tile, write = row[order], tile[order], write[order]
    first = np.ones(len(row), np.bool_)
    first[1:] = (tile[1:] != tile[:-1]) | (write[1:] & ~write[:-1] & (row[1:] != row[:-1]))
    starts = np.flatnonzero(first)
    table = program.tiles
    chosen = tile[starts]
    described = {
        "memory": _text([t.memory for t in table], chosen),
        "name": _text([t.name for t in table], chosen),
        "address": np.array([-1 if t.address is None else t.address for t in table], np.int64)[chosen],
        "bytes": np.array([t.free_bytes for t in table], np.int64)[chosen],
        "start_partition": np.array([t.start_partition for t in table], np.int64)[chosen],
        "partitions": np.array([t.partitions for t in table], np.int64)[chosen],
        "start_offset_ns": np.minimum.reduceat(begin[row], starts),
        "end_offset_ns": np.maximum.reduceat(end[row], starts),
        "instruction_id": ids[row[starts]],
    }
    return _table(tables.ALLOCATIONS, described, neff)


def _text(values: list[str], index: Ints) -> pa.Array:
    """`values[i]` for each i of `index`, dictionary-encoded with each text once."""
    distinct = {value: number for number, value in enumerate(dict.fromkeys(values))}
    codes = np.array([distinct[value] for value in values] or [0], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes[index]), pa.array(list(distinct), pa.string()))


def _table(spec: tables.TableSpec, columns: dict[str, Any], neff: str) -> pa.Table:
    count = len(next(iter(columns.values())))
    columns = {**columns, "neff": _text([neff], np.zeros(count, np.int64))}
    arrays = []
    for field in spec.schema:
        value = columns[field.name]
        if isinstance(value, pa.Array):
            arrays.append(value)
        elif pa.types.is_dictionary(field.type):
            arrays.append(pa.array(value, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(value, field.type))
    return pa.Table.from_arrays(arrays, schema=spec.schema)
