"""NeuronConfig: what it accepts, what it refuses, and that nothing in it can break torch's config string."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_neuronx  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from torch_neuronx.profiling import NeuronConfig, NeuronProfiler, NRTProfilerError, ProfileMode
from torch_neuronx.profiling.config import parse, parse_core_list


def test_defaults():
    config = NeuronConfig()
    assert config.modes == [ProfileMode.DEVICE, ProfileMode.RUNTIME]
    assert config.max_events_per_nc == 1_000_000
    assert config.capture_enabled_for_nc is None
    assert config.profile_output_dir == "./output"
    assert config.correlate_device_time is False
    assert isinstance(config, torch._C._profiler._ExperimentalConfig)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_keep_type_and_values(copied, tmp_path):
    config = NeuronConfig(
        modes=["RUNTIME"], max_events_per_nc=7, profile_output_dir=tmp_path, correlate_device_time=True
    )
    other = copied(config)
    assert isinstance(other, NeuronConfig)
    assert other.settings == config.settings


def test_options_of_torch_pass_through():
    assert NeuronConfig(trace_only=True).trace_only is True


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"modes": ["FAST"]}, ValueError, "unknown profile mode 'FAST'; known modes: DEVICE, RUNTIME"),
        ({"modes": [3]}, ValueError, "unknown profile mode 3"),
        ({"modes": []}, ValueError, "modes is empty"),
        ({"modes": "RUNTIME"}, TypeError, "must be a list"),
        ({"capture_enabled_for_nc": "0,x"}, ValueError, "'x' is neither a core number nor a range"),
        ({"capture_enabled_for_nc": "5-2"}, ValueError, "'5-2' runs backwards"),
        ({"capture_enabled_for_nc": ""}, ValueError, "neither a core number"),
        ({"capture_enabled_for_nc": "0-999999999"}, ValueError, "does not exist"),
        ({"capture_enabled_for_nc": "127"}, ValueError, "names NeuronCore 127, but this process has"),
        ({"max_events_per_nc": -1}, ValueError, "must not be negative, got -1"),
        ({"max_events_per_nc": "many"}, TypeError, "must be an int"),
        ({"custom_profiler_config": "a:b"}, TypeError, "packs custom_profiler_config itself"),
        ({"profile_output_dir": ""}, ValueError, "is no path"),
        ({"profile_output_dir": "a\0b"}, ValueError, "is no path"),
        ({"correlate_device_time": "no"}, TypeError, "must be True or False, got 'no'"),
        ({"nope": 1}, TypeError, "got nope, which neither it nor torch"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_recorded(options, error, message):
    with pytest.raises(error, match=message):
        NeuronConfig(**options)


def test_output_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="is not a directory"):
        NeuronConfig(profile_output_dir=tmp_path / "file" / "profiles")


def test_unwritable_output_is_an_error_before_recording(tmp_path, monkeypatch):
    config = NeuronConfig(profile_output_dir="/proc/neuronscope")  # even root can't create it
    started = []
    monkeypatch.setattr(torch.autograd.profiler, "_enable_profiler", lambda *_a, **_k: started.append(1))
    prof = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], experimental_config=config)
    with pytest.raises(OSError, match="/proc/neuronscope"):
        prof.start()
    assert not started


def test_precache_node_info_says_that_it_has_no_effect():
    with pytest.warns(UserWarning, match="precache_node_info=False has no effect"):
        NeuronConfig(precache_node_info=False)


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(
        lambda s: "/" not in s
    )
)
def test_any_path_survives_the_config_string(name):
    config = NeuronConfig(profile_output_dir=name)
    assert config.profile_output_dir == name
    assert not set(config.custom_profiler_config) & set("=#\n\r")


@given(st.sets(st.integers(0, 127), min_size=1))
def test_core_lists_name_each_core_once(cores):
    assert parse_core_list(",".join(map(str, cores))) == tuple(sorted(cores))


def test_core_ranges():
    assert parse_core_list("0,2-5, 3") == (0, 2, 3, 4, 5)


def test_the_older_string_form_is_read_and_its_bad_items_are_skipped():
    with pytest.warns(UserWarning, match="'colour:blue' ignored: unknown key"):
        settings = parse(
            "max_events_per_nc:5;colour:blue;capture_enabled_for_nc:0;host_memory:true;profile_output_dir:out"
        )
    assert settings.max_events_per_nc == 5
    assert settings.cores == (0,)
    assert settings.profile_output_dir == "out"
    assert ProfileMode.HOST_MEMORY in settings.modes


def test_a_raw_equals_sign_is_an_error_instead_of_the_end_of_the_process():
    config = torch._C._profiler._ExperimentalConfig(custom_profiler_config="profile_output_dir:a=b")
    with (
        pytest.raises(ValueError, match="holds '=' at position 20"),
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], experimental_config=config),
    ):
        pass


def test_export_without_a_recording_is_an_error():
    prof = profile(activities=[ProfilerActivity.CPU])
    with pytest.raises(NRTProfilerError, match="nothing has been recorded yet"):
        NeuronProfiler(NeuronConfig()).export_trace(prof)


def test_export_of_a_profile_without_config_says_what_to_pass(tmp_path):
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(2)
    with pytest.raises(NRTProfilerError, match="experimental_config=config"):
        NeuronProfiler(NeuronConfig(profile_output_dir=tmp_path)).export_trace(prof)
