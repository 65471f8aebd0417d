"""The NKI library's MLP for context encoding (`nkilib/core/mlp/mlp_cte`), one core of it.

Rows are cut into tiles of at most 512. For each tile: load [128, H] per 128 rows (a fused addition is two reads of one
DMA); RMSNorm on ScalarE (square with sum, rsqrt, scale) or LayerNorm on VectorE; transpose on the PE array and back to
SBUF through VectorE, in place (with a norm's weight 128 columns at a time); gate and up projections over 1024 rows of
H at a time, all output columns accumulating in PSUM; transposition of the product; down projection over 1024 columns
of H, 128 rows of I at a time; store. The tile's rows, which the result replaces, are in one buffer, so that the next
tile's load waits for the store; the projected tile has two with H < 8192. Weights are loaded again for every tile, 4
(down: 8) buffers ahead.

On two cores the rows are halved and further cut into shards of 512, or, for few rows of a wide MLP, I is halved and
the cores exchange and add half of the result each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neuroncore.isa import Access, Tile
from neuroncore.targets import Target

from benchmarks.kernels.writer import BANK, Writer, chunks

__all__ = ["MlpPrefill", "MlpPrefillKernel"]


@dataclass(frozen=True)
class MlpPrefill:
    """Parameters of the kernel.

    `norm` is "", "rms", "rms_plain" (without weight) or "layer"; `quantization` "", "row" or "static".
    """

    cores: int
    rows: int
    hidden: int
    intermediate: int
    norm: str
    fused_add: bool
    store_add: bool
    gate: bool
    gate_bias: bool
    up_bias: bool
    down_bias: bool
    norm_bias: bool
    quantization: str
    function: str

    @property
    def splits_intermediate(self) -> bool:
        """Whether two cores halve I instead of the rows."""
        small = self.rows <= 256 and not (self.gate_bias or self.up_bias or self.down_bias)
        wide = self.intermediate > 2048 and self.intermediate % 256 == 0
        halved = (small and self.cores == 2) or wide
        if self.hidden < 7168 or self.intermediate < 1024:
            halved = False
        return self.cores == 2 and (halved or self.intermediate > 4096)

    @property
    def columns(self) -> int:
        """Columns of I that one core computes."""
        return self.intermediate // 2 if self.splits_intermediate else self.intermediate

    @property
    def rounded(self) -> int:
        """These in whole PSUM banks."""
        return -(-self.columns // BANK) * BANK

    @property
    def subtiles(self) -> int:
        """Pieces of 128 rows that one tile has: all their columns fit the PSUM."""
        return max(1, min(4, 4096 // self.rounded))

    def shards(self) -> list[int]:
        """Rows of the pieces one core works on, one after the other."""
        if self.cores == 1 or self.splits_intermediate:
            return [self.rows]
        mine = self.rows // 2
        if self.rows <= 16 * 1024:
            size = mine if self.rows <= 1024 else 512
        else:
            free = self.rows % 256 != 0
            sizes = (2**power for power in range(15, 7, -1))
            size = next(s for s in sizes if self.rows / s >= 16 and (free or self.rows % s == 0))
        return [length for _, length in chunks(mine, size)]


class MlpPrefillKernel:
    """One core's program."""

    weight_dtype = "bf16"

    def __init__(self, p: MlpPrefill, target: Target) -> None:
        self.p = p
        self.w = w = Writer("mlp_prefill", target)
        self.columns = p.columns
        self.x = w.hbm("x", p.rows, p.hidden, "fp8_e4m3" if p.quantization else "bf16")
        self.residual = w.hbm("residual", p.rows, p.hidden, "bf16")
        self.sum = w.hbm("sum", p.rows, p.hidden, "bf16", "output")
        self.y = w.hbm("y", p.rows, p.hidden, "bf16", "output")
        self.gate = w.hbm("gate", p.hidden, p.intermediate, self.weight_dtype)
        self.up = w.hbm("up", p.hidden, p.intermediate, self.weight_dtype)
        self.down = w.hbm("down", p.intermediate, p.hidden, self.weight_dtype)
        self.vector = w.hbm("vector", 1, max(p.hidden, p.intermediate), "bf16")
        self.psum = w.banks()
        self.narrow = w.banks(dtype=self.weight_dtype)
        self.allocate(w, p, p.subtiles)
        self.tiles = 0

    def allocate(self, w: Writer, p: MlpPrefill, subtiles: int) -> None:
        """The buffers of `subtiles` times 128 rows."""
        copies = 1 if p.hidden >= 8192 else 2
        self.bias = w.sbuf(max(p.hidden if p.down_bias else 1, p.intermediate), "bf16")
        self.gamma, self.beta = (w.sbuf(p.hidden // 128, "fp32") for _ in range(2))
        self.hidden = [w.sbuf(p.hidden, "bf16") for _ in range(subtiles)]
        self.inner = [[w.sbuf(p.rounded, "bf16") for _ in range(subtiles)] for _ in range(copies)]
        self.statistics = w.sbuf(6 * len(chunks(p.hidden, BANK)) + 4, "fp32")
        # The squares, the weights of both projections and the other core's result share what is left.
        with w.scope():
            self.scratch = w.sbuf(p.hidden, "bf16")
            self.other = w.sbuf(p.hidden // 2, "bf16")
        with w.scope():
            self.source_weights = w.ring(4, 8 * self.columns, self.weight_dtype)
            self.down_weights = w.ring(8, 1024, self.weight_dtype)

    def shard(self, rows: int) -> None:
        """All tiles of one shard; every shard loads biases and norm weights anew."""
        self.load_vectors()
        for start, length in chunks(rows, 128 * self.p.subtiles):
            self.tile(start, [n for _, n in chunks(length, 128)])

    def load_vectors(self) -> None:
        """Biases and the norm's weights."""
        p, w = self.p, self.w
        for used, width in ((p.gate_bias, self.columns), (p.up_bias, self.columns), (p.down_bias, p.hidden)):
            if used:  # one row, broadcast to 128 partitions by four shuffles on VectorE
                w.dma(self.bias.columns(0, width, (0, 1)), self.vector.rows(0, 1, (0, width)), "qBias")
                first = self.bias.columns(0, width, (0, 32))
                for quadrant in range(4):
                    part = self.bias.columns(0, width, (32 * quadrant, 32 * quadrant + 32))
                    w.emit("nc_stream_shuffle", dst=part, data=first, mask=(0,) * 32)
        # A DMA of its own for each 128 elements of the norm's weight, and of its bias.
        vectors = [self.gamma] * (p.norm in ("rms", "layer")) + [self.beta] * p.norm_bias
        for vector in vectors:
            for i in range(p.hidden // 128):
                elements = self.vector.access(128, ((1, 1),), offset=128 * i, partition_stride=1)
                w.dma(vector.columns(i, i + 1), elements, "qVector")

    def tile(self, start: int, lengths: list[int]) -> None:
        """Rows [start, start + sum(lengths))."""
        p, w = self.p, self.w
        hidden = self.hidden
        inner = self.inner[self.tiles % len(self.inner)]
        self.tiles += 1
        self.load_rows(start, lengths)
        for i, n in enumerate(lengths):
            self.normalize(hidden[i], n)
        for i, n in enumerate(lengths):
            self.transpose(hidden[i], p.hidden, n, scaled=p.norm in ("rms", "layer"))
        if p.gate:
            self.project(hidden, lengths, self.gate, inner, bias=p.gate_bias, function=True, multiply=False)
        self.project(hidden, lengths, self.up, inner, bias=p.up_bias, function=not p.gate, multiply=p.gate)
        inner = self.quantize(inner, lengths)
        for i, n in enumerate(lengths):
            self.transpose(inner[i], self.columns, n, scaled=False)
        hidden = self.project_down(inner, hidden, lengths)
        for i, n in enumerate(lengths):
            width = p.hidden
            if p.splits_intermediate:
                width //= 2
                theirs, ours = (hidden[i].columns(a, a + width, (0, n)) for a in (width, 0))
                w.dma(self.other.columns(0, width, (0, n)), theirs, "qExchange", "GpSimd")
                received = self.other.columns(0, width, (0, n))
                w.emit("tensor_tensor", dst=ours, data1=ours, data2=received, op="add")
            w.dma(self.y.rows(start + 128 * i, n, (0, width)), hidden[i].columns(0, width, (0, n)), "qY", "Vector")

    def load_rows(self, start: int, lengths: list[int]) -> None:
        """The tile's rows, the residual added on the way and stored if asked for."""
        p, w = self.p, self.w
        for i, n in enumerate(lengths):
            into = self.hidden[i].columns(0, p.hidden, (0, n))
            w.dma(into, self.x.rows(start + 128 * i, n), "qX")
            if p.fused_add:  # the second operand of the DMA's addition
                w.dma(into, self.residual.rows(start + 128 * i, n), "qX")
                if p.store_add:
                    w.dma(self.sum.rows(start + 128 * i, n), into, "qSum", "GpSimd")

    def quantize(self, inner: list[Tile], lengths: list[int]) -> list[Tile]:
        """What the down projection multiplies: here the product of gate and up itself."""
        return inner

    def normalize(self, x: Tile, n: int) -> None:
        """In place, without the weight."""
        p, w = self.p, self.w
        whole = x.columns(0, p.hidden, (0, n))
        if p.norm.startswith("rms"):
            total = self.statistics.columns(0, 1, (0, n))
            w.emit(
                "activation_reduce", dst=self.scratch.columns(0, p.hidden, (0, n)), data=whole, op="square",
                reduce_res=total,
            )  # fmt: skip
            w.activate(total, total, "rsqrt", scale=1 / p.hidden)
            w.activate(whole, whole, "copy", scale=total)
        elif p.norm == "layer":
            pieces = chunks(p.hidden, BANK)
            for k, (a, size) in enumerate(pieces):
                stats = self.statistics.columns(6 * k, 6 * k + 6, (0, n))
                w.emit("bn_stats", dst=stats, data=x.columns(a, a + size, (0, n)))
            end = 6 * len(pieces)
            w.emit(
                "bn_aggr", dst=self.statistics.columns(end, end + 2, (0, n)),
                data=self.statistics.columns(0, end, (0, n)),
            )  # fmt: skip
            mean, variance = (self.statistics.columns(end + k, end + k + 1, (0, n)) for k in (0, 1))
            w.activate(variance, variance, "rsqrt")
            w.emit(
                "tensor_scalar", dst=whole, data=whole, op0="subtract", operand0=mean, op1="multiply",
                operand1=variance,
            )  # fmt: skip

    def transpose(self, x: Tile, width: int, n: int, *, scaled: bool) -> None:
        """[n, width] to [128, 128] blocks in place, 512 columns per PSUM bank."""
        w = self.w
        for start, size in chunks(width, BANK):
            bank = self.narrow.take()
            blocks = chunks(size, 128)
            for a, k in blocks:
                w.transpose(bank.columns(a, a + n, (0, k)), x.columns(start + a, start + a + k, (0, n)))
            if not scaled:
                rows = 128 if size > 127 else size
                w.copy(
                    x.columns(start, start + min(size, x.free_elements - start), (0, rows)),
                    bank.columns(0, size, (0, rows)),
                )
                continue
            for a, k in blocks:
                gamma = self.gamma.columns((start + a) // 128, (start + a) // 128 + 1, (0, k))
                w.emit(
                    "tensor_scalar", dst=x.columns(start + a, start + a + n, (0, k)),
                    data=bank.columns(a, a + n, (0, k)), op0="multiply", operand0=gamma,
                )  # fmt: skip

    def project(
        self, hidden: list[Tile], lengths: list[int], weight: Any, inner: list[Tile], *, bias: bool, function: bool,
        multiply: bool,
    ) -> None:  # fmt: skip
        """Gate or up: PSUM holds all rows and columns of the tile while H is streamed."""
        p, w = self.p, self.w
        pieces = chunks(self.columns, BANK)
        # Gate and up take the same banks, so that up waits for what gate leaves there.
        banks = {(i, j): self.psum.tiles[i * len(pieces) + j] for i in range(len(lengths)) for j in range(len(pieces))}
        for start, size in chunks(p.hidden, 1024):
            tile = self.source_weights.take()
            blocks = size // 128
            w.dma(
                tile.access(None, ((self.columns, blocks), (1, self.columns))),
                weight.access(
                    128, ((128 * p.intermediate, blocks), (1, self.columns)), offset=start * p.intermediate,
                    partition_stride=p.intermediate,
                ),
                "qWeights",
            )  # fmt: skip
            for i, n in enumerate(lengths):
                for k in range(0, blocks, 2 if p.quantization else 1):
                    for j, (a, width) in enumerate(pieces):
                        row = start + 128 * k
                        w.matmul(
                            banks[i, j].columns(0, width, (0, n)), hidden[i].columns(row, row + n),
                            tile.columns(k * self.columns + a, k * self.columns + a + width),
                            first=start == 0 and k == 0,
                        )  # fmt: skip
        for i, n in enumerate(lengths):
            for j, (a, width) in enumerate(pieces):
                result, psum = inner[i].columns(a, a + width, (0, n)), banks[i, j].columns(0, width, (0, n))
                self.evict(i, n, a, width, result, psum, bias=bias, function=function, multiply=multiply)

    def evict(
        self, i: int, n: int, a: int, width: int, result: Access, psum: Access, *, bias: bool, function: bool,
        multiply: bool,
    ) -> None:  # fmt: skip
        """Columns [a, a + width) of n rows of subtile i out of PSUM: bias, function, product with gate."""
        w = self.w
        if bias:
            added = self.bias.columns(a, a + width, (0, n))
            w.emit("tensor_tensor", dst=result, data1=psum, data2=added, op="add")
            if function:
                w.activate(result, result, self.p.function)
        elif function:
            w.activate(result, psum, self.p.function)
        if multiply:
            w.emit("tensor_tensor", dst=result, data1=result if bias else psum, data2=result, op="multiply")

    def project_down(self, inner: list[Tile], hidden: list[Tile], lengths: list[int]) -> list[Tile]:
        """1024 output columns at a time, 128 rows of the weight per load."""
        p, w = self.p, self.w
        for start, size in chunks(p.hidden, 1024):
            pieces = chunks(size, BANK)
            banks = {(i, j): self.psum.take() for i in range(len(lengths)) for j in range(len(pieces))}
            rows = chunks(self.columns, 128)
            for k, (row, depth) in enumerate(rows):
                tile = self.down_weights.take()
                w.dma(tile.columns(0, size, (0, depth)), self.down.rows(row, depth, (start, start + size)), "qWeights")
                for i, n in enumerate(lengths):
                    for j, (a, width) in enumerate(pieces):
                        w.matmul(
                            banks[i, j].columns(0, width, (0, n)), inner[i].columns(row, row + n, (0, depth)),
                            tile.columns(a, a + width, (0, depth)), first=k == 0,
                        )  # fmt: skip
            for i, n in enumerate(lengths):
                for j, (a, width) in enumerate(pieces):
                    result = hidden[i].columns(start + a, start + a + width, (0, n))
                    psum = banks[i, j].columns(0, width, (0, n))
                    if p.down_bias:
                        added = self.bias.columns(start + a, start + a + width, (0, n))
                        w.emit("tensor_tensor", dst=result, data1=psum, data2=added, op="add")
                    else:
                        w.copy(result, psum)
        return hidden
