"""Tiling what is not arithmetic over rows: DMA copies, gathers, sums over leading axes, and estimates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from neuroncore.compiler.fuse import Kernel, layout_of
from neuroncore.compiler.hbm import pieces
from neuroncore.compiler.ir import (
    Attend,
    AttendGradient,
    Contract,
    Convolve,
    Estimate,
    Gather,
    Move,
    Reduce,
    Scatter,
    ScatterAdd,
    reads,
    writes,
)
from neuroncore.compiler.select import chip_dtype
from neuroncore.compiler.views import collapse
from neuroncore.graph import DTYPE_BYTES

if TYPE_CHECKING:
    from neuroncore.compiler.tile import Estimated, Tiler
    from neuroncore.targets import Target

__all__ = ["estimate_ns", "tile_estimate", "tile_fold", "tile_gather", "tile_move", "tile_scatter"]

_PARTITIONS = 128
_ROW_BYTES = 16_384
#: A transfer of short rows: large enough that it outlasts the interval between starts, small enough to overlap.
_TRANSFER_BYTES = 2**20


def tile_move(tiler: Tiler, kernel: Kernel) -> None:
    """HBM to HBM: transfers of up to 128 rows, all DMA engines at work."""
    tiler.new_kernel()
    for prim in kernel.prims:
        assert isinstance(prim, Move)
        sizes, (src, dst) = collapse(prim.dst.shape, (prim.src.strides, prim.dst.strides))
        size = DTYPE_BYTES[tiler.kernels.buffers[prim.dst.buffer].dtype]
        sizes, src, dst = _spread(sizes, src, dst, size)
        axis = max(range(len(sizes) - 1), key=lambda i: (min(sizes[i], _PARTITIONS), -i)) if len(sizes) > 1 else 0
        others = [i for i in range(len(sizes)) if i != axis]
        looped, free = others[: max(0, len(others) - 3)], others[max(0, len(others) - 3) :]
        source, target = tiler.tensor(prim.src.buffer), tiler.tensor(prim.dst.buffer)
        row_bytes = size * prod(sizes[i] for i in free)
        with tiler.builder.op(prim.op, prim.source):
            for index in _indices([sizes[i] for i in looped]):
                base_src = prim.src.offset + sum(n * src[i] for n, i in zip(index, looped, strict=True))
                base_dst = prim.dst.offset + sum(n * dst[i] for n, i in zip(index, looped, strict=True))
                for start, rows, each in _transfers(sizes[axis], row_bytes):
                    groups = [(strides, offset + start * strides[axis]) for strides, offset in (
                        (dst, base_dst), (src, base_src)
                    )]  # fmt: skip
                    to, origin = (
                        tensor.access(
                            rows,
                            (
                                *(((strides[axis], each),) if each > 1 else ()),
                                *((strides[i], sizes[i]) for i in free),
                            )
                            or ((1, 1),),
                            offset=offset,
                            partition_stride=each * strides[axis],
                        )
                        for tensor, (strides, offset) in zip((target, source), groups, strict=True)
                    )
                    with tiler.iteration():
                        tiler.emit("dma_copy", engine="Sync", dst=to, src=origin)


def _transfers(count: int, row_bytes: int) -> Iterator[tuple[int, int, int]]:
    """`count` rows as (first, groups, rows of a group): starts of transfers are far apart, so short rows share."""
    each = max(1, min(count // _PARTITIONS, _TRANSFER_BYTES // (_PARTITIONS * row_bytes)))
    start = 0
    while start < count:
        left = count - start
        if left < each * _PARTITIONS:
            each = max(1, left // _PARTITIONS)
        rows = min(_PARTITIONS, left // each)
        yield start, rows, each
        start += rows * each


def _spread(
    sizes: tuple[int, ...], src: tuple[int, ...], dst: tuple[int, ...], size: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Cut a long contiguous run into rows, so that all DMA engines share it."""
    if not sizes:
        return (1, 1), (0, 0), (0, 0)
    if len(sizes) == 1:
        sizes, src, dst = (1, *sizes), (0, *src), (0, *dst)
    if prod(sizes[:-1]) >= _PARTITIONS or src[-1] != 1 or dst[-1] != 1:
        return sizes, src, dst
    want = max(1, min(_ROW_BYTES // size, sizes[-1] * prod(sizes[:-1]) // _PARTITIONS))
    run = max((d for d in range(1, min(want, sizes[-1]) + 1) if sizes[-1] % d == 0), default=1)
    if run * size < 64:
        run = sizes[-1] if sizes[-1] * size <= 65_536 else run
    rows = sizes[-1] // run
    if rows == 1:
        return sizes, src, dst
    return (*sizes[:-1], rows, run), (*src[:-1], run, 1), (*dst[:-1], run, 1)


def _indices(sizes: list[int]) -> list[tuple[int, ...]]:
    result: list[tuple[int, ...]] = [()]
    for size in sizes:
        result = [(*r, i) for r in result for i in range(size)]
    return result


def tile_gather(tiler: Tiler, kernel: Kernel) -> None:
    """Rows of a table by index: indices to SBUF, an indexed DMA to SBUF, a store."""
    prim = kernel.prims[0]
    assert isinstance(prim, Gather)
    prefix = tiler.new_kernel()
    rows, cols = prim.index.elements, prim.table.shape[1]
    index = layout_of(prim.index, rows, 1)
    out = layout_of(prim.dst, rows, cols)
    dtype = tiler.kernels.buffers[prim.table.buffer].dtype
    strides = prim.table.strides
    dense_rows = out is not None and (cols == 1 or out.cols == ((cols, 1),))
    if index is None or out is None or (strides[1] != 1 and cols > 1):
        from neuroncore.compiler.tile import NotTiled

        raise NotTiled("a gather from rows that are not contiguous")
    # An indexed copy does not cast: elements of 64 bits move as two words.
    words = 2 if dtype != chip_dtype(dtype) and dense_rows else 1
    if dtype != chip_dtype(dtype):
        dtype = "int32"
        cols *= words
        if not dense_rows:
            from neuroncore.compiler.tile import NotTiled

            raise NotTiled("a gather of 64-bit elements to rows that are not contiguous")
    table = tiler.tensor(prim.table.buffer)
    # The access pattern of an indexed side may not name more rows than the table has.
    height = min(_PARTITIONS, prim.table.shape[0])
    for number, start in enumerate(range(0, rows, height)):
        parts = min(height, rows - start)
        with tiler.iteration(), tiler.builder.op(prim.op, prim.source):
            places = tiler.sbuf(f"{prefix}_i_{number % 3}", _PARTITIONS, 1, "int32")
            for piece in pieces(index, start, parts, 0, 1):
                tiler.fetch(prim.index.buffer, places.access((piece.row, piece.row + piece.rows), ((1, 1),)), piece)
            width = min(cols, max(1, 65_536 // 4 // DTYPE_BYTES[dtype]))
            for column in range(0, cols, width):
                columns = min(width, cols - column)
                data = tiler.sbuf(f"{prefix}_x_{number % 3}", _PARTITIONS, width, dtype)
                tiler.emit(
                    "dma_copy",
                    engine="GpSimd",
                    dst=data.access((0, parts), ((1, columns),)),
                    src=table.access(
                        parts,
                        ((1, columns),),
                        offset=prim.table.offset * words + column,
                        partition_stride=(strides[0] or 1) * words,
                        dtype=dtype,
                    ),
                    index=places.access((0, parts), ((1, 1),)),
                )
                if words > 1:
                    for piece in pieces(replace(out, cols=()), start, parts, 0, 1):
                        tiler.store(
                            tiler.tensor(prim.dst.buffer).access(
                                piece.rows, ((1, columns),), offset=piece.offset * words + column,
                                partition_stride=piece.row_stride * words, dtype=dtype,
                            ),
                            data.access((piece.row, piece.row + piece.rows), ((1, columns),)),
                        )  # fmt: skip
                    continue
                for piece in pieces(out, start, parts, column, columns):
                    tiler.store(
                        tiler.tensor(prim.dst.buffer).access(
                            piece.rows, piece.free, offset=piece.offset, partition_stride=piece.row_stride
                        ),
                        data.access((piece.row, piece.row + piece.rows), ((1, piece.columns),), offset=piece.column),
                    )


def tile_scatter(tiler: Tiler, kernel: Kernel) -> None:
    """Rows to places of a table.

    Rows to add go 128 at a time; those with one index are summed by a product with the matrix of equal indices, so
    that all of them write the same sum.
    """
    prim = kernel.prims[0]
    assert isinstance(prim, Scatter | ScatterAdd)
    add = isinstance(prim, ScatterAdd)
    prefix = tiler.new_kernel()
    rows, cols = prim.src.shape
    index, source = layout_of(prim.index, rows, 1), layout_of(prim.src, rows, cols)
    assert index is not None and source is not None and prim.table.strides[1] in (0, 1)
    buffers = tiler.kernels.buffers
    dtype = chip_dtype(buffers[prim.table.buffer].dtype)
    table, indices = tiler.tensor(prim.table.buffer), tiler.tensor(prim.index.buffer)
    height = min(_PARTITIONS, prim.table.shape[0])
    width = min(cols, 512 if add else 8192)
    # One iteration in order: a tile reads what the one before has written.
    with tiler.iteration(), tiler.builder.op(prim.op, prim.source):
        tiler.stage = 0
        for number, start in enumerate(range(0, rows, height)):
            parts, slot = min(height, rows - start), number % 3
            places = tiler.sbuf(f"{prefix}_i_{slot}", _PARTITIONS, 1, "int32")
            column = places.access((0, parts), ((1, 1),))
            for piece in pieces(index, start, parts, 0, 1):
                tiler.fetch(prim.index.buffer, places.access((piece.row, piece.row + piece.rows), ((1, 1),)), piece)
            equal = None
            if add:
                stride = prim.index.strides[0]
                others = tiler.sbuf(f"{prefix}_o_{slot}", _PARTITIONS, height, "int32")
                tiler.load(
                    others.access((0, parts), ((1, parts),)),
                    indices.access(parts, ((stride or 1, parts),), offset=prim.index.offset + start * stride),
                )
                equal = tiler.sbuf(f"{prefix}_e_{slot}", _PARTITIONS, height, dtype)
                tiler.emit(
                    "tensor_scalar", dst=equal.access((0, parts), ((1, parts),)),
                    data=others.access((0, parts), ((1, parts),)), op0="equal", operand0=column, engine="Vector",
                )  # fmt: skip
            for first in range(0, cols, width):
                columns = min(width, cols - first)
                data = tiler.sbuf(f"{prefix}_x_{slot}", _PARTITIONS, width, dtype)
                for piece in pieces(source, start, parts, first, columns):
                    to = data.access((piece.row, piece.row + piece.rows), ((1, piece.columns),), offset=piece.column)
                    tiler.fetch(prim.src.buffer, to, piece)
                values = data.access((0, parts), ((1, columns),))
                place = table.access(
                    parts, ((1, columns),), offset=prim.table.offset + first,
                    partition_stride=prim.table.strides[0] or 1,
                )  # fmt: skip
                if equal is not None:
                    before = tiler.sbuf(f"{prefix}_b_{slot}", _PARTITIONS, width, dtype)
                    now = tiler.sbuf(f"{prefix}_n_{slot}", _PARTITIONS, width, dtype)
                    total = tiler.psum(f"{prefix}_t_{slot}", _PARTITIONS, width)
                    old, new = before.access((0, parts), ((1, columns),)), now.access((0, parts), ((1, columns),))
                    summed = total.access((0, parts), ((1, columns),))
                    tiler.emit("dma_copy", engine="GpSimd", dst=old, src=place, index=column)
                    tiler.emit(
                        "nc_matmul", dst=summed, stationary=equal.access((0, parts), ((1, parts),)), moving=values
                    )
                    tiler.emit("tensor_tensor", dst=new, data1=old, data2=summed, op="add", engine="Vector")
                    values = new
                tiler.emit("dma_copy", engine="GpSimd", dst=place, src=values, index=column, index_side="dst")
        tiler.stage = -1


def tile_fold(tiler: Tiler, kernel: Kernel) -> None:
    """Sum over leading axes: a product of a column of ones with the matrix, accumulated in PSUM over the row tiles."""
    prim = kernel.prims[0]
    assert isinstance(prim, Reduce)
    prefix = tiler.new_kernel()
    # The kernel's matrix is [kept, reduced]; on chip the reduced axis lies on the partitions.
    kept = len(prim.src.shape) - prim.axes
    order = (*range(kept, len(prim.src.shape)), *range(kept))
    rows, cols = kernel.cols, kernel.rows
    source, out = layout_of(prim.src.permute(order), rows, cols), layout_of(prim.out, 1, cols)
    assert source is not None and out is not None
    buffers = tiler.kernels.buffers
    dtype = chip_dtype(buffers[prim.src.buffer].dtype)
    compute = dtype if dtype in ("fp32", "bf16", "fp16") else "fp32"
    width = min(cols, 2048)
    result_dtype = chip_dtype(buffers[prim.out.buffer].dtype)
    with tiler.iteration(prologue=True), tiler.builder.op(prim.op, prim.source):
        ones = tiler.sbuf(f"{prefix}_ones", _PARTITIONS, 1, compute)
        tiler.emit("memset", dst=ones.access(), value=1.0, engine="Vector")
    step = 0
    for block, column in enumerate(range(0, cols, width)):
        columns = min(width, cols - column)
        total = tiler.psum(f"{prefix}_acc_{block % 2}", 1, width)
        for start in range(0, rows, _PARTITIONS):
            parts = min(_PARTITIONS, rows - start)
            with tiler.iteration(), tiler.builder.op(prim.op, prim.source):
                data = tiler.sbuf(f"{prefix}_x_{step % 4}", _PARTITIONS, width, dtype)
                for piece in pieces(source, start, parts, column, columns):
                    tiler.load(
                        data.access((piece.row, piece.row + piece.rows), ((1, piece.columns),), offset=piece.column),
                        tiler.tensor(prim.src.buffer).access(
                            piece.rows, piece.free, offset=piece.offset, partition_stride=piece.row_stride
                        ),
                    )
                if compute != dtype:
                    cast = tiler.sbuf(f"{prefix}_c_{step % 2}", _PARTITIONS, width, compute)
                    tiler.emit(
                        "tensor_copy", dst=cast.access((0, parts), ((1, columns),)),
                        data=data.access((0, parts), ((1, columns),)),
                        engine="Vector",
                    )  # fmt: skip
                    data = cast
                for first in range(0, columns, 512):
                    n = min(512, columns - first)
                    tiler.emit(
                        "nc_matmul", dst=total.access((0, 1), ((1, n),), offset=first),
                        stationary=ones.access((0, parts)),
                        moving=data.access((0, parts), ((1, n),), offset=first), accumulate=start > 0,
                    )  # fmt: skip
                step += 1
                if start + parts < rows:
                    continue
                result = tiler.sbuf(f"{prefix}_out_{block % 2}", 1, width, result_dtype)
                dst, evicted = result.access((0, 1), ((1, columns),)), total.access((0, 1), ((1, columns),))
                if prim.scale != 1.0:
                    tiler.emit(
                        "tensor_scalar", dst=dst, data=evicted, op0="multiply", operand0=prim.scale, engine="Vector"
                    )
                else:
                    tiler.emit("tensor_copy", dst=dst, data=evicted, engine="Vector")
                for piece in pieces(out, 0, 1, column, columns):
                    tiler.store(
                        tiler.tensor(prim.out.buffer).access(
                            piece.rows, piece.free, offset=piece.offset, partition_stride=piece.row_stride
                        ),
                        result.access((0, 1), ((1, piece.columns),), offset=piece.column),
                    )


# -- estimates -----------------------------------------------------------------------------------------------


def estimate_ns(target: Target, total_bytes: int, flops: int, dtype: str) -> int:
    """Bytes at the DMA rate, or flops at TensorE's peak if longer, plus the latencies of one load and one store."""
    fixed = 2 * (target.dma_trigger_ns + target.dge_fixed_ns + target.dma_start_ns + target.dma_done_ns)
    moving = total_bytes / target.dma_bytes_per_second * 1e9
    computing = flops / target.peak_flops_per_second(dtype) * 1e9
    return round(fixed + max(moving, computing))


def tile_estimate(tiler: Tiler, kernel: Kernel, reason: str) -> Estimated:
    """What a kernel without instructions costs."""
    from neuroncore.compiler.tile import Estimated

    buffers = tiler.kernels.buffers
    made = {w.buffer for p in kernel.prims for w in writes(p)}
    ins = {v for p in kernel.prims for v in reads(p) if v.buffer not in made and not buffers[v.buffer].made}
    outs = {w for p in kernel.prims for w in writes(p) if w.buffer in tiler.kernels.kept}
    read = sum(v.distinct * DTYPE_BYTES[buffers[v.buffer].dtype] for v in ins)
    written = sum(v.distinct * DTYPE_BYTES[buffers[v.buffer].dtype] for v in outs)
    flops, dtype = 0, "fp32"
    for prim in kernel.prims:
        if isinstance(prim, Estimate):
            flops, reason = flops + prim.flops, prim.reason
        elif isinstance(prim, Contract):
            flops += 2 * prim.out.elements * prim.a.shape[-1]
            dtype = buffers[prim.a.buffer].dtype
        elif isinstance(prim, Convolve):
            flops += prim.flops
            dtype = buffers[prim.src.buffer].dtype
        elif isinstance(prim, Attend | AttendGradient):
            flops += prim.flops
            dtype = buffers[prim.q.buffer].dtype
    first = kernel.prims[0]
    return Estimated(
        first.op, reason, estimate_ns(tiler.target, read + written, flops, dtype), read, written, flops, first.source
    )
