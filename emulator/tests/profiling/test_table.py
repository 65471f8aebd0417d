"""What `key_averages()` shows: device time on the op that launched it, and nothing else disturbed."""

from __future__ import annotations

import gzip
import json
import re
import warnings

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def test_walkthrough_table_has_exactly_the_four_ops(capture, naive_rms_norm):
    run = capture(naive_rms_norm, capture_enabled_for_nc="0")
    assert {name: row.count for name, row in run.rows().items()} == {
        "aten::mul": 3,
        "aten::add": 1,
        "aten::rsqrt": 1,
        "aten::mean": 1,
    }
    text = run.prof.key_averages().table(sort_by="self_privateuse1_time_total", row_limit=4)
    names = re.findall(r"^ *(aten::\w+|nc_exec\S*|neuron \w+) ", text, re.MULTILINE)
    assert sorted(names) == ["aten::add", "aten::mean", "aten::mul", "aten::rsqrt"]
    assert names[0] == "aten::mul"


def test_total_line_is_the_sum_of_executions(capture, naive_rms_norm):
    run = capture(naive_rms_norm)
    total_ns = sum(e["end_ns"] - e["start_ns"] for e in run.table("executions") if e["kind"] == "exec")
    text = run.prof.key_averages().table(sort_by="self_privateuse1_time_total")
    value, unit = re.search(r"Self NEURON time total: ([\d.]+)(us|ms|s)", text).groups()
    assert float(value) * {"us": 1e3, "ms": 1e6, "s": 1e9}[unit] == pytest.approx(total_ns, rel=1e-3)


def test_folding_changes_neither_per_op_nor_total_device_time(capture, naive_rms_norm):
    run = capture(naive_rms_norm)
    events = run.prof.events()
    kernels = [e for e in events if e.device_type == DeviceType.PrivateUse1 and e.activity_type == "kernel"]
    owners = {e.id: e.name for e in events if e.device_type == DeviceType.CPU}
    before: dict[str, float] = {}
    for kernel in kernels:
        name = owners[kernel.linked_correlation_id]
        before[name] = before.get(name, 0) + kernel.time_range.elapsed_us()
    after = {name: row.self_device_time_total for name, row in run.rows().items()}
    assert after == pytest.approx(before)
    assert sum(after.values()) == pytest.approx(sum(k.time_range.elapsed_us() for k in kernels))


def test_a_training_step_folds_ops_that_call_an_op_of_their_own_name(capture):
    """Torch merges such a call (`aten::mean` over all dimensions) into its caller, which has another id."""
    model = torch.nn.Linear(16, 16, device="neuron")
    x = torch.randn(4, 16, device="neuron")

    def step():
        loss = (model(x).softmax(-1) ** 2).mean() + x.sum() + x.max() + x.std() + x.norm()
        loss.backward()
        loss.item()

    run = capture(step)
    rows = run.prof.key_averages()
    assert [row.key for row in rows if row.device_type == DeviceType.PrivateUse1] == []
    executions = [e for e in run.table("executions") if e["kind"] == "exec"]
    assert sum(row.self_device_time_total for row in rows) == pytest.approx(
        sum(e["end_ns"] - e["start_ns"] for e in executions) / 1000
    )


def test_self_cpu_is_never_negative_and_sums_to_the_step(capture, naive_rms_norm):
    run = capture(naive_rms_norm)
    rows = run.prof.key_averages()
    assert min(row.self_cpu_time_total for row in rows) >= 0
    step = next(row for row in rows if row.key == "ProfilerStep*")
    inside = sum(row.self_cpu_time_total for row in rows if row.device_type == DeviceType.CPU)
    assert inside == pytest.approx(step.cpu_time_total, rel=0.05)


def test_without_correlation_device_columns_are_empty_but_the_lanes_are_there(capture, naive_rms_norm):
    run = capture(naive_rms_norm, correlate_device_time=False)
    assert run.rows() == {}
    assert "NEURON" not in run.prof.key_averages().table()
    categories = {row.get("cat") for row in run.trace()}
    assert {"privateuse1_runtime", "privateuse1_driver"} <= categories
    assert "kernel" not in categories


def test_compiled_graph_is_one_row_named_after_its_region(capture):
    torch.compiler.reset()
    compiled = torch.compile(rms_norm, backend="neuron", fullgraph=True)
    x = torch.randn(4, 512, dtype=torch.bfloat16).to("neuron")
    weight = torch.ones(512, dtype=torch.bfloat16, device="neuron")
    with torch.no_grad():
        run = capture(lambda: compiled(x, weight))
    assert {name: row.count for name, row in run.rows().items()} == {"Torch-Compiled Region: 0/0": 1}


def rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def test_backward_device_time_is_on_the_backward_ops(capture):
    linear = torch.nn.Linear(32, 16).to("neuron")
    x = torch.randn(8, 32).to("neuron")

    def body():
        linear.zero_grad()
        linear(x).sum().backward()

    run = capture(body)
    events = {e.id: e for e in run.prof.events() if e.device_type == DeviceType.CPU}
    owners = []
    for kernel in (e for e in run.prof.events() if e.activity_type == "kernel"):
        event, chain = events[kernel.linked_correlation_id], []
        while event is not None:
            chain.append(event.name)
            event = event.cpu_parent
        owners.append(chain)
    backward = [chain for chain in owners if any("Backward0" in name for name in chain)]
    assert ["aten::linear_backward", "LinearBackward0"] in [chain[:2] for chain in backward]
    assert ["aten::linear"] in [chain[:1] for chain in owners if chain not in backward]


