"""Attention written out by hand in a compiled graph: one kernel, the same numbers and gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch_neuronx.compile.trace import trace_graphs


def plain(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) * 0.125, -1) @ v


def divided(q, k, v):
    scores = torch.matmul(q, k.mT) / math.sqrt(q.shape[-1])
    return torch.matmul(F.dropout(F.softmax(scores, dim=-1), 0.0, True), v)


def filled(q, k, v):
    ahead = torch.ones(q.shape[-2], q.shape[-2], device=q.device, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-2, -1) / 8.0).masked_fill(ahead, float("-inf"))
    return F.dropout(scores.softmax(-1), 0.1, False) @ v


def chosen(q, k, v):
    seen = torch.tril(torch.ones(q.shape[-2], q.shape[-2], device=q.device)) == 1
    scores = torch.where(seen, (q @ k.transpose(-2, -1)) * 0.125, -1e9)
    return F.softmax(scores.float(), -1).to(q.dtype) @ v


def added(q, k, v):
    bias = torch.full((q.shape[-2], q.shape[-2]), float("-inf"), device=q.device).triu(1)
    return F.softmax(q @ k.transpose(-2, -1) * 0.125 + bias, -1) @ v


def repeated(q, k, v):
    batch, heads, length, width = k.shape
    k = k[:, : heads // 2, None].expand(batch, heads // 2, 2, length, width).reshape(k.shape)
    v = v[:, : heads // 2].repeat_interleave(2, dim=1)
    return plain(q, k, v)


def flat(q, k, v):
    q, k, v = (t.reshape(-1, *t.shape[-2:]) for t in (q, k, v))
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 8, -1), v)


FORMS = [plain, divided, filled, chosen, added, repeated, flat]


def tensors(device="cpu", count=3, length=72):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 4, length, 64, generator=generator).to(device).requires_grad_() for _ in range(count)]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_becomes_the_kernel(form):
    with torch.device("meta"):
        inputs = [torch.empty(2, 4, 72, 64, requires_grad=True) for _ in range(3)]
    graphs = trace_graphs(form, *inputs, backward=True)
    ops = [[node.target for node in graph.nodes] for graph in graphs]
    assert "aten._scaled_dot_product_fused_attention_overrideable.default" in ops[0]
    assert "aten._scaled_dot_product_fused_attention_overrideable_backward.default" in ops[1]
    assert not any("softmax" in op or "bmm" in op for graph in ops for op in graph)
    if form in (filled, chosen, added):
        node = next(n for n in graphs[0].nodes if "fused_attention" in n.target)
        assert True in node.args  # causal, not a mask that is read


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_same_numbers_and_gradients(form):
    expected, given = tensors(), tensors("neuron")
    wanted = form(*expected)
    wanted.square().sum().backward()
    torch._dynamo.reset()
    result = torch.compile(form, backend="neuron")(*given)
    result.square().sum().backward()
    torch.testing.assert_close(result.cpu(), wanted, rtol=1e-4, atol=1e-4)
    for one, other in zip(given, expected, strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-3, atol=1e-3)


def test_a_bias_and_a_mask_of_data():
    def form(q, k, v, bias, hidden):
        scores = q @ k.transpose(-2, -1) * 0.125 + bias
        return torch.softmax(scores.masked_fill(hidden[:, None, None, :], float("-inf")), -1) @ v

    q, k, v = (t.detach() for t in tensors())
    bias, hidden = torch.randn(4, 72, 72), torch.arange(72).expand(2, 72) > 50
    torch._dynamo.reset()
    inputs = [t.to("neuron") for t in (q, k, v, bias, hidden)]
    result = torch.compile(form, backend="neuron")(*inputs)
    torch.testing.assert_close(result.cpu(), form(q, k, v, bias, hidden), rtol=1e-4, atol=1e-4)
    (graph,) = trace_graphs(form, q, k, v, bias, hidden)
    assert any("fused_attention" in node.target for node in graph.nodes)


@pytest.mark.parametrize(
    "form",
    [
        lambda q, k, v: (weights := torch.softmax(q @ k.mT, -1), weights @ v),  # the weights are wanted too
        lambda q, k, v: torch.softmax(q @ k.mT, -2) @ v,  # along the queries
        lambda q, k, v: torch.softmax((q @ k.mT).masked_fill(q[..., :1] > 0, 0.0), -1) @ v,  # not hidden
        lambda q, k, v: torch.softmax(torch.tanh(q @ k.mT), -1) @ v,
        lambda q, k, v: F.dropout(torch.softmax(q @ k.mT, -1), 0.5, True) @ v,
    ],
)
def test_other_things_stay(form):
    (graph,) = trace_graphs(form, *(t.detach() for t in tensors()))
    assert not any("fused_attention" in node.target for node in graph.nodes)
