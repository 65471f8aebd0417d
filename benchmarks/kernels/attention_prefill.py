"""The NKI library's attention for context encoding (`nkilib/core/attention/attention_cte`), one core of it.

Queries go in groups of 128, keys in tiles of 512; beyond 10 K keys they are cut into sections of 8 K that K and V of
fit the SBUF, and results are corrected from section to section. Of group i+2 the scores and their maximum, of group i+1
the exponentials, of group i the product with V are computed side by side: K^T Q into PSUM, scale and row maximum on
VectorE (a mask: copy, GpSimd's affine_select, then the maximum; a mask known at run time only: range_select), exp with
row sum on ScalarE, transposition of the exponentials by DMA within the SBUF, product with V accumulated over 2048 keys
in PSUM and added in SBUF. Operands are bf16 on chip whatever they are in HBM. Two cores halve the batch; of an odd
batch's last item they halve the queries (causal: 65 %, 35 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuroncore.isa import Access, Tile
from neuroncore.targets import Target

from benchmarks.kernels.writer import Writer, chunks

__all__ = ["AttentionPrefill", "time_ns"]

GROUP = 128
TILE = 512
LARGE = 2048
SECTION = 8 * 1024
SECTIONED_FROM = 10 * 1024
LEAST = -3.4028235e38

#: Kinds of a tile: plain, masked by affine_select, masked by range_select.
PLAIN, DIAGONAL, RANGE = "plain", "diagonal", "range"
Group = tuple[str, ...]


@dataclass(frozen=True)
class AttentionPrefill:
    """Parameters of the kernel; `prior` keys lie in a cache of their own, 0 without one."""

    cores: int
    batch: int
    queries: int
    keys: int
    width: int
    dtype: str
    causal: bool
    window: int
    prior: int
    sink: bool
    rows_first_q: bool
    rows_first_k: bool
    columns_first_out: bool


def time_ns(p: AttentionPrefill, target: Target) -> float:
    """Program time of the busier core."""
    groups = -(-p.queries // GROUP)
    if p.cores == 1:
        return _items(p, target, [(0, groups)] * p.batch)
    pairs, odd = divmod(p.batch, 2)
    items = [(0, groups)] * pairs
    if odd and p.queries < 1024:
        items.append((0, groups))
    elif odd:
        cut = round(groups * (0.65 if p.causal else 0.5))
        return max(_items(p, target, [*items, part]) for part in ((0, cut), (cut, groups)))
    return _items(p, target, items)


def _items(p: AttentionPrefill, target: Target, items: list[tuple[int, int]]) -> float:
    """Batch items one after the other: the program's own time if it is small, else composed of its repeating parts."""
    work = [_sections(p, first, last) for first, last in items]
    tiles = sum(len(group) for sections in work for section in sections for group in section)
    if tiles <= 512:
        return _play(p, target, tuple(tuple(sections) for sections in work))
    steady = _steady(p, target)
    return steady.fixed + sum(
        steady.section + sum(steady.group(group) for group in section)
        for sections in work
        for section in sections
        if any(section)
    )