def test_plain_profile_without_a_config_has_device_time_and_writes_nothing(tmp_path, monkeypatch, naive_rms_norm):
    monkeypatch.chdir(tmp_path)
    with profile(activities=ACTIVITIES) as prof:
        naive_rms_norm()
        torch.neuron.synchronize()
    assert {row.key for row in prof.key_averages() if row.self_device_time_total > 0} == {
        "aten::mul",
        "aten::add",
        "aten::rsqrt",
        "aten::mean",
    }
    assert list(tmp_path.iterdir()) == []


def test_a_profile_in_which_nothing_ran_on_the_device(capture):
    run = capture(lambda: torch.ones(3) + 1)
    assert run.rows() == {}
    assert run.table("executions") == []
    assert run.prof.key_averages().table()


def test_stacks_shapes_and_memory_work_together(capture, naive_rms_norm):
    run = capture(naive_rms_norm, profile_options={"with_stack": True, "record_shapes": True, "profile_memory": True})
    assert set(run.rows()) == {"aten::mul", "aten::add", "aten::rsqrt", "aten::mean"}
    by_shape = run.prof.key_averages(group_by_input_shape=True)
    assert any(row.key == "aten::mul" and row.input_shapes[0] == [4, 512] for row in by_shape)


def test_chrome_export_of_torch_works_on_its_own(naive_rms_norm, tmp_path):
    with profile(activities=ACTIVITIES) as prof:
        naive_rms_norm()
        torch.neuron.synchronize()
    prof.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    trace = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert trace["neuronscope"]["emulated"] is True
    kernels = [row["name"] for row in trace["traceEvents"] if row.get("cat") == "kernel"]
    assert kernels.count("nc_exec_running aten::mul.Tensor") == 3


def test_chrome_export_after_export_trace_gives_the_same_trace(capture, naive_rms_norm, tmp_path):
    run = capture(naive_rms_norm)
    run.prof.export_chrome_trace(str(tmp_path / "again.json"))
    run.prof.export_chrome_trace(str(tmp_path / "again.json.gz"))
    expected = (run.directory / "trace.json").read_text()
    assert (tmp_path / "again.json").read_text() == expected
    assert gzip.decompress((tmp_path / "again.json.gz").read_bytes()).decode() == expected


def test_a_profile_without_a_config_can_be_exported_twice(naive_rms_norm, tmp_path):
    with profile(activities=ACTIVITIES) as prof:
        naive_rms_norm()
        torch.neuron.synchronize()
    for name in ("first.json", "second.json"):
        prof.export_chrome_trace(str(tmp_path / name))
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "second.json").read_bytes()


@pytest.mark.parametrize("name", ["back\\slash", "new\nline"])
def test_names_that_kineto_alters_keep_their_trace(capture, naive_rms_norm, tmp_path, name):
    run = capture(naive_rms_norm, profile_output_dir=tmp_path / name)
    assert any(row.get("cat") == "kernel" for row in run.trace())


def test_an_error_of_the_script_is_not_replaced_by_one_of_the_export(tmp_path):
    from torch_neuronx.profiling import NeuronConfig, NeuronProfiler

    config = NeuronConfig(profile_output_dir=tmp_path)
    options = {"experimental_config": config, "on_trace_ready": NeuronProfiler(config).export_trace}
    with pytest.raises(KeyError, match="mine"), profile(activities=ACTIVITIES, **options):
        raise KeyError("mine")
    assert sorted(path.name for path in tmp_path.rglob("*.*") if path.is_file())[-2:] == ["trace.json", "trace_info.pb"]


def test_cpu_profiles_are_untouched(naive_rms_norm):
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        naive_rms_norm()
        torch.neuron.synchronize()
    assert "NEURON" not in prof.key_averages().table()


def test_config_without_the_device_activity_says_that_it_is_ignored(tmp_path):
    from torch_neuronx.profiling import NeuronConfig

    config = NeuronConfig(profile_output_dir=tmp_path / "unused")
    with (
        pytest.warns(UserWarning, match="ignored.*PrivateUse1"),
        profile(activities=[ProfilerActivity.CPU], experimental_config=config),
    ):
        pass
    assert not (tmp_path / "unused").exists()


def test_inspect_variable_is_reported_as_ignored(monkeypatch, naive_rms_norm):
    monkeypatch.setenv("NEURON_RT_INSPECT_ENABLE", "1")
    with pytest.warns(UserWarning, match="NEURON_RT_INSPECT_ENABLE is ignored"), profile(activities=ACTIVITIES) as prof:
        naive_rms_norm()
        torch.neuron.synchronize()
    assert any(row.self_device_time_total > 0 for row in prof.key_averages())


def test_forgetting_to_synchronize_loses_what_ends_after_the_stop_and_says_so(capture, naive_rms_norm):
    def body():
        for _ in range(100):  # far more device time than the host needs to issue it
            naive_rms_norm()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = capture(body, synchronize=False)
    session = run.session()
    executions = [e for e in run.table("executions") if e["kind"] == "exec"]
    assert session.unfinished_executions > 0
    assert session.unfinished_executions + len(executions) == 600
    assert all(e["end_ns"] <= session.stop_ns for e in executions)
    message = next(str(w.message) for w in caught if "had not finished" in str(w.message))
    assert message.startswith(f"{session.unfinished_executions} executions")
    assert "torch.neuron.synchronize()" in message
