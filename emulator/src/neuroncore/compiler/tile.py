"""From kernels to instructions on tiles: every kernel becomes a list of iterations over named slots.

The result still has tiles without addresses and instructions without semaphores. Slots named `<kernel>_<value>_<n>`
are the double buffers: iteration i uses slot i modulo their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from neuroncore.compiler.attend_forward import tile_attend
from neuroncore.compiler.attend_gradient import tile_attend_gradient
from neuroncore.compiler.convolve import tile_convolve
from neuroncore.compiler.fuse import Kernel, Kernels
from neuroncore.compiler.hbm import Piece
from neuroncore.compiler.ir import writes
from neuroncore.compiler.moves import tile_estimate, tile_fold, tile_gather, tile_move, tile_scatter
from neuroncore.compiler.pool import tile_pool
from neuroncore.compiler.product import tile_product
from neuroncore.compiler.rolled import Item, Rolled, is_round, roll, written
from neuroncore.compiler.rows import tile_rows
from neuroncore.compiler.scan import tile_scan
from neuroncore.compiler.topk import tile_topk
from neuroncore.compiler.turn import tile_turn
from neuroncore.isa import Access, Instruction, Loop, ProgramBuilder, Tensor, Tile
from neuroncore.targets import Target

__all__ = ["Block", "Tiled", "Tiler", "tile"]

#: More written instructions than this and the kernel becomes an estimate, so that no graph takes minutes to compile.
INSTRUCTION_LIMIT = 500_000
#: Tiles of one size between what makes values at the first partition and the DMA that moves them.
_STAGINGS = 4
#: A loop of fewer rounds is written out.
_ROUNDS = 4


@dataclass(frozen=True)
class Block:
    """The instructions of one kernel: once before, then iterations and loops of them."""

    kernel: str
    prologue: tuple[Instruction, ...]
    iterations: tuple[Item, ...]


@dataclass(frozen=True)
class Estimated:
    """A kernel that has no instructions: its cost as an estimate."""

    op: str
    reason: str
    duration_ns: int
    bytes_read: int
    bytes_written: int
    flops: int
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Tiled:
    """A program in pieces: tensors, tiles by kernel, and blocks or estimates in execution order."""

    name: str
    tensors: tuple[Tensor, ...]
    tiles: tuple[tuple[Tile, ...], ...]
    blocks: tuple[Block | Estimated, ...]


class NotTiled(Exception):  # noqa: N818  (a control-flow signal inside the compiler, not an error)
    """A kernel becomes an estimate; the message says why."""


class _NotAffineError(Exception):
    """A loop's last round is not what its first rounds promised."""


