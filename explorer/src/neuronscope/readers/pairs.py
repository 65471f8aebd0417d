"""Begin and end rows of chrome traces → intervals: B/E by thread, b/e (S/F) by id."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from neuronscope.readers.exact import Int64

__all__ = ["Paired", "Pairs", "match_by_id", "match_by_thread", "merge_arguments"]

Open = list[tuple[int, str]]  # row and name of what has begun and not ended, oldest first


def _numbers() -> array[int]:
    return array("q")


@dataclass
class Pairs:
    """Rows of a begin and its end; begins that never end; ends of nothing. As arrays, since they may be millions."""

    begins: array[int] = field(default_factory=_numbers)
    ends: array[int] = field(default_factory=_numbers)
    unfinished: list[int] = field(default_factory=list)
    stray: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Paired:
    """Intervals as the rows of their begins and ends, of those without an end (the last `unfinished`) the begin twice.

    Attributes:
        times: of the begins.
        longest: a longer duration can't be meant.
    """

    begins: Int64
    ends: Int64
    times: Int64
    unfinished: int
    longest: int

    def __len__(self) -> int:
        return len(self.begins)


def match_by_thread(rows: Iterable[tuple[int, bool, Hashable, str]]) -> Pairs:
    """Pairs among rows (row, whether it begins, thread, name) in order of time.

    An end closes the innermost open interval of its name; without a name, or with one that nothing open has, the
    innermost one.
    """

    def innermost(held: Open, name: str) -> int:
        return next((at for at in range(len(held) - 1, -1, -1) if held[at][1] == name), len(held) - 1)

    return _match(rows, innermost)


def match_by_id(rows: Iterable[tuple[int, bool, Hashable, str]]) -> Pairs:
    """Pairs among rows (row, whether it begins, id, name) in order of time.

    An end closes the oldest open interval of its id and name: those of one id may overlap. Without a name it closes
    the innermost one of its id.
    """

    def oldest(held: Open, name: str) -> int:
        if not name:
            return len(held) - 1
        return next((at for at, (_, begun) in enumerate(held) if begun == name), -1)

    return _match(rows, oldest)


def _match(rows: Iterable[tuple[int, bool, Hashable, str]], choose: Callable[[Open, str], int]) -> Pairs:
    found = Pairs()
    open_rows: dict[Hashable, Open] = defaultdict(list)
    for row, begins, key, name in rows:
        held = open_rows[key]
        if begins:
            held.append((row, name))
            continue
        at = len(held) - 1 if held and held[-1][1] == name and len(held) == 1 else choose(held, name)
        if at < 0:
            found.stray.append(row)
            if not held:
                del open_rows[key]
        else:
            found.begins.append(held.pop(at)[0])
            found.ends.append(row)
            if not held:
                del open_rows[key]
    found.unfinished = sorted(row for held in open_rows.values() for row, _ in held)
    return found


def merge_arguments(begins: pa.Array, ends: Sequence[bytes]) -> pa.Array:
    """Arguments (JSON text) of intervals whose end carries some too.

    An end's value wins; a different one that it replaces is kept in member `begin`.
    """
    merged = []
    for begin, end in zip(begins.to_pylist(), ends, strict=True):
        first, second = _object(begin), _object(end)
        both: dict[str, object] = {**first, **second}
        replaced = {key: value for key, value in first.items() if key in second and value != second[key]}
        if replaced:
            both["begin"] = replaced
        merged.append(begin if not second else end if not first else msgspec.json.encode(both))
    return pa.array(merged, pa.binary())


def _object(text: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw]) if len(text) > 2 else {}
    except (msgspec.DecodeError, RecursionError):
        return {}
