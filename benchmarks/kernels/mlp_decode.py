"""The NKI library's MLP for token generation (`nkilib/core/mlp/mlp_tkg`), one core of it.

Weights stream through SBUF once: gate and up in tiles of 2048 rows of H (fp8: 4096) by all of I, as many of them as
fit; down in tiles of 128 rows of I by 4096 (fp8: 8192) columns of H, or by all of the core's H. A projection runs
either with the hidden state stationary, in column tiles of 32 or 64 columns of the PE array side by side, so that up to
four partial sums are added afterwards, or with the weights stationary. Two cores split H and exchange the gate and the
up result, which both then add.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroncore.isa import Access, Tensor, Tile
from neuroncore.targets import Target

from benchmarks.kernels.decode import Hidden, exchange, interleaved, load_hidden
from benchmarks.kernels.writer import BANK, Ring, Writer, chunks

__all__ = ["MlpDecode", "column_tile", "time_ns"]

#: SBUF the library's allocator hands out, bytes per partition.
BUDGET = 200 * 1024


@dataclass(frozen=True)
class MlpDecode:
    """Parameters of the kernel; `scales` is "", "row" or "static" (fp8 weights)."""

    cores: int
    tokens: int
    hidden: int
    intermediate: int
    norm: str
    fused_add: bool
    store_add: bool
    gate: bool
    gate_bias: bool
    up_bias: bool
    down_bias: bool
    scales: str
    tiled_up: bool
    tiled_down: bool
    packed_down: bool
    function: str


def column_tile(tokens: int, target: Target) -> int:
    """Columns of the PE array that the tokens take."""
    if target.neuroncore_version == 2:
        return 64
    return 32 if tokens <= 32 else 64 if tokens <= 64 else 128


def time_ns(p: MlpDecode, target: Target) -> float:
    """Program time of one core."""
    return _Kernel(p, target).run()


class _Kernel:
    def __init__(self, p: MlpDecode, target: Target) -> None:
        self.p = p
        self.w = w = Writer("mlp_decode", target)
        self.dtype = "fp8_e4m3" if p.scales else "bf16"
        self.width = p.hidden // p.cores
        self.x = w.hbm("x", p.tokens, p.hidden, "bf16")
        self.residual = w.hbm("residual", p.tokens, p.hidden, "bf16")
        self.gate = w.hbm("gate", p.hidden, p.intermediate, self.dtype)
        self.up = w.hbm("up", p.hidden, p.intermediate, self.dtype)
        self.down = w.hbm("down", p.intermediate, p.hidden, self.dtype)
        self.vector = w.hbm("vector", 128, max(p.hidden, p.intermediate), "fp32")
        self.out = w.hbm("out", p.tokens, p.hidden, "bf16", "output")
        self.tile = column_tile(p.tokens, target)
        self.psum = w.banks()

    def run(self) -> float:
        p, w = self.p, self.w
        x = self.fused_add() if p.fused_add else self.x
        inner_tiles = -(-p.intermediate // 128)
        inner = w.sbuf(inner_tiles * p.tokens, "bf16")
        hidden = load_hidden(w, x, p.tokens, p.hidden, p.cores, p.norm)
        rows, columns = (p.tokens, p.intermediate) if p.tiled_up else (128, inner_tiles * p.tokens)
        partial = [w.sbuf(columns, "fp32", rows) for _ in range(3)]
        scale = w.sbuf(p.intermediate if p.scales == "row" and p.tiled_up else inner_tiles, "fp32")
        bias = w.sbuf(p.intermediate if p.tiled_up else inner_tiles, "bf16")
        budget = w.free_bytes() - max(0, w.target.sbuf_bytes_per_partition - BUDGET)
        with w.scope():
            ring = self.up_ring(budget)
            if p.gate:
                self.project(hidden, self.gate, ring, partial[0], scale, bias if p.gate_bias else None)
            self.project(hidden, self.up, ring, partial[1], scale, bias if p.up_bias else None)
            used = ring.used_bytes
        self.combine(partial, inner)
        self.project_down(inner, used)
        return w.time_ns()

    def fused_add(self) -> Tensor:
        """Hidden + residual by a DMA with addition, HBM to HBM; here one transfer per operand. The sum is read back."""
        p, w = self.p, self.w
        total = w.hbm("sum", p.tokens, p.hidden, "bf16", "output" if p.store_add else "temporary")
        for source in (self.x, self.residual):
            w.dma(total.rows(0, p.tokens, (0, self.width)), source.rows(0, p.tokens, (0, self.width)), "qAdd")
        return total

    # Gate and up

    def up_ring(self, budget: int) -> _WeightRing:
        """Buffers of [128, 16 or 32, I] in what is left of the SBUF."""
        p = self.p
        size = 1 if p.scales else 2
        for rows in (4096, 1024) if p.scales else (2048, 512):
            bytes_each = rows // 128 * p.intermediate * size
            count = min(2 * -(-self.width // rows), budget // bytes_each)
            if count > 0:
                break
        ring = self.w.ring(count, rows // 128 * p.intermediate, self.dtype)
        return _WeightRing(ring, rows, bytes_each, count)

    def project(
        self, hidden: Hidden, weight: Tensor, ring: _WeightRing, result: Tile, scale: Tile, bias: Tile | None
    ) -> None:
        """Gate or up over this core's rows of H."""
        p, w = self.p, self.w
        limit = 8 * (BANK if p.tiled_up else 128)
        for first, width in chunks(p.intermediate, limit):
            if bias is not None:
                w.dma(
                    bias.columns(0, width, (0, p.tokens)) if p.tiled_up else bias.columns(0, -(-width // 128)),
                    self.vector.access(p.tokens, ((1, width),)) if p.tiled_up
                    else self.vector.access(128, ((128, -(-width // 128)),), partition_stride=1),
                    "qVectors",
                )  # fmt: skip
            if p.scales:
                per_row = p.scales == "row" and p.tiled_up
                n = width if per_row else -(-width // 128) if p.scales == "row" else 1
                rows = p.tokens if p.tiled_up else 128
                w.dma(scale.columns(0, n, (0, rows)), self.vector.rows(0, rows, (0, n)), "qVectors")
            pieces = chunks(width, BANK if p.tiled_up else 128)
            banks = [self.psum.take() for _ in pieces]
            seen = [[False] * (128 // self.tile) for _ in pieces]
            for start, size in chunks(self.width, ring.rows):
                tile, blocks = ring.take(), size // 128
                w.dma(
                    tile.access(None, ((width, blocks), (1, width))),
                    weight.access(
                        128, ((p.intermediate, blocks), (1, width)),
                        offset=start // 128 * p.intermediate + first,
                        partition_stride=self.width // 128 * p.intermediate,
                    ),
                    "qWeights",
                )  # fmt: skip
                for k in range(blocks):
                    column = hidden.column(start // 128 + k)
                    for j, (a, n) in enumerate(pieces):
                        part = tile.columns(k * width + a, k * width + a + n)
                        if p.tiled_up:
                            at = k % (128 // self.tile)
                            target = banks[j].columns(0, n, (at * self.tile, at * self.tile + p.tokens))
                            w.matmul(target, column, part, first=not seen[j][at], tile_columns=self.tile)
                            seen[j][at] = True
                        else:
                            w.matmul(banks[j].columns(0, p.tokens, (0, n)), part, column, first=start == 0 and k == 0)
            self.collect(result, banks, seen, first, pieces, scale)
            if bias is not None:
                whole, added = self._whole(result, bias, first, width)
                w.emit("tensor_tensor", dst=whole, data1=whole, data2=added, op="add")

    def collect(
        self, result: Tile, banks: list[Tile], seen: list[list[bool]], first: int, pieces: list[tuple[int, int]],
        scale: Tile,
    ) -> None:  # fmt: skip
        """PSUM to SBUF; column tiles are added, fp8 is scaled back."""
        p, w = self.p, self.w
        if not p.tiled_up:
            for j, (a, n) in enumerate(pieces):
                at = (first + a) // 128 * p.tokens
                factor = scale.columns(0, 1, (0, n)) if p.scales else None
                interleaved(
                    w, j, result.columns(at, at + p.tokens, (0, n)), banks[j].columns(0, p.tokens, (0, n)), scale=factor
                )
            return
        for j, (a, n) in enumerate(pieces):
            into = result.columns(first + a, first + a + n)
            w.activate(into, banks[j].columns(0, n, (0, p.tokens)), "copy")
            for at in range(1, sum(seen[j])):
                other = banks[j].columns(0, n, (at * self.tile, at * self.tile + p.tokens))
                w.emit("tensor_tensor", dst=into, data1=other, data2=into, op="add")
        width = sum(n for _, n in pieces)
        whole = result.columns(first, first + width)
        if p.scales == "static":
            w.emit("tensor_scalar", dst=whole, data=whole, op0="multiply", operand0=scale.columns(0, 1, (0, p.tokens)))
        elif p.scales:
            factor = scale.columns(0, width, (0, p.tokens))
            w.emit("tensor_tensor", dst=whole, data1=whole, data2=factor, op="multiply")

    def _whole(self, result: Tile, bias: Tile, first: int, width: int) -> tuple[Access, Access]:
        p = self.p
        if p.tiled_up:
            return result.columns(first, first + width), bias.columns(0, width, (0, p.tokens))
        count = -(-width // 128)
        at = first // 128 * p.tokens
        return result.columns(at, at + count * p.tokens), bias.access(None, ((1, count), (0, p.tokens)))

    def combine(self, partial: list[Tile], inner: Tile) -> None:
        """Exchange with the other core, activation, gate times up, and the layout the down projection needs."""
        p, w = self.p, self.w
        gate, up, received = partial
        for tile in (gate, up) if p.gate else (up,):
            if p.cores == 2:
                exchange(w, tile.access(), received.access())
                w.emit("tensor_tensor", dst=tile, data1=tile, data2=received, op="add")
            if tile is gate or not p.gate:
                w.activate(tile, tile, p.function)
        result = up if p.tiled_up else inner
        if p.gate:
            w.emit("tensor_tensor", dst=result, data1=gate, data2=up, op="multiply")
        elif not p.tiled_up:
            w.copy(inner, up)
        if p.tiled_up:
            for k, (a, n) in enumerate(chunks(p.intermediate, 128)):
                bank = self.psum.take().columns(0, p.tokens, (0, n))
                w.transpose(bank, up.columns(a, a + n))
                w.copy(inner.columns(k * p.tokens, (k + 1) * p.tokens, (0, n)), bank)

    # Down

    def project_down(self, inner: Tile, used: int) -> None:
        """Over this core's columns of H; the first loads start in memory that gate and up have not used last."""
        p, w = self.p, self.w
        size = 1 if p.scales else 2
        result = w.sbuf(self.width if p.tiled_down else self.width // 128 * p.tokens, "bf16")
        stored = w.sbuf(self.width, "bf16") if not p.tiled_down else result
        scale = w.sbuf(self.width if p.scales == "row" and p.tiled_down else self.width // 128, "fp32")
        if p.down_bias:
            bias = w.sbuf(self.width if p.tiled_down else self.width // 128, "bf16")
            w.dma(
                bias.columns(0, self.width, (0, p.tokens)) if p.tiled_down else bias,
                self.vector.access(p.tokens, ((1, self.width),)) if p.tiled_down
                else self.vector.access(128, ((1, self.width // 128),), partition_stride=self.width // 128),
                "qVectors",
            )  # fmt: skip
        if p.scales:
            rows, n = (p.tokens, self.width if p.scales == "row" else 1) if p.tiled_down else (128, self.width // 128)
            w.dma(scale.columns(0, n, (0, rows)), self.vector.rows(0, rows, (0, n)), "qVectors")
        step = (4096 if not p.scales else 8192) if p.tiled_down else self.width
        free = max(step * size, w.free_bytes() - max(0, w.target.sbuf_bytes_per_partition - BUDGET))
        tiles = w.ring(min(free // (step * size), -(-self.width // step) * -(-p.intermediate // 128)), step, self.dtype)
        for _ in range(min(len(tiles.tiles) - 1, -(-used // (step * size)))):
            tiles.take()
        swap_banks: list[Tile] = []
        per_bank = BANK // p.tokens
        if not p.tiled_down:
            swap_banks = [self.psum.take() for _ in range(min(8, -(-(self.width // 128) // per_bank)))]
        for start, columns in chunks(self.width, step):
            pieces = chunks(columns, BANK)
            factor = 128 // self.tile
            banks = [self.psum.take() for _ in range(-(-len(pieces) // factor))] if p.tiled_down else swap_banks
            for i, (row, depth) in enumerate(chunks(p.intermediate, 128)):
                tile = tiles.take()
                source = self.down.rows(row, depth, (start, start + columns))
                w.dma(tile.columns(0, columns, (0, depth)), source, "qWeights")
                x = inner.columns(i * p.tokens, (i + 1) * p.tokens, (0, depth))
                if p.tiled_down:
                    for j, (a, n) in enumerate(pieces):
                        at = j % factor * self.tile
                        w.matmul(
                            banks[j // factor].columns(0, n, (at, at + p.tokens)), x,
                            tile.columns(a, a + n, (0, depth)), first=i == 0, tile_columns=self.tile,
                        )  # fmt: skip
                    continue
                blocks = columns // 128
                for k in range(blocks):
                    bank, at = banks[(k // per_bank) % len(banks)], k % per_bank * p.tokens
                    part = (
                        tile.columns(k * 128, k * 128 + 128, (0, depth)) if p.packed_down
                        else tile.access((0, depth), ((blocks, 128),), offset=k)
                    )  # fmt: skip
                    w.matmul(bank.columns(at, at + p.tokens), part, x, first=i == 0)
            if p.tiled_down:
                for j, (a, n) in enumerate(pieces):
                    at = j % factor * self.tile
                    into = result.columns(start + a, start + a + n, (0, p.tokens))
                    psum = banks[j // factor].columns(0, n, (at, at + p.tokens))
                    if p.scales == "row":
                        scales = scale.columns(start + a, start + a + n, (0, p.tokens))
                        w.emit("tensor_tensor", dst=into, data1=psum, data2=scales, op="multiply")
                    else:
                        scaling = scale.columns(0, 1, (0, p.tokens)) if p.scales else None
                        interleaved(w, j, into, psum, scale=scaling)
        if not p.tiled_down:
            for k, (a, n) in enumerate(chunks(self.width // 128, per_bank)):
                into = result.columns(a * p.tokens, (a + n) * p.tokens)
                scaling = scale.columns(0, 1) if p.scales else None
                interleaved(w, k, into, swap_banks[k % len(swap_banks)].columns(0, n * p.tokens), scale=scaling)
        if p.down_bias:
            whole = result.columns(0, self.width, (0, p.tokens)) if p.tiled_down else result.access()
            added = (
                bias.columns(0, self.width, (0, p.tokens)) if p.tiled_down
                else bias.access(None, ((1, self.width // 128), (0, p.tokens)))
            )  # fmt: skip
            w.emit("tensor_tensor", dst=whole, data1=whole, data2=added, op="add")
        if not p.tiled_down:
            narrow = w.banks(dtype="bf16")
            blocks = self.width // 128
            for k in range(blocks):
                turned = narrow.take().columns(0, 128, (0, p.tokens))
                w.transpose(turned, result.columns(k * p.tokens, (k + 1) * p.tokens))
                interleaved(w, k, stored.access((0, p.tokens), ((blocks, 128),), offset=k), turned)
        w.dma(
            self.out.rows(0, p.tokens, (0, self.width)), stored.columns(0, self.width, (0, p.tokens)), "qOut", "Scalar"
        )


class _WeightRing:
    """Gate and up share their buffers in turn; down starts behind the one used last."""

    def __init__(self, ring: Ring, rows: int, bytes_each: int, count: int) -> None:
        self.ring, self.rows, self._bytes, self._count = ring, rows, bytes_each, count
        self._taken = 0

    def take(self) -> Tile:
        """The next buffer."""
        self._taken += 1
        return self.ring.take()

    @property
    def used_bytes(self) -> int:
        """End of the buffer used last, from the ring's start."""
        return ((self._taken - 1) % self._count + 1) * self._bytes
