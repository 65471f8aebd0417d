"""Pooling and its gradients against torch."""

import pytest
import torch
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z = (Value(-1, i) for i in range(3))

#: shape, kernel, stride, padding, dilation, ceil_mode
CASES = [
    ((2, 3, 12, 14), (3, 3), (2, 2), (1, 1), (1, 1), False),
    ((2, 3, 12, 14), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((1, 130, 7, 7), (3, 2), (1, 2), (1, 0), (1, 1), True),
    ((3, 9, 11), (3, 3), (3, 1), (1, 1), (2, 1), True),
    ((2, 2, 5, 5), (5, 5), (5, 5), (0, 0), (1, 1), False),
]


def values(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_largest(oracle, aten_call, case, dtype):
    shape, *window = case
    oracle([aten_call(aten.max_pool2d_with_indices.default, X, *window)], [values(shape, dtype)])


@pytest.mark.parametrize("case", CASES)
def test_gradient_of_the_largest(oracle, aten_call, case):
    shape, *window = case
    x = values(shape)
    y, index = aten.max_pool2d_with_indices.default(x, *window)
    call = aten_call(aten.max_pool2d_with_indices_backward.default, X, Y, *window, Z)
    oracle([call], [values(y.shape, seed=1), x, index])


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize("case", [c for c in CASES if c[4] == (1, 1)])
def test_average_and_its_gradient(oracle, aten_call, case, divisor, padded):
    shape, kernel, stride, padding, _, ceil = case
    x, rest = values(shape), (kernel, stride, padding, ceil, padded, divisor)
    oracle([aten_call(aten.avg_pool2d.default, X, *rest)], [x])
    g = values(aten.avg_pool2d.default(x, *rest).shape, seed=1)
    oracle([aten_call(aten.avg_pool2d_backward.default, X, Y, *rest)], [g, x])


def test_planes_too_large_for_sbuf_are_cut(oracle, aten_call):
    x, window = values((1, 2, 200, 300)), ((3, 3), (2, 2), (1, 1))
    oracle([aten_call(aten.max_pool2d_with_indices.default, X, *window)], [x])
    y, index = aten.max_pool2d_with_indices.default(x, *window)
    call = aten_call(aten.max_pool2d_with_indices_backward.default, X, Y, *window, (1, 1), False, Z)
    oracle([call], [values(y.shape, seed=1), x, index])


def test_channels_last(oracle, aten_call):
    x = values((2, 16, 8, 8)).to(memory_format=torch.channels_last)
    oracle([aten_call(aten.max_pool2d_with_indices.default, X, (2, 2), (2, 2))], [x])


def test_moves_every_byte_once(oracle, aten_call):
    x = values((2, 64, 28, 28), torch.bfloat16)
    executable = oracle([aten_call(aten.max_pool2d_with_indices.default, X, (3, 3), (2, 2), (1, 1))], [x])
    assert executable.bytes_read == x.numel() * 2
    assert executable.bytes_written == 2 * 64 * 14 * 14 * (2 + 8)
