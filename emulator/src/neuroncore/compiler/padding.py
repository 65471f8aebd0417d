"""Padding in primitives: borders are copies by DMA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neuroncore.compiler.decompose import tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View


def _filled(b: Builder, x: Any, pad: Sequence[int], value: Any) -> View:
    view, rank = tensor(b, x), len(b.spec().shape)
    out = b.map("copy", float(value or 0), dtype=b.spec().dtype, shape=b.spec().shape)
    inner = out
    for i in range(len(pad) // 2):
        axis, (before, after) = rank - 1 - i, pad[2 * i : 2 * i + 2]
        view = view.slice(axis, max(0, -before), view.shape[axis] + min(0, after))
        inner = inner.slice(axis, max(0, before), max(0, before) + view.shape[axis])
    if view.elements:
        b.move(view, inner)
    return out


@lowering("constant_pad_nd")
def _constant(b: Builder, x: Any, pad: Sequence[int], value: Any = 0) -> View:
    return _filled(b, x, pad, value)


def _bordered(b: Builder, x: Any, pad: Sequence[int], source: Callable[[int, int], int]) -> View:
    """The input in the middle; then, axis by axis, each border line a copy of the line `source(place, size)`."""
    if any(p < 0 for p in pad):
        raise NotLowered("negative padding with a border that is not constant")
    view, rank = tensor(b, x), len(b.spec().shape)
    out = b.temp(b.spec().shape, b.spec().dtype)
    inner, window = out, []
    for i in range(len(pad) // 2):
        axis, start, size = rank - 1 - i, pad[2 * i], view.shape[rank - 1 - i]
        inner = inner.slice(axis, start, start + size)
        window.append((axis, start, size))
    b.move(view, inner)
    for done, (axis, start, size) in enumerate(window):
        whole = out  # borders of the axes before this one are there, those of the later ones are not
        for other, first, count in window[done + 1 :]:
            whole = whole.slice(other, first, first + count)
        for place in (*range(-start, 0), *range(size, out.shape[axis] - start)):
            line = start + source(place, size)
            at = start + place
            b.move(whole.slice(axis, line, line + 1), whole.slice(axis, at, at + 1))
    return out


def _reflected(place: int, size: int) -> int:
    return -place if place < 0 else 2 * (size - 1) - place


def _replicated(place: int, size: int) -> int:
    return 0 if place < 0 else size - 1


def _circular(place: int, size: int) -> int:
    return place % size


@lowering("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def _reflection(b: Builder, x: Any, pad: Sequence[int]) -> View:
    return _bordered(b, x, pad, _reflected)


@lowering("replication_pad1d", "replication_pad2d", "replication_pad3d")
def _replication(b: Builder, x: Any, pad: Sequence[int]) -> View:
    return _bordered(b, x, pad, _replicated)


@lowering("pad")
def _pad(b: Builder, x: Any, pad: Sequence[int], mode: str = "constant", value: Any = None) -> View:
    sources = {"reflect": _reflected, "replicate": _replicated, "circular": _circular}
    return _bordered(b, x, pad, sources[mode]) if mode in sources else _filled(b, x, pad, value)
