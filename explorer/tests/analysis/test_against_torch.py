"""The operator table equals torch's own `key_averages()` on the same trace."""

import json

import neuronscope
import pytest

torch = pytest.importorskip("torch")


def test_calls_and_self_cpu_equal_key_averages(tmp_path):
    from torch.profiler import ProfilerActivity, profile, record_function

    layer = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.LayerNorm(32))
    data = torch.randn(8, 32)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        with record_function("forward"):
            loss = layer(data).sum()
        loss.backward()
        torch.stack([data, data]).to(torch.float64).mean().item()
    path = tmp_path / "trace.json"
    recorded.export_chrome_trace(str(path))
    operators = {event["name"] for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"}
    want = {row.key: (row.count, row.self_cpu_time_total) for row in recorded.key_averages() if row.key in operators}
    profile_ = neuronscope.open(path, data_path=tmp_path / "library")
    got = {row.name: (row.calls, row.self_cpu_ns / 1000) for row in profile_.operators(profile_.whole_range).rows}
    assert len(want) > 10
    assert {name: got[name][0] for name in want} == {name: calls for name, (calls, _) in want.items()}
    for name, (_, self_cpu_us) in want.items():
        assert got[name][1] == pytest.approx(self_cpu_us, abs=0.002 * want[name][0]), name
