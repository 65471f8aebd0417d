"""Whole graphs of many sizes, forward and backward: the compiled program computes what torch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from families.oracle import on_machine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from benchmarks.models.decoder import DecoderConfig, Layer

rows, columns = st.sampled_from([1, 3, 64, 130, 257]), st.sampled_from([2, 17, 96, 200])
dtypes = st.sampled_from([torch.float32, torch.bfloat16])
TOLERANCE = {torch.float32: 5e-4, torch.bfloat16: 8e-2}


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


def softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def mlp(x: torch.Tensor, up: torch.Tensor, bias: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, up, bias), approximate="tanh") @ down


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
    return scores @ v


def block(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    y = F.conv2d(x, w, padding=1)
    mean, var = y.mean((0, 2, 3), keepdim=True), y.var((0, 2, 3), keepdim=True, correction=0)
    return F.max_pool2d(F.relu((y - mean) * torch.rsqrt(var + 1e-2) * scale), 2)


def values(seed: int, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


@st.composite
def graphs(draw: Any) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    name = draw(st.sampled_from([rms_norm, softmax, mlp, attention, block]))
    n, m, dtype = draw(rows), draw(columns), draw(dtypes)
    if name is rms_norm:
        return name, (values(1, n, m, dtype=dtype), values(2, m, dtype=dtype))
    if name is softmax:
        return name, (values(1, n, m, dtype=dtype),)
    if name is mlp:
        inner = draw(columns)
        weights = values(2, inner, m, scale=m**-0.5, dtype=dtype), values(3, inner, dtype=dtype)
        return name, (values(1, n, m, dtype=dtype), *weights, values(4, inner, m, scale=inner**-0.5, dtype=dtype))
    if name is attention:
        heads, width, length = draw(st.integers(1, 3)), draw(st.sampled_from([8, 64])), draw(rows)
        shapes = (heads, n, width), (heads, length, width), (heads, length, width)
        return name, tuple(values(i, *shape, dtype=dtype) for i, shape in enumerate(shapes))
    channels, out = draw(st.sampled_from([1, 3, 16])), draw(st.sampled_from([1, 4, 20]))
    x = values(1, draw(st.integers(1, 3)), channels, draw(st.sampled_from([6, 9, 16])), draw(st.sampled_from([6, 11])))
    return name, (x, values(2, out, channels, 3, 3, scale=0.3), values(3, 1, out, 1, 1))


def with_gradients(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Result and gradients of all arguments, for a gradient that is the result itself."""

    def step(*args: torch.Tensor) -> Any:
        result, back = torch.func.vjp(function, *args)
        return result, back(result)

    return step


def check(function: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> None:
    """The machine is as near to the exact result as the tolerance says, or as torch itself in the same dtype.

    bf16 is rounded in other places than torch rounds it, so neither of the two is the other's measure. A gradient
    that cancels out (softmax of one key) keeps the rounding of its terms, whose size is that of the largest result.
    """
    limit = TOLERANCE[args[0].dtype]
    step = with_gradients(function, len(args))
    exact = tree_leaves(step(*(arg.double() for arg in args)))
    scale = max(1.0, *(float(leaf.detach().abs().max()) for leaf in exact))
    for got, own, wanted in zip(on_machine(step, *args), tree_leaves(step(*args)), exact, strict=True):
        rounding = float((own.detach().double() - wanted.detach()).abs().max())
        atol = max(limit * scale, rounding)
        torch.testing.assert_close(got.double(), wanted.detach(), rtol=limit, atol=atol)


few = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=6, **few)
@given(graphs())
def test_forward_and_backward(drawn: Any) -> None:
    check(*drawn)


@pytest.mark.slow
@settings(max_examples=200, **few)
@given(graphs())
def test_forward_and_backward_in_many_sizes(drawn: Any) -> None:
    check(*drawn)


@pytest.mark.slow
@settings(max_examples=25, **few)
@given(
    st.integers(1, 2),
    st.sampled_from([1, 7, 40, 130]),
    st.sampled_from([(2, 1), (2, 2), (4, 2)]),
    st.sampled_from([16, 48]),
)
def test_decoder_layers(batch: int, length: int, heads: tuple[int, int], inner: int) -> None:
    config = DecoderConfig(vocabulary=8, width=16 * heads[0], layers=1, heads=heads[0], key_heads=heads[1], inner=inner)
    layer = Layer(config)
    parameters = {
        n: (values(len(n), *p.shape) * p.shape[-1] ** -0.5 + (p.dim() == 1)) for n, p in layer.named_parameters()
    }

    def loss(parameters: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, parameters, (x,)).square().mean()

    step = torch.func.grad_and_value(loss)
    x = values(1, batch, length, config.width)
    for got, wanted in zip(on_machine(step, parameters, x), tree_leaves(step(parameters, x)), strict=True):
        torch.testing.assert_close(got, wanted.detach(), rtol=5e-4, atol=5e-4)
