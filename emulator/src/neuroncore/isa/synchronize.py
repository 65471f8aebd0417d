"""`synchronize`: place the semaphores a program needs, from its data dependences.

Every stream (each engine's compute instructions, each DMA queue) owns one semaphore: a compute instruction adds 1
when its result is visible, a DMA transfer adds 16 (one per DMA engine). An instruction waits for the last instruction
of every other stream it depends on, unless an earlier wait already implies it. An engine also waits for itself when
it reads what it wrote before: that is how the timing model knows that the latency, not only the issue interval, has
to pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from neuroncore.isa.dtypes import DTYPE_BYTES
from neuroncore.isa.instructions import INSTRUCTIONS
from neuroncore.isa.program import Access, Instruction, Program, Signal, Tensor, Tile, Wait

__all__ = ["DMA_INCREMENT", "bucket_of", "stream_of", "synchronize"]

#: A finished DMA transfer adds one per DMA engine (published: 16 increments = whole transfer done).
DMA_INCREMENT = 16

#: Two-dimensional extent inside a memory: (rows from, to, columns from, to), half-open.
Region = tuple[int, int, int, int]

#: On-chip extents are bucketed by this many bytes, HBM tensors into this many parts, so that nothing is searched
#: linearly.
_TILE_BUCKET_BYTES = 2048
_TENSOR_BUCKETS = 256
_WIDE = 32


def stream_of(instruction: Instruction) -> str:
    """The stream that retires the instruction: its DMA queue, or its engine."""
    return instruction.queue or instruction.engine


class _Records:
    """Who touched which region of one memory space, most recent first enough to find every dependence."""

    def __init__(self, bucket: int) -> None:
        self._bucket = bucket
        self._buckets: dict[int, dict[tuple[Region, str], int]] = {}
        self._wide: dict[tuple[Region, str], int] = {}

    def _lists(self, region: Region) -> list[dict[tuple[Region, str], int]]:
        first, last = region[0] // self._bucket, (region[1] - 1) // self._bucket
        buckets = self._buckets
        found = [self._wide] if self._wide else []
        if first == last:
            if first in buckets:
                found.append(buckets[first])
        elif last - first >= _WIDE:
            found.extend(buckets.values())
        else:
            found.extend(buckets[b] for b in range(first, last + 1) if b in buckets)
        return found

    def overlapping(self, region: Region) -> list[tuple[str, int]]:
        """(stream, index) of the records that share an element with `region`."""
        top, bottom, left, right = region
        return [
            (stream, index)
            for records in self._lists(region)
            for (other, stream), index in records.items()
            if other[0] < bottom and top < other[1] and other[2] < right and left < other[3]
        ]

    def add(self, region: Region, stream: str, index: int) -> None:
        """Remember an access; a later one of the same stream to the same region replaces it."""
        first, last = region[0] // self._bucket, (region[1] - 1) // self._bucket
        if last - first >= _WIDE:
            self._wide[region, stream] = index
            return
        for bucket in range(first, last + 1):
            self._buckets.setdefault(bucket, {})[region, stream] = index

    def drop_covered(self, region: Region) -> None:
        """Forget what lies inside `region`: later accesses depend on its new writer, which depends on them."""
        top, bottom, left, right = region
        for records in self._lists(region):
            for key in [
                k for k in records if top <= k[0][0] and k[0][1] <= bottom and left <= k[0][2] and k[0][3] <= right
            ]:
                del records[key]


def _region(access: Access, buffer: Tensor | Tile) -> tuple[str, Region]:
    """The memory space an access lies in and its extent there.

    Tiles: rows (which `_Records` buckets) are bytes, columns are partitions. A tile without an address is a space of
    its own.
    HBM tensors: rows and columns of the tensor seen as 2-D with its last dimension as columns, so that neighbouring
    column blocks do not look as if they overlapped; a tensor of one row is turned by 90 degrees.
    """
    size = DTYPE_BYTES[access.dtype]
    low, high = access.span()
    if isinstance(buffer, Tile):
        first = buffer.start_partition + access.start_partition
        space, base = (buffer.name, 0) if buffer.address is None else (buffer.memory, buffer.address)
        return space, (base + low * size, base + high * size, first, first + access.partitions)
    width = max(1, buffer.shape[-1] if buffer.shape else 1)
    region = _rectangle(access, buffer, width)
    if region is None:  # not a rectangle: all rows it reaches, in the tensor's own elements
        own = DTYPE_BYTES[buffer.dtype]
        region = (low * size // own // width, ((high * size - 1) // own) // width + 1, 0, width)
    if width == buffer.elements:
        region = (region[2], region[3], region[0], region[1])
    return buffer.name, region


def _rectangle(access: Access, buffer: Tensor, width: int) -> Region | None:
    """Rows and columns of an access that stays within its columns, else None."""
    if access.dtype != buffer.dtype:
        return None
    top, left = divmod(access.offset, width)
    bottom, right = top, left
    for stride, count in ((access.partition_stride, access.partitions), *access.free):
        reach = stride * (count - 1)
        if reach < 0:
            return None
        if stride % width == 0:
            bottom += reach // width
        else:
            right += reach
    return (top, bottom + 1, left, right + 1) if right < width else None


def _records(spaces: dict[str, _Records], space: str, buffer: Tensor | Tile) -> _Records:
    """The records of a memory space, made on first use."""
    if space not in spaces:
        spaces[space] = _Records(bucket_of(buffer))
    return spaces[space]


def bucket_of(buffer: Tensor | Tile) -> int:
    """Rows of its space that share a bucket."""
    if isinstance(buffer, Tile):
        return _TILE_BUCKET_BYTES
    width = max(1, buffer.shape[-1] if buffer.shape else 1)
    rows = buffer.elements // width if width != buffer.elements else width
    return max(1, rows // _TENSOR_BUCKETS)


@cache
def _roles(opcode: str) -> dict[str, str]:
    """Role of each operand of an instruction."""
    return {operand.name: operand.role for operand in INSTRUCTIONS[opcode].operands}


def _touches(instruction: Instruction) -> tuple[list[Access], list[Access]]:
    """The accesses it reads and those it writes."""
    roles = _roles(instruction.opcode)
    reads, writes = [], []
    accumulate = instruction.get("accumulate") is not False
    for name, access in instruction.accesses():
        role = roles[name]
        if role == "read" or (role == "update" and accumulate):
            reads.append(access)
        if role in ("write", "update"):
            writes.append(access)
    return reads, writes


def synchronize(program: Program) -> Program:
    """The program, loops unrolled, with the waits and signals its data dependences need; existing ones are replaced.

    This writes every semaphore out, for small programs and for the machine. `Program.derived` leaves them out;
    `columns` then places the same ones by the compiled form of this algorithm (native/synchronize.cpp).
    """
    buffers = program.buffers
    instructions = list(program.instructions())
    touches = [_touches(instruction) for instruction in instructions]
    written = {access.buffer for _, writes in touches for access in writes}
    writers: dict[str, _Records] = {}
    readers: dict[str, _Records] = {}
    counts: dict[str, int] = {}
    increments: dict[str, int] = {}
    # Per stream and index: what was known to be complete, {stream: index}, when that instruction completed.
    history: dict[str, list[dict[str, int]]] = {}
    known: dict[str, dict[str, int]] = {}  # per engine: what its next instruction knows to be complete
    result: list[Instruction] = []

    for instruction, (reads, writes) in zip(instructions, touches, strict=True):
        stream, engine = stream_of(instruction), instruction.engine
        indexed = instruction.get(str(instruction.get("index_side"))) if instruction.get("index") is not None else None
        raw: dict[str, int] = {}
        other: dict[str, int] = {}
        places: list[tuple[str, Region, Tensor | Tile, bool]] = []
        for accesses, writing in ((reads, False), (writes, True)):
            for access in accesses:
                buffer = buffers[access.buffer]
                # A tensor nobody writes needs no order; a tile may share its memory with one that is written.
                if not writing and access.buffer not in written and isinstance(buffer, Tensor):
                    continue
                space, region = _region(access, buffer)
                if access is indexed:  # which rows is not known: all of them
                    region = (0, 1 << 62, 0, 1 << 62)
                places.append((space, region, buffer, writing))
                if space in writers:
                    for s, i in writers[space].overlapping(region):
                        target = other if writing else raw
                        target[s] = max(target.get(s, 0), i)
                if writing and space in readers:
                    for s, i in readers[space].overlapping(region):
                        other[s] = max(other.get(s, 0), i)
        if not instruction.queue:
            other.pop(engine, None)  # in order anyway
            if engine == "Tensor":
                raw.pop(engine, None)  # matmuls accumulate in PSUM back to back
        needed = dict(raw)
        for s, i in other.items():
            needed[s] = max(needed.get(s, 0), i)

        knowledge = known.setdefault(engine, {})
        waits = []
        # Most recent first: its history may already imply the others.
        for s, i in sorted(needed.items(), key=lambda item: (-len(history[item[0]][item[1] - 1]), item[0])):
            if knowledge.get(s, 0) >= i:
                continue
            waits.append(Wait(s, i * increments[s]))
            knowledge[s] = i
            for other_stream, other_index in history[s][i - 1].items():
                if knowledge.get(other_stream, 0) < other_index:
                    knowledge[other_stream] = other_index
        index = counts[stream] = counts.get(stream, 0) + 1
        history.setdefault(stream, []).append(dict(knowledge))
        increment = increments[stream] = DMA_INCREMENT if instruction.queue else 1
        result.append(replace(instruction, waits=tuple(waits), signals=(Signal(stream, increment),)))

        for space, region, _, writing in places:
            if writing:
                for spaces in (writers, readers):
                    if space in spaces:
                        spaces[space].drop_covered(region)
        for space, region, buffer, writing in places:
            _records(writers if writing else readers, space, buffer).add(region, stream, index)
    return replace(program, body=tuple(result), derived=False)
