"""Names of compiled graphs: "<model>_<aot id>_<forward, backward or inference>_<nth>"."""

from __future__ import annotations

import os

from torch._functorch._aot_autograd.logging_utils import get_aot_compilation_context
from torch._guards import CompileContext

__all__ = ["get_model_name", "get_rank", "graph_name", "profile_name", "set_model_name"]

_DEFAULT_MODEL = "model"
_AUTOGRAD_ROWS = {"forward": "CompiledFunction", "backward": "CompiledFunctionBackward"}
_model = _DEFAULT_MODEL


def set_model_name(name: str) -> None:
    """Name that the graphs compiled from now on carry in profiles, metrics and artifacts.

    Raises:
        ValueError: the name is empty or holds a path separator.
    """
    global _model
    if not name or "/" in name:
        raise ValueError(f"model name {name!r}: it becomes part of file names, so it must not be empty or contain '/'")
    _model = name


def get_model_name() -> str:
    """The current model name, "model" unless set."""
    return _model


def get_rank() -> int:
    """This process's rank: RANK, 0 outside distributed runs."""
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdecimal() else 0


def graph_name(model: str) -> str:
    """Name of the graph that aot_autograd compiles right now."""
    graphs, _, nth = get_aot_compilation_context()
    return "_".join([model, *graphs, str(nth)])


def profile_name() -> str:
    """The row of torch's profiler table that will hold the device time of the graph being compiled.

    Torch attributes a launch to the innermost range on its thread: in inference the compiled region, in training the
    autograd function that aot_autograd made of the graph.
    """
    graphs, _, _ = get_aot_compilation_context()
    kind = graphs[-1].rpartition("_")[2] if graphs else ""
    if kind in _AUTOGRAD_ROWS:
        return _AUTOGRAD_ROWS[kind]
    return f"Torch-Compiled Region: {CompileContext.current_compile_id()}"
