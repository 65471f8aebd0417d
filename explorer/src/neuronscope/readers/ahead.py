"""Working ahead: what is needed in order is made before its turn comes, so that more than one core works.

`Ahead` gives the pieces of a document, which helpers parse, and this process while it waits; `made_ahead` whatever
numpy and Arrow make without the interpreter's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

from neuronscope.readers.helper import Helper, HelperLostError
from neuronscope.readers.pieces import Piece

__all__ = ["Ahead", "Parsed", "made_ahead"]

Made = TypeVar("Made")

_WINDOW = 24  # pieces begun or waiting; as long as a helper needs to start


@dataclass
class Parsed:
    """A piece of the document: events between `start` and `stop`, the next event at `following`.

    `piece` is None when the text needs mending.
    """

    start: int
    stop: int
    following: int
    piece: Piece | None = None


class Ahead:
    """Gives pieces in order; guesses that the next one begins where this one ends, and drops wrong guesses."""

    def __init__(
        self,
        boundary: Callable[[int], tuple[int, int] | None],
        parse: Callable[[int, int], Piece | None],
        helpers: Sequence[Helper],
    ) -> None:
        """`boundary(start)` gives the end of the piece that starts there and the start of the next, None at the end."""
        self._boundary = boundary
        self._parse = parse
        self._helpers: SimpleQueue[Helper] = SimpleQueue()
        for helper in helpers:
            self._helpers.put(helper)
        self._pool = ThreadPoolExecutor(len(helpers)) if helpers else None
        self._queue: deque[tuple[Parsed, Future[None] | None]] = deque()

    def take(self, start: int) -> Parsed | None:
        """The piece that begins at `start`; None when no boundary follows."""
        if self._queue and self._queue[0][0].start != start:
            self.stop()
        self._fill(start)
        if not self._queue:
            return None
        parsed, future = self._queue.popleft()
        if future is None or future.cancel():
            parsed.piece = self._parse(parsed.start, parsed.stop)
            return parsed
        while not future.done():
            # Not idle while a helper is at it: the next piece nobody has begun is parsed here.
            for index, (later, waiting) in enumerate(self._queue):
                if waiting is not None and waiting.cancel():
                    later.piece = self._parse(later.start, later.stop)
                    done: Future[None] = Future()
                    done.set_result(None)
                    self._queue[index] = (later, done)
                    break
            else:
                wait((future,), return_when=FIRST_COMPLETED)
        try:
            future.result()
        except HelperLostError:
            parsed.piece = self._parse(parsed.start, parsed.stop)
        return parsed

    def stop(self) -> None:
        """Forget all guesses."""
        for _, future in self._queue:
            if future is not None:
                future.cancel()
        self._queue.clear()

    def close(self) -> None:
        """Stop the threads; the helpers are their owner's to end."""
        self.stop()
        if self._pool:
            self._pool.shutdown()

    def _fill(self, start: int) -> None:
        while len(self._queue) < (_WINDOW if self._pool else 1):
            at = self._queue[-1][0].following if self._queue else start
            found = self._boundary(at)
            if found is None:
                return
            parsed = Parsed(at, *found)
            self._queue.append((parsed, self._pool.submit(self._ask, parsed) if self._pool else None))

    def _ask(self, parsed: Parsed) -> None:
        helper = self._helpers.get()
        try:
            parsed.piece = helper.parse(parsed.start, parsed.stop)
        finally:
            self._helpers.put(helper)


def made_ahead(make: Callable[[int], Made], count: int) -> Iterator[Made]:
    """`make(0)`, `make(1)`, … in order; while one is used, the next is made in a thread."""
    with ThreadPoolExecutor(1) as pool:
        made: deque[Future[Made]] = deque()
        for number in range(count):
            made.append(pool.submit(make, number))
            if number:
                yield made.popleft().result()
        if made:
            yield made.popleft().result()
