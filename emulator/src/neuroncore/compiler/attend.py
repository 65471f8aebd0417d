"""Tiling attention: scores stay on chip, a running maximum and sum make the softmax, hidden tiles are skipped.

For 128 queries at a time, block by block of keys: scores into PSUM, their row maximum, exponentials with their row sum
(one activation), a transposition of the weights on TensorE, and their product with the values. What earlier blocks gave
is scaled by exp(old maximum - new maximum). So TensorE makes three passes (reference/hw/compile_rules.md section 10)
while Vector and Scalar share maxima, exponentials and evictions.

Rows of q, k and v are loaded several to a partition, because a row of one head is too short for a DMA at full speed:
partition p holds rows p*packed ... p*packed + packed-1, a tile those with the same remainder. The order of keys does
not matter to attention as long as k, v and the mask agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuroncore.compiler.ir import Attend, AttendGradient
from neuroncore.compiler.select import chip_dtype
from neuroncore.compiler.views import View
from neuroncore.graph import DTYPE_BYTES
from neuroncore.isa import Access, Tile

if TYPE_CHECKING:
    from neuroncore.compiler.fuse import Kernel
    from neuroncore.compiler.tile import Tiler

__all__ = ["Attention", "Rows", "fits", "tile_attend"]

_SIDE = 128
_MOVING = 512
#: Keys per step of the running softmax, and blocks of scores in PSUM: two banks, twice.
_BLOCK = 1024
_SLOTS = 2
#: Bytes that make a row worth its DMA descriptor.
_ROW_BYTES = 2048
#: Stands for minus infinity: finite, so that no difference of two is undefined.
_HIDDEN = -3.0e38
#: The running maximum starts here, so that a row without visible keys gets weights of zero.
_LOWEST = -1.0e38
#: Columns of row statistics collected before their logarithm is taken: a function table load is 1.3 us.
_COLUMNS = 1024
#: SBUF bytes per partition for what is not keys and values.
_WORK_BYTES = 64 * 1024

#: In which tick after it began a step does its next phase, in issue order (see `overlap`). What an engine does next is
#: ready when it comes to it: Vector takes a block's maximum, Scalar evicts an earlier block meanwhile, and TensorE
#: makes the next block's scores as soon as exponentials have freed their banks.
_DELAYS: tuple[int, ...] = (0, 2, 5, 2, 2, 6, 1)


def fits(sbuf_bytes: int, keys: int, width: int, values: int, size: int) -> bool:
    """Whether keys and values of one head fit SBUF beside the tiles they are worked on with."""
    return (
        values <= _MOVING
        and width <= 2 * _MOVING
        and _head_bytes(keys, width, values, size) <= sbuf_bytes - _WORK_BYTES
    )


def _head_bytes(keys: int, width: int, values: int, size: int) -> int:
    return (-(-width // _SIDE) * keys + -(-keys // _SIDE) * values) * size


@dataclass(frozen=True)
class Rows:
    """A tile of a sequence: its row p is row `start + p * step`. `step` such tiles, a group, share partitions."""

    start: int
    step: int
    parts: int
    group: int
    place: int

    @property
    def last(self) -> int:
        """The largest row."""
        return self.start + self.step * (self.parts - 1)

    @property
    def column(self) -> int:
        """Rows of its group before it, where tiles lie side by side."""
        return self.place * self.parts


def _tiles(length: int, packed: int) -> list[Rows]:
    """A sequence as tiles, in groups whose rows share partitions."""
    tiles: list[Rows] = []
    start = group = 0
    while start < length:
        step = packed
        while step > 1 and length - start < step * _SIDE:
            step //= 2
        parts = min(_SIDE, length - start)
        tiles += [Rows(start + place, step, parts, group, place) for place in range(step)]
        start += step * parts
        group += 1
    return tiles


class Attention:
    """What attention and its gradient share: loading, turning, masks and evictions."""

    def __init__(self, tiler: Tiler, prim: Attend | AttendGradient) -> None:
        self.tiler, self.prim = tiler, prim
        self.prefix = tiler.new_kernel()
        self.dtype = chip_dtype(tiler.kernels.buffers[prim.q.buffer].dtype)
        self.size = DTYPE_BYTES[self.dtype]
        self.width, self.keys, self.values = prim.q.shape[3], prim.k.shape[2], prim.v.shape[3]
        self.depths = range(-(-self.width // _SIDE))
        packed = self._packed(self.keys, bool(prim.bias is not None))
        self.key_tiles = _tiles(self.keys, packed)
        self.query_tiles = _tiles(prim.q.shape[2], self._packed(prim.q.shape[2], False))
        self.bank = 0
        self.load_ns = {"Vector": 0.0, "Scalar": 0.0}
        self.masks: dict[tuple[int, int, int], Tile] = {}

    def _packed(self, length: int, natural: bool) -> int:
        """Rows per partition: enough for full DMA speed; a causal mask skips whole groups, so they stay small."""
        packed = 1
        least = 8 if self.prim.causal else 1
        while not natural and 2 * packed * _SIDE * least <= length and packed < (4 if self.prim.causal else 8):
            if packed * self.width * self.size >= _ROW_BYTES:
                break
            packed *= 2
        return packed

    # -- memory --------------------------------------------------------------------------------------------------------

    def sbuf(self, name: str, columns: int, dtype: str | None = None) -> Tile:
        """A tile over all partitions."""
        return self.tiler.sbuf(f"{self.prefix}_{name}", _SIDE, columns, dtype or self.dtype)

    def known(self, name: str) -> Tile:
        """A tile declared before."""
        return self.tiler.tiles[-1][f"{self.prefix}_{name}"]

    def group(self, view: View, batch: int, head: int, rows: Rows) -> Access:
        """The rows of a group in HBM, `step` of them to a partition."""
        stride = view.strides[2]
        free: tuple[tuple[int, int], ...] = ((stride, rows.step), (1, view.shape[3]))
        if rows.step == 1 or stride == view.shape[3]:
            free = ((1, rows.step * view.shape[3]),)
        offset = view.offset + batch * view.strides[0] + head * view.strides[1] + (rows.start - rows.place) * stride
        return self.tiler.tensor(view.buffer).access(
            rows.parts, free, offset=offset, partition_stride=rows.step * stride
        )

    def load_group(self, tile: Tile, view: View, batch: int, head: int, rows: Rows, offset: int = 0) -> None:
        """Load a group of rows."""
        to = tile.access((0, rows.parts), ((1, rows.step * view.shape[3]),), offset=offset)
        self.tiler.load(to, self.group(view, batch, head, rows))

    # -- engines -------------------------------------------------------------------------------------------------------

    def busy(self, engine: str, cycles: float) -> None:
        """Book work, so that evictions go where there is less."""
        self.load_ns[engine] += max(64.0, cycles) / self.tiler.target.clock_hz(engine) * 1e9

    def evict(self, dst: Access, data: Access, scale: Access | None = None) -> None:
        """PSUM to SBUF, times a number per row, on whichever of Vector and Scalar has less to do."""
        width = data.free_elements
        fast = (
            2.0 if self.tiler.target.neuroncore_version >= 3 and data.dtype != "fp32" and dst.dtype != "fp32" else 1.0
        )
        cycles = {"Vector": width / fast, "Scalar": float(width)}
        clock = self.tiler.target.clock_hz
        engine = min(cycles, key=lambda e: (self.load_ns[e] + max(64.0, cycles[e]) / clock(e) * 1e9, e == "Scalar"))
        self.busy(engine, cycles[engine])
        factor = {} if scale is None else {"scale": scale}
        if engine == "Scalar":
            self.tiler.emit("activation", dst=dst, data=data, op="copy", **factor)
        elif scale is None:
            self.tiler.emit("tensor_copy", dst=dst, data=data, engine="Vector")
        else:
            self.tiler.emit("tensor_scalar", dst=dst, data=data, op0="multiply", operand0=scale, engine="Vector")

    def turn(self, blocks: list[tuple[Access, Access]], name: str, banks: int) -> None:
        """Transpose (data, destination) blocks; equal ones that lie at equal distances share a bank and an eviction."""
        room = min(4, 2048 // self.size // _SIDE)
        while blocks:
            count = 1
            while count < min(room, len(blocks)) and _follows(blocks, count):
                count += 1
            bank = self.tiler.psum(f"{self.prefix}_{name}_{self.bank % banks}", _SIDE, room * _SIDE, self.dtype)
            self.bank += 1
            parts, across = blocks[0][0].free_elements, blocks[0][0].partitions
            for number, (data, _) in enumerate(blocks[:count]):
                to = bank.access((0, parts), ((1, across),), offset=number * across)
                self.tiler.emit("nc_transpose", dst=to, data=data, engine="Tensor")
            first, stride = blocks[0][1], blocks[1][1].offset - blocks[0][1].offset if count > 1 else across
            free = ((1, count * across),) if stride == across else ((stride, count), (1, across))
            self.evict(replace(first, free=free), bank.access((0, parts), ((1, count * across),)))
            blocks = blocks[count:]

    def turn_rows(self, tile: Tile, rows: Rows, name: str, columns: int) -> None:
        """Turn a loaded group: tile number t of it becomes columns t*parts ... of `name`_<depth>, `columns` wide."""
        blocks = []
        for depth in self.depths:
            deep = min(_SIDE, self.width - depth * _SIDE)
            turned = self.sbuf(f"{name}_{depth}", columns)
            for place in range(rows.step):
                data = tile.access((0, rows.parts), ((1, deep),), offset=place * self.width + depth * _SIDE)
                blocks.append((data, turned.access((0, deep), ((1, rows.parts),), offset=place * rows.parts)))
        self.turn(blocks, "load", 1)

    def matmul(self, dst: Access, stationary: Access, moving: Access, *, accumulate: bool) -> None:
        """A product: dst (+)= stationary.T @ moving."""
        self.tiler.emit("nc_matmul", dst=dst, stationary=stationary, moving=moving, accumulate=accumulate)

    def scores(self, dst: Tile, queries: Rows, query_name: str, block: list[Rows], key_name: str) -> None:
        """Put queries . keys of a block into dst; the turned operands are `<name>_<depth>`, keys by group."""
        runs: list[list[Rows]] = []
        column = 0
        for rows in block:  # neighbours of a group in one PSUM bank make one product
            joins = runs and runs[-1][0].group == rows.group and column % _MOVING
            if joins and column // _MOVING == (column + rows.parts - 1) // _MOVING:
                runs[-1].append(rows)
            else:
                runs.append([rows])
            column += rows.parts
        column = 0
        for run in runs:
            width = sum(rows.parts for rows in run)
            for piece in _bank_pieces(column, width):
                for depth in self.depths:
                    deep = min(_SIDE, self.width - depth * _SIDE)
                    keys = self.known(f"{key_name}_{run[0].group}_{depth}")
                    turned = self.known(f"{query_name}_{depth}")
                    self.matmul(
                        dst.access((0, queries.parts), ((1, piece[1]),), offset=piece[0]),
                        turned.access((0, deep), ((1, queries.parts),), offset=queries.column),
                        keys.access((0, deep), ((1, piece[1]),), offset=run[0].column + piece[0] - column),
                        accumulate=depth > 0,
                    )
            column += width

    # -- causal masks --------------------------------------------------------------------------------------------------

    def visible(self, queries: Rows) -> list[Rows]:
        """The key tiles some query of a tile may see: with a causal mask those that do not begin behind it."""
        if not self.prim.causal:
            return self.key_tiles
        last = max(n for n, rows in enumerate(self.key_tiles) if rows.start <= queries.last)
        return self.key_tiles[: last + 1]

    def blocks(self, queries: Rows, most: int) -> list[list[Rows]]:
        """The visible key tiles in blocks of at most `most` keys."""
        found: list[list[Rows]] = []
        room = 0
        for rows in self.visible(queries):
            if rows.parts > room:
                found.append([])
                room = most
            found[-1].append(rows)
            room -= rows.parts
        return found

    def partly_hidden(self, queries: Rows, keys: Rows) -> bool:
        """Whether a causal mask hides some of a tile."""
        return self.prim.causal and keys.last > queries.start

    def mask(self, queries: Rows, keys: Rows) -> Tile:
        """0 where query p sees key c, else a number that hides it; made once per relative position."""
        key = (queries.start - keys.start, queries.step, keys.step)
        if key not in self.masks:
            tile = self.sbuf(f"mask{len(self.masks)}", _SIDE, "bf16")
            self.tiler.emit(
                "affine_select", dst=tile.access(), data=self.known("zeros").access(),
                pattern=((-keys.step, _SIDE),), offset=key[0], channel_multiplier=queries.step, on_false_value=_HIDDEN,
            )  # fmt: skip
            self.masks[key] = tile
        return self.masks[key]

    def make_masks(self) -> None:
        """All masks this kernel needs, before its first iteration, and the identity that puts them into PSUM."""
        pairs = [(q, k) for q in self.query_tiles for k in self.visible(q) if self.partly_hidden(q, k)]
        if not pairs:
            return
        zeros, identity = self.sbuf("zeros", _SIDE, "bf16"), self.sbuf("identity", _SIDE, "bf16")
        self.tiler.emit("memset", dst=zeros.access(), value=0.0, engine="GpSimd")
        self.tiler.emit(
            "affine_select", dst=identity.access(), data=zeros.access(), pattern=((-1, _SIDE),),
            channel_multiplier=1, on_false_value=1.0, cmp_op="not_equal",
        )  # fmt: skip
        for queries, keys in pairs:
            self.mask(queries, keys)

    def hide(self, scores: Tile, queries: Rows, block: list[Rows]) -> None:
        """Add the causal mask to the scores of a block: a product with the identity, for TensorE has most time."""
        column = 0
        for keys in block:
            column += keys.parts
            if self.partly_hidden(queries, keys):
                self.matmul(
                    scores.access((0, queries.parts), ((1, keys.parts),), offset=column - keys.parts),
                    self.known("identity").access((0, queries.parts), ((1, queries.parts),)),
                    self.mask(queries, keys).access((0, queries.parts), ((1, keys.parts),)),
                    accumulate=True,
                )

    def biased(self, scores: Tile, bias: Tile, name: str, parts: int, width: int) -> Tile:
        """Scaled scores plus a bias, or scores where a mask is true."""
        result = self.sbuf(name, _BLOCK, "fp32")
        to, mask = (t.access((0, parts), ((1, width),)) for t in (result, bias))
        data = scores.access((0, parts), ((1, width),))
        if bias.dtype == "bool":
            self.tiler.emit("select_reduce", dst=to, predicate=mask, on_true=data, on_false=_HIDDEN)
            self.busy("Vector", width)
        else:
            self.tiler.emit(
                "scalar_tensor_tensor", dst=to, data=data, op0="multiply", operand0=self.prim.scale,
                op1="add", operand1=mask,
            )  # fmt: skip
            self.busy("Vector", 2 * width)
        return result

    def load_bias(self, name: str, batch: int, head: int, queries: Rows, block: list[Rows]) -> Tile | None:
        """The bias of a block of scores."""
        bias = self.prim.bias
        if bias is None:
            return None
        tile = self.sbuf(name, _BLOCK, chip_dtype(self.tiler.kernels.buffers[bias.buffer].dtype))
        width = sum(rows.parts for rows in block)
        s0, s1, s2, s3 = bias.strides
        offset = bias.offset + batch * s0 + head * s1 + queries.start * s2 + block[0].start * s3
        source = self.tiler.tensor(bias.buffer).access(
            queries.parts, ((s3, width),), offset=offset, partition_stride=queries.step * s2
        )
        self.tiler.load(tile.access((0, queries.parts), ((1, width),)), source)
        return tile

    def exp_scale(self) -> float:
        """What the exponential multiplies its argument with: a float bias was added to scores already scaled."""
        bias = self.prim.bias
        scaled = bias is not None and self.tiler.kernels.buffers[bias.buffer].dtype != "bool"
        return 1.0 if scaled else self.prim.scale


def _follows(blocks: list[tuple[Access, Access]], count: int) -> bool:
    """Whether a block has the shape of the first and lies as far behind its predecessor as the second behind it."""
    (data, first), (second, later) = blocks[0], blocks[count]
    step = blocks[1][1].offset - first.offset
    same = (data.shape, first.buffer) == (second.shape, later.buffer)
    return same and step > 0 and later.offset == first.offset + count * step


def _bank_pieces(column: int, width: int) -> Iterator[tuple[int, int]]:
    """(first column, columns) of a run, cut where PSUM banks end."""
    while width:
        count = min(width, _MOVING - column % _MOVING)
        yield column, count
        column, width = column + count, width - count


def overlap(tiler: Tiler, steps: Iterator[Iterator[None]], delays: tuple[int, ...]) -> None:
    """Emit steps that overlap: in tick t, for every delay d in turn, one more phase of step t - d.

    A step yields between its phases. A delay that appears twice gives two phases of one step, in that order, with
    phases of other steps between them.
    """
    running: dict[int, Iterator[None]] = {}
    number, more = 0, True
    while more or running:
        step = next(steps, None) if more else None
        more = step is not None
        if step is not None:
            running[number] = step
        with tiler.iteration():
            tiler.stage = 0
            for delay in delays:
                if number - delay in running:
                    next(running[number - delay], None)
        running.pop(number - max(delays), None)
        number += 1


def tile_attend(tiler: Tiler, kernel: Kernel) -> None:
    """Emit attention."""
    prim = kernel.prims[0]
    assert isinstance(prim, Attend)
    with tiler.builder.op(prim.op, prim.source):
        _Forward(tiler, prim).run()
    tiler.stage = -1


@dataclass(frozen=True)
class _Step:
    """One block of keys for one tile of queries; `number`, `tile` and `group` count steps, tiles, groups of tiles."""

    batch: int
    head: int
    queries: Rows
    block: list[Rows]
    first: bool
    last: bool
    number: int
    tile: int
    group: int
    slot: int

    @property
    def parts(self) -> int:
        """Queries."""
        return self.queries.parts

    @property
    def width(self) -> int:
        """Keys."""
        return sum(rows.parts for rows in self.block)


class _Forward(Attention):
    prim: Attend

    def __init__(self, tiler: Tiler, prim: Attend) -> None:
        super().__init__(tiler, prim)
        room = tiler.target.sbuf_usable_bytes_per_partition - _WORK_BYTES
        self.shared = prim.q.shape[1] // prim.k.shape[1]
        steps = self.shared * sum(len(self.blocks(queries, _BLOCK)) for queries in self.query_tiles)
        # A head's values are read until six ticks after its last step began; only then may the next ones come.
        self.buffers = max(2, -(-(steps + 6) // steps))
        self.delays = _DELAYS
        if self.buffers * _head_bytes(self.keys, self.width, self.values, self.size) > room:
            self.buffers = 1
            if len(self.blocks(self.query_tiles[0], _BLOCK)) < 8:
                self.delays = (0,) * len(_DELAYS)
        self.wants_rows = prim.rows.buffer in tiler.kernels.kept
        self.pending: list[_Step] = []  # last steps of tiles whose statistics are not yet stored
        self.flushed = 0
        self.loaded: set[tuple[int, int, int]] = set()
        self.most = max(len(b) for q in self.query_tiles for b in self.blocks(q, _BLOCK))

    def run(self) -> None:
        """All heads."""
        with self.tiler.iteration(prologue=True):
            self.make_masks()
        overlap(self.tiler, self._steps(), self.delays)
        if self.pending:
            with self.tiler.iteration():
                self._flush()

    def _steps(self) -> Iterator[Iterator[None]]:
        """One block of keys for 128 queries after the other."""
        number = tile = group = 0
        for batch in range(self.prim.q.shape[0]):
            for head in range(self.prim.q.shape[1]):
                slot = (batch * self.prim.k.shape[1] + head // self.shared) % self.buffers
                for queries in self.query_tiles:
                    tile, group = tile + 1, group + (queries.place == 0)
                    blocks = self.blocks(queries, _BLOCK)
                    for block in blocks:
                        ends = (block is blocks[0], block is blocks[-1])
                        yield self._phases(_Step(batch, head, queries, block, *ends, number, tile, group, slot))
                        number += 1

    def _phases(self, step: _Step) -> Iterator[None]:
        """One step of the running softmax."""
        bias = self._load(step)
        yield
        scores = self.tiler.psum(f"{self.prefix}_scores_{step.number % _SLOTS}", _SIDE, _BLOCK)
        self.scores(scores, step.queries, f"qt_{step.group % 2}", step.block, f"kt_{step.slot}")
        self.hide(scores, step.queries, step.block)
        yield
        if bias is not None:
            scores = self.biased(scores, bias, f"x_{step.number % _SLOTS}", step.parts, step.width)
        data = scores.access((0, step.parts), ((1, step.width),))
        self.tiler.emit("tensor_reduce", dst=self._column("lowest", step), data=data, op="max", axes=1, negate=True)
        self.busy("Vector", step.width)
        yield
        self._maximum(step)
        yield
        weights = self.sbuf(f"p_{step.number % 4}", _BLOCK)
        self._exponentials(step, scores, weights)
        yield
        turned = self.sbuf(f"pt_{step.number % 2}", self.most * _SIDE)
        self.turn(list(self._turned(step, weights, turned)), "turn", 2)
        yield
        self._product(step, turned)

    # -- phases --------------------------------------------------------------------------------------------------------

    def _load(self, step: _Step) -> Tile | None:
        """Queries, keys and values not yet there, and the bias."""
        queries, key_head = step.queries, step.head // self.shared
        if queries.place == 0 and step.first:
            tile = self.sbuf(f"q_{step.group % 3}", self.query_tiles[0].step * self.width)
            self.load_group(tile, self.prim.q, step.batch, step.head, queries)
            self.turn_rows(tile, queries, f"qt_{step.group % 2}", self.query_tiles[0].step * _SIDE)
        for rows in step.block:
            key = (step.batch, key_head, rows.group)
            if key not in self.loaded:
                self.loaded.add(key)
                tile = self.sbuf(f"k_{rows.group % 3}", self.key_tiles[0].step * self.width)
                self.load_group(tile, self.prim.k, step.batch, key_head, rows)
                self.load_group(self._values(step, rows), self.prim.v, step.batch, key_head, rows)
                # TensorE contracts over the width, so it has to lie across the partitions.
                self.turn_rows(tile, rows, f"kt_{step.slot}_{rows.group}", rows.step * _SIDE)
        return self.load_bias(f"bias_{step.number % 4}", step.batch, step.head, queries, step.block)

    def _values(self, step: _Step, rows: Rows) -> Tile:
        return self.sbuf(f"v_{step.slot}_{rows.group}", rows.step * self.values)

    def _maximum(self, step: _Step) -> None:
        """Minus the running maximum of the scaled scores."""
        lowest, minus = self._column("lowest", step), self._column("minus", step)
        if step.first:
            self.tiler.emit(
                "tensor_scalar", dst=minus, data=lowest, op0="multiply", operand0=self.exp_scale(), op1="min",
                operand1=min(1.0, self.exp_scale()) * -_LOWEST, engine="Vector",
            )  # fmt: skip
        else:
            self.tiler.emit(
                "scalar_tensor_tensor", dst=minus, data=lowest, op0="multiply", operand0=self.exp_scale(), op1="min",
                operand1=self._column("minus", step, 1),
            )  # fmt: skip

    def _exponentials(self, step: _Step, scores: Tile, weights: Tile) -> None:
        """Take exp(scores - maximum), its sum, and what the sums of earlier blocks are to be multiplied by."""
        minus = self._column("minus", step)
        self.tiler.emit(
            "activation", dst=weights.access((0, step.parts), ((1, step.width),)),
            data=scores.access((0, step.parts), ((1, step.width),)), op="exp", scale=self.exp_scale(), bias=minus,
            reduce_res=self._sum(step) if step.first else self._column("part", step), reduce_op="add",
        )  # fmt: skip
        self.busy("Scalar", step.width)
        if not step.first:
            before, alpha = self._column("minus", step, 1), self._column("alpha", step)
            self.tiler.emit("activation", dst=alpha, data=before, op="exp", scale=-1.0, bias=minus)
            self.busy("Scalar", 64)

    def _turned(self, step: _Step, weights: Tile, turned: Tile) -> Iterator[tuple[Access, Access]]:
        column = 0
        for number, rows in enumerate(step.block):
            yield (
                weights.access((0, step.parts), ((1, rows.parts),), offset=column),
                turned.access((0, rows.parts), ((1, step.parts),), offset=number * _SIDE),
            )
            column += rows.parts

    def _product(self, step: _Step, turned: Tile) -> None:
        """Weights by values, added to those of earlier blocks."""
        slots = 2 if self.values <= _MOVING // 2 else 1
        product = self.tiler.psum(f"{self.prefix}_product", _SIDE, slots * self.values)
        result = product.access((0, step.parts), ((1, self.values),), offset=step.number % slots * self.values)
        for number, rows in enumerate(step.block):
            self.matmul(
                result,
                turned.access((0, rows.parts), ((1, step.parts),), offset=number * _SIDE),
                self._values(step, rows).access((0, rows.parts), ((1, self.values),), offset=rows.place * self.values),
                accumulate=number > 0,
            )
        tile = self.sbuf(f"total_{step.tile % 2}", self.values, "fp32")
        total = tile.access((0, step.parts), ((1, self.values),))
        if not step.first:
            sums, alpha = self._sum(step), self._column("alpha", step)
            # Single values per row: GpSimd, which has nothing else to do.
            self.tiler.emit("tensor_tensor", dst=sums, data1=sums, data2=alpha, op="multiply", engine="GpSimd")
            part = self._column("part", step)
            self.tiler.emit("tensor_tensor", dst=sums, data1=sums, data2=part, op="add", engine="GpSimd")
            self.tiler.emit(
                "scalar_tensor_tensor", dst=total, data=total, op0="multiply", operand0=alpha, op1="add",
                operand1=result,
            )  # fmt: skip
            self.busy("Vector", 2 * self.values)
        elif not step.last:
            self.evict(total, result)
        if step.last:
            self._finish(step, result if step.first else total)

    def _finish(self, step: _Step, result: Access) -> None:
        """Divide by the sum, and store a group once it is complete."""
        queries = step.queries
        inverse = self.sbuf(f"inverse_{step.tile % 2}", 1, "fp32").access((0, step.parts), ((1, 1),))
        self.tiler.emit(
            "tensor_scalar", dst=inverse, data=self._sum(step), op0="max", operand0=1e-30, op1="power",
            operand1=-1.0, engine="Vector",
        )  # fmt: skip
        out = self.sbuf(f"out_{step.group % 2}", self.query_tiles[0].step * self.values)
        to = out.access((0, step.parts), ((1, self.values),), offset=queries.place * self.values)
        self.evict(to, result, scale=inverse)
        if self.wants_rows:
            for name, value in (("sums", self._sum(step)), ("minuses", self._column("minus", step))):
                to = self._statistic(name, step.parts, len(self.pending))
                self.tiler.emit("tensor_copy", dst=to, data=value, engine="GpSimd")
            self.pending.append(step)
        if queries.place == queries.step - 1:
            done = out.access((0, step.parts), ((1, queries.step * self.values),))
            self.tiler.store(self.group(self.prim.out, step.batch, step.head, queries), done)
            if len(self.pending) >= _COLUMNS:
                self._flush()

    # -- row statistics ------------------------------------------------------------------------------------------------

    def _column(self, name: str, step: _Step, back: int = 0) -> Access:
        """A value per query of this step (or an earlier one), in a slot that lives as long as steps overlap."""
        return self.sbuf(f"{name}_{(step.number - back) % 8}", 1, "fp32").access((0, step.parts), ((1, 1),))

    def _sum(self, step: _Step) -> Access:
        return self.sbuf(f"sum_{step.tile % 8}", 1, "fp32").access((0, step.parts), ((1, 1),))

    def _statistic(self, name: str, parts: int, column: int, width: int = 1) -> Access:
        columns = min(_COLUMNS + 8, len(self.query_tiles) * self.prim.q.shape[0] * self.prim.q.shape[1])
        return self.sbuf(f"{name}_{self.flushed % 2}", columns, "fp32").access((0, parts), ((1, width),), offset=column)

    def _flush(self) -> None:
        """Logarithms of the sums, plus the maxima, to HBM."""
        width, parts = len(self.pending), max(step.parts for step in self.pending)
        sums, minus = (self._statistic(name, parts, 0, width) for name in ("sums", "minuses"))
        self.tiler.emit("activation", dst=sums, data=sums, op="log")
        self.tiler.emit("tensor_tensor", dst=sums, data1=sums, data2=minus, op="subtract", engine="Vector")
        for column, step in enumerate(self.pending):
            if step.queries.place == 0:
                self._store_rows(step, column)
        self.pending.clear()
        self.flushed += 1

    def _store_rows(self, step: _Step, column: int) -> None:
        view, queries = self.prim.rows, step.queries
        s0, s1, s2 = view.strides
        offset = view.offset + step.batch * s0 + step.head * s1 + queries.start * s2
        to = self.tiler.tensor(view.buffer).access(
            queries.parts, ((s2, queries.step),), offset=offset, partition_stride=queries.step * s2
        )
        self.tiler.store(to, self._statistic("sums", queries.parts, column, queries.step))
