"""Stopping a question that nobody waits for any more, from another thread than the one that works on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

import duckdb

from neuronscope.formats.errors import NeuronscopeError

__all__ = ["Stop", "StoppedError", "running", "stoppable"]

_current: ContextVar[Stop | None] = ContextVar("neuronscope_stop", default=None)


class StoppedError(NeuronscopeError):
    """The question was stopped before it was answered."""


class Stop:
    """One question. `stop` ends the SQL that runs for it; what is asked for it afterwards is not begun."""

    def __init__(self) -> None:
        self.stopped = False
        self._lock = Lock()
        self._cursors: set[duckdb.DuckDBPyConnection] = set()

    def stop(self) -> None:
        """May be called again: an interruption that comes before the SQL has begun is lost."""
        with self._lock:
            self.stopped = True
            for cursor in self._cursors:
                cursor.interrupt()

    @contextmanager
    def running(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """What the block does with the cursor can be stopped.

        Raises:
            StoppedError: it was.
        """
        with self._lock:
            if self.stopped:
                raise StoppedError("stopped")
            self._cursors.add(cursor)
        try:
            yield
        except duckdb.InterruptException:
            if self.stopped:
                raise StoppedError("stopped") from None
            raise
        finally:
            with self._lock:
                self._cursors.discard(cursor)


@contextmanager
def stoppable(stop: Stop) -> Iterator[None]:
    """Whatever SQL the block runs in this thread belongs to this question."""
    token = _current.set(stop)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def running(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Put what is done with a cursor under the question that this thread works on, if any."""
    stop = _current.get()
    if stop is None:
        yield
        return
    with stop.running(cursor):
        yield