class Tiler:
    """What kernel tilers write to. With `unrolled`, `rolled` writes every round out: the same program, longer."""

    def __init__(self, kernels: Kernels, target: Target, *, unrolled: bool = False) -> None:
        self.kernels, self.target = kernels, target
        self._unrolled = unrolled
        self.builder = ProgramBuilder(kernels.name)
        self.blocks: list[Block | Estimated] = []
        self.tiles: list[dict[str, Tile]] = []
        self.stage = -1
        self._kernels = 0
        self._count = 0
        self._stagings = 0
        self._prologue: list[Instruction] = []
        self._iterations: list[Item] = []
        self._loops = 0
        self._current: list[tuple[Instruction | Loop, int]] = []
        self._tensors = self._declare()

    def _declare(self) -> dict[int, Tensor]:
        written = {w.buffer for k in self.kernels.kernels for p in k.prims for w in writes(p)}
        tensors: dict[int, Tensor] = {}
        for number, buffer in enumerate(self.kernels.buffers):
            if buffer.made or (buffer.kind == "temp" and number not in self.kernels.kept):
                continue
            kind = {"input": "inout" if number in written else "input", "output": "output", "temp": "temporary"}[
                buffer.kind
            ]
            tensors[number] = self.builder.tensor(buffer.name, (buffer.elements,), buffer.dtype, kind)
        return tensors

    def tensor(self, buffer: int) -> Tensor:
        """The HBM tensor of a buffer."""
        return self._tensors[buffer]

    def new_kernel(self) -> str:
        """A prefix for the names of a kernel's tiles; a kernel may have several parts."""
        self._kernels += 1
        return f"k{self._kernels - 1}"

    def sbuf(self, name: str, partitions: int, columns: int, dtype: str) -> Tile:
        """A tile of the current kernel, declared at first use."""
        tiles = self.tiles[-1]
        if name not in tiles:
            tiles[name] = self.builder.sbuf(name, partitions, columns, dtype)
        return tiles[name]

    def psum(self, name: str, partitions: int, columns: int, dtype: str = "fp32") -> Tile:
        """A PSUM tile of the current kernel, declared at first use."""
        tiles = self.tiles[-1]
        if name not in tiles:
            tiles[name] = self.builder.psum(name, partitions, columns, dtype)
        return tiles[name]

    def emit(self, opcode: str, **operands: object) -> None:
        """Append an instruction to the current iteration."""
        self._count += 1
        if self._count > INSTRUCTION_LIMIT:
            raise NotTiled(f"more than {INSTRUCTION_LIMIT} instructions")
        self._current.append((self.builder.emit(opcode, **operands), self.stage))  # type: ignore[arg-type]

    def load(self, dst: Access, src: Access) -> None:
        """HBM to SBUF, triggered by the otherwise idle Sync engine."""
        self.emit("dma_copy", engine="Sync", dst=dst, src=src)

    def fetch(self, buffer: int, dst: Access, piece: Piece) -> None:
        """Put a piece of a buffer into a tile: a load, or for one without memory the instruction that makes it."""
        kind = self.kernels.buffers[buffer].kind
        if kind == "iota":
            to = dst
            if not _may_start(dst):  # engines write from certain partitions only, a DMA to any
                to = self._staged(dst.partitions, dst.free_elements, "int32")
            self.emit("iota", dst=to, pattern=piece.free, offset=piece.offset, channel_multiplier=piece.row_stride)
            if to is not dst:
                self.load(dst, to)
        elif kind == "random":
            self.emit("rng", dst=dst, engine="GpSimd")  # Vector has to compare them
        else:
            self.load(
                dst,
                self.tensor(buffer).access(
                    piece.rows, piece.free, offset=piece.offset, partition_stride=piece.row_stride
                ),
            )

    def _staged(self, partitions: int, columns: int, dtype: str) -> Access:
        """Room for what is made at the first partition and then moved; a few take turns."""
        self._stagings += 1
        name = f"staged_{len(self.tiles)}_{columns}_{self._stagings % _STAGINGS}"
        tile = self.sbuf(name, self.target.partitions, columns, dtype)
        return tile.access((0, partitions), ((1, columns),))

    def store(self, dst: Access, src: Access) -> None:
        """SBUF to HBM, on a queue of its own so that it never delays a load."""
        self.emit("dma_copy", engine="Scalar", dst=dst, src=src)

    @property
    def emitted(self) -> int:
        """Instructions and loops of the current iteration so far."""
        return len(self._current)

    def since(self, count: int) -> Iterator[Instruction]:
        """The instructions that the current iteration got after its first `count`, as written."""
        return (instruction for instruction, _ in written(self._current[count:]))

    @property
    def on_chip(self) -> frozenset[str]:
        """Names of the current kernel's tiles."""
        return frozenset(self.tiles[-1])

    @contextmanager
    def iteration(self, *, prologue: bool = False) -> Iterator[None]:
        """Instructions emitted inside form one iteration (or the prologue) of the current kernel."""
        self._current = []
        yield
        if prologue:
            self._prologue += [i for i, _ in written(self._current)]
        elif self._current:
            self._iterations.append(tuple(self._current))

    def drain(self) -> None:
        """Let the pipeline of the current kernel run one step without new work."""
        self._iterations.append(())

    def rolled(self, count: int, period: int = 1) -> Iterator[int]:
        """Indices 0 .. count-1 of a loop; yields only those whose body must be emitted, the others become a `Rolled`.

        Every round of `period` indices must emit what the round before did, all accesses advanced by constants. The
        caller sees to it: slots, engine choices and the like are functions of the index modulo the period, and every
        layout it walks has one stride over the loop (`hbm.row_loops`). First, second and last round are emitted and
        compared; when they tell otherwise the kernel is written out.

        Args:
            count: indices.
            period: indices in a round; those left over are emitted at the end.
        """
        rounds = count // period
        if self._unrolled or rounds < _ROUNDS:
            yield from range(count)
            return
        emitted: list[list[Item]] = []
        start = len(self._iterations)
        for number in (0, 1, rounds - 1):
            del self._iterations[start:]
            yield from range(number * period, (number + 1) * period)
            emitted.append(self._iterations[start:])
        del self._iterations[start:]
        loop = self._roll(emitted, rounds)
        if loop.items:
            self._iterations.append(loop)
        yield from range(rounds * period, count)

    def repeated(self, count: int) -> Iterator[int]:
        """As `rolled` with a period of 1, for a loop within an iteration; its instructions have one stage."""
        if self._unrolled or count < _ROUNDS:
            yield from range(count)
            return
        emitted: list[list[Item]] = []
        start = len(self._current)
        for number in (0, 1, count - 1):
            del self._current[start:]
            yield number
            emitted.append([tuple(self._current[start:])])
        del self._current[start:]
        loop = self._roll(emitted, count)
        (items,) = loop.items
        assert not isinstance(items, Rolled)
        self._current.append((Loop(loop.name, count, tuple(i for i, _ in items)), self.stage))

    def _roll(self, emitted: list[list[Item]], rounds: int) -> Rolled:
        """The loop of which the first, second and last round are given."""
        self._loops += 1
        loop = roll(f"i{self._loops}", emitted[0], emitted[1], rounds)
        if loop is None or not is_round(loop, rounds - 1, emitted[2]):
            raise _NotAffineError
        return loop

    def run(self) -> Tiled:
        """Tile every kernel."""
        for kernel in self.kernels.kernels:
            self._kernel(kernel)
        tensors = tuple(self._tensors.values())
        return Tiled(self.kernels.name, tensors, tuple(tuple(t.values()) for t in self.tiles), tuple(self.blocks))

    def _kernel(self, kernel: Kernel) -> None:
        self.tiles.append({})
        self._prologue, self._iterations, self._loops = [], [], 0
        started, prefixes = self._count, self._kernels
        try:
            try:
                self._body(kernel)
            except _NotAffineError:
                self._forget(started, prefixes)
                self._unrolled = True
                try:
                    self._body(kernel)
                finally:
                    self._unrolled = False
        except NotTiled as reason:
            self._forget(started, prefixes)
            self.blocks.append(tile_estimate(self, kernel, str(reason)))
            return
        if self._prologue or self._iterations:
            self.blocks.append(Block(kernel.kind, tuple(self._prologue), tuple(self._iterations)))
        else:
            self.tiles.pop()

    def _forget(self, count: int, kernels: int) -> None:
        """Start the current kernel anew."""
        self._count, self._kernels, self.stage = count, kernels, -1
        self._prologue, self._iterations, self._loops = [], [], 0
        for name in self.tiles[-1]:
            self.builder.undeclare(name)
        self.tiles[-1] = {}

    def _body(self, kernel: Kernel) -> None:
        if not any(w.elements for p in kernel.prims for w in writes(p)):
            return
        if kernel.kind == "estimate":
            raise NotTiled("no lowering")  # the primitive says which
        {"rows": tile_rows, "product": tile_product, "move": tile_move, "fold": tile_fold, "gather": tile_gather,
         "turn": tile_turn, "scatter": tile_scatter, "convolve": tile_convolve,
         "attend": tile_attend, "attend_gradient": tile_attend_gradient,
         "topk": tile_topk, "scan": tile_scan, "pool": tile_pool}[kernel.kind](self, kernel)  # fmt: skip


def _may_start(access: Access) -> bool:
    """Whether an engine may write from the partition an access starts at (reference/hw/compile_rules.md section 3)."""
    step = 32 if access.partitions <= 32 else 64 if access.partitions <= 64 else 128
    return access.start_partition % step == 0


def tile(kernels: Kernels, target: Target) -> Tiled:
    """Instructions on tiles for every kernel."""
    return Tiler(kernels, target).run()
