"""Autocast follows the CUDA lists."""

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_lists(dtype: torch.dtype) -> None:
    a = torch.randn(4, 4, device="neuron")
    with torch.autocast("neuron", dtype=dtype):
        product = a @ a
        assert product.dtype == dtype
        assert F.linear(a, a).dtype == dtype
        assert product.exp().dtype == torch.float32
        assert product.softmax(-1).dtype == torch.float32
        assert product.sum().dtype == torch.float32
        assert torch.cat([product, a]).dtype == torch.float32
        assert torch.addcmul(a, product, product).dtype == torch.float32
        assert (product + 1).dtype == dtype
        with torch.autocast("neuron", enabled=False):
            assert (a @ a).dtype == torch.float32


def test_gradients_come_back_in_fp32() -> None:
    w = torch.randn(4, 4, device="neuron", requires_grad=True)
    with torch.autocast("neuron", dtype=torch.bfloat16):
        loss = (w @ w).float().sum()
    loss.backward()
    assert w.grad.dtype == torch.float32


def test_cpu_autocast_does_not_reach_the_device() -> None:
    a = torch.randn(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert F.linear(a.to("neuron"), a.to("neuron")).dtype == torch.float32


def test_binary_cross_entropy_is_banned() -> None:
    p = torch.rand(3, device="neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(p, p)


def test_grad_scaler() -> None:
    w = torch.ones(2, device="neuron", requires_grad=True)
    optimizer = torch.optim.SGD([w], 0.5)
    scaler = torch.amp.GradScaler("neuron", init_scale=4.0)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.5, 0.5]


def test_supported_types() -> None:
    assert torch.neuron.get_amp_supported_dtype() == [torch.float32, torch.float16, torch.bfloat16]
    assert torch.neuron.is_bf16_supported()
