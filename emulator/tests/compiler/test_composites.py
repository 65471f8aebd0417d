"""Ops of several instructions against torch: what the registered list has beyond arithmetic."""

import pytest
import torch
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z = (Value(-1, i) for i in range(3))


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(7,), (130, 33)])
def test_signs(oracle, aten_call, shape):
    x = values(*shape)
    x.view(-1)[:4] = torch.tensor([0.0, -0.0, -torch.inf, torch.inf])
    for op in (aten.signbit.default, aten.isneginf.default):
        oracle([aten_call(op, X)], [x])


def test_erfinv(oracle, aten_call):
    x = torch.linspace(-0.9999, 0.9999, 501)
    oracle([aten_call(aten.erfinv.default, X)], [x], tolerance=1e-4)


@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_softplus_gradient(oracle, aten_call, beta):
    oracle([aten_call(aten.softplus_backward.default, X, Y, beta, 20.0)], [values(40, 9), values(40, 9, seed=1) * 9])


def test_distance(oracle, aten_call):
    oracle([aten_call(aten.dist.default, X, Y, 2)], [values(30, 9), values(30, 9, seed=1)])


def test_one_hot(oracle, aten_call):
    x = torch.tensor([[3, 0], [1, 2]])
    oracle([aten_call(aten.one_hot.default, X, 5)], [x])


def test_stacked_rows(oracle, aten_call):
    oracle([aten_call(aten.vstack.default, [X, Y])], [values(5), values(3, 5, seed=1)])


@pytest.mark.parametrize("keepdim", [True, False])
def test_gradient_of_a_selected_value(oracle, aten_call, keepdim):
    x = values(4, 9, 5)
    chosen, index = x.max(1, keepdim=keepdim)
    call = aten_call(aten.value_selecting_reduction_backward.default, X, 1, Y, [4, 9, 5], keepdim)
    oracle([call], [chosen, index])
