"""The NKI tutorial's fused Mamba, versions 1 to 3: a selective scan over 128 channels at a time.

Per state and channel tile, on [128, length] fp32: exp of delta * A on ScalarE; delta * u, times B, the scan, times C
and the sum into the result on VectorE, two inputs each. Version 1 loads delta, u, A, B and C anew for every state and
tile. Version 2 keeps delta and u over the states, so that the compiler computes their product once. Version 3 also cuts
the length into pieces of 512 and leaves the product with C in PSUM, so that the sum has one input in SBUF only.
Version 2 holds whole-length tiles at once; what exceeds the SBUF goes to HBM and back for every state.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroncore.isa import Access
from neuroncore.targets import Target

from benchmarks.kernels.writer import BANK, Ring, Writer, chunks, steady_ns

__all__ = ["Scan", "time_ns"]


@dataclass(frozen=True)
class Scan:
    """Parameters of the kernel."""

    version: int
    batch: int
    channels: int
    length: int
    states: int


#: Tiles of [128, length] that version 2 holds at once: delta, u and the result, the exponential, the product with B,
#: the scan (which its product with C replaces), and the broadcast row.
WORKING_TILES = 7


def time_ns(p: Scan, target: Target) -> float:
    """Program time."""
    tiles = p.batch * -(-p.channels // 128)
    if p.version == 1:
        # All tiles of a state, then the next state.
        return steady_ns(lambda n: _Kernel(p, target).first(n, tiles), p.states, first=2, second=4)
    return steady_ns(lambda n: _Kernel(p, target).tiles(n), tiles, first=2, second=4)


class _Kernel:
    def __init__(self, p: Scan, target: Target) -> None:
        self.p = p
        self.w = w = Writer("mamba", target)
        n = p.length
        self.delta, self.u = w.hbm("delta", p.channels, n, "fp32"), w.hbm("u", p.channels, n, "fp32")
        self.a = w.hbm("a", p.channels, p.states, "fp32")
        self.b, self.c = w.hbm("b", p.states, n, "fp32"), w.hbm("c", p.states, n, "fp32")
        self.out = w.hbm("out", p.channels, n, "fp32", "output")
        self.spills = [w.hbm("spill", 128, n, "fp32", "temporary") for _ in range(8)]
        self.spill_turn = 0
        # Versions 1 and 2 compute on whole lengths; pieces here only bound the tiles of one instruction.
        self.piece = min(n, BANK if p.version == 3 else 1024)
        excess = WORKING_TILES * n * 4 - target.sbuf_usable_bytes_per_partition
        self.spilled = min(n, max(0, excess) // 4) if p.version == 2 else 0
        double = 2 if 8 * n * 4 + 14 * self.piece * 4 < target.sbuf_usable_bytes_per_partition else 1
        self.inputs, self.inputs_u = (w.ring(double, n, "fp32") for _ in range(2))
        self.products = w.sbuf(n, "fp32")
        self.results = w.ring(double, n if p.version > 1 else 1, "fp32")
        self.rows_b, self.rows_c = w.ring(2, self.piece, "fp32"), w.ring(2, self.piece, "fp32")
        self.temporary = [w.ring(2, self.piece, "fp32") for _ in range(5)]
        self.columns, self.carry = w.ring(4, 1, "fp32"), w.ring(2, 1, "fp32")
        self.psum: Ring | None = w.banks() if p.version == 3 else None

    def first(self, states: int, tiles: int) -> float:
        """Version 1: state by state over all channel tiles, everything loaded again."""
        w, p = self.w, self.p
        results = [w.sbuf(p.length, "fp32") for _ in range(min(tiles, max(1, w.free_bytes() // (4 * p.length))))]
        for _ in range(states):
            for t in range(tiles):
                delta, u = self.load(t)
                self.state(delta, u, results[t % len(results)].access(), t)
        for t in range(tiles):
            w.dma(self.out.rows(t * 128 % p.channels, 128), results[t % len(results)], "qOut", "GpSimd")
        return w.time_ns()

    def tiles(self, count: int) -> float:
        """Versions 2 and 3: channel tile by channel tile, delta and u kept over the states."""
        w, p = self.w, self.p
        for t in range(count):
            delta, u = self.load(t)
            result = self.results.take()
            w.emit("memset", dst=result, value=0.0, engine="GpSimd")
            w.emit("tensor_tensor", dst=self.products, data1=delta, data2=u, op="multiply")
            for _ in range(p.states):
                self.state(delta, u, result.access(), t)
            w.dma(self.out.rows(t * 128 % p.channels, 128), result, "qOut", "GpSimd")
        return w.time_ns()

    def load(self, tile: int) -> tuple[Access, Access]:
        """Delta and u of one channel tile."""
        w, p = self.w, self.p
        delta, u = self.inputs.take(), self.inputs_u.take()
        w.dma(delta, self.delta.rows(tile * 128 % p.channels, 128), "qDelta")
        w.dma(u, self.u.rows(tile * 128 % p.channels, 128), "qU")
        return delta.access(), u.access()

    def state(self, delta: Access, u: Access, result: Access, tile: int) -> None:
        """One state of one channel tile, piece by piece."""
        w, p = self.w, self.p
        column = self.columns.take()
        w.dma(column, self.a.rows(tile * 128 % p.channels, 128, (0, 1)), "qA")
        carry: Access | float = 0.0
        spilled = self.spilled
        for start, size in chunks(p.length, self.piece):
            d, x, total, kept = (_part(a, start, size) for a in (delta, u, result, self.products.access()))
            power, product, scaled, scan, weighted = (ring.take().columns(0, size) for ring in self.temporary)
            w.activate(power, d, "exp", scale=column)
            b, c = self.rows_b.take().columns(0, size), self.rows_c.take().columns(0, size)
            w.dma(b, self.b.access(128, ((1, size),), offset=start), "qB")  # one row, broadcast to all partitions
            if p.version == 1:
                w.emit("tensor_tensor", dst=product, data1=d, data2=x, op="multiply")
                kept = product
            w.emit("tensor_tensor", dst=scaled, data1=kept, data2=b, op="multiply")
            if spilled > 0:
                self.round_trip(scaled, min(size, spilled))
                spilled -= size
            w.emit("tensor_tensor_scan", dst=scan, data0=power, data1=scaled, initial=carry, op0="multiply", op1="add")
            if start + size < p.length:
                last = self.carry.take()
                w.copy(last.access(), _part(scan, size - 1, 1), "Scalar")
                carry = last.access()
            w.dma(c, self.c.access(128, ((1, size),), offset=start), "qC")
            if self.psum is not None:
                bank = self.psum.take().columns(0, size)
                w.emit("tensor_tensor", dst=bank, data1=scan, data2=c, op="multiply")
                w.emit("tensor_tensor", dst=total, data1=bank, data2=total, op="add")
            else:
                w.emit("tensor_tensor", dst=weighted, data1=scan, data2=c, op="multiply")
                w.emit("tensor_tensor", dst=total, data1=weighted, data2=total, op="add")

    def round_trip(self, tile: Access, size: int) -> None:
        """A spill and its reload."""
        part = _part(tile, 0, size)
        self.spill_turn += 1
        place = self.spills[self.spill_turn % len(self.spills)].rows(0, 128, (0, size))
        self.w.dma(place, part, "qSpill", "GpSimd")
        self.w.dma(part, place, "qReload")


def _part(access: Access, start: int, size: int) -> Access:
    return Access(
        access.buffer, access.dtype, access.partitions, ((1, size),), access.offset + start, access.start_partition
    )
