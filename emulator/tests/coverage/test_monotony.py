"""Faster hardware on the programs of models: none takes longer."""

from __future__ import annotations

import dataclasses
from itertools import islice

import pytest
from neuroncore.targets import load_target

from benchmarks import monotony

TRN2 = load_target("trn2")
CHANGES = ("hbm_bytes_per_second", "vector_clock_hz", "tensor_clock_hz", "dge_fixed_ns", "dma_start_ns")


@pytest.mark.parametrize("change", [one for one in monotony.FASTER if one[0] in CHANGES])
def test_no_program_of_a_model_is_slower_on_better_hardware(programs, change):
    assert monotony.count(programs, TRN2, *change, shared=True) == (0, 0.0)


@pytest.fixture(scope="module")
def programs():
    return list(islice(monotony.model_programs(), 40))


@pytest.mark.parametrize("change", monotony.FASTER)
def test_no_random_program_is_slower_where_nothing_is_shared(change):
    warm = dataclasses.replace(TRN2, tensor_warmup_rate=1.0)
    lonely = [monotony.alone(monotony.random_program(seed)) for seed in range(20)]
    assert monotony.count(lonely, warm, *change, shared=False)[0] == 0
