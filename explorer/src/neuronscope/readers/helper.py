"""Helpers that parse pieces of a file, so that more than one core works on it.

With the native tokenizer, which lets go of the interpreter's lock, a helper is a thread. Otherwise it is this
interpreter running `main` below: no `multiprocessing` worker, because those import the user's script again, which a
script that only calls `neuronscope.open(path)` need not be prepared for.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Protocol

from neuronscope.readers.native import PADDING, parse_piece, tokenizer
from neuronscope.readers.pieces import Piece
from neuronscope.readers.source import Source, Stretches
from neuronscope.readers.texts import Spill

__all__ = ["Helper", "HelperLostError", "cores", "helpers_wanted", "open_helper"]

_WORTH_BYTES = 24 << 20  # a helper takes about 0.4 s to start
_MOST = 3


class HelperLostError(Exception):
    """The process ended or can't be talked to; its piece has to be parsed by another."""


def helpers_wanted(size: int) -> int:
    """How many helpers a file of `size` bytes is worth on this machine."""
    if size < _WORTH_BYTES or not sys.executable or os.environ.get("NEURONSCOPE_HELPERS") == "0":
        return 0
    return max(min(cores() - 1, _MOST), 0)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Helper(Protocol):
    """Parses pieces for another; a context manager that ends it."""

    def parse(self, start: int, end: int) -> Piece | None:
        """The events between two offsets of the source; None when they need mending. One call at a time.

        Raises:
            HelperLostError: no answer.
        """
        ...

    def __enter__(self) -> Helper: ...

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None: ...


def open_helper(source: Source, spill: Path) -> Helper:
    """A helper for a source that is a file; what it spills goes to the file `spill`."""
    if tokenizer() == "native":
        return _Thread(source, spill)
    if source.path is None:
        raise ValueError("a helper process needs a file")
    return _Process(source.path, spill)


class _Thread:
    """No more than a spill of its own: the thread is the caller's."""

    def __init__(self, source: Source, spill: Path) -> None:
        self._stretches = Stretches(source, PADDING)
        self._spill = Spill(spill)

    def parse(self, start: int, end: int) -> Piece | None:
        stretches = self._stretches
        return parse_piece(stretches.read(start, end), self._spill, stretches.padding, stretches.place(start, end))

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._spill.close()
        self._stretches.close()


class _Process:
    """One process; `parse` is called by one thread at a time."""

    def __init__(self, source: Path, spill: Path) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from neuronscope.readers.helper import main; main()", str(source), str(spill)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "OPENBLAS_NUM_THREADS": "1",  # numpy starts one for each core else
            },
        )

    def parse(self, start: int, end: int) -> Piece | None:
        process = self._process
        with self._lock:
            if process.stdin is None or process.stdout is None:
                raise HelperLostError
            try:
                pickle.dump((start, end), process.stdin)
                process.stdin.flush()
                found = pickle.load(process.stdout)
            except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
                raise HelperLostError from error
        if found is not None and not isinstance(found, Piece):
            raise HelperLostError
        return found

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        if self._process.stdin:
            with contextlib.suppress(OSError):  # it may be gone, with a request unread
                self._process.stdin.close()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


def main() -> None:
    """Answer requests on standard input until it closes. Arguments: the source, the spill file."""
    gc.disable()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write among the answers
    spill = Spill(Path(sys.argv[2]), 0)  # an answer is copied twice, a file is not
    with Path(sys.argv[1]).open("rb") as source:
        while True:
            try:
                start, end = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            source.seek(start)
            piece = parse_piece(source.read(end - start), spill)
            spill.flush()
            pickle.dump(piece, answers, protocol=5)
            answers.flush()
