"""`key_averages` against torch's own code on the same events: its tree, its merging of calls, its links."""

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pytest
from neuronscope.analysis.library import open_profile

torch = pytest.importorskip("torch")
REAL = Path(__file__).parents[4] / "shared" / "traces" / "real"


def torch_averages(events):
    """Rows of torch's key_averages() by operator: (calls, self CPU ns, self device ns), from the events of a trace."""
    from torch.autograd import DeviceType
    from torch.autograd.profiler_util import EventList, FunctionEvent, _filter_name

    made, kernels = [], {}
    origin = min(event["ts"] for event in events if event.get("ph") == "X")  # torch counts from the start of the trace
    for event in events:
        category = str(event.get("cat", "")).lower()
        if event.get("ph") != "X" or category in ("python_function", "trace", "gpu_user_annotation", "overhead"):
            continue
        args = event.get("args", {})
        linked = args.get("External id", args.get("external id", 0))
        if category in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            kernels.setdefault(linked, []).append(event)
            continue
        if category not in ("cpu_op", "operator", "user_annotation", "cuda_runtime", "cuda_driver", "runtime"):
            continue
        if _filter_name(event["name"]):
            continue
        one = FunctionEvent(
            id=linked, name=event["name"], thread=event["tid"], start_us=float(event["ts"] - origin),
            end_us=float(event["ts"] + event["dur"] - origin),
            use_device="cuda", device_type=DeviceType.CPU, stack=[],
        )  # fmt: skip
        one.category = category
        made.append(one)
    for one in made:
        if one.category in ("cpu_op", "operator"):
            for kernel in kernels.get(one.id, ()):
                one.append_kernel(kernel["name"], 0, float(kernel["dur"]))
    events = EventList(sorted(made, key=lambda one: [one.time_range.start, -one.time_range.end]), use_device="cuda")
    events._build_tree()
    names = {one.name for one in made if one.category in ("cpu_op", "operator")}
    return {
        row.key: (row.count, row.self_cpu_time_total * 1000, row.self_device_time_total * 1000)
        for row in events.key_averages()
        if row.key in names
    }


def same(profile, events):
    got = {
        row["name"]: row for row in profile.analyse("averages", profile.whole_range).rows if row["name"] != "(unlinked)"
    }
    want = torch_averages(events)
    assert want.keys() == got.keys()
    for name, (calls, self_cpu, device) in want.items():
        row = got[name]
        assert row["calls"] == calls, name
        assert row["torch_self_cpu_ns"] == pytest.approx(self_cpu, abs=2 * calls + 1), name
        assert row["torch_self_device_ns"] == pytest.approx(device, abs=2 * calls + 1), name
    return got


def x(cat, name, ts, dur, tid=1, pid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name, ts, dur, **args):
    return x("kernel", name, ts, dur, 7, 0, device=0, stream=7, **args)


def test_calls_self_times_and_links_are_torch_s(tmp_path):
    """A forwarding call, one of its name that launches itself, runtime calls, a graph launch without External ids."""
    events = [
        x("user_annotation", "ProfilerStep#1", 0, 500),
        x("cpu_op", "aten::copy_", 10, 50, **{"External id": 1}),  # forwards: one call with the next
        x("cpu_op", "aten::copy_", 12, 40, **{"External id": 2}),
        x("cuda_runtime", "cudaMemcpyAsync", 15, 20, correlation=1, **{"External id": 2}),
        x("cpu_op", "aten::copy_", 100, 60, **{"External id": 3}),  # launches itself too: two calls
        x("cuda_runtime", "cudaLaunchKernel", 102, 5, correlation=2, **{"External id": 3}),
        x("cpu_op", "aten::copy_", 110, 40, **{"External id": 4}),
        x("cuda_runtime", "cudaLaunchKernel", 115, 5, correlation=3, **{"External id": 4}),
        x("cpu_op", "aten::linear", 200, 100, **{"External id": 5}),
        x("cpu_op", "aten::addmm", 210, 80, **{"External id": 6}),
        x("cuda_runtime", "cudaGraphLaunch", 220, 30, correlation=4),
        x("cpu_op", "aten::is_leaf", 295, 2, **{"External id": 7}),  # torch leaves it out
        kernel("copy", 40, 5, correlation=1, **{"External id": 2}),
        kernel("outer", 130, 7, correlation=2, **{"External id": 3}),
        kernel("inner", 140, 9, correlation=3, **{"External id": 4}),
        kernel("graph_a", 300, 11, correlation=4),
        kernel("graph_b", 312, 13, correlation=4),
        kernel("stray", 400, 17, correlation=99),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    profile = open_profile(path, data_path=tmp_path / "library")
    rows = same(profile, events)
    assert rows["aten::copy_"]["calls"] == 3
    assert (rows["aten::addmm"]["self_device_ns"], rows["aten::addmm"]["torch_self_device_ns"]) == (24_000, 0)
    assert "torch goes by External id alone" in rows["aten::addmm"]["why"] and not rows["aten::copy_"]["why"]
    found = profile.analyse("averages", profile.whole_range)
    assert sum(row["self_device_ns"] for row in found.rows) == 62_000
    assert found.facts[0].startswith("torch's table has 21.0 us of the 62.0 us of device time")


@pytest.mark.parametrize(
    "name",
    ["h100_bert_small", "mi300_bert_small", "mi250_toy_train", "v100_ns_resolution", "v100_resnet50_2021_schema"],
)
def test_real_traces_equal_torch_s_own_code(name, tmp_path):
    path = REAL / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip("the shared traces are not laid beside this checkout (../shared/traces)")
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    same(open_profile(path, data_path=tmp_path), document["traceEvents"])


def test_a_recorded_neuron_run_equals_its_own_key_averages(tmp_path):
    pytest.importorskip("torch_neuronx")
    from torch.profiler import ProfilerActivity, profile, record_function

    layer = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)).to("neuron")
    data = torch.randn(4, 16).to("neuron")
    layer(data).sum().backward()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], acc_events=True) as recorded:
        with record_function("forward"):
            loss = layer(data).sum()
        loss.backward()
        loss.item()
    path = tmp_path / "trace.json"
    recorded.export_chrome_trace(str(path))
    names = {event["name"] for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"}
    opened = open_profile(path, data_path=tmp_path / "library")
    got = {row["name"]: row for row in opened.analyse("averages", opened.whole_range).rows}
    want = {row.key: row for row in recorded.key_averages() if row.key in names}
    assert len(want) > 10 and want.keys() == got.keys()
    for name, row in want.items():
        mine = got[name]
        assert mine["calls"] == row.count, name
        assert mine["torch_self_cpu_ns"] / 1000 == pytest.approx(row.self_cpu_time_total, abs=0.002 * row.count), name
        assert mine["self_device_ns"] == mine["torch_self_device_ns"]
        assert mine["self_device_ns"] / 1000 == pytest.approx(row.self_device_time_total, abs=0.002 * row.count), name
