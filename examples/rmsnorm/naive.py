"""RMSNorm out of separate PyTorch operations: each is an execution of its own."""

from __future__ import annotations

import torch
from _run import EPS, main


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Normalise the last dimension by its root mean square."""
    mean_square = (x * x).mean(-1, keepdim=True)
    return x * torch.rsqrt(mean_square + EPS) * weight


if __name__ == "__main__":
    main(__doc__, lambda: rms_norm)
