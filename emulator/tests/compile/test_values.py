"""Compiled graphs compute what eager ops compute, bit for bit, and make one launch per graph call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Executions = Callable[[Callable[[], Any]], list[str]]


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", **options)


def neuron(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype).to("neuron")


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def test_rms_norm_is_one_execution_with_the_eager_numbers(executions: Executions) -> None:
    x, weight = neuron(4, 512, dtype=torch.bfloat16), torch.ones(512, dtype=torch.bfloat16, device="neuron")
    function = compiled(rms_norm, fullgraph=True)
    assert same(function(x, weight), rms_norm(x, weight))
    assert len(executions(lambda: rms_norm(x, weight))) == 6


def test_second_call_launches_once(executions: Executions) -> None:
    x, weight = neuron(4, 64), neuron(64)
    function = compiled(rms_norm)
    function(x, weight)
    (name,) = executions(lambda: function(x, weight))
    assert name.startswith("model_")


def test_training_step_is_two_executions_with_the_eager_gradients(executions: Executions) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to("neuron")
    reference = copy.deepcopy(model)
    x = neuron(8, 16)
    function = compiled(model)
    function(x).backward(torch.ones(8, 4, device="neuron"))
    reference(x).backward(torch.ones(8, 4, device="neuron"))
    assert all(same(p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters(), strict=True))
    model.zero_grad()
    gradient = torch.ones(8, 4, device="neuron")
    names = executions(lambda: function(x).backward(gradient))
    assert [name.split("_")[2] for name in names] == ["forward", "backward"]


def test_batch_norm_updates_its_statistics() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to("neuron")
    reference = copy.deepcopy(model)
    x, gradient = neuron(2, 3, 8, 8), neuron(2, 4, 6, 6)
    compiled(model)(x).backward(gradient)
    reference(x).backward(gradient)
    assert same(model[1].running_mean, reference[1].running_mean)
    assert same(model[0].weight.grad, reference[0].weight.grad)


def test_attention_forward_and_backward() -> None:
    q = neuron(1, 2, 16, 8).requires_grad_()

    def attention(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    result = compiled(attention)(q)
    result.sum().backward()
    gradient, q.grad = q.grad, None
    expected = attention(q)
    expected.sum().backward()
    assert same(result, expected) and same(gradient, q.grad)


def test_fused_rms_norm_backward() -> None:
    x, weight = neuron(4, 64).requires_grad_(), neuron(64).requires_grad_()

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.rms_norm(x, [64], weight)

    compiled(norm)(x, weight).sum().backward()
    gradients = [x.grad, weight.grad]
    x.grad = weight.grad = None
    norm(x, weight).sum().backward()
    assert same(gradients[0], x.grad) and same(gradients[1], weight.grad)


def test_mutated_input_is_written_within_the_launch(executions: Executions) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    x = torch.ones(4, device="neuron")
    run = compiled(function)
    run(x)
    assert len(executions(lambda: run(x))) == 1
    assert x.tolist() == [4.0] * 4


def test_results_that_are_views_of_an_input_share_its_memory() -> None:
    x = torch.arange(4.0).to("neuron")
    square, first, copied = compiled(lambda x: (x.view(2, 2), x[0], x * 1))(x)
    x.add_(1)
    assert square.tolist() == [[1.0, 2.0], [3.0, 4.0]] and first.item() == 1.0
    assert copied.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_dropout_draws_the_device_generator() -> None:
    x = torch.ones(1000, device="neuron")
    function = compiled(lambda x: F.dropout(x, 0.5))
    torch.manual_seed(1)
    drawn = function(x)
    torch.manual_seed(1)
    assert same(drawn, F.dropout(x, 0.5))
    assert not same(drawn, function(x))


def test_checkpointed_dropout_repeats_its_mask_in_the_backward(executions: Executions) -> None:
    x = torch.ones(1000, device="neuron", requires_grad=True)

    def block(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.exp(), 0.5)

    function = compiled(lambda x: checkpoint(block, x, use_reentrant=False))
    result = function(x)
    result.sum().backward()
    assert same(x.grad, result.detach())  # exp(x) is its own derivative; the masks must agree
    gradient = torch.ones(1000, device="neuron")
    assert len(executions(lambda: function(x).backward(gradient))) == 3  # forward, backward, accumulation into x.grad


def test_int64_results_keep_their_dtype() -> None:
    x = neuron(3, 4)
    largest, numbers = compiled(lambda x: (x.argmax(-1), torch.arange(5, device=x.device)))(x)
    assert same(largest, x.argmax(-1)) and same(numbers, torch.arange(5))
    assert numbers.device.type == "neuron"


def test_autocast_inside() -> None:
    layer = nn.Linear(8, 8).to("neuron")
    x = neuron(2, 8)

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            return layer(x)

    assert same(compiled(function)(x), function(x))


def test_optimizer_step_is_one_execution(executions: Executions) -> None:
    layer = nn.Linear(4, 4).to("neuron")
    reference = copy.deepcopy(layer)
    for one in (layer, reference):
        one(torch.ones(2, 4, device="neuron")).sum().backward()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9).step()
    step = compiled(optimizer.step)
    step()
    assert same(layer.weight, reference.weight)
    step()
    assert len(executions(step)) == 1


def test_graph_break_makes_two_executions(executions: Executions) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    x = neuron(3)
    run = compiled(function)
    run(x)
    assert len(executions(lambda: run(x))) == 2


def test_constants_and_structures() -> None:
    def function(x: torch.Tensor, n: int) -> dict[str, Any]:
        table = torch.tensor([1.0, 2.0, 3.0], device=x.device)
        return {"sum": x + table + torch.tensor(1.0), "none": None, "n": n + 1, "list": [x * n]}

    result = compiled(function)(torch.zeros(3, device="neuron"), 2)
    assert result["sum"].tolist() == [2.0, 3.0, 4.0]
    assert (result["none"], result["n"], result["list"][0].tolist()) == (None, 3, [0.0] * 3)


def test_no_tensor_inputs_and_second_device() -> None:
    assert compiled(lambda n: torch.ones(n, device="neuron") * 2)(3).tolist() == [2.0] * 3
    assert compiled(lambda x: x * 2)(torch.ones(2, device="neuron:1")).device == torch.device("neuron:1")


def test_ops_without_a_device_kernel_stay_in_the_launch(executions: Executions) -> None:
    x = neuron(3, 3)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(x)[1] + 1

    run = compiled(function)
    assert same(run(x), function(x))
    assert len(executions(lambda: run(x))) == 1


def test_data_error_surfaces_at_synchronization_at_the_latest() -> None:
    function = compiled(lambda x, i: x[i] * 2)
    x = torch.ones(3, device="neuron")
    function(x, torch.tensor([1]).to("neuron"))
    index = torch.tensor([7]).to("neuron")
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        function(x, index)
        torch.neuron.synchronize()


def test_side_effects_inside_a_graph(executions: Executions) -> None:
    x = torch.eye(3, device="neuron") * 2
    inverse = compiled(torch.linalg.inv)
    assert same(inverse(x), torch.eye(3) / 2)
    assert len(executions(lambda: inverse(x))) == 1
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        inverse(torch.zeros(3, 3, device="neuron"))


def test_dtype_without_a_counterpart_is_estimated(caplog: pytest.LogCaptureFixture) -> None:
    scales, x = compiled(lambda x: (x.to(torch.float8_e8m0fnu), x + 1))(torch.tensor([1.0, 4.0]).to("neuron"))
    assert scales.cpu().float().tolist() == [1.0, 4.0] and x.tolist() == [2.0, 5.0]
    assert "is a bandwidth-bound estimate: LoweringError: torch.float8_e8m0fnu" in caplog.text
