"""Tiling attention's forward: a running maximum and sum make the softmax, block by block of keys.

For 128 queries at a time: scores into PSUM, their row maximum, exponentials with their row sum (one activation), a
transposition of the weights on TensorE, and their product with the values. What earlier blocks gave is scaled by
exp(old maximum - new maximum). So TensorE makes three passes (reference/hw/compile_rules.md section 10) while Vector
and Scalar share maxima, exponentials and evictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuroncore.compiler.attend import (
    BLOCK,
    LOWEST,
    MOVING,
    SIDE,
    WORK_BYTES,
    Attention,
    Rows,
    Step,
    head_bytes,
    overlap,
)
from neuroncore.compiler.ir import Attend
from neuroncore.isa import Access, Tile

if TYPE_CHECKING:
    from neuroncore.compiler.fuse import Kernel
    from neuroncore.compiler.tile import Tiler

__all__ = ["tile_attend"]

#: Blocks of scores in PSUM, two banks each.
_SLOTS = 2
#: Columns of row statistics collected before their logarithm is taken: a function table load is 1.3 us.
_COLUMNS = 1024
#: Steps of the shortest round of a loop over heads.
_ROUND = 160
#: In which tick after it began a step does its next phase, in issue order (see `overlap`). What an engine does next is
#: ready when it comes to it: Vector takes a block's maximum, Scalar evicts an earlier block meanwhile, and TensorE
#: makes the next block's scores as soon as exponentials have freed their banks.
_DELAYS: tuple[int, ...] = (0, 2, 5, 2, 2, 6, 1)


def tile_attend(tiler: Tiler, kernel: Kernel) -> None:
    """Emit attention."""
    prim = kernel.prims[0]
    assert isinstance(prim, Attend)
    with tiler.builder.op(prim.op, prim.source):
        _Forward(tiler, prim).run()
    tiler.stage = -1


@dataclass(frozen=True)
class _Step(Step):
    """`tile` and `group` count the tiles of queries and their groups."""

    first: bool
    last: bool
    tile: int
    group: int


class _Forward(Attention):
    prim: Attend

    def __init__(self, tiler: Tiler, prim: Attend) -> None:
        super().__init__(tiler, prim)
        room = tiler.target.sbuf_usable_bytes_per_partition - WORK_BYTES
        self.shared = prim.q.shape[1] // prim.k.shape[1]
        steps = self.shared * sum(len(self.blocks(queries, BLOCK)) for queries in self.query_tiles)
        # A head's values are read until six ticks after its last step began; only then may the next ones come.
        self.buffers = max(2, -(-(steps + 6) // steps))
        self.delays = _DELAYS
        self.together = self._together()
        if self.buffers * head_bytes(self.keys, self.width, self.values, self.size) > room:
            self.buffers = 1
            # The next keys and values replace those that steps still read, unless a round needs only one head's.
            if self.together > self.shared and len(self.blocks(self.query_tiles[0], BLOCK)) < 8:
                self.delays = (0,) * len(_DELAYS)
        self.wants_rows = prim.rows.buffer in tiler.kernels.kept
        self.pending: list[_Step] = []  # last steps of tiles whose statistics are not yet stored
        self.flushed = 0
        self.loaded: set[tuple[int, int, int]] = set()
        self.most = max(len(b) for q in self.query_tiles for b in self.blocks(q, BLOCK))

    def run(self) -> None:
        """All heads."""
        with self.tiler.iteration(prologue=True):
            self.make_masks([(q, keys) for q in self.query_tiles for keys in self.visible(q)])
        batches, heads = self.prim.q.shape[:2]
        together = self.together
        if together == heads:
            self._round([(batch, head) for batch in range(batches) for head in range(heads)])
            return
        for batch in self.tiler.rolled(batches):
            for first in self.tiler.rolled(heads // together):
                self._round([(batch, first * together + head) for head in range(together)])

    def _together(self) -> int:
        """Heads whose steps overlap; after so many the pipeline drains, so that they can be a loop's round.

        Draining costs some six ticks, so a round is long enough for that not to matter.
        """
        heads = self.prim.q.shape[1]
        steps = sum(len(self.blocks(queries, BLOCK)) for queries in self.query_tiles)
        for together in range(self.shared, heads // 4 + 1, self.shared):
            if heads % together == 0 and together * steps >= _ROUND:
                return together
        return heads

    def _round(self, heads: list[tuple[int, int]]) -> None:
        """The steps of some heads; every round begins alike."""
        self.bank = self.flushed = 0
        self.load_ns = dict.fromkeys(self.load_ns, 0.0)
        self.loaded.clear()
        overlap(self.tiler, self._steps(heads), self.delays)
        if self.pending:
            with self.tiler.iteration():
                self._flush()

    def _steps(self, heads: list[tuple[int, int]]) -> Iterator[Iterator[None]]:
        """One block of keys for 128 queries after the other."""
        number = tile = group = 0
        for place, (batch, head) in enumerate(heads):
            slot = place // self.shared % self.buffers
            for queries in self.query_tiles:
                tile, group = tile + 1, group + (queries.place == 0)
                blocks = self.blocks(queries, BLOCK)
                for block in blocks:
                    ends = (block is blocks[0], block is blocks[-1])
                    yield self._phases(_Step(batch, head, queries, block, number, slot, *ends, tile, group))
                    number += 1

    def _phases(self, step: _Step) -> Iterator[None]:
        """One step of the running softmax."""
        bias = self._load(step)
        yield
        scores = self.tiler.psum(f"{self.prefix}_scores_{step.number % _SLOTS}", SIDE, BLOCK)
        names = {rows.group: f"kt_{step.slot}_{rows.group}" for rows in step.block}
        self.scores(scores, step.queries, f"qt_{step.group % 2}", step.block, names, self.width)
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
        weights = self.sbuf(f"p_{step.number % 4}", BLOCK)
        self._exponentials(step, scores, weights)
        yield
        turned = self.sbuf(f"pt_{step.number % 2}", self.most * SIDE)
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
            self.turn_rows(tile, queries, f"qt_{step.group % 2}", self.query_tiles[0].step * SIDE, self.width)
        for rows in step.block:
            key = (step.batch, key_head, rows.group)
            if key not in self.loaded:
                self.loaded.add(key)
                tile = self.sbuf(f"k_{rows.group % 3}", self.key_tiles[0].step * self.width)
                self.load_group(tile, self.prim.k, step.batch, key_head, rows)
                self.load_group(self._values(step, rows), self.prim.v, step.batch, key_head, rows)
                # TensorE contracts over the width, so it has to lie across the partitions.
                self.turn_rows(tile, rows, f"kt_{step.slot}_{rows.group}", rows.step * SIDE, self.width)
        return self.load_bias(f"bias_{step.number % 4}", step.batch, step.head, queries, step.block)

    def _values(self, step: _Step, rows: Rows) -> Tile:
        return self.sbuf(f"v_{step.slot}_{rows.group}", rows.step * self.values)

    def _maximum(self, step: _Step) -> None:
        """Minus the running maximum of the scaled scores."""
        lowest, minus = self._column("lowest", step), self._column("minus", step)
        if step.first:
            self.tiler.emit(
                "tensor_scalar", dst=minus, data=lowest, op0="multiply", operand0=self.exp_scale(), op1="min",
                operand1=min(1.0, self.exp_scale()) * -LOWEST, engine="Vector",
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
                turned.access((0, rows.parts), ((1, step.parts),), offset=number * SIDE),
            )
            column += rows.parts

    def _product(self, step: _Step, turned: Tile) -> None:
        """Weights by values, added to those of earlier blocks."""
        slots = 2 if self.values <= MOVING // 2 else 1
        product = self.tiler.psum(f"{self.prefix}_product", SIDE, slots * self.values)
        result = product.access((0, step.parts), ((1, self.values),), offset=step.number % slots * self.values)
        for number, rows in enumerate(step.block):
            self.matmul(
                result,
                turned.access((0, rows.parts), ((1, step.parts),), offset=number * SIDE),
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
