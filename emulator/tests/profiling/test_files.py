"""The session directory: which files, what they hold, and that nothing collides or is lost unsaid."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from neuronscope.formats import container, neff
from torch.profiler import ProfilerActivity, profile, schedule
from torch_neuronx.profiling import NeuronConfig, NeuronProfiler, ProfileMode

FILES = {
    ProfileMode.RUNTIME: {"ntrace.pb", "trace_info.pb"},
    ProfileMode.CPU_UTIL: {"cpu_util.pb"},
    ProfileMode.HOST_MEMORY: {"host_mem.pb"},
}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("mode", list(FILES))
def test_each_mode_writes_its_own_files(capture, naive_rms_norm, mode):
    run = capture(naive_rms_norm, modes=[mode])
    assert names(run.directory) == {"trace.json"} | FILES[mode]


def test_device_mode_writes_a_neff_per_executable_and_one_ntff_per_core(capture, naive_rms_norm):
    run = capture(naive_rms_norm, modes=[ProfileMode.DEVICE, ProfileMode.RUNTIME])
    hashes = {e["neff"] for e in run.table("executions") if e["kind"] == "exec"}
    found = names(run.directory)
    assert {name for name in found if name.endswith(".neff")} == {f"neff_{h}_vnc_0.neff" for h in hashes}
    ntff = [name for name in found if re.fullmatch(r"profile_nc_0_session_\d+\.ntff", name)]
    assert len(ntff) == 1
    for h in hashes:
        assert neff.read(run.directory / f"neff_{h}_vnc_0.neff").hash == h
    programs = {p["neff"]: p for p in run.table("programs", ntff[0])}
    assert set(programs) == hashes
    starts = {r["execution_id"]: r["start_ns"] for r in run.table("program_executions", ntff[0])}
    for e in run.table("executions"):
        if e["kind"] == "exec":
            assert starts[e["execution_id"]] == e["start_ns"] + e["launch_ns"]
            assert programs[e["neff"]]["duration_ns"] == e["program_ns"]


def test_time_that_depends_on_data_is_called_a_bound(capture):
    table, rows = torch.randn(64, 16).to("neuron"), torch.tensor([3, 1, 3]).to("neuron")
    run = capture(lambda: torch.nn.functional.embedding(rows, table) + 1)
    found = {e["op"]: e["bound"] for e in run.table("executions") if e["kind"] == "exec"}
    assert found == {"aten::embedding": "aten.embedding.default", "aten::add": ""}


def test_directory_is_named_after_instance_process_and_time(capture, naive_rms_norm):
    run = capture(naive_rms_norm)
    assert re.fullmatch(rf"i-emulated\w+_pid_{os.getpid()}", run.directory.parent.name)
    assert re.fullmatch(r"\d{8}_\d{6}_\d{6}", run.directory.name)


def test_session_says_what_made_it(capture, naive_rms_norm):
    run = capture(naive_rms_norm)
    session = run.session()
    assert session.emulated
    assert session.process_id == os.getpid()
    assert session.modes == ("DEVICE", "RUNTIME")
    assert session.target_hash
    assert session.start_ns < session.stop_ns
    assert session.unfinished_executions == 0
    assert session.dropped_events == {}
    assert session == run.session("trace_info.pb")
    launch_ns = {e["launch_ns"] for e in run.table("executions") if e["kind"] == "exec"}
    assert launch_ns == {session.device_cost_ns["launch_cost"]}


def test_launch_cost_depends_on_the_capture_mode(capture, naive_rms_norm):
    profiled = capture(naive_rms_norm, modes=["DEVICE", "RUNTIME"])
    plain = capture(naive_rms_norm, modes=["RUNTIME"])
    of = [[e["launch_ns"] for e in run.table("executions") if e["kind"] == "exec"] for run in (profiled, plain)]
    assert min(of[0]) > 10 * max(of[1])
    programs = [[e["program_ns"] for e in run.table("executions") if e["kind"] == "exec"] for run in (profiled, plain)]
    assert programs[0] == programs[1]


def test_times_follow_the_chain_of_each_execution(capture, naive_rms_norm):
    run = capture(naive_rms_norm)
    previous = 0
    for e in run.table("executions"):
        assert e["enqueue_ns"] <= e["start_ns"] < e["end_ns"]
        assert e["end_ns"] == e["start_ns"] + e["launch_ns"] + e["program_ns"]
        assert e["start_ns"] >= previous
        previous = e["end_ns"]


def test_an_execution_is_one_row_and_runs_on_each_physical_core(capture, naive_rms_norm):
    run = capture(naive_rms_norm)
    executions = {e["execution_id"]: e for e in run.table("executions") if e["kind"] == "exec"}
    events = run.table("events")
    running = [e for e in events if e["name"] == "nc_exec_running"]
    lnc = run.session().lnc
    assert len(running) == lnc * len(executions)
    assert {e["pcore_idx"] for e in running} == set(range(lnc))
    assert all(e["source"] == "neuron_hw" for e in running)
    for e in running:
        assert (e["start_ns"], e["end_ns"]) == tuple(executions[e["execution_id"]][k] for k in ("start_ns", "end_ns"))
    scheduled = [e["execution_id"] for e in events if e["name"] == "nrta_execute_schedule"]
    assert sorted(scheduled) == sorted(executions)
    assert len({e["id"] for e in events}) == len(events)


def test_trace_rows_of_an_execution_share_ids_and_lie_in_their_lanes(capture, naive_rms_norm):
    run = capture(naive_rms_norm)
    rows = [row for row in run.trace() if row.get("ph") == "X"]
    ops = {row["args"]["External id"]: row for row in rows if row["cat"] == "cpu_op"}
    for e in (e for e in run.table("executions") if e["kind"] == "exec"):
        mine = {row["cat"]: row for row in rows if row.get("args", {}).get("correlation") == e["correlation"]}
        assert set(mine) == {"privateuse1_runtime", "privateuse1_driver", "kernel"}
        assert 2**30 <= e["correlation"] < 2**31
        for row in mine.values():
            args = row["args"]
            assert args["External id"] == e["external_id"]
            assert (args["device"], args["stream"], args["execution_id"]) == (0, 0, e["execution_id"])
            assert (args["neff"], args["launch_ns"], args["program_ns"]) == (e["neff"], e["launch_ns"], e["program_ns"])
        dispatch, driver, kernel = (mine[c] for c in ("privateuse1_runtime", "privateuse1_driver", "kernel"))
        op = ops[e["external_id"]]
        assert op["name"] == e["op"]
        assert dispatch["name"] == driver["name"] == e["overload"]
        assert kernel["name"] == f"nc_exec_running {e['overload']}"
        assert (dispatch["pid"], dispatch["tid"]) == (op["pid"], op["tid"])
        assert op["ts"] <= dispatch["ts"] + 1e-3
        assert dispatch["ts"] + dispatch["dur"] <= op["ts"] + op["dur"] + 2e-3
        assert driver["tid"] == e["stream_id"]
        assert (kernel["args"]["gap_ns"], kernel["args"]["gap_cause"]) == (e["gap_ns"], e["gap_cause"])
        assert (kernel["args"]["bytes_read"], kernel["args"]["flops"]) == (e["bytes_read"], e["flops"])
        assert kernel["dur"] * 1000 == pytest.approx(e["end_ns"] - e["start_ns"], abs=1)
    arrows = [row for row in run.trace() if row.get("cat") == "ac2g"]
    assert {row["id"] for row in arrows if row["ph"] == "s"} == {row["id"] for row in arrows if row["ph"] == "f"}
    assert len([row for row in arrows if row["ph"] == "s"]) == 6


def test_the_line_of_the_call_the_module_and_the_step_are_recorded(capture):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = torch.nn.Linear(8, 8)

        def forward(self, x):
            return torch.relu(self.proj(x))  # this line

    model = torch.nn.Sequential(Block(), Block()).to("neuron")
    x = torch.ones(4, 8, device="neuron")

    def body():
        with torch.no_grad():
            return model(x).sum()  # and this line

    run = capture(body)
    rows = {(e["op"], e["module_path"]): e for e in run.table("executions") if e["kind"] == "exec"}
    assert {module for op, module in rows if op == "aten::linear"} == {"Sequential.0.proj", "Sequential.1.proj"}
    assert {module for op, module in rows if op == "aten::relu"} == {"Sequential.0", "Sequential.1"}
    first = inspect.getsourcelines(Block.forward)[1] + 1
    file = os.path.relpath(__file__) if Path(__file__).is_relative_to(Path.cwd()) else __file__
    assert rows["aten::relu", "Sequential.0"]["source"] == f"{file}:{first}"
    assert rows["aten::sum", ""]["source"] == f"{file}:{inspect.getsourcelines(body)[1] + 2}"
    assert {e["step"] for e in rows.values()} == {3}


def test_backward_executions_name_the_line_and_module_of_their_forward(capture):
    linear = torch.nn.Linear(32, 16).to("neuron")
    x = torch.randn(8, 32).to("neuron").requires_grad_()

    def body():
        y = linear(x)
        y.sum().backward()

    run = capture(body)
    rows = {e["op"]: e for e in run.table("executions")}
    assert rows["aten::linear_backward"]["source"] == rows["aten::linear"]["source"] != ""
    assert rows["aten::linear_backward"]["module_path"] == rows["aten::linear"]["module_path"] == "Linear"


def test_recording_leaves_module_calls_as_they_were(capture, naive_rms_norm):
    before = torch.nn.Module.__call__
    capture(naive_rms_norm)
    assert torch.nn.Module.__call__ is before


def test_a_compiled_module_is_neither_recompiled_nor_warned_about_by_a_capture(capture):
    torch.compiler.reset()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).to("neuron")
    compiled = torch.compile(model, backend="neuron")
    x = torch.ones(4, 8, device="neuron")
    with torch.no_grad():
        run = capture(lambda: compiled(x))
    (execution,) = (e for e in run.table("executions") if e["kind"] == "exec")
    assert execution["module_path"] == "Sequential"
    assert "neuron_compile" not in {e["name"] for e in run.table("events")}


def test_a_graph_compiled_during_a_capture_stays_valid_after_it():
    torch.compiler.reset()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.ReLU())).to("neuron")
    compiled = torch.compile(model, backend="neuron", fullgraph=True)
    x = torch.ones(4, 8, device="neuron")
    with torch.no_grad():
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]):
            compiled(x)
            torch.neuron.synchronize()
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(x)


def test_full_buffer_drops_the_oldest_and_counts_them(capture, naive_rms_norm):
    with pytest.warns(UserWarning, match="4 of the oldest device events were dropped.*NeuronCore 0: 4"):
        run = capture(naive_rms_norm, max_events_per_nc=_launches_of(capture, naive_rms_norm) - 4)
    assert run.session().dropped_events == {0: 4}
    assert json.loads((run.directory / "trace.json").read_text())["neuronscope_dropped_events"] == 4
    kept = [e["overload"] for e in run.table("executions")]
    assert kept[-2:] == ["aten::mul.Tensor", "aten::mul.Tensor"]


def _launches_of(capture, body) -> int:
    return len(capture(body).table("executions"))


def test_cores_that_are_not_captured_leave_no_rows(capture, naive_rms_norm):
    if torch.neuron.device_count() < 2:
        pytest.skip("needs two logical NeuronCores")
    run = capture(naive_rms_norm, capture_enabled_for_nc="1")
    assert run.table("executions") == []
    assert run.rows() == {}


def test_copies_are_events_and_add_no_device_time(capture):
    x = torch.ones(4, 4).to("neuron")

    def body():
        torch.ones(4).to("neuron")
        return (x + 1).sum().item()

    run = capture(body)
    rows = run.table("executions")
    assert [e["overload"] for e in rows if e["kind"] == "exec"] == ["aten::add.Tensor", "aten::sum"]
    assert [e["bytes_written"] for e in rows if e["kind"] == "memcpy_h2d"] == [16]
    assert [e["bytes_read"] for e in rows if e["kind"] == "memcpy_d2h"] == [4]
    names = [e["name"] for e in run.table("events")]
    assert names.count("dmem_buf_copyin") == 2  # the tensor and, for the addition, the scalar 1
    assert names.count("dmem_buf_copyout") == 1
    assert set(run.rows()) == {"aten::add", "aten::sum"}


def test_the_first_execution_of_a_window_has_no_gap_before_it(capture, naive_rms_norm):
    first, *others = capture(naive_rms_norm).table("executions")
    assert (first["gap_ns"], first["gap_cause"]) == (-1, "first")
    previous = first["end_ns"]
    for e in others:
        assert e["gap_ns"] == e["start_ns"] - previous
        previous = e["end_ns"]


def test_an_op_computed_on_the_host_is_a_host_event_without_device_time(capture):
    x = torch.eye(4).to("neuron")
    run = capture(lambda: torch.linalg.qr(x))
    assert [e for e in run.table("executions") if e["kind"] == "exec"] == []
    assert "cpu_fallback" in {e["name"] for e in run.table("events")}
    assert run.rows() == {}


def test_work_of_a_thread_torch_does_not_follow_is_kept_as_unlinked_rows(capture):
    x = torch.ones(4, 4).to("neuron")

    def body():
        thread = threading.Thread(target=lambda: x - 1)
        thread.start()
        thread.join()

    run = capture(body)
    (execution,) = (e for e in run.table("executions") if e["kind"] == "exec")
    assert execution["external_id"] == -1
    assert set(run.rows()) == {"nc_exec_running aten::sub.Tensor"}


def test_each_core_has_its_own_lane_and_ntff(capture):
    if torch.neuron.device_count() < 2:
        pytest.skip("needs two logical NeuronCores")
    x, y = torch.ones(4, device="neuron:0"), torch.ones(4, device="neuron:1")

    def body():
        x + x, y + y
        torch.neuron.synchronize(1)

    run = capture(body)
    assert {e["nc_idx"] for e in run.table("executions")} == {0, 1}
    assert len(list(run.directory.glob("profile_nc_[01]_session_*.ntff"))) == 2
    assert {row["pid"] for row in run.trace() if row.get("cat") == "kernel"} == {0, 1}
    processes = {row["pid"]: row["args"]["name"] for row in run.trace() if row.get("name") == "process_name"}
    assert processes[0] == "NeuronCore 0 (emulated)"
    assert processes[1] == "NeuronCore 1 (emulated)"


LNC_SCRIPT = """
import sys, torch
from torch.profiler import ProfilerActivity, profile
from torch_neuronx.profiling import NeuronConfig
config = NeuronConfig(modes=["RUNTIME"], profile_output_dir=sys.argv[1])
x = torch.ones(4, device="neuron")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], experimental_config=config):
    x + x
    torch.neuron.synchronize()
