"""Tells the recorder which nn.Module's forward runs, only while a capture records."""

from __future__ import annotations

import functools
import threading
from typing import Any

from torch import nn

from torch_neuronx import _C


class ModuleTracker:
    """Wraps `nn.Module.__call__` to push and pop qualified module paths, such as "Model.layers.0.mlp".

    Not torch's global forward hooks: with one installed, a module compiled before the capture warns at every call, and
    Dynamo's guards on the hook tables fail, so the recorded step would be a recompilation.
    """

    def __init__(self) -> None:
        self._original: Any = None
        self._local = threading.local()

    def start(self) -> None:
        """Begin to follow module calls of every thread."""
        original = self._original = nn.Module.__call__

        @functools.wraps(original)
        def tracked_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            self._enter(module)
            try:
                return original(module, *args, **kwargs)
            finally:
                self._leave()

        # Dynamo then traces the original: a graph compiled during a capture stays valid after it, and the reverse.
        wrapper: Any = tracked_call
        wrapper._torchdynamo_inline = original
        nn.Module.__call__ = wrapper

    def stop(self) -> None:
        """Restore torch's own call; forwards that are running now still leave properly."""
        if self._original is not None:
            nn.Module.__call__ = self._original
            self._original = None

    def _enter(self, module: nn.Module) -> None:
        stack = self._stack()
        names, caller = stack[-1] if stack else ({}, "")
        path = names.get(id(module))
        if path is None:
            # The outermost module, or one that is not registered below the module that calls it: a tree of its own.
            unwrapped = getattr(module, "_orig_mod", module)  # behind torch.compile's wrapper
            path = f"{caller}.{type(unwrapped).__name__}".lstrip(".")
            names = {id(child): _join(path, name) for name, child in module.named_modules()}
        stack.append((names, path))
        _C.profiler.push_module(path)

    def _leave(self) -> None:
        self._stack().pop()
        _C.profiler.pop_module()

    def _stack(self) -> list[tuple[dict[int, str], str]]:
        """This thread's running modules: the names below the root of each, and its own path."""
        stack: list[tuple[dict[int, str], str]] = self._local.__dict__.setdefault("stack", [])
        return stack


def _join(root: str, name: str) -> str:
    return ".".join([root, *(part for part in name.split(".") if part and part != "_orig_mod")])
