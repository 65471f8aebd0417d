"""Files of a compiled graph, kept for a look inside: TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS=1."""

from __future__ import annotations

import os
import time
from pathlib import Path

from torch import fx

from torch_neuronx import _executables
from torch_neuronx.compile.names import get_rank

__all__ = ["write"]

_DEFAULT_FOLDER = "/tmp/neuron_backend"


def write(name: str, module: fx.GraphModule, neff_hash: str) -> None:
    """Write `fx_graphs/` and `neff/` below TORCH_NEURONX_DEBUG_DIR, if asked for."""
    if os.environ.get("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "0") != "1":
        return
    root = Path(os.environ.get("TORCH_NEURONX_DEBUG_DIR") or _DEFAULT_FOLDER)
    stem = f"{name}_{time.time_ns()}"
    text = module.print_readable(print_output=False)
    _write(root / "fx_graphs", f"{stem}.fx.txt", text.encode())
    executable = _executables.find(neff_hash)
    if executable is not None:
        _write(root / "neff", f"{stem}.neff", executable.neff)


def _write(folder: Path, name: str, content: bytes) -> None:
    folder = folder / f"proc_{get_rank()}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
