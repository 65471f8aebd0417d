"""Texts of many events, kept where they are cheap to keep and read by row: `Texts`, and the `Spill` file under it.

The arguments are most of a trace's bytes and are needed twice at most: a few for links, all when the events are
written. So large files put them into a spill file beside the profile being made, in the order they come, or only where
in the file they stand.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.readers.exact import Int64, TextColumn
from neuronscope.readers.lanes import groups_of
from neuronscope.readers.scratch import Scratch

__all__ = ["Place", "Spill", "Stored", "TextRows", "Texts"]

_SMALL = 2**31 - 1  # bytes one Arrow array of 32-bit offsets can hold
HELD_BYTES = 16 << 20  # of texts, per process or thread that parses


@dataclass(frozen=True)
class Place:
    """Where a piece of text stands in a file that outlives the reading of it."""

    path: str
    position: int
    size: int


@dataclass(frozen=True)
class Stored:
    """Texts of one piece in a spill file: `count` + 1 offsets of 32 bits at `position`, then the texts.

    With `texts` these stand elsewhere, with other bytes between them, and the offsets are begin and end of each.
    """

    path: str
    position: int
    count: int
    size: int
    texts: Place | None = None


class Spill:
    """A file that only grows while a trace is parsed; one per process that parses.

    The first texts stay in memory: a trace of some hundred megabytes needs no file.
    """

    def __init__(self, path: Path, held_bytes: int | None = None) -> None:
        """`held_bytes` of texts are not written; by default `HELD_BYTES`."""
        self.path = path
        self._room = HELD_BYTES if held_bytes is None else held_bytes
        self._file = path.open("wb")
        self._end = 0

    def store(self, texts: TextColumn) -> Stored | pa.Array:
        """Append the texts; what a 32-bit offset can't reach stays in memory."""
        count, size = len(texts.offsets) - 1, int(texts.offsets[-1])
        self._room -= 4 * (count + 1) + size
        if size > _SMALL or self._room >= 0:
            return texts.binary()
        stored = Stored(str(self.path), self._end, count, size)
        self._file.write(texts.offsets.astype("<i4", copy=False).data)
        self._file.write(texts.data.data)
        self._file.write(b"\0" * (-size % 8))
        self._end += 4 * (count + 1) + size + -size % 8
        return stored

    def store_slices(self, offsets: npt.NDArray[np.int32], place: Place) -> Stored:
        """Note where in a piece of a file texts begin and end."""
        stored = Stored(str(self.path), self._end, len(offsets) // 2, place.size, place)
        self._file.write(offsets.astype("<i4", copy=False).data)
        self._end += 4 * len(offsets)
        return stored

    def flush(self) -> None:
        """Let others read what was stored so far."""
        self._file.flush()

    def close(self) -> None:
        """Stop writing; the file stays for its readers."""
        self._file.close()


def distinct_runs(values: Int64) -> list[int]:
    """Each of some numbers that come in long runs once, in order."""
    return sorted({int(values[low]) for low, _ in groups_of(values)})


class _Pieces:
    """Pieces of texts and where each begins in the count of all; maps spill files when they are first read."""

    def __init__(self, pieces: Sequence[pa.Array | Stored]) -> None:
        self.pieces = list(pieces)
        counts = [piece.count if isinstance(piece, Stored) else len(piece) for piece in self.pieces]
        self.starts = np.concatenate(([0], np.cumsum(np.array(counts, np.int64)))).astype(np.int64)
        self.maps: dict[str, mmap.mmap] = {}

    def array(self, index: int) -> pa.Array:
        """A piece's texts; of slices every second one is what stands between two."""
        piece = self.pieces[index]
        if not isinstance(piece, Stored):
            return piece
        whole, place = self.mapped(piece.path), piece.texts
        if place is not None:
            offsets = whole.slice(piece.position, 8 * piece.count)
            data = self.mapped(place.path).slice(place.position, place.size)
            return pa.Array.from_buffers(pa.binary(), 2 * piece.count - 1, [None, offsets, data])
        head = 4 * (piece.count + 1)
        offsets = whole.slice(piece.position, head)
        return pa.Array.from_buffers(
            pa.binary(), piece.count, [None, offsets, whole.slice(piece.position + head, piece.size)]
        )

    def mapped(self, path: str) -> pa.Buffer:
        """A file's bytes."""
        found = self.maps.get(path)
        if found is None:
            with Path(path).open("rb") as file:
                found = self.maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.py_buffer(found)

    def step(self, index: int) -> int:
        """How many texts of a piece's array there are for each of its own."""
        piece = self.pieces[index]
        return 2 if isinstance(piece, Stored) and piece.texts is not None else 1

    def some(self, index: int, rows: npt.NDArray[np.signedinteger]) -> pa.Array:
        """Some rows of a piece."""
        return self.array(index).take(pa.array(rows * self.step(index)))

    def gather(self, rows: npt.NDArray[np.signedinteger]) -> pa.Array:
        """The texts of the given rows, in that order."""
        if not len(rows):
            return pa.array([], pa.binary())
        if len(self.pieces) == 1:
            return self.some(0, rows.astype(np.int64))
        piece: Int64 = np.searchsorted(self.starts, rows, "right") - 1
        ordered = bool((piece[1:] >= piece[:-1]).all())
        order = np.arange(len(rows)) if ordered else np.argsort(piece, kind="stable")
        parts = []
        for low, high in groups_of(piece[order]):
            at = order[low:high]
            index = int(piece[at[0]])
            parts.append(self.some(index, rows[at] - self.starts[index]))
        wide = sum(part.nbytes for part in parts) > _SMALL or any(pa.types.is_large_binary(p.type) for p in parts)
        if wide:
            parts = [part.cast(pa.large_binary()) for part in parts]
        whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        if ordered:
            return whole
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return whole.take(pa.array(back))

    def located(self, rows: npt.NDArray[np.int64]) -> tuple[list[tuple[int, Any, Any]], npt.NDArray[np.int64]] | None:
        """The pieces that hold some rows: first row, 32-bit offsets, texts; and the rows among all texts of these.

        None when one has longer offsets.
        """
        found: list[tuple[int, Any, Any]] = []
        indices = distinct_runs(np.searchsorted(self.starts, rows, "right") - 1)
        step = max((self.step(index) for index in indices), default=1)
        for index in indices:
            array = self.array(index)
            if array.type != pa.binary():
                return None
            _, offsets, data = array.buffers()
            offsets = offsets.slice(4 * array.offset, 4 * (len(array) + 1))
            if self.step(index) < step:  # as if nothing stood between them
                offsets = np.repeat(np.frombuffer(offsets, np.int32), step)[1:-1]
            found.append((int(self.starts[index]) * step, offsets, data or b""))
        return found, rows * step

    def forget(self) -> None:
        for found in self.maps.values():
            if hasattr(mmap, "MADV_DONTNEED"):
                found.madvise(mmap.MADV_DONTNEED)


class Texts:
    """A column of texts (bytes); selecting rows copies none of them."""

    def __init__(self, pieces: _Pieces, rows: npt.NDArray[np.signedinteger] | None = None) -> None:
        self._pieces = pieces
        self._rows = rows

    @classmethod
    def of(cls, *pieces: pa.Array | Stored) -> Texts:
        """All texts of the given pieces, in their order."""
        return cls(_Pieces(pieces))

    def __len__(self) -> int:
        return int(self._pieces.starts[-1]) if self._rows is None else len(self._rows)

    def take(self, rows: npt.NDArray[np.signedinteger]) -> Texts:
        """The given rows, in that order."""
        kept = rows if self._rows is None else self._rows[rows]
        return Texts(self._pieces, kept.astype(np.int32) if self._pieces.starts[-1] <= _SMALL else kept)

    def read(self, rows: npt.NDArray[np.signedinteger] | None = None) -> pa.Array:
        """The texts of some rows, by default all, as an Arrow array of bytes."""
        if rows is None:
            rows = np.arange(len(self))
        return self._pieces.gather(rows if self._rows is None else self._rows[rows])

    def located(
        self, rows: npt.NDArray[np.signedinteger]
    ) -> tuple[list[tuple[int, Any, Any]], npt.NDArray[np.int64]] | None:
        """Where some rows' texts are: see `_Pieces.located`.

        None when offsets of 32 bits do not reach.
        """
        inside = np.ascontiguousarray(rows if self._rows is None else self._rows[rows], np.int64)
        return self._pieces.located(inside)

    def pieces(self, size: int = 65_536) -> list[slice]:
        """Slices of at most `size` rows that cover all: what is read at once should stay small."""
        return [slice(low, min(low + size, len(self))) for low in range(0, len(self), size)]

    def forget(self) -> None:
        """Give back the memory of what was read from spill files; it can be read again."""
        self._pieces.forget()

    @property
    def rows(self) -> npt.NDArray[np.signedinteger]:
        """Which of its source's texts it holds."""
        return np.arange(len(self)) if self._rows is None else self._rows

    @property
    def source(self) -> _Pieces:
        """What holds the texts."""
        return self._pieces

    @staticmethod
    def concat(parts: Sequence[Texts]) -> Texts:
        """All rows of `parts`."""
        rows = TextRows(Scratch())
        for part in parts:
            rows.append(part)
        return rows.texts()


class TextRows:
    """A column of texts that grows: rows of whatever holds them, numbered through."""

    def __init__(self, scratch: Scratch) -> None:
        self._sources: dict[int, tuple[_Pieces, int]] = {}  # and how many texts come before its own
        self._count = 0
        self._rows = scratch.column()

    def append(self, texts: Texts) -> None:
        """More rows."""
        source = texts.source
        if id(source) not in self._sources:
            self._sources[id(source)] = source, self._count
            self._count += int(source.starts[-1])
        rows, begin = texts.rows, self._sources[id(source)][1]
        self._rows.append(rows.astype(np.int32 if self._count <= _SMALL else np.int64) + begin)

    def texts(self) -> Texts:
        """All rows."""
        if len(self._sources) == 1:
            return Texts(next(iter(self._sources.values()))[0], self._rows.finish())
        pieces = [piece for source, _ in self._sources.values() for piece in source.pieces]
        return Texts(_Pieces(pieces), self._rows.finish())


def remove_spills(directory: Path) -> None:
    """Delete the spill files of a folder, once nothing reads them."""
    for path in directory.glob(f"{SPILL_PREFIX}*"):
        path.unlink()


SPILL_PREFIX = ".spill-"
