"""The program: HBM tensors, on-chip tiles, and instructions tied together by semaphores. Everything is immutable.

A program's `body` is one list in program order. Each engine executes its own instructions in that order; between
engines only semaphores order anything. A DMA instruction is triggered by an engine (which waits for its `waits`
first) and runs on its `queue`; its `signals` are raised when the data have arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from neuroncore.isa.dtypes import DTYPE_BYTES

__all__ = [
    "ENGINES",
    "Access",
    "Instruction",
    "Loop",
    "Operand",
    "Program",
    "Signal",
    "Tensor",
    "Tile",
    "Value",
    "Wait",
]

#: The five instruction streams of a NeuronCore, named as in the profile files.
ENGINES = ("Tensor", "Vector", "Scalar", "GpSimd", "Sync")

#: A plain attribute of an instruction.
Value = None | bool | int | float | str | tuple["Value", ...]

#: (stride, size) pairs, outermost first; strides in elements of the access's dtype.
FreePattern = tuple[tuple[int, int], ...]

#: Affine terms added per enclosing loop: (loop name, step).
Steps = tuple[tuple[str, int], ...]


def _dense(sizes: tuple[int, ...]) -> FreePattern:
    """The row-major pattern of `sizes`."""
    pattern: list[tuple[int, int]] = []
    stride = 1
    for size in reversed(sizes):
        pattern.append((stride, size))
        stride *= size
    return tuple(reversed(pattern))


@dataclass(frozen=True, slots=True)
class Access:
    """An access pattern: which elements of a tile or tensor an instruction touches, and as what dtype.

    Element (p, i, j, …) lies, for a tile, in partition `start_partition + p` at element `offset + i*stride_i +
    j*stride_j + …`; for an HBM tensor at element `offset + p*partition_stride + i*stride_i + …` of its storage. A
    stride of 0 broadcasts.

    Attributes:
        buffer: name of the tile or tensor.
        dtype: element type of this view.
        partitions: number of partitions (rows for HBM), 1..128.
        free: up to 4 (stride, size) pairs in elements, outermost first.
        offset: first element.
        start_partition: first partition, tiles only.
        partition_stride: elements between rows, HBM tensors only.
        steps: per enclosing loop, elements added to `offset` each iteration.
    """

    buffer: str
    dtype: str
    partitions: int
    free: FreePattern
    offset: int = 0
    start_partition: int = 0
    partition_stride: int = 0
    steps: Steps = ()

    @property
    def free_elements(self) -> int:
        """Elements per partition."""
        count = 1
        for _, size in self.free:
            count *= size
        return count

    @property
    def elements(self) -> int:
        """Elements in all partitions."""
        return self.partitions * self.free_elements

    @property
    def bytes(self) -> int:
        """Bytes touched, broadcasts counted each time they are read."""
        return self.elements * DTYPE_BYTES[self.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """(partitions, size, size, …)."""
        return (self.partitions, *(size for _, size in self.free))

    def span(self) -> tuple[int, int]:
        """First and one-past-last element touched in a partition (tile) or in the storage (HBM), loops aside."""
        low = high = self.offset
        for stride, size in self.free:
            reach = stride * (size - 1)
            if reach < 0:
                low += reach
            else:
                high += reach
        reach = self.partition_stride * (self.partitions - 1)
        return (low + min(reach, 0), high + max(reach, 0) + 1)

    def cast(self, dtype: str) -> Access:
        """The same elements seen as another dtype of the same size (a bit cast)."""
        return replace(self, dtype=dtype)


@dataclass(frozen=True, slots=True)
class Tensor:
    """An HBM tensor: the program's inputs, outputs and temporaries.

    `shape` is what the host sees, dense and row-major; accesses address its storage linearly.
    `kind` is "input", "output", "inout" (an input written back in place) or "temporary".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * DTYPE_BYTES[self.dtype]

    def access(
        self,
        partitions: int,
        free: FreePattern,
        *,
        offset: int = 0,
        partition_stride: int = 0,
        dtype: str | None = None,
        steps: Steps = (),
    ) -> Access:
        """A strided view: `partitions` rows, `partition_stride` elements apart, each with pattern `free`."""
        return Access(self.name, dtype or self.dtype, partitions, free, offset, 0, partition_stride, steps)

    def rows(self, start: int, count: int, columns: tuple[int, int] | None = None) -> Access:
        """Rows `start … start+count` of the tensor as 2-D (last dimension = columns), or columns [a, b) of them."""
        width = self.shape[-1] if self.shape else 1
        first, last = columns or (0, width)
        return Access(self.name, self.dtype, count, ((1, last - first),), start * width + first, 0, width)


