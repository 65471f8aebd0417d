"""The naive RMSNorm under torch.compile: the whole function becomes one execution."""

from __future__ import annotations

import naive
import torch
from _run import RmsNorm, main


def compiled() -> RmsNorm:
    """The naive function, compiled for the device when first called."""
    return torch.compile(naive.rms_norm, backend="neuron", fullgraph=True)


if __name__ == "__main__":
    main(__doc__, compiled)
