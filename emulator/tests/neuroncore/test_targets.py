import dataclasses

import pytest
from neuroncore.errors import TargetError
from neuroncore.targets import STATUSES, Target, known_targets, load_target, read_target


def test_default_is_trn2_and_the_environment_overrides_it(monkeypatch):
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    assert load_target().name == "trn2"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert load_target().name == "trn1"
    assert load_target("trn3").name == "trn3"


def test_unknown_target_names_the_known_ones(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    with pytest.raises(TargetError, match=r"'trn9' \(from NEURON_PLATFORM_TARGET_OVERRIDE\).*inf2, trn1, trn2, trn3"):
        load_target()


@pytest.mark.parametrize("name", known_targets())
def test_every_number_has_a_status_and_a_source(name):
    target = load_target(name)
    numbers = {f.name for f in dataclasses.fields(Target)} - {"name", "provenance"}
    assert set(target.provenance) == numbers
    assert all(p.status in STATUSES and len(p.source) > 10 for p in target.provenance.values())


def test_launch_costs_are_marked_calibrated():
    provenance = load_target("trn2").provenance
    assert provenance["launch_cost_plain_ns"].status == "calibrated"
    assert provenance["launch_cost_profiled_ns"].status == "calibrated"


def test_hash_follows_the_numbers_not_the_sources():
    target = load_target("trn2")
    assert dataclasses.replace(target, vector_clock_hz=1e9).hash != target.hash
    assert dataclasses.replace(target, provenance={}).hash == target.hash
    assert len({load_target(name).hash for name in known_targets()}) == len(known_targets()) - 1 + (
        load_target("trn1").hash != load_target("inf2").hash
    )


def test_published_figures_of_trn2():
    target = load_target("trn2")
    assert target.hbm_bytes == 24 * 2**30  # a quarter of the chip's 96 GiB per logical core of two
    assert target.logical_cores_per_chip == 4
    assert target.peak_flops_per_second("bf16") == pytest.approx(2 * 128 * 128 * target.tensor_clock_hz, rel=1e-3)
    assert target.psum_bytes_per_partition == 16 * 1024


def test_malformed_file_is_one_clear_error(tmp_path):
    path = tmp_path / "trn8.toml"
    path.write_text("[partitions]\nvalue = 128\n")
    with pytest.raises(TargetError, match=r"trn8\.toml: missing \['activation_table_load_ns'"):
        read_target(path)
