"""Convolutions as products: channels on the partitions, one product per tap of the window, accumulated in PSUM.

`fused` is the course kernel (CS149 assignment 4): weights transposed on the PE array and kept, then per band of two
output rows the input rows with their halo, and per output row and 128 output channels all taps and input channels; the
bias on the way out of PSUM, rows stored one by one. `network` plays a network layer by layer as a compiler would place
it: activations stay in the SBUF while they fit, else they stream through HBM by the column chunk; weights come from HBM
once per layer; results leave PSUM alternately by ScalarE and VectorE with their function.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroncore.isa import Access
from neuroncore.targets import Target

from benchmarks.kernels.writer import BANK, Writer, chunks, steady_ns

__all__ = ["Layer", "Pool", "fused", "network_ns"]


def fused(
    batch: int, channels: int, height: int, width: int, kernel: int, out_channels: int, dtype: str, target: Target
) -> float:
    """Program time without padding; the width of a row is at most a PSUM bank."""
    rows, columns = height - kernel + 1, width - kernel + 1
    deep, wide = -(-channels // 128), -(-out_channels // 128)

    def play(bands: int) -> float:
        w = Writer("conv", target)
        x = w.hbm("x", 128, deep * (kernel + 1) * width, dtype)
        raw = w.hbm("w", 128, channels * kernel**2, dtype)
        out = w.hbm("y", 128, bands * 2 * wide * columns, dtype, "output")
        turned, loaded = w.sbuf(deep * wide * kernel**2 * 128, dtype), w.ring(1, channels * kernel**2, dtype)
        banks, turns = w.banks(0, 6), w.banks(6, 2)
        for o in range(wide):
            weight = loaded.take()
            w.dma(weight, raw.rows(0, 128), "qW")
            for i in range(deep * kernel**2):
                at = (o * deep * kernel**2 + i) * 128
                bank = turns.take().columns(0, 128)
                w.transpose(bank, weight.columns(i * 128, i * 128 + 128))
                w.copy(turned.columns(at, at + 128), bank)
        images = w.ring(2, deep * (kernel + 1) * width, dtype)
        results, bias = w.ring(2, columns, dtype), w.sbuf(1, "fp32")
        for band in range(bands):
            image = images.take()
            w.dma(image, x.rows(0, 128), "qX")
            for row in range(2):
                for o in range(wide):
                    bank = banks.take().columns(0, columns)
                    for tap in range(kernel**2):
                        for c in range(deep):
                            at = ((o * kernel**2 + tap) * deep + c) * 128
                            start = (c * (kernel + 1) + row + tap // kernel) * width + tap % kernel
                            start = min(start, deep * (kernel + 1) * width - columns)
                            moving = image.columns(start, start + columns)
                            w.matmul(bank, turned.columns(at, at + 128), moving, first=tap + c == 0)
                    result = results.take()
                    w.emit("tensor_scalar", dst=result, data=bank, op0="add", operand0=bias)
                    at = ((band * 2 + row) * wide + o) * columns
                    w.dma(out.rows(0, 128, (at, at + columns)), result, "qY", "GpSimd")
        return w.time_ns()

    return steady_ns(play, batch * -(-rows // 2))


@dataclass(frozen=True)
class Layer:
    """A convolution (or a product, with `kernel` 1 on one element) of one image."""

    channels: int
    out_channels: int
    size: int
    kernel: int
    stride: int = 1
    residual: bool = False


@dataclass(frozen=True)
class Pool:
    """A pooling of one image to `size` by `size` windows of `window` elements, on VectorE."""

    channels: int
    size: int
    window: int


def network_ns(layers: tuple[Layer | Pool, ...], batch: int, target: Target) -> float:
    """Time of all layers in a row; equal ones are played once."""
    times: dict[tuple[Layer | Pool, bool], float] = {}
    total = 0.0
    for layer in layers:
        columns = batch * layer.size**2
        if isinstance(layer, Pool):
            total += _pool_ns(layer, columns, target)
            continue
        tiles = -(-layer.channels // 128) * layer.stride**2 + (1 + layer.residual) * -(-layer.out_channels // 128)
        resident = tiles * columns * 2 <= target.sbuf_usable_bytes_per_partition // 2
        if (layer, resident) not in times:
            times[layer, resident] = _layer_ns(layer, columns, resident=resident, target=target)
        total += times[layer, resident]
    return total


def _pool_ns(pool: Pool, columns: int, target: Target) -> float:
    """One reduction per piece of a row of windows and tile of channels."""
    width, parts = min(columns, max(1, 8192 // pool.window)), min(pool.channels, 128)

    def play(count: int) -> float:
        w = Writer("pool", target)
        sources, results = w.ring(2, width * pool.window, "bf16", parts), w.ring(2, width, "bf16", parts)
        for _ in range(count):
            w.emit("tensor_reduce", dst=results.take().columns(0, 1), data=sources.take(), op="max")
        return w.time_ns()

    return steady_ns(play, -(-columns // width) * -(-pool.channels // 128))


def _layer_ns(layer: Layer, columns: int, *, resident: bool, target: Target) -> float:
    taps, channels = layer.kernel**2, layer.channels
    if channels * layer.kernel <= 128:
        # Few channels: one row of the window joins them on the partitions.
        taps, channels = layer.kernel, channels * layer.kernel
    deep, parts = -(-channels // 128), min(channels, 128)
    width = min(columns, BANK)
    held = deep * taps * min(layer.out_channels, 128) * 2 * 2
    pieces = chunks(layer.out_channels, 128)

    def play(count: int) -> float:
        w = Writer("layer", target)
        weight = w.hbm("w", parts, taps * deep * 128, "bf16")
        x, y = w.hbm("x", parts, width, "bf16"), w.hbm("y", 128, 8 * width, "bf16", "output")
        weights = w.ring(2 if held < w.free_bytes() // 2 else 1, taps * deep * 128, "bf16", parts)
        inputs = w.ring(3, deep * width, "bf16", parts)
        results, banks = w.ring(3, width, "bf16"), w.banks()
        added, bias = w.ring(2, width, "bf16"), w.sbuf(1, "fp32")
        kept: list[Access] = []
        turn = 0
        for _, outputs in pieces[:2] if len(pieces) > 4 else pieces:
            part = weights.take()
            w.dma(part.columns(0, taps * deep * outputs), weight.rows(0, parts, (0, taps * deep * outputs)), "qW")
            for _ in range(count):
                if not resident or not kept:
                    image = inputs.take()
                    for c in range(deep):
                        piece = image.columns(c * width, (c + 1) * width)
                        if not resident:
                            w.dma(piece, x.rows(0, parts), "qX")
                    kept = [image.columns(c * width, (c + 1) * width) for c in range(deep)]
                bank = banks.take().columns(0, width, (0, outputs))
                for tap in range(taps):
                    for c in range(deep):
                        at = (tap * deep + c) * outputs
                        w.matmul(bank, part.columns(at, at + outputs), kept[c], first=tap + c == 0)
                result = results.take().columns(0, width, (0, outputs))
                turn += 1
                if layer.residual:
                    w.emit(
                        "tensor_tensor", dst=result, data1=bank, data2=added.take().columns(0, width, (0, outputs)),
                        op="add",
                    )  # fmt: skip
                    w.activate(result, result, "relu", bias=bias.columns(0, 1, (0, outputs)))
                elif turn % 2:
                    w.activate(result, bank, "relu", bias=bias.columns(0, 1, (0, outputs)))
                else:
                    w.emit(
                        "tensor_scalar", dst=result, data=bank, op0="add",
                        operand0=bias.columns(0, 1, (0, outputs)), op1="max", operand1=0.0,
                    )  # fmt: skip
                if not resident:
                    w.dma(y.rows(0, outputs, (turn % 8 * width, turn % 8 * width + width)), result, "qY", "GpSimd")
        return w.time_ns()

    # Of more than four tiles of output channels two are played and the rest continued.
    scale = len(pieces) / 2 if len(pieces) > 4 else 1.0
    return scale * steady_ns(play, -(-columns // width))
