"""Batch normalization of every form against torch."""

import pytest
import torch
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z, W, V = (Value(-1, i) for i in range(5))
SHAPES = [(3, 5), (2, 6, 9), (4, 130, 5, 7), (2, 3, 65, 66)]


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_functional_form_returns_the_running_averages(oracle, aten_call, shape, training):
    channels = shape[1]
    inputs = [values(*shape), values(channels, seed=1), values(channels, seed=2), values(channels, seed=3)]
    inputs.append(values(channels, seed=4).abs() + 0.5)
    call = aten_call(aten._native_batch_norm_legit_functional.default, X, Y, Z, W, V, training, 0.1, 1e-5)
    oracle([call], inputs, outputs=[Value(0, i) for i in ((0, 1, 2, 3, 4) if training else (0,))])


def test_no_running_statistics(oracle, aten_call):
    x = values(3, 4, 8, 8)
    oracle([aten_call(aten.native_batch_norm.default, X, None, None, None, None, True, 0.1, 1e-5)], [x])


def test_channels_last_is_not_copied(oracle, aten_call):
    x = values(2, 16, 6, 6).to(memory_format=torch.channels_last)
    oracle([aten_call(aten.native_batch_norm.default, X, None, None, None, None, True, 0.1, 1e-5)], [x])


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient(oracle, aten_call, shape):
    x, w = values(*shape), values(shape[1], seed=1)
    _, mean, rstd = aten.native_batch_norm.default(x, w, None, None, None, True, 0.1, 1e-5)
    call = aten_call(aten.native_batch_norm_backward.default, X, Y, Z, None, None, W, V, True, 1e-5, [True, True, True])
    oracle([call], [values(*shape, seed=2), x, w, mean, rstd], tolerance=2e-4)


def test_an_activation_is_one_kernel(graph_of, aten_call):
    from neuroncore.compiler import dump

    x, w = values(4, 32, 14, 14), values(32, seed=1)
    call = aten_call(aten.native_batch_norm.default, X, Y, Y, None, None, True, 0.1, 1e-5)
    text = dump(graph_of([call], [x, w], [Value(0, 0)]), "fuse")
    assert text.count("kernel ") == 1
