"""Views: shape, strides and offset over a flat buffer, and the moves that cost nothing.

A view never copies. `reshape` answers None when the layout does not permit it; the caller then adds a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod


@dataclass(frozen=True)
class View:
    """A strided window on buffer number `buffer`; strides and offset in elements, stride 0 repeats an element."""

    buffer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def elements(self) -> int:
        """Number of elements seen through the view (repeats counted)."""
        return prod(self.shape)

    @property
    def extent(self) -> int:
        """One more than the largest offset read, relative to the start of the buffer."""
        if not self.elements:
            return self.offset
        return self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + 1

    @property
    def distinct(self) -> int:
        """Number of different elements: repeats by stride 0 count once."""
        return prod(n for n, s in zip(self.shape, self.strides, strict=True) if s)

    @property
    def dense(self) -> bool:
        """True when the view reads its elements in row-major order without holes, from offset 0."""
        return self.offset == 0 and collapse(self.shape, (self.strides,)) in (
            ((self.elements,), ((1,),)),
            ((), ((),)),
        )

    def permute(self, order: tuple[int, ...]) -> View:
        """Axes in another order."""
        return replace(self, shape=tuple(self.shape[i] for i in order), strides=tuple(self.strides[i] for i in order))

    def expand(self, shape: tuple[int, ...]) -> View:
        """Broadcast to `shape` by the usual rules (-1 keeps a size)."""
        missing = len(shape) - len(self.shape)
        old = (1,) * missing + self.shape
        strides = (0,) * missing + self.strides
        sizes = tuple(o if n == -1 else n for o, n in zip(old, shape, strict=True))
        for o, n in zip(old, sizes, strict=True):
            if o not in (n, 1):
                raise ValueError(f"cannot broadcast {self.shape} to {shape}")
        return replace(
            self,
            shape=sizes,
            strides=tuple(s if o == n and n != 1 else 0 for o, n, s in zip(old, sizes, strides, strict=True)),
        )

    def unsqueeze(self, axis: int) -> View:
        """A new axis of size 1."""
        axis %= len(self.shape) + 1
        return replace(
            self,
            shape=(*self.shape[:axis], 1, *self.shape[axis:]),
            strides=(*self.strides[:axis], 0, *self.strides[axis:]),
        )

    def squeeze(self, axes: tuple[int, ...] | None = None) -> View:
        """Drop axes of size 1 (all, or those named)."""
        rank = len(self.shape)
        chosen = set(range(rank)) if axes is None else {a % rank for a in axes} if rank else set()
        keep = [i for i in range(rank) if not (i in chosen and self.shape[i] == 1)]
        return self.permute(tuple(keep))

    def slice(self, axis: int, start: int, stop: int, step: int = 1) -> View:
        """Every `step`-th index of `axis` from `start` to `stop`, clamped as Python does."""
        axis %= len(self.shape)
        start, stop, step = slice(start, stop, step).indices(self.shape[axis])
        size = max(0, -(-(stop - start) // step))
        shape, strides = list(self.shape), list(self.strides)
        shape[axis] = size
        offset = self.offset + (start * strides[axis] if size else 0)
        strides[axis] *= step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def select(self, axis: int, index: int) -> View:
        """One index of `axis`; the axis goes away."""
        axis %= len(self.shape)
        index = index % self.shape[axis]
        one = self.slice(axis, index, index + 1)
        return one.squeeze((axis,))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
        """Elements whose index along `dim2` is that along `dim1` plus `offset`; the diagonal is the last axis."""
        rank = len(self.shape)
        dim1, dim2 = dim1 % rank, dim2 % rank
        rows, cols = self.shape[dim1], self.shape[dim2]
        size = max(0, min(rows, cols - offset) if offset >= 0 else min(rows + offset, cols))
        first = offset * self.strides[dim2] if offset >= 0 else -offset * self.strides[dim1]
        kept = [axis for axis in range(rank) if axis not in (dim1, dim2)]
        return replace(
            self,
            shape=(*(self.shape[a] for a in kept), size),
            strides=(*(self.strides[a] for a in kept), self.strides[dim1] + self.strides[dim2]),
            offset=self.offset + (first if size else 0),
        )

    def reshape(self, shape: tuple[int, ...]) -> View | None:
        """The same elements in row-major order under another shape, or None when that needs a copy."""
        shape = infer(shape, self.elements)
        if not self.elements:
            return replace(self, shape=shape, strides=contiguous(shape))
        sizes, (strides,) = collapse(self.shape, (self.strides,))
        new_strides: list[int] = [0] * len(shape)
        axis = len(shape) - 1
        for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
            done = 1
            while done < size:
                if axis < 0:
                    return None
                n = shape[axis]
                if n == 1:
                    axis -= 1
                    continue
                if size % (done * n):
                    return None
                new_strides[axis] = stride * done
                done *= n
                axis -= 1
        return replace(self, shape=shape, strides=tuple(new_strides))


def infer(shape: tuple[int, ...], elements: int) -> tuple[int, ...]:
    """Replace the one -1 of a requested shape."""
    if -1 not in shape:
        return shape
    known = prod(n for n in shape if n != -1)
    return tuple(elements // known if n == -1 else n for n in shape)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements; axes of size 1 get stride 0 (it is never used)."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step if n != 1 else 0)
        step *= n
    return tuple(reversed(strides))


def collapse(
    shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Merge neighbouring axes that every one of several stride lists walks as one; axes of size 1 vanish."""
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        if sizes and all(m[-1] == s[axis] * n for m, s in zip(merged, strides, strict=True)):
            sizes[-1] *= n
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[axis]
        else:
            sizes.append(n)
            for m, s in zip(merged, strides, strict=True):
                m.append(s[axis])
    return tuple(sizes), tuple(tuple(m) for m in merged)
