"""Whole training steps on the machine: what their programs compute is what torch computes on the CPU."""

from __future__ import annotations

import pytest
import torch
from families.oracle import on_machine
from torch import nn
from torch.utils._pytree import tree_leaves

from benchmarks.coverage import adamw
from benchmarks.models.decoder import DecoderConfig, Layer
from benchmarks.models.encoder import EncoderLayer
from benchmarks.models.resnet import Bottleneck


def step_of(model, training=True):
    """Loss and gradients as a function of parameters and input."""
    model.train(training)

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).square().mean()

    def step(parameters, x):
        gradients, value = torch.func.grad_and_value(loss)(parameters, x)
        return value, gradients

    return step


def check(model, x, tolerance=2e-4):
    torch.manual_seed(0)
    parameters = {
        n: (torch.randn_like(p) * p.shape[-1] ** -0.5 + (p.dim() == 1)).detach() for n, p in model.named_parameters()
    }
    step = step_of(model)
    wanted = tree_leaves(step(parameters, x))
    for got, expected in zip(on_machine(step, parameters, x), wanted, strict=True):
        torch.testing.assert_close(got, expected.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("key_heads", [1, 2])
def test_decoder_layer_forward_and_backward(key_heads):
    config = DecoderConfig(vocabulary=8, width=32, layers=1, heads=2, key_heads=key_heads, inner=48)
    check(Layer(config), torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(1)))


def test_encoder_layer_forward_and_backward():
    layer = EncoderLayer(32, 2, 64, norm_first=True)
    check(layer, torch.randn(2, 10, 32, generator=torch.Generator().manual_seed(1)))


def test_convolution_block_forward_and_backward():
    block = Bottleneck(8, 4, 2)
    for module in block.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
            module.num_batches_tracked = None
    check(block, torch.randn(2, 8, 8, 8, generator=torch.Generator().manual_seed(1)), 1e-3)


def test_adamw_step():
    def tensors(seed):
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(shape, generator=generator) for shape in ((16, 8), (130,), (3, 5, 7))]

    state = (tensors(0), tensors(1), tensors(2), [t.abs() for t in tensors(3)])

    def step(parameters, gradients, averages, squares):
        copies = [[t.clone() for t in tensors] for tensors in (parameters, averages, squares)]
        adamw(copies[0], gradients, copies[1], copies[2])
        return copies

    wanted = tree_leaves(step(*state))
    for got, expected in zip(on_machine(step, *state), wanted, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
