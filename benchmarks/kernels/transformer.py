"""One transformer layer of an encoder on one core, as a compiler would schedule it: weights stream, activations stay.

Activations lie transposed, [128 of H, tokens], so that no layer needs a transposition: a linear layer has its weights
stationary, 128 by 128, and at most 512 tokens moving; VectorE and ScalarE evict the results in turn, bias and
activation on the way. V is computed the other way round, tokens on the partitions. Attention per sequence and head:
scores, row maximum, exp with row sum, transposition on the PE array, product with V. LayerNorm sums over the
partitions by products with ones. Weights are loaded in tiles of 128 rows, as far ahead as the SBUF allows.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroncore.isa import Access, Tile
from neuroncore.targets import Target

from benchmarks.kernels.writer import BANK, Writer, chunks, steady_ns

__all__ = ["EncoderLayer", "layers_ns"]

#: Tokens whose activations one pass over the weights serves.
BLOCK = 1024


@dataclass(frozen=True)
class EncoderLayer:
    """Sizes of a layer and of its input; `gated` has two up-projections."""

    sequences: int
    length: int
    hidden: int
    inner: int
    heads: int
    function: str = "gelu"

    @property
    def tokens(self) -> int:
        """Rows of the input."""
        return self.sequences * self.length


def layers_ns(p: EncoderLayer, layers: int, target: Target) -> float:
    """Program time of `layers` layers, one after the other.

    A batch that is too large for the SBUF goes through each layer in blocks of sequences, the weights once per block.
    """
    per_block = max(1, BLOCK // p.length)
    total = 0.0
    for _, count in chunks(p.sequences, per_block) if p.sequences <= 4 * per_block else [(0, per_block)]:
        block = EncoderLayer(count, p.length, p.hidden, p.inner, p.heads, p.function)
        total += steady_ns(lambda n, b=block: _play(b, n, target), layers, first=1, second=2)  # type: ignore[misc]
    return total if p.sequences <= 4 * per_block else total * p.sequences / per_block


def _play(p: EncoderLayer, layers: int, target: Target) -> float:
    kernel = _Kernel(p, target)
    kernel.load()
    for _ in range(layers):
        kernel.layer()
    return kernel.w.time_ns()


class _Kernel:
    def __init__(self, p: EncoderLayer, target: Target) -> None:
        self.p = p
        self.w = w = Writer("encoder", target)
        self.depth, self.inner_depth = -(-p.hidden // 128), -(-p.inner // 128)
        self.x = [w.sbuf(p.tokens, "bf16") for _ in range(self.depth)]
        self.q = [w.sbuf(p.tokens, "bf16") for _ in range(self.depth)]
        self.k = [w.sbuf(p.tokens, "bf16") for _ in range(self.depth)]
        self.v = [w.sbuf(p.hidden, "bf16") for _ in range(p.sequences * -(-p.length // 128))]
        self.h = [w.sbuf(p.tokens, "bf16") for _ in range(self.inner_depth)]
        self.square = w.ring(2, min(BANK, p.tokens), "bf16")
        self.rows = w.ring(6, min(BANK, p.tokens), "fp32")
        self.ones = w.sbuf(128, "bf16")
        self.bias = w.sbuf(self.inner_depth, "fp32")
        self.probabilities = w.ring(4, p.length, "bf16")
        self.turned = w.ring(4, 128 * -(-p.length // 128), "bf16")
        self.small = w.ring(16, 1, "fp32")
        self.banks = w.banks(0, 4)
        self.scores, self.narrow = w.banks(4, 2), w.banks(6, 2, "bf16")
        self.weights = w.ring(max(2, w.free_bytes() // (2 * max(p.hidden, BANK)) - 1), max(p.hidden, BANK), "bf16")
        self.turn = 0

    def load(self) -> None:
        """The input, transposed by DMA."""
        p, w = self.p, self.w
        source = w.hbm("x", p.hidden, p.tokens, "bf16")
        for i, tile in enumerate(self.x):
            rows = min(128, p.hidden - i * 128)
            w.dma(tile.columns(0, p.tokens, (0, rows)), source.rows(i * 128, rows), "qX")

    def layer(self) -> None:
        """Attention, norm, MLP, norm."""
        p = self.p
        self.linear(self.x, self.q, p.hidden, p.hidden, "copy")
        self.linear(self.x, self.k, p.hidden, p.hidden, "copy")
        self.values()
        self.attention()
        self.linear(self.q, self.x, p.hidden, p.hidden, "add")
        self.norm()
        self.linear(self.x, self.h, p.hidden, p.inner, p.function)
        self.linear(self.h, self.x, p.inner, p.hidden, "add")
        self.norm()

    def linear(self, x: list[Tile], y: list[Tile], k: int, n: int, function: str) -> None:
        """Y = function(W x + bias), or y + W x + bias."""
        p, w = self.p, self.w
        weight = w.hbm("w", k, n, "bf16")
        width = self.weights.tiles[0].free_elements
        for first, columns in chunks(n, width):
            tiles: list[Tile] = []
            for row, rows in chunks(k, 128):
                tiles.append(self.weights.take())
                part = weight.rows(row, rows, (first, first + columns))
                w.dma(tiles[-1].columns(0, columns, (0, rows)), part, "qWeights")
                if len(tiles) * width > 40 * width and len(tiles) >= len(self.weights.tiles) - 1:
                    break
            for a, size in chunks(columns, 128):
                out = y[(first + a) // 128]
                for t, tokens in chunks(p.tokens, BANK):
                    bank = self.banks.take().columns(0, tokens, (0, size))
                    for i, tile in enumerate(tiles):
                        rows = min(128, k - i * 128)
                        w.matmul(
                            bank, tile.columns(a, a + size, (0, rows)), x[i].columns(t, t + tokens, (0, rows)),
                            first=i == 0,
                        )  # fmt: skip
                    self.evict(out.columns(t, t + tokens, (0, size)), bank, function, size)

    def evict(self, out: Access, bank: Access, function: str, rows: int) -> None:
        """PSUM to SBUF with bias; a residual is added on VectorE."""
        w = self.w
        bias = self.bias.columns(0, 1, (0, rows))
        if function == "add":
            w.emit("scalar_tensor_tensor", dst=out, data=bank, operand0=bias, operand1=out, op0="add", op1="add")
        elif function != "copy" or self.turn % 2:
            w.activate(out, bank, "identity" if function == "copy" else function, bias=bias)
        else:
            w.emit("tensor_scalar", dst=out, data=bank, op0="add", operand0=bias)
        self.turn += 1

    def values(self) -> None:
        """V with the tokens on the partitions."""
        p, w = self.p, self.w
        weight = w.hbm("wv", p.hidden, p.hidden, "bf16")
        tiles = []
        for row, rows in chunks(p.hidden, 128):
            tiles.append(self.weights.take())
            w.dma(tiles[-1].columns(0, p.hidden, (0, rows)), weight.rows(row, rows), "qWeights")
        index = 0
        for s in range(p.sequences):
            for t, tokens in chunks(p.length, 128):
                at = s * p.length + t
                for a, size in chunks(p.hidden, BANK):
                    bank = self.banks.take().columns(0, size, (0, tokens))
                    for i, tile in enumerate(tiles):
                        rows = min(128, p.hidden - i * 128)
                        w.matmul(
                            bank, self.x[i].columns(at, at + tokens, (0, rows)), tile.columns(a, a + size, (0, rows)),
                            first=i == 0,
                        )  # fmt: skip
                    self.evict(self.v[index].columns(a, a + size, (0, tokens)), bank, "copy", tokens)
                index += 1

    def attention(self) -> None:
        """All sequences and heads; the result replaces Q."""
        p, w = self.p, self.w
        width = p.hidden // p.heads
        pieces = chunks(p.length, 128)
        for s in range(p.sequences):
            for head in range(p.heads):
                tile, at = divmod(head * width, 128)
                at = at // 32 * 32
                rows = (at, min(128, at + width))
                for t, tokens in pieces:
                    start = s * p.length + t
                    q = self.q[tile].columns(start, start + tokens, rows)
                    probabilities = self.probabilities.take()
                    total, best = (
                        self.small.take().columns(0, 1, (0, tokens)),
                        self.small.take().columns(0, 1, (0, tokens)),
                    )
                    bank = self.scores.take().columns(0, p.length, (0, tokens))
                    w.matmul(bank, q, self.k[tile].columns(s * p.length, (s + 1) * p.length, rows), first=True)
                    w.emit("tensor_reduce", dst=best, data=bank, op="max", negate=True)
                    weights = probabilities.columns(0, p.length, (0, tokens))
                    w.emit(
                        "activation_reduce", dst=weights, data=bank, op="exp", reduce_res=total, bias=best, scale=0.125
                    )
                    w.emit("reciprocal", dst=total, data=total)
                    w.emit("tensor_scalar", dst=weights, data=weights, op0="multiply", operand0=total)
                    turned = self.turned.take()
                    for kt, (a, keys) in enumerate(pieces):
                        turn = self.narrow.take().columns(0, tokens, (0, keys))
                        w.transpose(turn, probabilities.columns(a, a + keys, (0, tokens)))
                        w.copy(
                            turned.columns(kt * 128, kt * 128 + tokens, (0, keys)),
                            turn,
                            "Scalar" if self.turn % 2 else "Vector",
                        )
                        self.turn += 1
                    result = self.banks.take().columns(0, tokens, (rows[0], rows[1]))
                    for kt, (_, keys) in enumerate(pieces):
                        value = self.v[s * len(pieces) + kt].columns(
                            head * width, head * width + rows[1] - rows[0], (0, keys)
                        )
                        w.matmul(result, value, turned.columns(kt * 128, kt * 128 + tokens, (0, keys)), first=kt == 0)
                    w.copy(q, result)

    def norm(self) -> None:
        """LayerNorm in place: sums and squares over the partitions by products with ones."""
        p, w = self.p, self.w
        for t, tokens in chunks(p.tokens, BANK):
            total, squares = (self.scores.take().columns(0, tokens) for _ in range(2))
            for i, tile in enumerate(self.x):
                rows = min(128, p.hidden - i * 128)
                part, square = tile.columns(t, t + tokens, (0, rows)), self.square.take().columns(0, tokens, (0, rows))
                w.activate(square, part, "square")
                ones = self.ones.columns(0, 128, (0, rows))
                w.matmul(total, ones, part, first=i == 0)
                w.matmul(squares, ones, square, first=i == 0)
            mean, scale = (self.rows.take().columns(0, tokens) for _ in range(2))
            w.emit("tensor_scalar", dst=mean, data=total, op0="multiply", operand0=1 / p.hidden)
            w.emit("tensor_tensor", dst=scale, data1=mean, data2=mean, op="multiply")
            w.emit(
                "scalar_tensor_tensor", dst=scale, data=squares, operand0=1 / p.hidden, operand1=scale,
                op0="multiply", op1="subtract",
            )  # fmt: skip
            w.activate(scale, scale, "rsqrt")
            for i, tile in enumerate(self.x):
                rows = min(128, p.hidden - i * 128)
                part = tile.columns(t, t + tokens, (0, rows))
                rows_of = (0, rows)
                w.emit("tensor_tensor", dst=part, data1=part, data2=mean_of(mean, rows_of), op="subtract")
                w.emit("tensor_tensor", dst=part, data1=part, data2=mean_of(scale, rows_of), op="multiply")
                w.activate(
                    part,
                    part,
                    "identity",
                    scale=self.bias.columns(0, 1, rows_of),
                    bias=self.bias.columns(0, 1, rows_of),
                )


def mean_of(access: Access, rows: tuple[int, int]) -> Access:
    """The first partitions of a statistic that all partitions hold."""
    return Access(access.buffer, access.dtype, rows[1] - rows[0], access.free, access.offset, access.start_partition)
