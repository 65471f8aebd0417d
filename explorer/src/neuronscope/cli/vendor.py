"""Options of Neuron Explorer's `view` that mean nothing here: refused with the reason, not taken and ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from neuronscope.formats.errors import NeuronscopeError

__all__ = ["ApiPort", "Force", "MemoryTracker", "PerfettoFlows", "Terminology", "without_buffers"]


def _refuse(option: str, why: str) -> Callable[[bool | str | None], bool | str | None]:
    def callback(value: bool | str | None) -> bool | str | None:
        if value:
            raise NeuronscopeError(f"{option} is not needed: {why}")
        return value

    return callback


def _flag(option: str, why: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(option, hidden=True, callback=_refuse(option, why))
    return found


Force = Annotated[bool, _flag("--force", "a profile is read anew by itself when its source has changed")]
MemoryTracker = Annotated[
    bool, _flag("--enable-memory-tracker", "memory is read wherever the profile has it (neuronscope memory)")
]
PerfettoFlows = Annotated[bool, _flag("--show-perfetto-flows", "a Perfetto export always holds the arrows")]
Terminology = Annotated[
    str | None, _flag("--terminology", "there is one set of words; docs/tables.md explains each table and column")
]
ApiPort = Annotated[str | None, _flag("--api-port", "page and interface share one port, --port")]


def without_buffers(features: list[str] | None) -> bool:
    """Whether `-F ignore-nc-buf-usage=true` is among the features.

    Raises:
        NeuronscopeError: another feature.
    """
    left_out = False
    for text in features or []:
        name, _, value = text.partition("=")
        if name.strip() != "ignore-nc-buf-usage" or value.strip().lower() not in ("true", "false"):
            raise NeuronscopeError(f"-F {text}: the only feature is ignore-nc-buf-usage=true (or false)")
        left_out = value.strip().lower() == "true"
    return left_out
