"""The NKI tutorials' matrix multiplications, in their versions.

Each follows the structure its source describes (tile shapes, loop order, what is loaded when); loads run a few tiles
ahead, as the compiler's software pipelining does. DMAs are triggered by one engine, one queue per tensor.
"""

from __future__ import annotations

from collections import deque

from neuroncore.isa import Program, ProgramBuilder, Tile, synchronize

__all__ = ["matmul_blocked", "matmul_hoisted", "matmul_tiled"]


#: Bytes of a partition that tiles may take (trn1 and trn2: 192 KiB).
SBUF = 192 * 1024


#: Tiles of the next block that are on their way while a block is multiplied. How far a compiler runs ahead is published
#: nowhere; calibrated on the one product that may be (autotune25-NKI-8192x8192x8192, trn1, split calibrate): 3 tiles
#: give 1.09 of its time, 5 give 0.99, a whole block gives 0.82.
AHEAD = 5


class Pool:
    """Tiles of one shape used in turn."""

    def __init__(
        self, builder: ProgramBuilder, name: str, count: int, columns: int, *, dtype: str, address: int
    ) -> None:
        self.tiles = [
            builder.sbuf(f"{name}{i}", 128, columns, dtype, address + i * columns * (4 if dtype == "fp32" else 2))
            for i in range(count)
        ]
        self.end = address + count * columns * (4 if dtype == "fp32" else 2)
        self._next = 0

    def take(self) -> Tile:
        """The next tile in turn."""
        tile = self.tiles[self._next % len(self.tiles)]
        self._next += 1
        return tile


class _Matmul:
    """What the matmul variants share: tensors, tiles for the result, eviction and store."""

    def __init__(self, name: str, m: int, k: int, n: int, dtype: str) -> None:
        self.b = ProgramBuilder(name)
        self.lhs = self.b.input("lhsT", (k, m), dtype)
        self.rhs = self.b.input("rhs", (k, n), dtype)
        self.out = self.b.output("out", (m, n), dtype)
        self.dtype = dtype
        self.psum = [self.b.psum(f"psum{i}", 128, 512, "fp32", i * 2048) for i in range(8)]
        self._bank = 0

    def bank(self) -> Tile:
        """The next PSUM bank."""
        self._bank += 1
        return self.psum[self._bank % 8]

    def load(self, tile: Tile, tensor: str, row: int, column: int, columns: int) -> None:
        """Load 128 rows of an operand."""
        source = self.lhs if tensor == "lhsT" else self.rhs
        self.b.emit("dma_copy", dst=tile, src=source.rows(row, 128, (column, column + columns)), queue=f"q{tensor}")

    def multiply(
        self, bank: Tile, lhs: Tile, rhs: Tile, *, first: bool, lhs_column: int = 0, rhs_column: int = 0
    ) -> None:
        """One 128x128x512 matmul."""
        self.b.emit(
            "nc_matmul",
            dst=bank,
            stationary=lhs.columns(lhs_column, lhs_column + 128),
            moving=rhs.columns(rhs_column, rhs_column + 512),
            accumulate=not first,
        )

    def evict(self, bank: Tile, result: Tile, m: int, n: int) -> None:
        """PSUM to SBUF on Vector, then to HBM."""
        self.b.emit("tensor_copy", dst=result, data=bank)
        self.b.emit("dma_copy", dst=self.out.rows(m, 128, (n, n + 512)), src=result, queue="qOut")

    def build(self) -> Program:
        """The synchronized program."""
        return synchronize(self.b.build())


def matmul_tiled(m: int, k: int, n: int, dtype: str, *, ahead: int = 8) -> Program:
    """Every 128x128x512 step loads both of its tiles (tutorial version 2, "tiled")."""
    mm = _Matmul("matmul_tiled", m, k, n, dtype)
    lhs_pool = Pool(mm.b, "lhs", ahead + 1, 128, dtype=dtype, address=0)
    rhs_pool = Pool(mm.b, "rhs", ahead + 1, 512, dtype=dtype, address=lhs_pool.end)
    results = Pool(mm.b, "result", 4, 512, dtype=dtype, address=rhs_pool.end)
    steps = [(i, j, p) for i in range(0, m, 128) for j in range(0, n, 512) for p in range(0, k, 128)]
    loaded: deque[tuple[Tile, Tile]] = deque()
    bank = mm.bank()
    for s in range(-ahead, len(steps)):
        if s + ahead < len(steps):
            i, j, p = steps[s + ahead]
            pair = lhs_pool.take(), rhs_pool.take()
            mm.load(pair[0], "lhsT", p, i, 128)
            mm.load(pair[1], "rhs", p, j, 512)
            loaded.append(pair)
        if s < 0:
            continue
        i, j, p = steps[s]
        if p == 0:
            bank = mm.bank()
        lhs, rhs = loaded.popleft()
        mm.multiply(bank, lhs, rhs, first=p == 0)
        if p == k - 128:
            mm.evict(bank, results.take(), i, j)
    return mm.build()


