"""torch.compile's options, where tensors live, names, metrics and error texts."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import neuroncore.runtime
import pytest
import torch
import torch_neuronx
from neuroncore.errors import CapacityError, VerifyError
from neuronscope.formats import container
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch_neuronx import _programs
from torch_neuronx import neuron_dynamo_backend as dynamo
from torch_neuronx.neuron_dynamo_backend.exceptions import NEFFExecutionError
from torch_neuronx.profiling import NeuronConfig, NeuronProfiler, ProfileMode


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", **options)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device="neuron")


def test_backend_is_listed() -> None:
    assert "neuron" in torch.compiler.list_backends()


def test_fullgraph_raises_on_a_graph_break() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(function, fullgraph=True)(ones(2))


def test_dynamic_is_refused() -> None:
    with pytest.raises(RuntimeError, match="does not support dynamic=True"):
        compiled(double, dynamic=True)(ones(2))


def test_another_shape_compiles_another_program() -> None:
    function = compiled(double)
    assert [function(ones(n)).shape[0] for n in (2, 3, 4, 3)] == [2, 3, 4, 3]
    assert len(torch_neuronx.get_dynamo_metrics()) == 3


def test_other_modes_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "torch_neuronx"):
        result = compiled(double, mode="max-autotune")(ones(2))
    assert "Neuron backend does not support mode='max-autotune', falling back to default mode." in caplog.text
    assert result.tolist() == [2.0, 2.0]


def test_unknown_options_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "torch_neuronx"):
        compiled(double, options={"speed": 3})(ones(2))
    assert "['speed']" in caplog.text


def test_host_inputs_are_copied_and_results_stay_on_the_device() -> None:
    layer = nn.Linear(4, 4)
    x = torch.ones(2, 4)
    result = compiled(layer)(x)
    assert result.device.type == "neuron"
    assert torch.equal(result.cpu(), layer(x))
    result.sum().backward()
    assert layer.weight.grad.device.type == "cpu"
    assert layer.bias.grad.tolist() == [2.0] * 4


def test_mutated_host_input_is_copied_back() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    assert compiled(function)(x).device.type == "neuron"
    assert x.tolist() == [1.0] * 3


def test_device_can_be_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_RETAIN_DEVICE_MODE", "1")
    result = compiled(double)(torch.ones(2))
    assert result.device.type == "cpu" and result.tolist() == [2.0, 2.0]


def test_copying_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "1")
    with pytest.raises(RuntimeError, match=r"^Input tensor at index 0 is on cpu device, expected neuron\. "):
        compiled(double)(torch.ones(2))


def test_mixed_devices_are_refused() -> None:
    with pytest.raises(NEFFExecutionError, match=r"cannot mix input devices.*cpu, neuron:0"):
        compiled(lambda x, y: (x * 2, y * 2))(torch.ones(2), ones(2))


def test_single_number_on_the_host_may_join() -> None:
    assert compiled(lambda x, y: x + y)(torch.tensor(2.0), ones(2)).tolist() == [3.0, 3.0]


def test_metrics_name_the_graph_and_count_it() -> None:
    compiled(double, options={"model_name": "llama"})(ones(2))
    (entry,) = torch_neuronx.get_dynamo_metrics()
    model, aot_id, kind, nth = entry.graph_name.split("_")
    assert (model, kind) == ("llama", "inference") and aot_id.isdecimal() and nth.isdecimal()
    assert (entry.graph_id, entry.model_name, entry.has_collectives) == (0, "llama", False)
    assert entry.graph_node_count == 3  # input, multiplication, output
    assert entry.torch_neuronx_compile_us > 0
    assert torch._dynamo.utils.counters["neuron"]["graphs_compiled"] == 1


def test_training_counts_two_graphs() -> None:
    compiled(double)(ones(2).requires_grad_()).sum().backward()
    assert [m.graph_name.split("_")[2] for m in torch_neuronx.get_dynamo_metrics()] == ["forward", "backward"]
    torch_neuronx.reset_dynamo_metrics()
    assert torch_neuronx.get_dynamo_metrics() == []


def test_metrics_table_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_ENABLED_METRIC_TABLES", "graph_stats")
    monkeypatch.setenv("TORCH_NEURONX_METRICS_DIR", str(tmp_path))
    compiled(double)(ones(2))
    compiled(lambda x: x * 3)(ones(2))
    with (tmp_path / "metric_table_graph_stats_rank0.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["graph_id"] for row in rows] == ["0", "1"]


def test_model_name_is_process_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dynamo.get_model_name() == "model"
    dynamo.set_model_name("bert")
    try:
        compiled(double)(ones(2))
        assert torch_neuronx.get_dynamo_metrics()[0].graph_name.startswith("bert_")
    finally:
        dynamo.set_model_name("model")
    with pytest.raises(ValueError, match="must not be empty"):
        dynamo.set_model_name("")


def test_backend_object_with_options() -> None:
    backend = dynamo.create_neuron_backend(model_name="gpt")
    assert torch.compile(double, backend=backend)(ones(2)).tolist() == [2.0, 2.0]
    assert torch_neuronx.get_dynamo_metrics()[0].model_name == "gpt"


def test_artifacts_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    compiled(double)(ones(2))
    (text,) = tmp_path.glob("fx_graphs/proc_0/model_*.fx.txt")
    assert "torch.ops.aten.mul.Tensor" in text.read_text()
    assert len(list(tmp_path.glob("neff/proc_0/model_*.neff"))) == 1


@pytest.fixture
def broken_compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    def install(error: Exception) -> None:
        original = neuroncore.runtime.compile_graph

        def compile_graph(graph: Any, target_name: str | None = None) -> Any:
            if graph.nodes[0].target.startswith("estimate."):
                return original(graph, target_name)
            raise error

        monkeypatch.setattr(_programs, "compile_graph", compile_graph)

    return install


def test_compile_failure_raises(broken_compiler: Callable[[Exception], None]) -> None:
    broken_compiler(CapacityError("tensor of 1 TiB does not fit"))
    with pytest.raises(RuntimeError, match=r"NEFF execution setup failed with unexpected error: .*1 TiB"):
        compiled(double)(ones(2))


@pytest.mark.parametrize("how", ["option", "environment"])
def test_compile_failure_can_fall_back_to_eager(
    how: str,
    broken_compiler: Callable[[Exception], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"fallback_execution": True} if how == "option" else {}
    if how == "environment":
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    broken_compiler(CapacityError("tensor of 1 TiB does not fit"))
    with caplog.at_level(logging.WARNING, "torch_neuronx"):
        assert compiled(double, options=options)(ones(2)).tolist() == [2.0, 2.0]
    assert "running the graph op by op instead" in caplog.text


def test_fault_of_the_compiler_becomes_a_marked_estimate(
    broken_compiler: Callable[[Exception], None], caplog: pytest.LogCaptureFixture
) -> None:
    broken_compiler(VerifyError("schedule is cyclic"))
    with caplog.at_level(logging.WARNING, "torch_neuronx"):
        result = [ones(3, n).cos().shape for n in (31, 37)]  # two signatures no other test uses
    assert result == [(3, 31), (3, 37)]
    assert caplog.text.count("device time of aten::cos is a bandwidth-bound estimate") == 1
    assert "schedule is cyclic" in caplog.text


def test_estimate_is_marked_and_follows_the_bytes(broken_compiler: Callable[[Exception], None]) -> None:
    from torch_neuronx._eager import compile_call

    broken_compiler(VerifyError("schedule is cyclic"))
    small, large = ones(64, 64), ones(1024, 1024)
    few, many = (compile_call("aten::cos", "aten::cos", [x], [x]) for x in (small, large))
    assert few["estimated_ns"] == few["program_ns"] > 0
    assert many["program_ns"] > few["program_ns"]
    assert (many["bytes_read"], many["bytes_written"]) == (large.nbytes, large.nbytes)


def test_default_backend_on_the_device_is_neuron() -> None:
    layer = nn.Linear(4, 4).to("neuron")
    assert torch.equal(torch.compile(layer)(ones(2, 4)).cpu(), layer(ones(2, 4)).cpu())
    assert torch.compile(lambda n: torch.ones(n, device="neuron"))(3).device.type == "neuron"
    assert len(torch_neuronx.get_dynamo_metrics()) == 2


def test_default_backend_elsewhere_stays_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def compile_fx(module: Any, inputs: Any, **_: Any) -> Any:
        seen.append("inductor")
        return module.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    assert torch.compile(double)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert seen == ["inductor"] and torch_neuronx.get_dynamo_metrics() == []


def test_inference_mode() -> None:
    function = compiled(double)
    with torch.inference_mode():
        assert function(ones(2)).tolist() == [2.0, 2.0]


def test_same_graph_from_another_place_is_the_same_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    compiled(lambda x: x * 5)(ones(3))
    compiled(lambda x: x * 5, options={"model_name": "other"})(ones(3))
    first, second = (file.read_bytes() for file in tmp_path.glob("neff/proc_0/*.neff"))
    assert first == second


def test_compiling_under_a_capture_is_a_row_of_its_own(tmp_path: Path) -> None:
    x = ones(5)
    config = NeuronConfig(modes=[ProfileMode.RUNTIME], profile_output_dir=str(tmp_path))
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    handler = NeuronProfiler(config).export_trace
    with profile(activities=activities, experimental_config=config, on_trace_ready=handler):
        compiled(lambda x: x * 7 + 1)(x)
        torch.neuron.synchronize()
    (file,) = tmp_path.glob("*/*/ntrace.pb")
    tables = container.read(file).tables
    (compilation,) = [row for row in tables["events"].to_pylist() if row["name"] == "neuron_compile"]
    (execution,) = tables["executions"].to_pylist()
    assert compilation["start_ns"] < compilation["end_ns"] <= execution["enqueue_ns"]
