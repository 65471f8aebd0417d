"""`Writer`: writes a kernel in the instruction set, a line per instruction, and plays it against a target.

It adds to `ProgramBuilder` what every hand-written kernel needs: memory (a stack of SBUF with scopes, as NKI kernels
allocate it, so that reused addresses order their users), PSUM banks in turn, and the few access patterns that occur.
Programs are timed, never executed here, so constants that only a value needs (an identity, zeros) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from neuroncore.isa import Access, Program, ProgramBuilder, Tensor, Tile, synchronize
from neuroncore.isa.dtypes import DTYPE_BYTES
from neuroncore.targets import Target
from neuroncore.timing import simulate

__all__ = ["Ring", "SbufError", "Writer", "chunks", "steady_ns"]

#: Columns of fp32 in a PSUM bank.
BANK = 512


class SbufError(ValueError):
    """The kernel's buffers exceed the SBUF."""


def chunks(total: int, size: int) -> list[tuple[int, int]]:
    """(start, length) of the pieces of a range, the last one shorter."""
    return [(start, min(size, total - start)) for start in range(0, total, size)]


class Ring:
    """Buffers taken in turn: as many as may be in flight."""

    def __init__(self, tiles: Sequence[Tile]) -> None:
        self.tiles = tiles
        self._next = 0

    def take(self) -> Tile:
        """The next one."""
        tile = self.tiles[self._next % len(self.tiles)]
        self._next += 1
        return tile


class Writer:
    """A program under construction for one physical core of `target`."""

    def __init__(self, name: str, target: Target) -> None:
        self.target = target
        self.b = ProgramBuilder(name)
        self._top = 0
        self._names = 0
        self._limit = target.sbuf_bytes_per_partition

    # Memory

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def hbm(self, name: str, rows: int, columns: int, dtype: str, kind: str = "input") -> Tensor:
        """A tensor in HBM."""
        return self.b.tensor(self._name(name), (rows, columns), dtype, kind)

    def sbuf(self, columns: int, dtype: str, partitions: int = 128) -> Tile:
        """SBUF on top of the stack.

        Raises:
            SbufError: more than the core has.
        """
        size = -(-columns * DTYPE_BYTES[dtype] // 4) * 4
        tile = self.b.sbuf(self._name("t"), partitions, columns, dtype, self._top)
        self._top += size
        if self._top > self._limit:
            raise SbufError(f"{self.b.name}: {self._top} B of SBUF per partition, the core has {self._limit}")
        return tile

    def free_bytes(self) -> int:
        """What is left of a partition."""
        return self._limit - self._top

    def ring(self, count: int, columns: int, dtype: str, partitions: int = 128) -> Ring:
        """`count` equal buffers."""
        return Ring([self.sbuf(columns, dtype, partitions) for _ in range(max(1, count))])

    def banks(self, first: int = 0, count: int = 8, dtype: str = "fp32") -> Ring:
        """PSUM banks [first, first + count), in turn."""
        size = DTYPE_BYTES[dtype]
        return Ring([self.b.psum(self._name("b"), 128, 2048 // size, dtype, (first + i) * 2048) for i in range(count)])

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is allocated inside is free again afterwards."""
        top = self._top
        yield
        self._top = top

    # Instructions

    def emit(self, opcode: str, **operands: Any) -> None:
        """One instruction."""
        self.b.emit(opcode, **operands)

    def dma(self, dst: Access | Tile, src: Access | Tile, queue: str, engine: str = "Sync") -> None:
        """A transfer."""
        self.b.emit("dma_copy", dst=dst, src=src, queue=queue, engine=engine)

    def matmul(
        self, dst: Access | Tile, stationary: Access | Tile, moving: Access | Tile, *, first: bool, **modes: Any
    ) -> None:
        """One pass of the PE array."""
        self.b.emit("nc_matmul", dst=dst, stationary=stationary, moving=moving, accumulate=not first, **modes)

    def transpose(self, dst: Access | Tile, data: Access | Tile) -> None:
        """A transposition on the PE array."""
        self.b.emit("nc_transpose", dst=dst, data=data)

    def activate(self, dst: Access | Tile, data: Access | Tile, op: str, **operands: Any) -> None:
        """ScalarE."""
        self.b.emit("activation", dst=dst, data=data, op=op, **operands)

    def copy(self, dst: Access | Tile, data: Access | Tile, engine: str = "Vector") -> None:
        """A copy, on ScalarE by the identity function."""
        if engine == "Scalar" and self.target.neuroncore_version < 3:
            self.b.emit("activation", dst=dst, data=data, op="copy")
        else:
            self.b.emit("tensor_copy", dst=dst, data=data, engine=engine)

    def build(self) -> Program:
        """The program, its semaphores placed."""
        return synchronize(self.b.build())

    def time_ns(self) -> float:
        """What it takes."""
        return simulate(self.build(), self.target).program_ns


def steady_ns(time_ns: Callable[[int], float], count: int, *, first: int = 2, second: int = 4) -> float:
    """Time of a kernel whose outer loop runs `count` times.

    A loop that runs longer than `second` iterations is played for `first` and for `second` of them and continued at
    the pace in between: once the buffers are full, every iteration takes the same.
    """
    if count <= second:
        return time_ns(count)
    short, long = time_ns(first), time_ns(second)
    return long + (count - second) * (long - short) / (second - first)
