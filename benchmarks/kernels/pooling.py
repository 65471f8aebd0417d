"""Pooling: channels on the partitions, an image plane per partition.

`adaptive` averages windows whose bounds differ from one to the next (floor and ceil of i H / out), so it takes them in
turn: a sum over the window, its product with the reciprocal of the window's size, a store. The NKI samples' kernel of
that name is in no public index that we found. This is what its definition leads to, except for one thing that only its
published times tell: every window is stored by a DMA of its own, they grow by a DMA's issue interval per window.
`tutorial` is the NKI tutorial's average pooling: equal windows, all of a tile in one reduction over a 5-D access.
"""

from __future__ import annotations

from neuroncore.targets import Target

from benchmarks.kernels.writer import Writer, steady_ns

__all__ = ["adaptive", "tutorial"]


def _bounds(size: int, out: int) -> list[tuple[int, int]]:
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def adaptive(
    batch: int, channels: int, height: int, width: int, out: tuple[int, int], dtype: str, target: Target
) -> float:
    """Program time."""
    parts = min(channels, 128)

    def play(tiles: int) -> float:
        w = Writer("adaptive_avg_pool2d", target)
        x, y = w.hbm("x", parts, height * width, dtype), w.hbm("y", parts, tiles * out[0] * out[1], dtype, "output")
        images = w.ring(2, height * width, dtype, parts)
        sums, means = w.ring(4, 1, "fp32", parts), w.ring(4, 1, dtype, parts)
        for tile in range(tiles):
            image = images.take()
            w.dma(image, x.rows(0, parts), "qX")
            for i, (top, bottom) in enumerate(_bounds(height, out[0])):
                for j, (left, right) in enumerate(_bounds(width, out[1])):
                    total, mean = sums.take(), means.take()
                    # A window has rows of its own; one run of as many elements costs the same.
                    first = min(top * width + left, height * width - (bottom - top) * (right - left))
                    window = image.columns(first, first + (bottom - top) * (right - left))
                    w.emit("tensor_reduce", dst=total, data=window, op="add")
                    w.emit("tensor_scalar", dst=mean, data=total, op0="multiply", operand0=0.1)
                    at = (tile * out[0] + i) * out[1] + j
                    w.dma(y.rows(0, parts, (at, at + 1)), mean, "qY", "GpSimd")
        return w.time_ns()

    return steady_ns(play, batch * -(-channels // 128))


def tutorial(channels: int, height: int, width: int, pool: int, dtype: str, target: Target) -> float:
    """Program time."""
    parts = min(channels, 128)
    elements, results = height * width, (height // pool) * (width // pool)

    def play(tiles: int) -> float:
        w = Writer("avg_pool2d", target)
        x, y = w.hbm("x", parts, elements, dtype), w.hbm("y", parts, tiles * results, dtype, "output")
        images, sums, means = (w.ring(2, n, dtype, parts) for n in (elements, results, results))
        for tile in range(tiles):
            image, total, mean = images.take(), sums.take(), means.take()
            w.dma(image, x.rows(0, parts), "qX")
            w.emit("tensor_reduce", dst=total.columns(0, 1), data=image, op="add")
            w.emit("tensor_scalar", dst=mean, data=total, op0="multiply", operand0=1 / pool**2)
            w.dma(y.rows(0, parts, (tile * results, tile * results + results)), mean, "qY", "GpSimd")
        return w.time_ns()

    return steady_ns(play, -(-channels // 128))
