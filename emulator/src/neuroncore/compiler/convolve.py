"""Tiling convolutions: every filter tap is a matrix product on a shifted access pattern, accumulated in PSUM.

Channels lie on the partitions. A block of the input is loaded once, with its border of zeros made on chip; tap (i, j)
then reads the same tile from another offset, so that no element is loaded or copied once per tap (reference/hw/
compile_rules.md section 2). The gradient of the input is the same product with turned filters. The gradient of the
filters contracts over positions: both operands are turned by TensorE, 128 positions at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuroncore.compiler.fuse import Kernel
from neuroncore.compiler.ir import Convolve
from neuroncore.compiler.select import chip_dtype
from neuroncore.compiler.views import View
from neuroncore.graph import DTYPE_BYTES
from neuroncore.isa import Access, Tile

if TYPE_CHECKING:
    from neuroncore.compiler.tile import Tiler

__all__ = ["tile_convolve"]

_PARTITIONS = 128
#: Columns of one fp32 PSUM bank, and of the moving operand of a matmul.
_BANK = 512
#: Bytes per partition a block of one channel tile may take, and those all filters in SBUF may take.
_BLOCK_BYTES = 12_288
_FILTER_BYTES = 65_536
#: PSUM banks for the gradient of the filters; the other two turn operands.
_GRADIENT_BANKS = 6
_TURNS_PER_BANK = 4


def tile_convolve(tiler: Tiler, kernel: Kernel) -> None:
    """Emit a convolution."""
    prim = kernel.prims[0]
    assert isinstance(prim, Convolve)
    with tiler.builder.op(prim.op, prim.source):
        (_FilterGradient if prim.form == "weight" else _Forward)(tiler, prim).run()


@dataclass(frozen=True)
class _Block:
    """Part of the output positions: images [image, image+images), rows [y, y+rows), columns [x, x+columns)."""

    image: int
    images: int
    y: int
    rows: int
    x: int
    columns: int

    @property
    def positions(self) -> int:
        return self.images * self.rows * self.columns


class _Convolution:
    """What both forms share: blocks of positions and input tiles with their border."""

    def __init__(self, tiler: Tiler, prim: Convolve, positions: View) -> None:
        self.tiler, self.prim = tiler, prim
        self.prefix = tiler.new_kernel()
        self.dtype = chip_dtype(tiler.kernels.buffers[prim.src.buffer].dtype)
        self.size = DTYPE_BYTES[self.dtype]
        self.images, self.channels, self.height, self.width = prim.src.shape
        self.positions = positions
        self.out_rows, self.out_columns = positions.shape[2:]
        self.turns = self.copies = 0
        self.channel_tiles = -(-self.channels // _PARTITIONS)

    def reach(self, count: int, axis: int) -> int:
        """Input rows (axis 0) or columns (1), border and spread included, that `count` output ones read."""
        return (count - 1) * self.prim.stride[axis] + (self.taps[axis] - 1) * self.prim.dilation[axis] + 1

    @property
    def taps(self) -> tuple[int, int]:
        """Filter height and width."""
        weights = self.prim.out if self.prim.form == "weight" else self.prim.weight
        return weights.shape[2], weights.shape[3]

    def blocks(self) -> Iterator[_Block]:
        """All output positions, in blocks whose input fits `_BLOCK_BYTES` per channel tile."""
        limit = max(_BLOCK_BYTES // 4, _BLOCK_BYTES // max(1, self.channel_tiles // 4)) // self.size
        whole = self.reach(self.out_rows, 0) * self.reach(self.out_columns, 1)
        if whole <= limit:
            together = max(1, min(limit // whole, 4 * _BANK // max(1, self.out_rows * self.out_columns)))
            for image in range(0, self.images, together):
                count = min(together, self.images - image)
                yield _Block(image, count, 0, self.out_rows, 0, self.out_columns)
            return
        columns = self.out_columns
        while columns > 1 and self.reach(1, 0) * self.reach(columns, 1) > limit:
            columns = -(-columns // 2)
        rows = 1
        while rows < self.out_rows and self.reach(rows + 1, 0) * self.reach(columns, 1) <= limit:
            rows += 1
        for image in range(self.images):
            for y in range(0, self.out_rows, rows):
                for x in range(0, self.out_columns, columns):
                    yield _Block(image, 1, y, min(rows, self.out_rows - y), x, min(columns, self.out_columns - x))

    def walk(self, first: int = 0) -> Iterator[int]:
        """Numbers of the blocks from `first` on, those of loops that repeat left out; counters start anew in each.

        Blocks of whole images, or the blocks of one image, are those of the next two images moved along.
        """
        blocks = self.block_list
        same = next((n for n, b in enumerate(blocks) if b.image != blocks[0].image), len(blocks))  # per step
        whole = sum(1 for b in blocks[::same] if b.images == blocks[0].images)
        begin = -(-first // same)
        for number in range(first, min(begin * same, len(blocks))):
            yield self._restarted(number)
        for step in self.tiler.rolled(max(0, whole - begin), 2):
            for number in range((begin + step) * same, (begin + step + 1) * same):
                yield self._restarted(number)
        for number in range(max(begin, whole) * same, len(blocks)):
            yield self._restarted(number)

    def _restarted(self, number: int) -> int:
        self.turns = self.copies = number
        return number

    def groups(self, block: _Block, limit: int) -> Iterator[_Block]:
        """A block in parts of at most `limit` positions."""
        plane = block.rows * block.columns
        if plane <= limit:
            together = limit // plane
            for image in range(0, block.images, together):
                count = min(together, block.images - image)
                yield _Block(block.image + image, count, block.y, block.rows, block.x, block.columns)
            return
        columns = min(block.columns, limit)
        rows = max(1, limit // columns)
        for image in range(block.images):
            for y in range(0, block.rows, rows):
                for x in range(0, block.columns, columns):
                    yield _Block(
                        block.image + image, 1, block.y + y, min(rows, block.rows - y), block.x + x,
                        min(columns, block.columns - x),
                    )  # fmt: skip

    def input_tile(self, block: _Block, channel_tile: int, slot: int) -> Tile:
        """The block's input, [channels, images x rows x columns], zeros at the border and between spread elements."""
        prim, tiler = self.prim, self.tiler
        first = channel_tile * _PARTITIONS
        parts = min(_PARTITIONS, self.channels - first)
        rows, columns = self.reach(block.rows, 0), self.reach(block.columns, 1)
        elements = block.images * rows * columns
        tile = tiler.sbuf(f"{self.prefix}_x{channel_tile}_{slot}", _PARTITIONS, self._most(), self.dtype)
        top = block.y * prim.stride[0] - prim.padding[0]
        left = block.x * prim.stride[1] - prim.padding[1]
        y, inner_rows, row = _inside(top, rows, self.height, prim.spread[0])
        x, inner_columns, column = _inside(left, columns, self.width, prim.spread[1])
        full = inner_rows == rows and inner_columns == columns and prim.spread == (1, 1)
        if not full:
            tiler.emit("memset", dst=tile.access((0, parts), ((1, elements),)), value=0.0, engine="Vector")
        if not inner_rows or not inner_columns:
            return tile
        view = prim.src
        source = tiler.tensor(view.buffer)
        strides = view.strides
        offset = view.offset + block.image * strides[0] + first * strides[1] + y * strides[2] + x * strides[3]
        pattern = ((strides[0], block.images), (strides[2], inner_rows), (strides[3], inner_columns))
        data = source.access(parts, pattern, offset=offset, partition_stride=strides[1])
        if full:
            tiler.load(tile.access((0, parts), ((1, elements),)), data)
            return tile
        count = block.images * inner_rows * inner_columns
        dense = tiler.sbuf(f"{self.prefix}_d{channel_tile % 2}_{slot}", _PARTITIONS, self._most(), self.dtype)
        tiler.load(dense.access((0, parts), ((1, count),)), data)
        spread = prim.spread
        for image in range(block.images):
            to = tile.access(
                (0, parts), ((spread[0] * columns, inner_rows), (spread[1], inner_columns)),
                offset=image * rows * columns + row * columns + column,
            )  # fmt: skip
            self.copy(
                to, dense.access((0, parts), ((1, inner_rows * inner_columns),), offset=image * count // block.images)
            )
        return tile

    def _most(self) -> int:
        """Elements of the largest block's input tile."""
        return max(b.images * self.reach(b.rows, 0) * self.reach(b.columns, 1) for b in self.block_list)

    def window(self, tile: Tile, block: _Block, part: _Block, tap: tuple[int, int], parts: int) -> Access:
        """What tap (i, j) reads of a block's input tile for the positions of `part`."""
        prim = self.prim
        rows, columns = self.reach(block.rows, 0), self.reach(block.columns, 1)
        offset = (
            (part.image - block.image) * rows * columns
            + ((part.y - block.y) * prim.stride[0] + tap[0] * prim.dilation[0]) * columns
            + (part.x - block.x) * prim.stride[1] + tap[1] * prim.dilation[1]
        )  # fmt: skip
        pattern = (
            (rows * columns, part.images), (prim.stride[0] * columns, part.rows), (prim.stride[1], part.columns)
        )  # fmt: skip
        return tile.access((0, parts), _squeezed(pattern), offset=offset)

    def copy(self, dst: Access, data: Access) -> None:
        """On Vector and Scalar in turn."""
        self.copies += 1
        if self.copies % 2:
            self.tiler.emit("tensor_copy", dst=dst, data=data, engine="Vector")
        else:
            self.tiler.emit("activation", dst=dst, data=data, op="copy")

    def turn_bank(self) -> Tile:
        """The next of two PSUM banks for transposes."""
        self.turns += 1
        columns = _TURNS_PER_BANK * _PARTITIONS
        return self.tiler.psum(f"{self.prefix}_turn_{self.turns % 2}", _PARTITIONS, columns, self.dtype)

    block_list: list[_Block]


class _Forward(_Convolution):
    """Output channels on the partitions of PSUM; filters stay in SBUF as [input channels, taps, output channels]."""

    def __init__(self, tiler: Tiler, prim: Convolve) -> None:
        super().__init__(tiler, prim, prim.out)
        self.outs = prim.out.shape[1]
        self.block_list = list(self.blocks())
        self.count = self.taps[0] * self.taps[1]
        per_channel = self.channel_tiles * self.count * self.size
        self.together = max(1, min(self.outs, _FILTER_BYTES // per_channel // _PARTITIONS * _PARTITIONS or _PARTITIONS))
        self.out_dtype = chip_dtype(tiler.kernels.buffers[prim.out.buffer].dtype)

    def run(self) -> None:
        """For every set of output channels: its filters, then all positions."""
        for number, first in enumerate(range(0, self.outs, self.together)):
            outs = min(self.together, self.outs - first)
            with self.tiler.iteration():
                self.tiler.stage = 0
                filters = [self._filters(c, first, outs, number % 2) for c in range(self.channel_tiles)]
                bias = self._bias(first, outs, number % 2)
            for step in self.walk():
                block, groups = self.block_list[step], step
                with self.tiler.iteration():
                    self.tiler.stage = 0
                    inputs = [self.input_tile(block, c, step % 2) for c in range(self.channel_tiles)]
                    self.tiler.stage = 1
                    for out in range(0, outs, _PARTITIONS):
                        parts = min(_PARTITIONS, outs - out)
                        result = self._result(step)
                        done = 0
                        for part in self.groups(block, _BANK):
                            self._product(block, part, inputs, filters, out, parts, result, done, bias, groups)
                            groups += 1
                            done += part.positions
                        self._store(block, first + out, parts, result)
        self.tiler.stage = -1

    def _result(self, step: int) -> Tile:
        most = max(b.positions for b in self.block_list)
        return self.tiler.sbuf(f"{self.prefix}_y_{step % 2}", _PARTITIONS, most, self.out_dtype)

    def _product(
        self, block: _Block, part: _Block, inputs: list[Tile], filters: list[tuple[Tile, int, int]], out: int,
        parts: int, result: Tile, done: int, bias: list[Tile], group: int,
    ) -> None:  # fmt: skip
        total = self.tiler.psum(f"{self.prefix}_acc_{group % 2}", _PARTITIONS, _BANK)
        n = part.positions
        first = True
        for channel_tile, tile in enumerate(inputs):
            channels = min(_PARTITIONS, self.channels - channel_tile * _PARTITIONS)
            weights, tap_stride, out_stride = filters[channel_tile]
            for i in range(self.taps[0]):
                for j in range(self.taps[1]):
                    tap = i * self.taps[1] + j
                    if self.prim.form == "gradient":
                        tap = self.count - 1 - tap
                    self.tiler.emit(
                        "nc_matmul",
                        dst=total.access((0, parts), ((1, n),)),
                        stationary=weights.access(
                            (0, channels), ((out_stride, parts),), offset=tap * tap_stride + out * out_stride
                        ),
                        moving=self.window(tile, block, part, (i, j), channels),
                        accumulate=not first,
                    )
                    first = False
        dst, data = result.access((0, parts), ((1, n),), offset=done), total.access((0, parts), ((1, n),))
        if bias:
            column = bias[out // _PARTITIONS].access((0, parts), ((1, 1),))
            self.tiler.emit("activation", dst=dst, data=data, op="identity", bias=column)
        else:
            self.copy(dst, data)

    def _store(self, block: _Block, first: int, parts: int, result: Tile) -> None:
        out = self.prim.out
        tensor = self.tiler.tensor(out.buffer)
        done = 0
        for part in self.groups(block, _BANK) if block.columns != self.out_columns else (block,):
            offset = (
                out.offset + part.image * out.strides[0] + first * out.strides[1] + part.y * out.strides[2]
                + part.x * out.strides[3]
            )  # fmt: skip
            pattern = ((out.strides[0], part.images), (out.strides[2], part.rows), (out.strides[3], part.columns))
            self.tiler.store(
                tensor.access(parts, _merged(pattern), offset=offset, partition_stride=out.strides[1]),
                result.access((0, parts), ((1, part.positions),), offset=done),
            )
            done += part.positions

    def _bias(self, first: int, outs: int, slot: int) -> list[Tile]:
        view = self.prim.bias
        tiles = []
        for number, start in enumerate(range(0, outs if view is not None else 0, _PARTITIONS)):
            assert view is not None
            parts = min(_PARTITIONS, outs - start)
            dtype = chip_dtype(self.tiler.kernels.buffers[view.buffer].dtype)
            tile = self.tiler.sbuf(f"{self.prefix}_bias{number}_{slot}", _PARTITIONS, 1, dtype)
            offset = view.offset + (first + start) * view.strides[0]
            source = self.tiler.tensor(view.buffer)
            self.tiler.load(
                tile.access((0, parts), ((1, 1),)),
                source.access(parts, ((1, 1),), offset=offset, partition_stride=view.strides[0]),
            )
            tiles.append(tile)
        return tiles

    def _filters(self, channel_tile: int, first: int, outs: int, slot: int) -> tuple[Tile, int, int]:
        """Filters of one channel tile, and the strides of taps and of output channels in it."""
        tiler, view = self.tiler, self.prim.weight
        source = tiler.tensor(view.buffer)
        in_axis, out_axis = (0, 1) if self.prim.form == "gradient" else (1, 0)
        start = channel_tile * _PARTITIONS
        channels = min(_PARTITIONS, self.channels - start)
        offset = view.offset + start * view.strides[in_axis] + first * view.strides[out_axis]
        taps = ((view.strides[2], self.taps[0]), (view.strides[3], self.taps[1]))
        tile = tiler.sbuf(f"{self.prefix}_w{channel_tile}_{slot}", _PARTITIONS, self.together * self.count, self.dtype)
        if in_axis == 0:  # input channels are the rows already
            tiler.load(
                tile.access((0, channels), ((1, outs * self.count),)),
                source.access(
                    channels, _merged(((view.strides[1], outs), *taps)), offset=offset, partition_stride=view.strides[0]
                ),
            )
            return tile, 1, self.count
        for out in range(0, outs, _PARTITIONS):
            parts = min(_PARTITIONS, outs - out)
            rows = tiler.sbuf(
                f"{self.prefix}_ws_{self.turns % 2}", _PARTITIONS, min(_PARTITIONS, self.channels) * self.count,
                self.dtype,
            )  # fmt: skip
            tiler.load(
                rows.access((0, parts), ((1, channels * self.count),)),
                source.access(
                    parts, _merged(((view.strides[1], channels), *taps)), offset=offset + out * view.strides[0],
                    partition_stride=view.strides[0],
                ),
            )  # fmt: skip
            for tap in range(0, self.count, _TURNS_PER_BANK):
                bank = self.turn_bank()
                count = min(_TURNS_PER_BANK, self.count - tap)
                for i in range(count):
                    tiler.emit(
                        "nc_transpose", dst=bank.access((0, channels), ((1, parts),), offset=i * _PARTITIONS),
                        data=rows.access((0, parts), ((self.count, channels),), offset=tap + i), engine="Tensor",
                    )  # fmt: skip
                self.copy(
                    tile.access(
                        (0, channels), ((self.together, count), (1, parts)), offset=tap * self.together + out
                    ),
                    bank.access((0, channels), ((_PARTITIONS, count), (1, parts))),
                )  # fmt: skip
        return tile, self.together, 1


class _FilterGradient(_Convolution):
    """Positions on the partitions: products of turned blocks accumulate in PSUM over all images."""

    def __init__(self, tiler: Tiler, prim: Convolve) -> None:
        super().__init__(tiler, prim, prim.weight)
        self.outs = prim.weight.shape[1]
        self.block_list = list(self.blocks())
        self.all_taps = [(i, j) for i in range(self.taps[0]) for j in range(self.taps[1])]

    def run(self) -> None:
        """For every channel tile, set of taps and set of output channels: all positions, then the result."""
        self.tiler.stage = 0
        for channel_tile in range(self.channel_tiles):
            channels = min(_PARTITIONS, self.channels - channel_tile * _PARTITIONS)
            per_bank = max(1, _BANK // channels)
            for first_tap in range(0, len(self.all_taps), _GRADIENT_BANKS * per_bank):
                taps = self.all_taps[first_tap : first_tap + _GRADIENT_BANKS * per_bank]
                banks = -(-len(taps) // per_bank)
                out_tiles = _GRADIENT_BANKS // banks
                for first_out in range(0, self.outs, out_tiles * _PARTITIONS):
                    outs = range(first_out, min(self.outs, first_out + out_tiles * _PARTITIONS), _PARTITIONS)
                    for step in self._from_zero():
                        with self.tiler.iteration():
                            block = self.block_list[step]
                            self._block(block, channel_tile, channels, taps, per_bank, outs, step, step > 0)
                    with self.tiler.iteration():
                        self._results(channel_tile, channels, first_tap, taps, per_bank, outs)
        self.tiler.stage = -1

    def _from_zero(self) -> Iterator[int]:
        """Numbers of the blocks; the first one starts the sums."""
        yield self._restarted(0)
        yield from self.walk(1)

    def _block(
        self, block: _Block, channel_tile: int, channels: int, taps: list[tuple[int, int]], per_bank: int, outs: range,
        step: int, started: bool,
    ) -> None:  # fmt: skip
        tiler = self.tiler
        inputs = self.input_tile(block, channel_tile, step % 2)
        gradients = [self._gradient(block, out, number, step % 2) for number, out in enumerate(outs)]
        for part in self.groups(block, _PARTITIONS):
            n = part.positions
            turned = self._turned([self.window(inputs, block, part, tap, channels) for tap in taps], channels, n, "xt")
            for number, out in enumerate(outs):
                parts = min(_PARTITIONS, self.outs - out)
                plane = block.rows * block.columns
                offset = (part.image - block.image) * plane + (part.y - block.y) * block.columns + part.x - block.x
                pattern = _squeezed(((plane, part.images), (block.columns, part.rows), (1, part.columns)))
                gradient = gradients[number].access((0, parts), pattern, offset=offset)
                rows = self._turned([gradient], parts, n, f"gt{number}")
                for bank, first in enumerate(range(0, len(taps), per_bank)):
                    columns = min(per_bank, len(taps) - first) * channels
                    tiler.emit(
                        "nc_matmul", dst=self._total(number, bank, per_bank, taps).access((0, parts), ((1, columns),)),
                        stationary=rows.access((0, n), ((1, parts),)),
                        moving=turned.access((0, n), ((1, columns),), offset=first * channels), accumulate=started,
                    )  # fmt: skip
            started = True

    def _total(self, out_tile: int, bank: int, per_bank: int, taps: list[tuple[int, int]]) -> Tile:
        banks = -(-len(taps) // per_bank)
        return self.tiler.psum(f"{self.prefix}_acc_{out_tile * banks + bank}", _PARTITIONS, _BANK)

    def _gradient(self, block: _Block, out: int, number: int, slot: int) -> Tile:
        view = self.prim.weight
        parts = min(_PARTITIONS, self.outs - out)
        most = max(b.positions for b in self.block_list)
        tile = self.tiler.sbuf(f"{self.prefix}_g{number}_{slot}", _PARTITIONS, most, self.dtype)
        offset = (
            view.offset + block.image * view.strides[0] + out * view.strides[1] + block.y * view.strides[2]
            + block.x * view.strides[3]
        )  # fmt: skip
        pattern = ((view.strides[0], block.images), (view.strides[2], block.rows), (view.strides[3], block.columns))
        source = self.tiler.tensor(view.buffer)
        self.tiler.load(
            tile.access((0, parts), ((1, block.positions),)),
            source.access(parts, _merged(pattern), offset=offset, partition_stride=view.strides[1]),
        )
        return tile

    def _turned(self, windows: list[Access], parts: int, n: int, name: str) -> Tile:
        """[positions, windows x channels]: the transposes of some windows side by side."""
        self.copies += 1
        tile = self.tiler.sbuf(
            f"{self.prefix}_{name}_{self.turns % 2}", _PARTITIONS, len(windows) * parts, self.dtype
        )  # fmt: skip
        for first in range(0, len(windows), _TURNS_PER_BANK):
            bank = self.turn_bank()
            chosen = windows[first : first + _TURNS_PER_BANK]
            for i, window in enumerate(chosen):
                self.tiler.emit(
                    "nc_transpose", dst=bank.access((0, n), ((1, parts),), offset=i * parts), data=window,
                    engine="Tensor",
                )  # fmt: skip
            columns = len(chosen) * parts
            self.copy(tile.access((0, n), ((1, columns),), offset=first * parts), bank.access((0, n), ((1, columns),)))
        return tile

    def _results(
        self, channel_tile: int, channels: int, first_tap: int, taps: list[tuple[int, int]], per_bank: int, outs: range
    ) -> None:
        view = self.prim.out
        dtype = chip_dtype(self.tiler.kernels.buffers[view.buffer].dtype)
        tensor = self.tiler.tensor(view.buffer)
        for number, out in enumerate(outs):
            parts = min(_PARTITIONS, self.outs - out)
            tile = self.tiler.sbuf(f"{self.prefix}_dw_{number % 2}", _PARTITIONS, channels * len(taps), dtype)
            for bank, first in enumerate(range(0, len(taps), per_bank)):
                count = min(per_bank, len(taps) - first)
                # From (tap, channel) to (channel, tap), as the filters lie in HBM.
                self.copy(
                    tile.access((0, parts), ((1, count), (len(taps), channels)), offset=first),
                    self._total(number, bank, per_bank, taps).access((0, parts), ((channels, count), (1, channels))),
                )
            base = view.offset + out * view.strides[0] + channel_tile * _PARTITIONS * view.strides[1]
            if len(taps) == len(self.all_taps):
                pattern = _merged(
                    ((view.strides[1], channels), (view.strides[2], self.taps[0]), (view.strides[3], self.taps[1]))
                )
                self.tiler.store(
                    tensor.access(parts, pattern, offset=base, partition_stride=view.strides[0]),
                    tile.access((0, parts), ((1, channels * len(taps)),)),
                )
                continue
            for i, (y, x) in enumerate(taps):
                self.tiler.store(
                    tensor.access(
                        parts, ((view.strides[1], channels),), offset=base + y * view.strides[2] + x * view.strides[3],
                        partition_stride=view.strides[0],
                    ),
                    tile.access((0, parts), ((len(taps), channels),), offset=i),
                )  # fmt: skip


def _inside(first: int, count: int, size: int, spread: int) -> tuple[int, int, int]:
    """Of positions first .. first+count: first element of `size` spread ones inside, how many, and where it lies."""
    start = max(0, -(-first // spread))
    stop = min(size, -(-(first + count) // spread))
    return start, max(0, stop - start), start * spread - first


def _squeezed(pattern: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Without dimensions of one element."""
    return tuple((stride, size) for stride, size in pattern if size != 1) or ((1, 1),)


def _merged(pattern: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """With neighbouring dimensions merged that lie next to each other."""
    result: list[tuple[int, int]] = []
    for stride, size in _squeezed(pattern):
        if result and result[-1][0] == stride * size:
            result[-1] = (stride, result[-1][1] * size)
        else:
            result.append((stride, size))
    return tuple(result)
