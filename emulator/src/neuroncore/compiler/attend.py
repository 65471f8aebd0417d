"""What the kernels of attention share (`attend_forward.py`, `attend_gradient.py`): scores stay on chip.

Loading and turning rows, scores of a block of keys, causal masks (hidden tiles are skipped), evictions, and the order
in which steps overlap.

Rows of q, k and v are loaded several to a partition, because a row of one head is too short for a DMA at full speed:
partition p holds rows p*packed ... p*packed + packed-1, a tile those with the same remainder. The order of keys does
not matter to attention as long as k, v and the mask agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuroncore.compiler.ir import Attend, AttendGradient
from neuroncore.compiler.order import Issued, check_order
from neuroncore.compiler.select import chip_dtype
from neuroncore.compiler.views import View
from neuroncore.graph import DTYPE_BYTES
from neuroncore.isa import Access, Tile

if TYPE_CHECKING:
    from neuroncore.compiler.tile import Tiler

__all__ = [
    "BLOCK",
    "LOWEST",
    "MOVING",
    "SIDE",
    "WORK_BYTES",
    "Attention",
    "Rows",
    "Step",
    "depths",
    "fits",
    "head_bytes",
    "overlap",
]

SIDE = 128
MOVING = 512
#: Keys per step of the running softmax: two banks of PSUM.
BLOCK = 1024
#: Bytes that make a row worth its DMA descriptor.
_ROW_BYTES = 2048
#: Stands for minus infinity: finite, so that no difference of two is undefined.
HIDDEN = -3.0e38
#: The running maximum starts here, so that a row without visible keys gets weights of zero.
LOWEST = -1.0e38
#: SBUF bytes per partition for what is not keys and values.
WORK_BYTES = 48 * 1024
_BIAS_BYTES = 16 * 1024


def fits(sbuf_bytes: int, keys: int, width: int, values: int, size: int, *, biased: bool) -> bool:
    """Whether keys and values of one head fit SBUF beside the tiles they are worked on with."""
    room = sbuf_bytes - WORK_BYTES - (_BIAS_BYTES if biased else 0)
    return values <= MOVING and width <= 2 * MOVING and head_bytes(keys, width, values, size) <= room


def head_bytes(keys: int, width: int, values: int, size: int) -> int:
    """SBUF bytes per partition of turned keys and of values."""
    return (-(-width // SIDE) * keys + -(-keys // SIDE) * values) * size


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


@dataclass(frozen=True)
class Step:
    """One block of keys for one tile of queries; `number` counts the steps, `slot` tells apart the heads in SBUF."""

    batch: int
    head: int
    queries: Rows
    block: list[Rows]
    number: int
    slot: int

    @property
    def parts(self) -> int:
        """Queries."""
        return self.queries.parts

    @property
    def width(self) -> int:
        """Keys."""
        return sum(rows.parts for rows in self.block)


def _tiles(length: int, packed: int) -> list[Rows]:
    """A sequence as tiles, in groups whose rows share partitions."""
    tiles: list[Rows] = []
    start = group = 0
    while start < length:
        step = packed
        while step > 1 and length - start < step * SIDE:
            step //= 2
        parts = min(SIDE, length - start)
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
        self.key_tiles = self.tiles(self.keys, 8 if prim.bias is None else 1)
        self.query_tiles = self.tiles(prim.q.shape[2], 8)
        self.load_bank = "load"
        self.bank = 0
        self.load_ns = {"Vector": 0.0, "Scalar": 0.0}
        self.masks: dict[tuple[int, int, int], Tile] = {}

    def tiles(self, length: int, most: int) -> list[Rows]:
        """A sequence as tiles, at most `most` to a group; a causal mask skips whole groups, so they stay small."""
        packed, least = 1, 1
        if self.prim.causal:
            most, least = min(most, 4), 8
        while packed < most and 2 * packed * SIDE * least <= length and packed * self.width * self.size < _ROW_BYTES:
            packed *= 2
        return _tiles(length, packed)

    # -- memory --------------------------------------------------------------------------------------------------------

    def sbuf(self, name: str, columns: int, dtype: str | None = None) -> Tile:
        """A tile over all partitions."""
        return self.tiler.sbuf(f"{self.prefix}_{name}", SIDE, columns, dtype or self.dtype)

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

    def evict(self, dst: Access, data: Access, scale: Access | float | None = None) -> None:
        """Copy, usually PSUM to SBUF, times a number (per row), on whichever of Vector and Scalar has less to do."""
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
        room = min(4, 2048 // self.size // SIDE)
        while blocks:
            count = 1
            while count < min(room, len(blocks)) and _follows(blocks, count):
                count += 1
            bank = self.tiler.psum(f"{self.prefix}_{name}_{self.bank % banks}", SIDE, room * SIDE, self.dtype)
            self.bank += 1
            parts, across = blocks[0][0].free_elements, blocks[0][0].partitions
            for number, (data, _) in enumerate(blocks[:count]):
                to = bank.access((0, parts), ((1, across),), offset=number * across)
                self.tiler.emit("nc_transpose", dst=to, data=data, engine="Tensor")
            first, stride = blocks[0][1], blocks[1][1].offset - blocks[0][1].offset if count > 1 else across
            free = ((1, count * across),) if stride == across else ((stride, count), (1, across))
            self.evict(replace(first, free=free), bank.access((0, parts), ((1, count * across),)))
            blocks = blocks[count:]

    def turn_rows(self, tile: Tile, rows: Rows, name: str, columns: int, width: int) -> None:
        """Turn a group of rows of `width`: its tile number t becomes columns t*parts ... of `name`_<depth>."""
        blocks = []
        for depth, deep in depths(width):
            turned = self.sbuf(f"{name}_{depth}", columns)
            for place in range(rows.step):
                data = tile.access((0, rows.parts), ((1, deep),), offset=place * width + depth * SIDE)
                blocks.append((data, turned.access((0, deep), ((1, rows.parts),), offset=place * rows.parts)))
        self.turn(blocks, self.load_bank, 1)

    def matmul(self, dst: Access, stationary: Access, moving: Access, *, accumulate: bool) -> None:
        """A product: dst (+)= stationary.T @ moving."""
        self.tiler.emit("nc_matmul", dst=dst, stationary=stationary, moving=moving, accumulate=accumulate)

    def scores(
        self, dst: Tile, queries: Rows, query_name: str, block: list[Rows], key_names: dict[int, str], width: int
    ) -> None:
        """Put queries . keys, rows of `width`, into dst; the turned operands are `<name>_<depth>`, keys by group."""
        runs: list[list[Rows]] = []
        column = 0
        for rows in block:  # neighbours of a group in one PSUM bank make one product
            joins = runs and runs[-1][0].group == rows.group and column % MOVING
            if joins and column // MOVING == (column + rows.parts - 1) // MOVING:
                runs[-1].append(rows)
            else:
                runs.append([rows])
            column += rows.parts
        column = 0
        for run in runs:
            count = sum(rows.parts for rows in run)
            for piece in _bank_pieces(column, count):
                for depth, deep in depths(width):
                    keys = self.known(f"{key_names[run[0].group]}_{depth}")
                    turned = self.known(f"{query_name}_{depth}")
                    self.matmul(
                        dst.access((0, queries.parts), ((1, piece[1]),), offset=piece[0]),
                        turned.access((0, deep), ((1, queries.parts),), offset=queries.column),
                        keys.access((0, deep), ((1, piece[1]),), offset=run[0].column + piece[0] - column),
                        accumulate=depth > 0,
                    )
            column += count

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
            tile = self.sbuf(f"mask{len(self.masks)}", SIDE, "bf16")
            self.tiler.emit(
                "affine_select", dst=tile.access(), data=self.known("zeros").access(),
                pattern=((-keys.step, SIDE),), offset=key[0], channel_multiplier=queries.step, on_false_value=HIDDEN,
            )  # fmt: skip
            self.masks[key] = tile
        return self.masks[key]

    def make_masks(self, pairs: list[tuple[Rows, Rows]]) -> None:
        """All masks these queries and keys need, and the identity that puts them into PSUM."""
        pairs = [(queries, keys) for queries, keys in pairs if self.partly_hidden(queries, keys)]
        if not pairs:
            return
        zeros, identity = self.sbuf("zeros", SIDE, "bf16"), self.sbuf("identity", SIDE, "bf16")
        self.tiler.emit("memset", dst=zeros.access(), value=0.0, engine="GpSimd")
        self.tiler.emit(
            "affine_select", dst=identity.access(), data=zeros.access(), pattern=((-1, SIDE),),
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
        result = self.sbuf(name, BLOCK, "fp32")
        to, mask = (t.access((0, parts), ((1, width),)) for t in (result, bias))
        data = scores.access((0, parts), ((1, width),))
        if bias.dtype == "bool":
            self.tiler.emit("select_reduce", dst=to, predicate=mask, on_true=data, on_false=HIDDEN)
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
        tile = self.sbuf(name, BLOCK, chip_dtype(self.tiler.kernels.buffers[bias.buffer].dtype))
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


def depths(width: int) -> list[tuple[int, int]]:
    """(number, size) of the pieces of a row that fit the partitions."""
    return [(depth, min(SIDE, width - depth * SIDE)) for depth in range(-(-width // SIDE))]


def _bank_pieces(column: int, width: int) -> Iterator[tuple[int, int]]:
    """(first column, columns) of a run, cut where PSUM banks end."""
    while width:
        count = min(width, MOVING - column % MOVING)
        yield column, count
        column, width = column + count, width - count


def overlap(tiler: Tiler, steps: Iterator[Iterator[None]], delays: tuple[int, ...]) -> None:
    """Emit steps that overlap: in tick t, for every delay d in turn, one more phase of step t - d.

    A step yields between its phases. A delay that appears twice gives two phases of one step, in that order, with
    phases of other steps between them.

    Raises:
        VerifyError: the delays let a phase of one step overwrite what another step still needs.
    """
    running: dict[int, Iterator[None]] = {}
    number, more = 0, True
    issued: list[Issued] = []
    places: dict[int, int] = {}
    while more or running:
        step = next(steps, None) if more else None
        more = step is not None
        if step is not None:
            running[number] = step
        with tiler.iteration():
            tiler.stage = 0
            for delay in delays:
                if number - delay in running:
                    before = tiler.emitted
                    next(running[number - delay], None)
                    for instruction in tiler.since(before):
                        place = places[number - delay] = places.get(number - delay, 0) + 1
                        issued.append(Issued(instruction, number - delay, place))
        running.pop(number - max(delays), None)
        number += 1
    check_order(issued, tiler.on_chip, "attention")
