"""Gradients and training: the same bits as on the CPU."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, foreach=False),
    "adamw foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_equals_the_cpu(name: str) -> None:
    def train(device: str) -> list[torch.Tensor]:
        net = model().to(device)
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(8, 16, generator=generator).to(device)
        y = torch.randint(0, 4, (8,), generator=generator).to(device)
        optimizer = OPTIMIZERS[name](net.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        return [loss.detach().cpu(), *(p.detach().cpu() for p in net.parameters())]

    for expected, actual in zip(train("cpu"), train("neuron"), strict=True):
        assert torch.equal(actual, expected)


def gradients(call, *tensors: torch.Tensor, device: str) -> list[torch.Tensor]:
    inputs = [t.detach().to(device).requires_grad_() for t in tensors]
    call(*inputs).square().sum().backward()
    return [t.grad.cpu() for t in inputs]


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (F.linear, [(2, 3, 8), (5, 8), (5,)]),
        (F.linear, [(8,), (5, 8)]),
        (lambda x, w: torch.rms_norm(x, [8], w, 1e-6), [(2, 4, 8), (8,)]),
        (lambda x: torch.rms_norm(x, [4, 8]), [(2, 4, 8)]),
        (lambda x, w, b: F.conv2d(x, w, b, padding=1), [(2, 3, 6, 6), (4, 3, 3, 3), (4,)]),
        (lambda x, w: F.conv_transpose2d(x, w, stride=2), [(2, 3, 5, 5), (3, 4, 2, 2)]),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 2, 6, 8)] * 3),
        (F.scaled_dot_product_attention, [(2, 6, 8)] * 3),
        (lambda x, w: F.embedding(torch.tensor([[1, 0], [2, 2]], device=x.device), w) * x, [(2, 2, 8), (3, 8)]),
    ],
)
def test_gradients_equal_the_cpu(call, shapes) -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(shape) for shape in shapes]
    expected = gradients(call, *tensors, device="cpu")
    for _ in range(2):
        actual = gradients(call, *tensors, device="neuron")
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
def test_recurrent_networks_train(cell: type[nn.Module]) -> None:
    torch.manual_seed(0)
    net = cell(4, 6, 2)
    x = torch.randn(3, 2, 4)
    results = []
    for device in ("cpu", "neuron"):
        net = net.to(device)
        net.zero_grad()
        net(x.to(device))[0].sum().backward()
        results.append([p.grad.cpu().clone() for p in net.parameters()])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_checkpoint_and_function_transforms() -> None:
    x = torch.ones(3, device="neuron", requires_grad=True)
    torch.utils.checkpoint.checkpoint(lambda t: (t * t).sum(), x, use_reentrant=False).backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert torch.func.grad(lambda t: (t**3).sum())(torch.ones(2, device="neuron")).tolist() == [3, 3]
    assert torch.vmap(lambda t: t.sum())(torch.ones(4, 2, device="neuron")).tolist() == [2] * 4


def test_inference_mode() -> None:
    with torch.inference_mode():
        x = torch.ones(3, device="neuron")
        for _ in range(3):
            x = (x * 2).add_(1)
        x[0].mul_(2)
        assert x.tolist() == [30, 15, 15]


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0, 4), (3, 0)])
def test_linear_layers_of_nothing(shape: tuple[int, ...]) -> None:
    grads = []
    for device in ("cpu", "neuron"):
        x = torch.ones(shape, device=device, requires_grad=True)
        weight = torch.ones(7, shape[-1], device=device, requires_grad=True)
        bias = torch.ones(7, device=device, requires_grad=True)
        nn.functional.linear(x, weight, bias).sum().backward()
        grads.append([t.grad.cpu() for t in (x, weight, bias)])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_a_script_may_end_right_after_backward() -> None:
    """Autograd's device thread frees the pass later; by then the interpreter may be going down (about 1 run in 3)."""
    source = "import torch; (torch.ones(3, device='neuron', requires_grad=True) * 2).sum().backward()"
    scripts = [subprocess.Popen([sys.executable, "-c", source], stderr=subprocess.PIPE) for _ in range(6)]
    assert [(one.communicate()[1], one.returncode) for one in scripts] == [(b"", 0)] * 6