"""


@pytest.mark.parametrize(("lnc", "cores"), [(1, {4}), (2, {8, 9})])
def test_physical_cores_follow_the_logical_core_size_and_the_visible_cores(tmp_path, lnc, cores):
    environment = os.environ | {"NEURON_LOGICAL_NC_CONFIG": str(lnc), "NEURON_RT_VISIBLE_CORES": "4-5"}
    subprocess.run([sys.executable, "-c", LNC_SCRIPT, str(tmp_path)], check=True, env=environment)
    (path,) = tmp_path.glob("i-*_pid_*/*/ntrace.pb")
    file = container.read(path)
    running = [e for e in file.tables["events"].to_pylist() if e["name"] == "nc_exec_running"]
    assert [e["pcore_idx"] for e in running] == sorted(cores)
    assert file.tables["executions"].num_rows == 1
    assert file.session.lnc == lnc


def test_two_captures_in_one_process_do_not_collide(capture, naive_rms_norm, tmp_path):
    first, second = capture(naive_rms_norm), capture(naive_rms_norm)
    assert first.directory != second.directory
    assert first.session().session_id != second.session().session_id
    ids = [{e["execution_id"] for e in run.table("executions")} for run in (first, second)]
    assert not ids[0] & ids[1]
    assert len(list(tmp_path.glob("profiles/i-*_pid_*/*/ntrace.pb"))) == 2


def test_a_repeating_schedule_gives_a_directory_per_cycle(naive_rms_norm, tmp_path):
    config = NeuronConfig(profile_output_dir=tmp_path, modes=["RUNTIME"])
    with (
        warnings.catch_warnings(),
        profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
            schedule=schedule(wait=0, warmup=1, active=1, repeat=2),
            experimental_config=config,
            on_trace_ready=NeuronProfiler(config).export_trace,
        ) as prof,
    ):
        warnings.simplefilter("ignore")  # torch says once that each cycle starts anew
        for _ in range(4):
            naive_rms_norm()
            torch.neuron.synchronize()
            prof.step()
    directories = sorted(tmp_path.glob("i-*/*/"))
    assert [names(d) for d in directories] == [{"ntrace.pb", "trace_info.pb", "trace.json"}] * 2
    steps = [{e["step"] for e in container.read(d / "ntrace.pb").tables["executions"].to_pylist()} for d in directories]
    assert steps == [{1}, {3}]


def test_a_schedule_that_ends_while_warming_up_leaves_no_empty_directory(naive_rms_norm, tmp_path):
    config = NeuronConfig(profile_output_dir=tmp_path, modes=["RUNTIME"])
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
        schedule=schedule(wait=0, warmup=1, active=1),
        experimental_config=config,
        on_trace_ready=NeuronProfiler(config).export_trace,
        acc_events=True,
    ) as prof:
        for _ in range(2):
            naive_rms_norm()
            torch.neuron.synchronize()
            prof.step()
    assert len(list(tmp_path.glob("i-*/*/"))) == 1


def test_a_path_with_every_awkward_character_works(capture, naive_rms_norm, tmp_path):
    run = capture(naive_rms_norm, profile_output_dir=tmp_path / "lr=0.1; a:b #1 %20 ü")
    assert len([e for e in run.table("executions") if e["kind"] == "exec"]) == 6


def test_an_exception_in_the_profiled_code_still_ends_the_capture(capture, naive_rms_norm, tmp_path):
    config = NeuronConfig(profile_output_dir=tmp_path)
    with (
        pytest.raises(KeyError, match="mine"),
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], experimental_config=config),
    ):
        naive_rms_norm()
        torch.neuron.synchronize()
        raise KeyError("mine")
    assert capture(naive_rms_norm).rows()


def test_host_samples_have_plausible_values(capture, naive_rms_norm):
    run = capture(naive_rms_norm, modes=["CPU_UTIL", "HOST_MEMORY"])
    cpu = run.table("cpu_util", "cpu_util.pb")
    assert {"average", "0"} <= {row["cpu_id"] for row in cpu}
    assert all(0 <= row["util_percent"] <= 100 for row in cpu)
    memory = run.table("host_mem", "host_mem.pb")
    assert all(0 < row["used_bytes"] < row["total_bytes"] for row in memory)


def test_stand_alone_profiler_of_the_older_interface(naive_rms_norm, tmp_path):
    profiler = NeuronProfiler(
        pytorch_activities=[ProfilerActivity.CPU],
        neuron_output_dir=str(tmp_path / "out"),
        pytorch_trace_file=str(tmp_path / "torch.json"),
        event_filters={"nc": ["0"], "types": ["hardware"]},
    )
    with pytest.raises(RuntimeError, match="Profiler is not active"):
        profiler.stop()
    with profiler:
        assert profiler.is_active
        with pytest.raises(RuntimeError, match="Profiler is already active"):
            profiler.start()
        naive_rms_norm()
    assert not profiler.is_active
    directory = Path(profiler.get_nrt_output_directory())
    assert json.loads((tmp_path / "torch.json").read_text())["traceEvents"]
    found = container.read(directory / "ntrace.pb").tables["events"].to_pylist()
    assert {e["name"] for e in found} == {"nc_exec_running"}
    (mapping,) = directory.glob("framework_mapping_*.json")
    assert len(json.loads(mapping.read_text())["data"]) == 6
