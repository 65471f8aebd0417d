"""Reads one upload in a process of its own: `python -m neuronscope.server.reading PATH LIBRARY NAME`.

Prints a JSON line per step of the progress, and last `{"profile": id}` or `{"error": text}`. Ends when the server that
started it does: killed at any moment it leaves nothing that the next reader of the library would not remove.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

from neuronscope.formats.errors import NeuronscopeError
from neuronscope.store import Store

__all__ = ["main"]

_EVERY_S = 0.1
_LOOK_S = 0.5


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    if os.name == "posix" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # the readers of ranks too
    os._exit(1)


def main() -> int:
    """Read, tell, and return the exit code."""
    path, library, name = sys.argv[1:4]
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    told = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    last = 0.0

    def tell(stage: str, fraction: float) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY_S:
            last = time.monotonic()
            print(json.dumps({"stage": stage, "fraction": fraction}), file=told, flush=True)

    try:
        answer = {"profile": Store(library).add(path, name=name, progress=tell).id}
    except (NeuronscopeError, OSError) as error:
        answer = {"error": " ".join(str(error).split())}
    except MemoryError:
        answer = {"error": "not enough memory on the server for this profile"}
    except Exception as error:
        answer = {"error": f"internal error ({type(error).__name__}: {error}); please report it"}
    print(json.dumps(answer), file=told, flush=True)
    return 0 if "profile" in answer else 1


if __name__ == "__main__":
    sys.exit(main())
