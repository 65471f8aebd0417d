"""Random numbers: seeds, 16-byte states, generators."""

import pytest
import torch
import torch.nn.functional as F


def test_same_seed_same_numbers() -> None:
    torch.manual_seed(3)
    first = torch.randn(8, device="neuron")
    second = torch.randn(8, device="neuron")
    torch.manual_seed(3)
    assert torch.equal(torch.randn(8, device="neuron"), first)
    assert not torch.equal(first, second)


def test_state_is_seed_and_offset() -> None:
    torch.neuron.manual_seed(258)
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.tolist() == [2, 1] + [0] * 14
    torch.rand(2, device="neuron")
    after = torch.neuron.get_rng_state()
    numbers = torch.rand(2, device="neuron")
    torch.neuron.set_rng_state(after)
    assert torch.equal(torch.rand(2, device="neuron"), numbers)
    torch.neuron.set_rng_state(state[:8])
    assert torch.equal(torch.neuron.get_rng_state(), state)
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        torch.neuron.set_rng_state(torch.zeros(5, dtype=torch.uint8))


def test_generators_are_independent() -> None:
    one, two = (torch.Generator(device="neuron").manual_seed(1) for _ in range(2))
    torch.rand(3, device="neuron")
    assert torch.equal(torch.rand(3, device="neuron", generator=one), torch.rand(3, device="neuron", generator=two))
    assert one.device == torch.device("neuron", 0)


def test_dropout_follows_the_devices_seed_and_leaves_the_cpus() -> None:
    x = torch.ones(1000, device="neuron")
    host = torch.get_rng_state()
    torch.neuron.manual_seed(1)
    first = F.dropout(x, 0.5)
    torch.neuron.manual_seed(1)
    assert torch.equal(F.dropout(x, 0.5), first)
    assert set(first.tolist()) == {0.0, 2.0}
    assert torch.equal(torch.get_rng_state(), host)


def test_fork_rng_restores_the_device() -> None:
    state = torch.neuron.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="neuron"):
        torch.rand(3, device="neuron")
    assert torch.equal(torch.neuron.get_rng_state(), state)


def test_initial_seed() -> None:
    torch.neuron.manual_seed_all(99)
    assert torch.neuron.initial_seed() == 99
    torch.neuron.seed_all()
    assert torch.neuron.initial_seed() != 99
