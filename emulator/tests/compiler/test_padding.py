"""Padding with constants and with borders against torch."""

import pytest
import torch
from neuroncore.graph import Value

aten = torch.ops.aten
X = Value(-1, 0)


def values(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("pad", [(1, 2), (1, 2, 0, 3), (-1, 2), (-1, -2, 3, -1), (0, 0, 0, 0, 1, 1)])
def test_constant(oracle, aten_call, pad):
    oracle([aten_call(aten.constant_pad_nd.default, X, pad, 1.5)], [values(3, 6, 7)])


@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("pad", [(2, 1), (2, 1, 1, 3), (2, 1, 1, 3, 0, 2)])
def test_borders(oracle, aten_call, kind, pad):
    dimensions = len(pad) // 2
    op = getattr(aten, f"{kind}_pad{dimensions}d").default
    oracle([aten_call(op, X, pad)], [values(2, *(5, 4, 6)[:dimensions])])