@dataclass(frozen=True, slots=True)
class Tile:
    """An SBUF or PSUM tile: `partitions` rows of `free_bytes` bytes at the same byte `address` of every partition.

    `address` is None until the allocator assigned it. In PSUM, a bank is 2 KiB of each partition: address // 2048.
    `dtype` is the default dtype of its accesses.
    """

    name: str
    memory: str
    partitions: int
    free_bytes: int
    dtype: str
    address: int | None = None
    start_partition: int = 0

    @property
    def free_elements(self) -> int:
        """Elements of the tile's own dtype per partition."""
        return self.free_bytes // DTYPE_BYTES[self.dtype]

    def access(
        self,
        partitions: tuple[int, int] | None = None,
        free: FreePattern | None = None,
        *,
        offset: int = 0,
        dtype: str | None = None,
        steps: Steps = (),
    ) -> Access:
        """A view of the tile: partitions [start, stop) relative to the tile, pattern `free` (default: all, dense)."""
        start, stop = partitions or (0, self.partitions)
        dtype = dtype or self.dtype
        if free is None:
            free = ((1, self.free_bytes // DTYPE_BYTES[dtype] - offset),)
        return Access(self.name, dtype, stop - start, free, offset, start, 0, steps)

    def columns(self, start: int, stop: int, partitions: tuple[int, int] | None = None) -> Access:
        """Columns [start, stop) of the tile."""
        return self.access(partitions, ((1, stop - start),), offset=start)

    def view(self, *sizes: int) -> Access:
        """The tile's first elements as a dense free shape `sizes`, all partitions."""
        return self.access(None, _dense(sizes))


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until semaphore `semaphore` is at least `value` (+ affine loop terms)."""

    semaphore: str
    value: int
    steps: Steps = ()


@dataclass(frozen=True, slots=True)
class Signal:
    """Add `increment` to `semaphore` when the result is visible."""

    semaphore: str
    increment: int = 1


Operand = Access | Value


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: nki.isa name.
        engine: stream that executes it, or triggers it when it is a DMA.
        operands: (name, access pattern or plain value) in the order of its declaration.
        waits, signals: semaphores.
        queue: DMA queue name, empty for compute instructions.
        op: ATen op it implements ("aten.mul.Tensor"), for the profile.
        source: "file.py:line" of the user's call, for the profile. Equality ignores both: they do not execute.
    """

    opcode: str
    engine: str
    operands: tuple[tuple[str, Operand], ...]
    waits: tuple[Wait, ...] = ()
    signals: tuple[Signal, ...] = ()
    queue: str = ""
    op: str = field(default="", compare=False)
    source: str = field(default="", compare=False)

    def get(self, name: str, default: Operand = None) -> Operand:
        """The operand or attribute called `name`."""
        for key, value in self.operands:
            if key == name:
                return value
        return default

    def accesses(self) -> Iterator[tuple[str, Access]]:
        """The operands that are access patterns."""
        for key, value in self.operands:
            if isinstance(value, Access):
                yield key, value


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` executed `count` times; accesses and waits whose `steps` name this loop advance each iteration."""

    name: str
    count: int
    body: tuple[Instruction | Loop, ...]

    def text(self) -> Iterator[Instruction]:
        """The instructions as written, each once."""
        return _text(self.body)


@dataclass(frozen=True)
class Program:
    """A complete program for one NeuronCore.

    Attributes:
        name: what it computes.
        tensors, tiles: its buffers.
        body: instructions and loops.
        derived: the waits and signals are not written out: they are those `synchronize` places on the unrolled
            program, which follow from the data dependences alone. The waits of a loop's iterations are rarely affine in
            its index, so this is how rolled programs stay short.
    """

    name: str
    tensors: tuple[Tensor, ...]
    tiles: tuple[Tile, ...]
    body: tuple[Instruction | Loop, ...]
    derived: bool = False

    def tensor(self, name: str) -> Tensor:
        """The HBM tensor called `name`; KeyError if there is none."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def tile(self, name: str) -> Tile:
        """The tile called `name`; KeyError if there is none."""
        for tile in self.tiles:
            if tile.name == name:
                return tile
        raise KeyError(name)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors the host provides, in declaration order."""
        return tuple(t for t in self.tensors if t.kind in ("input", "inout"))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors the host reads back, in declaration order."""
        return tuple(t for t in self.tensors if t.kind in ("output", "inout"))

    @property
    def buffers(self) -> dict[str, Tensor | Tile]:
        """Tensors and tiles by name."""
        buffers: dict[str, Tensor | Tile] = {t.name: t for t in self.tensors}
        buffers.update({t.name: t for t in self.tiles})
        return buffers

    def with_addresses(self, addresses: Mapping[str, int]) -> Program:
        """The program with tile addresses (bytes within a partition) assigned."""
        return replace(
            self, tiles=tuple(replace(t, address=addresses[t.name]) if t.name in addresses else t for t in self.tiles)
        )

    def text(self) -> Iterator[Instruction]:
        """The instructions as written, those of loops once."""
        return _text(self.body)

    def counts(self) -> Iterator[tuple[Instruction, int]]:
        """The instructions as written, each with how many times it is executed."""
        return _counts(self.body, 1)

    @property
    def executed(self) -> int:
        """Number of executed instructions."""
        return sum(times for _, times in self.counts())

    def expand(self) -> Program:
        """The same program without loops; derived semaphores stay derived."""
        if not any(isinstance(item, Loop) for item in self.body):
            return self
        return replace(self, body=tuple(self.instructions()))

    def instructions(self) -> Iterator[Instruction]:
        """Every executed instruction in program order, loops unrolled and affine terms applied.

        Derived semaphores are not placed: see `synchronize` and `columns`.
        """
        return _unroll(self.body, {})


def _text(body: tuple[Instruction | Loop, ...]) -> Iterator[Instruction]:
    for item in body:
        if isinstance(item, Loop):
            yield from _text(item.body)
        else:
            yield item


def _counts(body: tuple[Instruction | Loop, ...], times: int) -> Iterator[tuple[Instruction, int]]:
    for item in body:
        if isinstance(item, Loop):
            yield from _counts(item.body, times * item.count)
        else:
            yield item, times


def _unroll(body: tuple[Instruction | Loop, ...], indices: dict[str, int]) -> Iterator[Instruction]:
    for item in body:
        if isinstance(item, Loop):
            for i in range(item.count):
                yield from _unroll(item.body, {**indices, item.name: i})
        elif indices:
            yield _at(item, indices)
        else:
            yield item


def _at(instruction: Instruction, indices: dict[str, int]) -> Instruction:
    """The instruction in iteration `indices` of its loops."""
    operands = tuple(
        (
            name,
            replace(v, offset=v.offset + _advance(v.steps, indices), steps=())
            if isinstance(v, Access) and v.steps
            else v,
        )
        for name, v in instruction.operands
    )
    waits = tuple(Wait(w.semaphore, w.value + _advance(w.steps, indices)) if w.steps else w for w in instruction.waits)
    return replace(instruction, operands=operands, waits=waits)


def _advance(steps: Steps, indices: dict[str, int]) -> int:
    return sum(step * indices[name] for name, step in steps)