def _sections(p: AttentionPrefill, first: int, last: int) -> list[tuple[Group, ...]]:
    """Per section and group, the kinds of the tiles that are computed."""
    prior = -(-p.prior // TILE) * TILE
    total = prior + p.keys
    length = SECTION if total > SECTIONED_FROM else total
    found = []
    for start, size in chunks(total, length):
        section = []
        for g in range(first, last):
            top = (g + 1) * GROUP - 1
            kinds = []
            for key in range(start, start + size, TILE):
                at = key - prior
                if at < 0:
                    kinds.append(RANGE)
                elif not p.causal:
                    kinds.append(PLAIN)
                elif at <= top and not (p.window and at + TILE - 1 + p.window <= g * GROUP):
                    masked = g * GROUP < at + TILE
                    kinds.append(RANGE if 0 < p.window <= GROUP else DIAGONAL if masked or p.window else PLAIN)
            section.append(tuple(kinds))
        found.append(tuple(section))
    return found


@dataclass(frozen=True)
class _Steady:
    """Parts of a long program: per section, per group of queries, per tile of a kind, in nanoseconds."""

    fixed: float
    section: float
    base: float
    tile: dict[str, float]

    def group(self, kinds: Group) -> float:
        """One group with these tiles."""
        return self.base + sum(self.tile[kind] for kind in kinds) if kinds else 0.0


def _steady(p: AttentionPrefill, target: Target) -> _Steady:
    """Differences between programs of a few groups: what one more group, tile and section take."""
    total = -(-p.prior // TILE) * TILE + p.keys
    per_section = (SECTION if total > SECTIONED_FROM else total) // TILE
    kinds = {kind for section in _sections(p, 0, -(-p.queries // GROUP)) for group in section for kind in group}
    main = PLAIN if PLAIN in kinds else RANGE if RANGE in kinds else DIAGONAL
    many = max(2, min(8, per_section)) if main == PLAIN or p.prior else 2
    few = many // 2

    def play(groups: int, tiles: int, sections: int = 1, other: str = "") -> float:
        group = (main,) * (tiles - bool(other)) + ((other,) if other else ())
        return _play(p, target, ((((group,) * groups),) * sections,), per_section)

    short, long = play(4, many), play(10, many)
    per_many = (long - short) / 6
    per_few = (play(10, few) - play(4, few)) / 6
    tile = (per_many - per_few) / (many - few)
    costs = {main: tile}
    for kind in kinds - {main}:
        costs[kind] = tile + (play(10, many, other=kind) - play(4, many, other=kind)) / 6 - per_many
    section = play(4, many, 2) - short - 4 * per_many
    return _Steady(short - 4 * per_many - section, section, per_many - many * tile, costs)


def _play(p: AttentionPrefill, target: Target, work: Sequence[Sequence[Sequence[Group]]], keys: int = 0) -> float:
    kernel = _Kernel(p, target)
    for sections in work:
        for index, section in enumerate(sections):
            kernel.section(section, index, len(sections), keys)
    return kernel.w.time_ns()


class _Kernel:
    def __init__(self, p: AttentionPrefill, target: Target) -> None:
        self.p = p
        self.w = w = Writer("attention_prefill", target)
        rows = 1 << 16
        self.q = w.hbm("q", rows, p.width, p.dtype)
        self.k = w.hbm("k", p.width, rows, p.dtype)
        self.v = w.hbm("v", rows, p.width, p.dtype)
        self.out = w.hbm("out", p.width, rows, p.dtype, "output")
        total = -(-p.prior // TILE) * TILE + p.keys
        self.per_section = -(-(SECTION if total > SECTIONED_FROM else total) // TILE)
        self.packed = min(4 if p.dtype == "fp32" else 8, -(-p.queries // GROUP))
        self.keys = [w.sbuf(TILE, "bf16", p.width) for _ in range(self.per_section)]
        self.values = [w.sbuf(4 * p.width, "bf16") for _ in range(self.per_section)]
        self.query = w.ring(2, GROUP * self.packed, "bf16", p.width)
        optimized = 0 < p.window <= GROUP and not p.prior
        larges = -(-self.per_section // 4)
        self.scores = w.ring(2 * larges, LARGE, "fp32") if not optimized else w.ring(4, LARGE, "fp32")
        self.exps = w.ring(larges if not optimized else 8, LARGE, "bf16")
        self.turned = w.ring(2 * larges * 4 if not optimized else 32, TILE, "bf16")
        self.copied, self.selected = w.ring(2, TILE, "fp32"), w.ring(2, TILE, "fp32")
        columns = self.per_section + 1
        self.maxima, self.sums = w.ring(2, columns, "fp32"), w.ring(2, columns, "fp32")
        self.small = w.ring(24, 1, "fp32")
        # Statistics that live over sections, a column per group; a few stand for all.
        self.running = w.ring(8, 4, "fp32")
        shape = (p.width, GROUP) if p.columns_first_out else (GROUP, p.width)
        self.shape = shape
        self.results = w.ring(2, shape[1], "fp32", shape[0])
        self.previous = w.ring(2, shape[1], "fp32", shape[0])
        self.finals = w.ring(2, shape[1], "fp32", shape[0])
        self.factors = w.ring(4, GROUP, "fp32", p.width)
        self.score_banks, self.value_banks = w.banks(0, 4), w.banks(4, 4)

    def section(self, groups: Sequence[Group], index: int, count: int, keys: int = 0) -> None:
        """One section of keys for all groups of queries, software-pipelined over the groups."""
        p, w = self.p, self.w
        for t in range(keys or self.per_section):
            source = self.k.access(p.width, ((1, TILE),), offset=t * TILE, partition_stride=1 << 16)
            if p.rows_first_k and p.dtype != "fp32":
                rows = self.v.access(128, ((128 * p.width, 4), (1, p.width)), partition_stride=p.width)
                w.emit(
                    "dma_transpose", dst=self.keys[t].access(None, ((1, TILE),)), src=rows, queue="qK", blocks=4
                )  # fmt: skip
            else:
                w.dma(self.keys[t], source, "qK")
        for t in range(keys or self.per_section):
            for part in range(4):  # tiles of 128 rows of V
                w.dma(
                    self.values[t].columns(part * p.width, (part + 1) * p.width),
                    self.v.rows(t * TILE + part * 128, 128), "qV",
                )  # fmt: skip
        live = [(g, kinds) for g, kinds in enumerate(groups) if kinds]
        state = [_State(self, g, kinds) for g, kinds in live]
        for i in range(-2, len(state)):
            if i + 2 < len(state):
                state[i + 2].load()
            if 0 <= i + 1 < len(state):
                state[i + 1].exponentials()
            if i >= 0:
                state[i].product()
            if i + 2 < len(state):
                state[i + 2].maximum(index, count)
            if i >= 0:
                state[i].write_back(index, count)


class _State:
    """One group of 128 queries in one section."""

    def __init__(self, kernel: _Kernel, group: int, kinds: Group) -> None:
        self.k, self.w, self.p = kernel, kernel.w, kernel.p
        self.group, self.kinds = group, kinds
        self.larges = chunks(len(kinds), 4)

    def load(self) -> None:
        """Queries, for several groups at once, then scores and partial maxima."""
        k, w, p = self.k, self.w, self.p
        if self.group % k.packed == 0:
            self.k.current = k.query.take()  # type: ignore[attr-defined]
            into: Tile = self.k.current  # type: ignore[attr-defined]
            if p.rows_first_q and p.dtype != "fp32":
                rows = k.q.access(128, ((128 * p.width, k.packed), (1, p.width)), partition_stride=p.width)
                w.emit("dma_transpose", dst=into, src=rows, queue="qQ", blocks=k.packed)
            else:
                columns = GROUP * k.packed
                w.dma(into, k.k.access(p.width, ((1, columns),), partition_stride=1 << 16), "qQ")
        query: Tile = self.k.current  # type: ignore[attr-defined]
        at = self.group % k.packed * GROUP
        self.maxima = k.maxima.take()
        w.emit("memset", dst=self.maxima, value=LEAST)
        self.scores: list[Access] = []
        for first, count in self.larges:
            large = k.scores.take()
            for t in range(count):
                bank = k.score_banks.take()
                w.matmul(bank.access(), query.columns(at, at + GROUP), k.keys[first + t].access(), first=True)
                score = large.columns(t * TILE, (t + 1) * TILE)
                self.scores.append(score)
                best = self.maxima.columns(first + t, first + t + 1)
                kind, data = self.kinds[first + t], bank.access()
                if kind == RANGE:
                    zero = k.small.tiles[0]
                    w.emit(
                        "range_select", dst=score, on_true_tile=data, bound0=zero, bound1=zero, reduce_op="max",
                        reduce_res=best,
                    )  # fmt: skip
                    continue
                if kind == DIAGONAL:
                    copy, select = k.copied.take(), k.selected.take()
                    w.copy(copy, bank)
                    for _ in range(2 if p.window else 1):
                        w.emit("affine_select", dst=select, data=copy, pattern=((-1, TILE),), on_false_value=LEAST)
                        copy = select
                    data = select.access()
                w.emit(
                    "tensor_scalar_reduce", dst=score, data=data, op0="multiply", operand0=1.0, reduce_op="max",
                    reduce_res=best,
                )  # fmt: skip

    def maximum(self, index: int, count: int) -> None:
        """Maximum of the section, and the factor by which earlier sections are corrected."""
        k, w = self.k, self.w
        self.best = k.small.take()
        w.emit("tensor_reduce", dst=self.best, data=self.maxima, op="max", negate=True)
        self.running = k.running.take()
        now = self.running.columns(0, 1)
        if count == 1 or index == 0:
            w.copy(now, self.best)
            return
        before, self.factor = k.small.take(), k.small.take()
        w.activate(before, now, "copy", scale=-1.0)
        w.emit("tensor_tensor", dst=now, data1=now, data2=self.best, op="min")
        w.activate(self.factor, before, "exp", bias=now)

    def exponentials(self) -> None:
        """Exp with row sums, and its transposition by DMA."""
        k, w = self.k, self.w
        self.sums = k.sums.take()
        w.emit("memset", dst=self.sums, value=0.0)
        self.turned: list[Tile] = []
        for first, count in self.larges:
            exps = k.exps.take()
            for t in range(count):
                part = exps.columns(t * TILE, (t + 1) * TILE)
                w.emit(
                    "activation_reduce", dst=part, data=self.scores[first + t], op="exp",
                    reduce_res=self.sums.columns(first + t, first + t + 1), bias=self.running.columns(0, 1),
                )  # fmt: skip
                turned = k.turned.take()
                w.emit("dma_transpose", dst=turned, src=part, queue="qTurn", engine="Sync", blocks=4)
                self.turned.append(turned)

    def product(self) -> None:
        """Probabilities times V, 2048 keys per PSUM bank."""
        k, w, p = self.k, self.w, self.p
        self.result = k.results.take()
        for first, count in self.larges:
            bank = k.value_banks.take().columns(0, k.shape[1], (0, k.shape[0]))
            for t in range(count):
                for part in range(4):
                    value = k.values[first + t].columns(part * p.width, (part + 1) * p.width)
                    weight = self.turned[first + t].columns(part * 128, part * 128 + 128)
                    stationary, moving = (value, weight) if p.columns_first_out else (weight, value)
                    w.matmul(bank, stationary, moving, first=t == 0 and part == 0)
            if first == 0:
                w.copy(self.result, bank)
            else:
                w.emit("tensor_tensor", dst=self.result, data1=bank, data2=self.result, op="add")

    def write_back(self, index: int, count: int) -> None:
        """Row sums, correction of earlier sections, normalization in the last one, store."""
        k, w, p = self.k, self.w, self.p
        total = k.small.take()
        w.emit("tensor_reduce", dst=total, data=self.sums, op="add")
        result = self.result
        running = self.running.columns(1, 2)
        place = self.group % 256 * k.shape[0] * k.shape[1]
        out = k.out.access(k.shape[0], ((1, k.shape[1]),), offset=place, partition_stride=k.shape[1])
        if count > 1:
            if index == 0:
                w.copy(running, total)
            else:
                before = k.small.take()
                w.copy(before, running)
                w.emit(
                    "tensor_scalar", dst=running, data=before, op0="multiply", operand0=self.factor, op1="add",
                    operand1=total,
                )  # fmt: skip
                previous = k.previous.take()
                w.dma(previous, out, "qPrevious", "GpSimd")
                if p.columns_first_out:
                    factor = self._spread(self.factor)
                    w.emit("tensor_tensor", dst=previous, data1=previous, data2=factor, op="multiply")
                    w.emit("tensor_tensor", dst=previous, data1=previous, data2=result, op="add")
                else:
                    w.emit(
                        "scalar_tensor_tensor", dst=previous, data=previous, operand0=self.factor, operand1=result,
                        op0="multiply", op1="add",
                    )  # fmt: skip
                result = previous
        if index == count - 1:
            inverse = k.small.take()
            w.emit("reciprocal", dst=inverse, data=total)
            final = k.finals.take()
            if p.columns_first_out:
                w.emit("tensor_tensor", dst=final, data1=result, data2=self._spread(inverse), op="multiply")
            else:
                w.activate(final, result, "copy", scale=inverse)
            result = final
        w.dma(out, result, "qOut", "Scalar")

    def _spread(self, column: Tile) -> Tile:
        """[128, 1] to [width, 128]: a broadcast transposition on the PE array and a copy."""
        k, w, p = self.k, self.w, self.p
        bank = k.value_banks.take().columns(0, GROUP, (0, p.width))
        w.transpose(bank, column.access(None, ((0, p.width),)))
        factor = k.factors.take()
        w.copy(factor, bank)
        return factor
