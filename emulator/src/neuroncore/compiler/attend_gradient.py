"""Tiling attention's gradient: scores are made again, block of keys by block of keys, and never reach HBM.

For a block of keys and 128 queries: scores and the gradient of the weights into PSUM, weights = exp(scores - row
statistic), gradient of the scores = weights * (gradient of the weights - row sum of gradient times result). With
queries on the partitions both are stationary operands as they are for the gradients of keys and values, which
accumulate in PSUM over all queries; only the gradient of the queries needs a transposition. TensorE makes seven passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuroncore.compiler.attend import LOWEST, MOVING, SIDE, Attention, Rows, Step, depths, overlap
from neuroncore.compiler.ir import AttendGradient
from neuroncore.compiler.views import View
from neuroncore.isa import Access, Tile

if TYPE_CHECKING:
    from neuroncore.compiler.fuse import Kernel
    from neuroncore.compiler.tile import Tiler

__all__ = ["gradient_fits", "tile_attend_gradient"]

#: In which tick after it began a step does its next phase, in issue order (see `overlap`).
_DELAYS: tuple[int, ...] = (0, 2, 6, 4, 2, 1)
#: Blocks of keys in SBUF: one is in use until six ticks after its last step began.
_KEY_SLOTS = 8
#: SBUF bytes per partition for what does not grow with the number of queries.
_WORK_BYTES = 96 * 1024


def gradient_fits(sbuf_bytes: int, queries: int, width: int, values: int, size: int) -> bool:
    """Whether all queries of a head, with the gradients of their results, fit SBUF."""
    return max(width, values) <= MOVING and _head_bytes(queries, width, values, size) <= sbuf_bytes - _WORK_BYTES


def _head_bytes(queries: int, width: int, values: int, size: int) -> int:
    tiles = -(-queries // SIDE)
    turned = (len(depths(width)) + len(depths(values))) * tiles * SIDE * size
    return turned + tiles * ((width + values) * size + 4 * width + 8)


def tile_attend_gradient(tiler: Tiler, kernel: Kernel) -> None:
    """Emit the gradient of attention."""
    prim = kernel.prims[0]
    assert isinstance(prim, AttendGradient)
    with tiler.builder.op(prim.op, prim.source):
        _Gradient(tiler, prim).run()
    tiler.stage = -1


@dataclass(frozen=True)
class _Step(Step):
    """`block_number` counts the blocks of keys."""

    first_queries: bool
    last_queries: bool
    first_keys: bool
    last_keys: bool
    block_number: int


class _Gradient(Attention):
    prim: AttendGradient

    def __init__(self, tiler: Tiler, prim: AttendGradient) -> None:
        super().__init__(tiler, prim)
        # A power of two, as groups of key tiles are, so that no group lies in two blocks.
        self.most = 1 << min(4, MOVING // max(self.width, self.values)).bit_length() - 1
        self.key_tiles = self.tiles(self.keys, self.most if prim.bias is None else 1)
        self.load_bank = "turn"
        self.shared = prim.q.shape[1] // prim.k.shape[1]
        plan = self._plan()
        steps = sum(len(queries) for _, queries in plan)
        self.key_steps: dict[int, int] = {}  # by place of a group in its block, the most tiles it has in any block
        for block, _ in plan:
            for rows in block:
                place = rows.group - block[0].group
                self.key_steps[place] = max(self.key_steps.get(place, 0), rows.step)
        room = tiler.target.sbuf_usable_bytes_per_partition - _WORK_BYTES
        size = _head_bytes(prim.q.shape[2], self.width, self.values, self.size)
        # A head's queries are read until six ticks after its last step began; only then may the next ones come.
        self.buffers, self.delays = max(2, -(-(steps + 6) // steps)), _DELAYS
        if self.buffers * size > room:
            self.buffers = 1
            if len(self.query_tiles) < 8:
                self.delays = (0,) * len(_DELAYS)

    def _plan(self) -> list[tuple[list[Rows], list[Rows]]]:
        """Blocks of keys, each with the query tiles that see some of it."""
        blocks: list[list[Rows]] = []
        for rows in self.key_tiles:
            if not blocks or len(blocks[-1]) == self.most:
                blocks.append([])
            blocks[-1].append(rows)
        first = [min(rows.start for rows in block) for block in blocks]
        return [
            (block, [q for q in self.query_tiles if not self.prim.causal or q.last >= start] or self.query_tiles[-1:])
            for block, start in zip(blocks, first, strict=True)
        ]

    def run(self) -> None:
        """All heads."""
        with self.tiler.iteration(prologue=True):
            self.make_masks([(q, rows) for block, tiles in self._plan() for q in tiles for rows in block])
        overlap(self.tiler, self._steps(), self.delays)

    def _steps(self) -> Iterator[Iterator[None]]:
        number = blocks = 0
        plan = self._plan()
        last = {q: n for n, (_, queries) in enumerate(plan) for q in queries}
        for batch in range(self.prim.q.shape[0]):
            for head in range(self.prim.q.shape[1]):
                slot = (batch * self.prim.q.shape[1] + head) % self.buffers
                for place, (block, tiles) in enumerate(plan):
                    for queries in tiles:
                        ends = (queries is tiles[0], queries is tiles[-1], place == 0, place == last[queries])
                        yield self._phases(_Step(batch, head, queries, block, number, slot, *ends, blocks))
                        number += 1
                    blocks += 1

    def _phases(self, step: _Step) -> Iterator[None]:
        bias = self._load(step)
        yield
        scores = self.tiler.psum(f"{self.prefix}_scores_{step.number % 2}", SIDE, MOVING)
        slopes = self.tiler.psum(f"{self.prefix}_slopes_{step.number % 2}", SIDE, MOVING)
        group = f"{step.slot}_{step.queries.group}"
        for dst, name, keys, width in ((scores, "qt", "kt", self.width), (slopes, "gt", "vt", self.values)):
            names = {rows.group: self._key_name(step, rows, keys) for rows in step.block}
            self.scores(dst, step.queries, f"{name}_{group}", step.block, names, width)
        self.hide(scores, step.queries, step.block)
        yield
        if bias is not None:
            scores = self.biased(scores, bias, f"x_{step.number % 4}", step.parts, step.width)
        weights, dscores = (self.sbuf(f"{name}_{step.number % 4}", MOVING) for name in ("p", "ds"))
        whole = ((1, step.width),)
        self.tiler.emit(
            "activation", dst=weights.access((0, step.parts), whole), data=scores.access((0, step.parts), whole),
            op="exp", scale=self.exp_scale(), bias=self._statistic(step, "minus"),
        )  # fmt: skip
        self.busy("Scalar", step.width)
        yield
        self.tiler.emit(
            "scalar_tensor_tensor", dst=dscores.access((0, step.parts), whole),
            data=slopes.access((0, step.parts), whole), op0="subtract", operand0=self._statistic(step, "inner"),
            op1="multiply", operand1=weights.access((0, step.parts), whole),
        )  # fmt: skip
        self.busy("Vector", 2 * step.width)
        yield
        self._key_gradients(step, weights, dscores)
        turned = self.sbuf(f"dst_{step.number % 2}", self.most * SIDE)
        self.turn(list(self._turned(step, dscores, turned)), "turn", 1)
        yield
        self._query_gradient(step, turned)

    # -- phases --------------------------------------------------------------------------------------------------------

    def _load(self, step: _Step) -> Tile | None:
        """Queries at their first block, keys at their first queries, and the bias."""
        if step.first_keys and step.queries.place == 0:
            self._load_queries(step)
        if step.first_queries:
            for rows in step.block:
                if rows.place == 0:
                    for name, view in (("k", self.prim.k), ("v", self.prim.v)):
                        tile = self._keys(step, rows, name, view)
                        self.load_group(tile, view, step.batch, step.head // self.shared, rows)
                        columns = self._key_step(step, rows) * SIDE
                        self.turn_rows(tile, rows, self._key_name(step, rows, f"{name}t"), columns, view.shape[3])
        return self.load_bias(f"bias_{step.number % 4}", step.batch, step.head, step.queries, step.block)

    def _load_queries(self, step: _Step) -> None:
        """A group of queries, the gradients of their results, and per row: minus the statistic, gradient . result."""
        rows, prim, emit = step.queries, self.prim, self.tiler.emit
        columns = rows.step * SIDE
        for name, view in (("q", prim.q), ("g", prim.grad)):
            tile = self._queries(step, name, view.shape[3])
            self.load_group(tile, view, step.batch, step.head, rows)
            self.turn_rows(tile, rows, f"{name}t_{step.slot}_{rows.group}", columns, view.shape[3])
        whole = ((1, rows.step * self.values),)
        grad, result, product = (
            tile.access((0, rows.parts), whole)
            for tile in (
                self._queries(step, "g", self.values),
                self.sbuf(f"o_{rows.group % 2}", self.query_tiles[0].step * self.values),
                self.sbuf(f"go_{rows.group % 2}", self.query_tiles[0].step * self.values, "fp32"),
            )
        )
        self.tiler.load(result, self.group(prim.out, step.batch, step.head, rows))
        emit("tensor_tensor", dst=product, data1=grad, data2=result, op="multiply", engine="GpSimd")
        inner, minus = (
            self._statistics(step, name).access((0, rows.parts), ((1, rows.step),)) for name in ("inner", "minus")
        )
        by_row = replace(product, free=((self.values, rows.step), (1, self.values)))
        emit("tensor_reduce", dst=inner, data=by_row, op="add", axes=1)
        self.busy("Vector", rows.step * self.values)
        s0, s1, s2 = prim.rows.strides
        offset = prim.rows.offset + step.batch * s0 + step.head * s1 + rows.start * s2
        source = self.tiler.tensor(prim.rows.buffer).access(
            rows.parts, ((s2, rows.step),), offset=offset, partition_stride=rows.step * s2
        )
        self.tiler.load(minus, source)
        emit(
            "tensor_scalar", dst=minus, data=minus, op0="multiply", operand0=-1.0, op1="min",
            operand1=min(1.0, self.exp_scale()) * -LOWEST, engine="Vector",
        )  # fmt: skip

    def _key_gradients(self, step: _Step, weights: Tile, dscores: Tile) -> None:
        """Add to the gradients of keys and values; after the last queries they are complete."""
        prim, queries = self.prim, step.queries
        for name, source, other, width in (("dv", weights, "g", self.values), ("dk", dscores, "q", self.width)):
            total = self.tiler.psum(f"{self.prefix}_{name}", SIDE, self.most * width)
            moving = self._queries(step, other, width).access(
                (0, step.parts), ((1, width),), offset=queries.place * width
            )
            column = 0
            for number, rows in enumerate(step.block):
                self.matmul(
                    total.access((0, rows.parts), ((1, width),), offset=number * width),
                    source.access((0, step.parts), ((1, rows.parts),), offset=column),
                    moving,
                    accumulate=not step.first_queries,
                )
                column += rows.parts
            if not step.last_queries:
                continue
            for number, rows in enumerate(step.block):
                if rows.place:
                    continue
                whole = ((1, rows.step * width),)
                done = self.sbuf(f"{name}_{step.block_number % 2}_{number}", rows.step * width)
                to = done.access((0, rows.parts), whole)
                scale = prim.scale if name == "dk" else None
                self.evict(to, total.access((0, rows.parts), whole, offset=number * width), scale)
                view = prim.dk if name == "dk" else prim.dv
                self.tiler.store(self.group(view, step.batch, step.head, rows), to)

    def _turned(self, step: _Step, dscores: Tile, turned: Tile) -> Iterator[tuple[Access, Access]]:
        column = 0
        for number, rows in enumerate(step.block):
            yield (
                dscores.access((0, step.parts), ((1, rows.parts),), offset=column),
                turned.access((0, rows.parts), ((1, step.parts),), offset=number * SIDE),
            )
            column += rows.parts

    def _query_gradient(self, step: _Step, turned: Tile) -> None:
        """Add to the gradient of the queries; after the last keys it is complete."""
        queries, width = step.queries, self.width
        part = self.tiler.psum(f"{self.prefix}_dq", SIDE, width).access((0, step.parts), ((1, width),))
        for number, rows in enumerate(step.block):
            keys = self._keys(step, rows, "k", self.prim.k)
            self.matmul(
                part,
                turned.access((0, rows.parts), ((1, step.parts),), offset=number * SIDE),
                keys.access((0, rows.parts), ((1, width),), offset=rows.place * width),
                accumulate=number > 0,
            )
        tile = self.sbuf(f"total_{step.slot}_{queries.group}", queries.step * width, "fp32")
        total = tile.access((0, step.parts), ((1, width),), offset=queries.place * width)
        if step.first_keys:
            self.evict(total, part)
        else:
            self.tiler.emit("tensor_tensor", dst=total, data1=part, data2=total, op="add", engine="Vector")
            self.busy("Vector", width)
        if step.last_keys and queries.place == queries.step - 1:
            whole = ((1, queries.step * width),)
            done = self.sbuf(f"done_{queries.group % 2}", self.query_tiles[0].step * width)
            to = done.access((0, step.parts), whole)
            self.evict(to, tile.access((0, step.parts), whole), self.prim.scale)
            self.tiler.store(self.group(self.prim.dq, step.batch, step.head, queries), to)

    # -- tiles ---------------------------------------------------------------------------------------------------------

    def _queries(self, step: _Step, name: str, width: int) -> Tile:
        return self.sbuf(f"{name}_{step.slot}_{step.queries.group}", step.queries.step * width)

    def _key_name(self, step: _Step, rows: Rows, name: str) -> str:
        """Groups are numbered within their block, so that slots are few."""
        return f"{name}_{step.block_number % _KEY_SLOTS}_{rows.group - step.block[0].group}"

    def _key_step(self, step: _Step, rows: Rows) -> int:
        return self.key_steps[rows.group - step.block[0].group]

    def _keys(self, step: _Step, rows: Rows, name: str, view: View) -> Tile:
        return self.sbuf(self._key_name(step, rows, name), self._key_step(step, rows) * view.shape[3])

    def _statistics(self, step: _Step, name: str) -> Tile:
        return self.sbuf(f"{name}_{step.slot}_{step.queries.group}", step.queries.step, "fp32")

    def _statistic(self, step: _Step, name: str) -> Access:
        return self._statistics(step, name).access((0, step.parts), ((1, 1),), offset=step.queries.place)
