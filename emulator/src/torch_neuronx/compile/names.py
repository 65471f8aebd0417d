"""Names of compiled graphs: "<model>_<aot id>_<forward, backward or inference>_<nth>"."""

from __future__ import annotations

import os

from torch._functorch._aot_autograd.logging_utils import get_aot_compilation_context

__all__ = ["get_model_name", "get_rank", "graph_name", "set_model_name"]

_DEFAULT_MODEL = "model"
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
