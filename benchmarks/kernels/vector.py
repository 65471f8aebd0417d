"""Kernels that stream a tensor through the SBUF: additions, copies, transposes."""

from __future__ import annotations

from collections import deque

from neuroncore.isa import Program, ProgramBuilder, Tile, synchronize
from neuroncore.targets import Target

from benchmarks.kernels.matmul import Pool
from benchmarks.kernels.writer import Writer

__all__ = ["streamed_ns", "transpose", "vector_add"]


def vector_add(elements: int, rows: int, columns: int, ahead: int = 8) -> Program:
    """CS149 vector add: tiles of [rows, columns] fp32, loads `ahead` tiles in advance, one store per tile."""
    b = ProgramBuilder(f"vadd_{elements}_{rows}x{columns}")
    x, y = b.input("x", (elements,), "fp32"), b.input("y", (elements,), "fp32")
    z = b.output("z", (elements,), "fp32")
    tiles = elements // (rows * columns)
    count = min(ahead, tiles)
    pools = {
        n: Pool(b, n, count, columns, dtype="fp32", address=i * count * columns * 4)
        for i, n in enumerate(("tx", "ty", "tz"))
    }
    free = ((1, columns),)
    loaded: deque[tuple[Tile, Tile]] = deque()
    for step in range(tiles + count):
        if step >= count:
            i = step - count
            tx, ty = loaded.popleft()
            tz = pools["tz"].take()
            b.emit(
                "tensor_tensor",
                dst=tz.access((0, rows)),
                data1=tx.access((0, rows)),
                data2=ty.access((0, rows)),
                op="add",
            )
            target = z.access(rows, free, offset=i * rows * columns, partition_stride=columns)
            b.emit("dma_copy", dst=target, src=tz.access((0, rows)), queue="qZ")
        if step < tiles:
            pair = []
            for tensor, pool in ((x, pools["tx"]), (y, pools["ty"])):
                tile = pool.take()
                source = tensor.access(rows, free, offset=step * rows * columns, partition_stride=columns)
                b.emit("dma_copy", dst=tile.access((0, rows)), src=source, queue=f"q{tensor.name.upper()}")
                pair.append(tile)
            loaded.append((pair[0], pair[1]))
    return synchronize(b.build())


def streamed_ns(tiles: int, columns: int, operands: int, dtype: str, target: Target) -> float:
    """Time of `tiles` tiles of [128, columns]: loads of one operand (a copy) or two (their sum), one store each."""
    w = Writer("streamed", target)
    sources = [w.hbm("x", 128, columns * tiles, dtype) for _ in range(operands)]
    out = w.hbm("y", 128, columns * tiles, dtype, "output")
    rings = [w.ring(4, columns, dtype) for _ in range(operands + 1)]
    for i in range(tiles):
        span = (i * columns, (i + 1) * columns)
        loaded = [ring.take() for ring in rings[:operands]]
        for k, tile in enumerate(loaded):
            w.dma(tile, sources[k].rows(0, 128, span), f"qIn{k}")
        result = loaded[0]
        if operands == 2:
            result = rings[-1].take()
            w.emit("tensor_tensor", dst=result, data1=loaded[0], data2=loaded[1], op="add")
        w.dma(out.rows(0, 128, span), result, "qOut", "Scalar")
    return w.time_ns()


def transpose(rows: int, columns: int, dtype: str) -> Program:
    """[rows, columns] in tiles of 128 by 128: load, transposition on the PE array, copy out of PSUM, store."""
    b = ProgramBuilder("transpose")
    x, y = b.input("x", (rows, columns), dtype), b.output("y", (columns, rows), dtype)
    size = 512 if dtype == "fp32" else 256
    tiles = [b.sbuf(f"tile{i}", 128, 128, dtype, i * size) for i in range(4)]
    results = [b.sbuf(f"result{i}", 128, 128, dtype, (4 + i) * size) for i in range(4)]
    banks = [b.psum(f"bank{i}", 128, 128, dtype, i * 2048) for i in range(4)]
    turn = 0
    for row in range(0, rows, 128):
        for column in range(0, columns, 128):
            tile, result, bank = tiles[turn % 4], results[turn % 4], banks[turn % 4]
            turn += 1
            b.emit("dma_copy", dst=tile, src=x.rows(row, 128, (column, column + 128)), queue="qX")
            b.emit("nc_transpose", dst=bank, data=tile)
            b.emit("tensor_copy", dst=result, data=bank)
            b.emit("dma_copy", dst=y.rows(column, 128, (row, row + 128)), src=result, queue="qY", engine="GpSimd")
    return synchronize(b.build())
