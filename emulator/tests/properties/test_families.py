"""For every lowered op, dtype and way a tensor can lie in memory: the program computes what torch computes.

`families/` is the table: per op, a function that draws one call. The short profile runs with every test run, the long
one (`make test-properties`, PROPERTY_EXAMPLES calls per op) draws many more.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from families import FAMILIES, Case, Draws, check
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from neuroncore import compiler

SLOW_EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "200"))


@st.composite
def cases(draw: Any, name: str) -> Case:
    op, args, *options = FAMILIES[name](Draws(draw))
    named = dict(options[0]) if options else {}
    return Case(op, (*args, *named.pop("keywords", ())), **named)


def settings_of(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    )


def run(name: str, count: int) -> None:
    lowered = []

    @settings_of(count)
    @given(cases(name))
    def one(case: Case) -> None:
        lowered.append(check(case).estimated_ns == 0)

    one()
    assert count < 20 or any(lowered), f"no drawn call of {name} was lowered"


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_machine_equals_torch(name: str) -> None:
    run(name, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_machine_equals_torch_in_many_cases(name: str) -> None:
    run(name, SLOW_EXAMPLES)


#: Lowered ops without a family here: where their values are tested instead.
ELSEWHERE = {
    # Random numbers: test_losses looks at their distribution.
    "bernoulli", "native_dropout", "normal", "normal_functional", "rand", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "uniform",
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",  # without values
    "batch_norm_backward_elemt", "batch_norm_backward_reduce", "batch_norm_elemt", "batch_norm_stats",  # CUDA's alone
    # Composite: torch takes them apart into ops of the table before they reach the device.
    "adaptive_avg_pool2d", "log_softmax", "rms_norm", "softmax",
}  # fmt: skip


def test_every_lowered_op_has_a_family() -> None:
    missing = set(compiler.LOWERINGS) - ELSEWHERE - set(FAMILIES)
    assert not missing, f"draw calls of {sorted(missing)} in families/, or say in ELSEWHERE where they are tested"
    assert set(compiler.LOWERINGS) >= ELSEWHERE
    assert set(FAMILIES) <= set(compiler.LOWERINGS)


@settings_of(60)
@given(st.data())
def test_views_are_looked_through(data: st.DataObject) -> None:
    """A chain of views in front of an op is no work of its own: the op reads through it."""
    draws = Draws(data.draw)
    x = draws.values(draws.shape(2, 4), draws.floats())
    for _ in range(draws.number(1, 3)):
        x = viewed(draws, x)
    check(Case("aten::mul.Tensor", (x, draws.other(tuple(x.shape), x.dtype))))


def viewed(draws: Draws, x: torch.Tensor) -> torch.Tensor:
    axis = draws.number(0, x.dim() - 1)
    match draws.pick("permute", "select", "slice", "unsqueeze", "expand", "flatten", "unflatten", "split"):
        case "permute":
            return x.permute(draws.draw(st.permutations(range(x.dim()))))
        case "select" if x.dim() > 1:
            return x.select(axis, draws.number(0, x.shape[axis] - 1))
        case "slice":
            start = draws.number(0, x.shape[axis] - 1)
            return x[(slice(None),) * axis + (slice(start, None, draws.number(1, 3)),)]
        case "unsqueeze" if x.dim() < 4:
            return x.unsqueeze(axis)
        case "expand" if x.shape[axis] == 1:
            return x.expand(*x.shape[:axis], 3, *x.shape[axis + 1 :])
        case "flatten" if x.is_contiguous():
            return x.flatten(0, axis)
        case "unflatten" if x.shape[axis] % 2 == 0 and x.dim() < 4:
            return x.unflatten(axis, (2, -1))
        case "split":
            return x.tensor_split(2, axis)[0]
    return x
