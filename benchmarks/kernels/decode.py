"""What the NKI library's token-generation kernels share: loading and normalizing [T, H], exchange between two cores.

The hidden state lies as [128, T, H/128] in SBUF. With T > 18 (RMSNorm) two cores normalize half of the tokens each and
exchange them, else each normalizes all; H is then halved for the projections.
"""

from __future__ import annotations

from neuroncore.isa import Access, Tensor, Tile

from benchmarks.kernels.writer import BANK, Writer, chunks

__all__ = ["Hidden", "exchange", "interleaved", "load_hidden"]

#: Tokens from which two cores share the normalization (nkilib/core/subkernels/rmsnorm_tkg).
SHARED_TOKENS = 18
#: Up to this H the rows are loaded as they lie and transposed on the PE array.
CONTIGUOUS_HIDDEN = 2048


class Hidden:
    """[128, T, H/128/cores] bf16 in SBUF: stationary or moving operand of the projections."""

    def __init__(self, tile: Tile, tokens: int, width: int) -> None:
        self.tile, self.tokens, self.width = tile, tokens, width

    def column(self, index: int) -> Access:
        """[128, T]: 128 rows of H of all tokens."""
        return self.tile.access(None, ((self.width, self.tokens),), offset=index)


def exchange(w: Writer, mine: Access, theirs: Access) -> None:
    """nki.isa.sendrecv: a transfer between two cores' SBUF, started by GpSimd; both ways take the same time."""
    w.dma(theirs, mine, "qExchange", "GpSimd")


def interleaved(w: Writer, index: int, dst: Access, src: Access, *, scale: Access | float | None = None) -> None:
    """A copy, scaled or not, alternating between VectorE and ScalarE."""
    if index % 2 == 0:
        if scale is None:
            w.copy(dst, src)
        else:
            w.emit("tensor_scalar", dst=dst, data=src, op0="multiply", operand0=scale)
    else:
        w.activate(dst, src, "copy", **({} if scale is None else {"scale": scale}))


def load_hidden(
    w: Writer, x: Tensor, tokens: int, hidden: int, cores: int, norm: str, *, norm_weight: bool = True
) -> Hidden:
    """Load this core's part of the hidden state, normalized if asked for."""
    width = hidden // 128
    mine = width // cores
    result = w.sbuf(tokens * mine, "bf16")
    if not norm:
        w.dma(result.view(tokens, mine), x.access(128, ((hidden, tokens), (1, mine)), partition_stride=mine), "qHidden")
        return Hidden(result, tokens, mine)
    shared = cores == 2 and tokens > SHARED_TOKENS and tokens % 2 == 0
    count = tokens // 2 if shared else tokens
    whole = w.sbuf(tokens * width, "bf16") if cores > 1 else result
    with w.scope():
        part = whole.columns(0, count * width)
        if hidden <= CONTIGUOUS_HIDDEN:
            _load_transposed(w, x, whole, count, width)
        else:
            w.dma(
                whole.access(None, ((width, count), (mine, cores), (1, mine))),
                x.access(128, ((hidden, count), (128 * mine, cores), (1, mine)), partition_stride=mine),
                "qHidden",
            )
        gamma = w.sbuf(width, "bf16")
        if norm_weight:
            w.dma(gamma, x.access(128, ((1, width),), partition_stride=width), "qGamma")
        _normalize(w, part, gamma, count, width, layer=norm == "layer")
    if shared:
        exchange(w, part, whole.columns(count * width, 2 * count * width))
    if cores > 1:
        w.copy(result.view(tokens, mine), whole.access(None, ((width, tokens), (1, mine))))
    return Hidden(result, tokens, mine)


def _load_transposed(w: Writer, x: Tensor, into: Tile, tokens: int, width: int) -> None:
    banks = w.banks(dtype="bf16")
    for start, n in chunks(tokens, 128):
        rows = w.sbuf(128 * width, "bf16")
        w.dma(rows.columns(0, 128 * width, (0, n)), x.rows(start, n), "qHidden")
        per_bank = max(1, BANK // n)
        for k, (first, count) in enumerate(chunks(width, per_bank)):
            bank = banks.take()
            for i in range(count):
                source = rows.access((0, n), ((width, 128),), offset=first + i)
                w.transpose(bank.columns(i * n, i * n + n), source)
            interleaved(
                w, k, into.access(None, ((1, count), (width, n)), offset=start * width + first),
                bank.columns(0, count * n),
            )  # fmt: skip


def _normalize(w: Writer, x: Access, gamma: Tile, tokens: int, width: int, *, layer: bool) -> None:
    """X [128, tokens * width] in place: statistics over partitions by a matmul with ones."""
    n = tokens * width
    square, scaled = w.sbuf(n, "fp32"), w.sbuf(n, "fp32")
    sums = [w.sbuf(tokens, "fp32") for _ in range(2)]
    ones = w.sbuf(128, "fp32")
    bank = w.banks(0, 2)
    w.emit("memset", dst=ones, value=1.0)
    weight = gamma.access(None, ((0, tokens), (1, width)))
    if layer:
        mean = bank.take().columns(0, tokens)
        w.emit("tensor_reduce", dst=sums[1], data=_shaped(x, tokens, width), op="add")
        w.matmul(mean, ones.access(), sums[1].access(), first=True)
        w.copy(sums[1], mean)
        w.emit("tensor_tensor", dst=x, data1=x, data2=_broadcast(sums[1], tokens, width), op="subtract")
    w.activate(square, x, "square")
    w.emit("tensor_reduce", dst=sums[0], data=square.view(tokens, width), op="add")
    w.emit("tensor_tensor", dst=scaled, data1=x, data2=weight, op="multiply")
    total = bank.take().columns(0, tokens)
    w.matmul(total, ones.access(), sums[0].access(), first=True)
    w.activate(sums[0], total, "rsqrt", scale=1 / (128 * width))
    w.emit("tensor_tensor", dst=x, data1=scaled, data2=_broadcast(sums[0], tokens, width), op="multiply")
    if layer:
        w.emit("tensor_tensor", dst=x, data1=x, data2=weight, op="add")


def _shaped(x: Access, tokens: int, width: int) -> Access:
    return Access(x.buffer, x.dtype, x.partitions, ((width, tokens), (1, width)), x.offset, x.start_partition)


def _broadcast(column: Tile, tokens: int, width: int) -> Access:
    return column.access(None, ((1, tokens), (0, width)))
