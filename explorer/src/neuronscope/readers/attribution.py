"""In which module, region, source line and Python stack the host launched a piece of work: nested ranges of threads.

Frames (`python_function`) and regions (`record_function`) of a thread nest, so a launch belongs to those open at its
time. A module's path joins the `nn.Module` frames around it. Backward runs on threads without such frames: it gets the
module of the forward operator that an arrow of kind fwdbwd leads from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neuronscope.readers import lanes
from neuronscope.readers.exact import Int64
from neuronscope.readers.keys import stable_order
from neuronscope.readers.narrow import Coded, narrow
from neuronscope.readers.scratch import Scratch, ranges
from neuronscope.readers.trace import Events, Role

__all__ = ["Ranges", "contexts", "module_label", "source_label"]

_MODULE = "nn.Module: "
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$")
_LIBRARY = re.compile(r"(?:^|/)(?:torch|threading\.py|runpy\.py|contextlib\.py)(?:/|$)|^<")


_STEP = re.compile(r"ProfilerStep#\d+$")


def contexts(
    ev: Events, thread: Int64, names: Sequence[str], name: Int64, call: Int64, forward: Int64, scratch: Scratch
) -> dict[str, Coded]:
    """`module_path`, `region`, `source` and `stack` of pieces of work, empty where unknown.

    Args:
        ev: all events.
        thread: code of each event's thread.
        names: texts of the codes of names.
        name: code of each event's name.
        call: event row of the host call that launched each piece, -1 unknown.
        forward: event row of the forward operator whose backward the piece is, -1 none.
        scratch: holds what is as long as the ranges.
    """
    frames, regions = ev.of(Role.PYTHON), ev.of(Role.ANNOTATION)
    steps = np.array([bool(_STEP.match(text)) for text in names], np.bool_)
    regions = regions[~steps[name[regions]]] if len(regions) else regions
    nothing = Coded.same("", len(call))
    found = {"module_path": nothing, "region": nothing, "source": nothing, "stack": nothing}
    if not len(call) or not (len(frames) or len(regions)):
        return found
    if len(frames):
        frame_ranges = _ranges(ev, names, name, frames, _frame_threads(ev, thread, frames), scratch)
        inner = _innermost(frame_ranges, ev, thread, call, scratch)
        found["stack"] = frame_ranges.paths(inner, str, ";")
        found["source"] = frame_ranges.last(inner, source_label)
        through = np.where(inner >= 0, inner, _innermost(frame_ranges, ev, thread, forward, scratch))
        found["module_path"] = frame_ranges.paths(through, module_label, ".")
    if len(regions):
        region_ranges = _ranges(ev, names, name, regions, thread[regions], scratch)
        found["region"] = region_ranges.paths(_innermost(region_ranges, ev, thread, call, scratch), str, " > ")
    return found


def _ranges(ev: Events, names: Sequence[str], name: Int64, rows: Int64, thread: Int64, scratch: Scratch) -> Ranges:
    order = stable_order(thread, int(thread.max()) + 1)  # the rows are in order of start
    rows = rows[order]
    start, end = (scratch.kept(scratch.take(column, rows)) for column in (ev.start, ev.end))
    return Ranges(thread[order], start, end, scratch.kept(name[rows]), names, scratch)


def _innermost(named: Ranges, ev: Events, thread: Int64, rows: Int64, scratch: Scratch) -> Int64:
    found = np.full(len(rows), -1, np.int32 if len(ev) < 2**31 else np.int64)
    for low, high in ranges(len(rows)):
        known = low + np.flatnonzero(rows[low:high] >= 0)
        found[known] = named.innermost(thread[rows[known]], ev.start[rows[known]])
        scratch.forget()
    return found


def _frame_threads(ev: Events, thread: Int64, frames: Int64) -> Int64:
    """Threads of Python frames; torch may write thread 0 for those of the thread that called the operators."""
    threads = thread[frames]
    calling = thread[ev.of(Role.OP)]
    strays = np.setdiff1d(threads, calling)
    if len(strays) == 1 and len(calling):
        values, counts = np.unique(calling, return_counts=True)
        main = values[counts.argmax()]
        if not (threads == main).any():
            threads = np.where(threads == strays[0], main, threads)
    return threads


def module_label(name: str) -> str:
    """`Linear_0` of a frame named `nn.Module: Linear_0`, empty for other frames."""
    return name.removeprefix(_MODULE) if name.startswith(_MODULE) else ""


def source_label(name: str) -> str:
    """`model.py:12` of a frame `model.py(12): forward` of a user's file, empty for torch's own and built-in frames."""
    found = _FRAME.match(name)
    return f"{found['file']}:{found['line']}" if found and not _LIBRARY.search(found["file"]) else ""


class Ranges:
    """Named ranges of host threads, to ask what was open on a thread at a time.

    Args:
        thread: code of each range's thread.
        start, end: its times.
        name: code of its name.
        names: texts by code.
    """

    def __init__(
        self,
        thread: Int64,
        start: Int64,
        end: Int64,
        name: Int64,
        names: Sequence[str],
        scratch: Scratch | None = None,
    ) -> None:
        scratch = scratch or Scratch()
        same, later = thread[1:] == thread[:-1], start[1:] > start[:-1]
        longer = (start[1:] == start[:-1]) & (end[1:] > end[:-1])
        if ((thread[1:] < thread[:-1]) | (same & ~later & ((start[1:] < start[:-1]) | longer))).any():
            order = np.lexsort((start - np.maximum(end, start + 1), start, thread))
            thread, start, end, name = thread[order], start[order], end[order], name[order]
        self._name = name
        self._names = names
        nesting = lanes.nest(thread, start, end)
        depth, parent = scratch.kept(narrow(nesting.depth)), scratch.kept(nesting.parent)
        bounds = {int(thread[low]): (low, high) for low, high in lanes.groups_of(thread)}
        self.threads = np.array(sorted(bounds), np.int64)
        self._stacks = lanes.Stacks(lanes.Nesting(depth, parent, nesting.crossing), bounds, start, end)

    def innermost(self, thread: Int64, at: Int64) -> Int64:
        """Number of the innermost range that is open on each thread at each time, -1 none."""
        return lanes.enclosing(self._stacks, thread, at)

    def paths(self, asked: Int64, label: Callable[[str], str], separator: str) -> Coded:
        """For each range asked for, the labels from the outermost range around it to itself; empty labels are left out.

        Args:
            asked: numbers as `innermost` gives them; -1 has an empty path.
            label: what a range's name contributes.
            separator: between labels.
        """
        labels = [label(name) for name in self._names]
        path, parent, last = self._numbered(np.array([bool(text) for text in labels], np.bool_))
        texts: dict[int, str] = {-1: ""}

        def text(number: int) -> str:
            pending = []
            while number not in texts:
                pending.append(number)
                number = parent[number]
            for one in reversed(pending):
                above = texts[parent[one]]
                texts[one] = f"{above}{separator}{labels[last[one]]}" if above else labels[last[one]]
            return texts[pending[0]] if pending else texts[number]

        wanted, where = _used(path, asked, len(parent))
        return Coded(where, [text(number) for number in wanted])

    def last(self, asked: Int64, label: Callable[[str], str]) -> Coded:
        """For each range asked for, the innermost label around it that is not empty."""
        labels = [label(name) for name in self._names]
        path, parent, last = self._numbered(np.array([bool(text) for text in labels], np.bool_))
        wanted, where = _used(path, asked, len(parent))
        return Coded(where, [labels[last[n]] if n >= 0 else "" for n in wanted])

    def _numbered(self, counts: npt.NDArray[np.bool_]) -> tuple[Int64, list[int], list[int]]:
        """Path number of each range (equal for equal paths), and of each path its parent's number and last name.

        Ranges whose name does not count have the path of the range around them, -1 none.
        """
        nesting = self._stacks.nesting
        path = np.full(len(self._name), -1, np.int32 if len(self._name) < 2**31 else np.int64)
        parents: list[int] = []
        names: list[int] = []
        order = stable_order(nesting.depth, int(nesting.depth.max(initial=0)) + 1)
        for low, high in lanes.groups_of(nesting.depth[order]):
            rows = order[low:high]
            above = np.where(nesting.parent[rows] >= 0, path[nesting.parent[rows]], -1)
            own = counts[self._name[rows]]
            pair = pa.array((above[own].astype(np.int64) + 1) * len(self._names) + self._name[rows][own])
            pair = pair.dictionary_encode()
            path[rows] = above
            path[rows[own]] = pair.indices.to_numpy() + len(parents)
            known = pair.dictionary.to_numpy()
            parents += (known // len(self._names) - 1).tolist()
            names += (known % len(self._names)).tolist()
        return path, parents, names


def _used(path: Int64, asked: Int64, count: int) -> tuple[list[int], Any]:
    """Which of `count` paths the ranges asked for have, in order (-1: none), and which of these each one has."""
    at = np.where(asked >= 0, path[asked], -1) + 1 if len(path) else np.zeros(len(asked), np.int64)
    seen = np.zeros(count + 1, np.bool_)
    seen[at] = True
    return (np.flatnonzero(seen) - 1).tolist(), narrow(np.cumsum(seen) - 1)[at]