def matmul_hoisted(m: int, k: int, n: int, dtype: str, *, block: int = 1, ahead: int = 8) -> Program:
    """The stationary tiles of `block` row tiles are loaded once and reused over all columns (versions 3 and 4)."""
    mm = _Matmul("matmul_hoisted", m, k, n, dtype)
    contraction = k // 128
    rows = 128 * block
    lhs_pool = Pool(mm.b, "lhs", contraction + ahead, rows, dtype=dtype, address=0)
    rhs_pool = Pool(mm.b, "rhs", ahead + 1, 512, dtype=dtype, address=lhs_pool.end)
    results = Pool(mm.b, "result", 4, 512, dtype=dtype, address=rhs_pool.end)
    steps = [(i, j, p) for i in range(0, m, rows) for j in range(0, n, 512) for p in range(contraction)]
    stationary: dict[tuple[int, int], Tile] = {}
    loaded: deque[Tile] = deque()
    banks: list[Tile] = []
    for s in range(-ahead, len(steps)):
        if s + ahead < len(steps):
            i, j, p = steps[s + ahead]
            if j == 0:
                stationary[i, p] = tile = lhs_pool.take()
                mm.load(tile, "lhsT", p * 128, i, rows)
            loaded.append(rhs_pool.take())
            mm.load(loaded[-1], "rhs", p * 128, j, 512)
        if s < 0:
            continue
        i, j, p = steps[s]
        if p == 0:
            banks = [mm.bank() for _ in range(block)]
        rhs = loaded.popleft()
        for t in range(block):
            mm.multiply(banks[t], stationary[i, p], rhs, first=p == 0, lhs_column=t * 128)
        if p == contraction - 1:
            for t in range(block):
                mm.evict(banks[t], results.take(), i + t * 128, j)
    return mm.build()


def matmul_blocked(m: int, k: int, n: int, dtype: str, *, blocks: tuple[int, int, int] = (2048, 1024, 1024)) -> Program:
    """All three dimensions blocked; results accumulate in SBUF over the blocks of the contraction (version 5).

    Of the next block `AHEAD` tiles are loaded ahead where the SBUF has room for them.
    """
    mm = _Matmul("matmul_blocked", m, k, n, dtype)
    block_m, block_k, block_n = blocks
    tiles_k, tiles_m, tiles_n = block_k // 128, block_m // 128, block_n // 512
    size = 4 if dtype == "fp32" else 2
    room = SBUF - tiles_m * tiles_n * 512 * size
    depth = max(tiles_k + 1, min(tiles_k + AHEAD, room // ((block_m + block_n) * size)))
    lhs_pool = Pool(mm.b, "lhs", depth, block_m, dtype=dtype, address=0)
    rhs_pool = Pool(mm.b, "rhs", depth, block_n, dtype=dtype, address=lhs_pool.end)
    results = Pool(mm.b, "result", tiles_m * tiles_n, 512, dtype=dtype, address=rhs_pool.end)
    steps = [
        (i, j, p, p + 128 * t)
        for j in range(0, n, block_n)
        for i in range(0, m, block_m)
        for p in range(0, k, block_k)
        for t in range(tiles_k)
    ]
    loaded: deque[tuple[Tile, Tile]] = deque()
    issued = 0

    def load_until(count: int) -> None:
        nonlocal issued
        while issued < min(count, len(steps)):
            i, j, _, row = steps[issued]
            pair = lhs_pool.take(), rhs_pool.take()
            mm.load(pair[0], "lhsT", row, i, block_m)
            mm.load(pair[1], "rhs", row, j, block_n)
            loaded.append(pair)
            issued += 1

    load_until(depth)
    for first in range(0, len(steps), tiles_k):
        i, j, p, _ = steps[first]
        pairs = [loaded.popleft() for _ in range(tiles_k)]
        for a in range(tiles_m):
            for c in range(tiles_n):
                bank = mm.bank()
                for t, (lhs, rhs) in enumerate(pairs):
                    mm.multiply(bank, lhs, rhs, first=t == 0, lhs_column=a * 128, rhs_column=c * 512)
                result = results.tiles[a * tiles_n + c]
                if p == 0:
                    mm.b.emit("tensor_copy", dst=result, data=bank)
                else:
                    mm.b.emit("tensor_tensor", dst=result, data1=bank, data2=result, op="add")
                if p == k - block_k:
                    rows = mm.out.rows(i + a * 128, 128, (j + c * 512, j + c * 512 + 512))
                    mm.b.emit("dma_copy", dst=rows, src=result, queue="qOut")
        load_until(first + tiles_k + depth)
    return mm.build()
