"""The golden session and a synthetic CUDA trace through library, analyses and server: exact figures, no torch."""

import importlib.util
import sys
from pathlib import Path

import neuronscope
import pytest
from neuronscope.analysis.compare import compare
from neuronscope.formats import container
from neuronscope.server.app import create_app

TESTS = Path(__file__).parent.parent
SESSION = TESTS / "golden" / "session"


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return neuronscope.open(SESSION, name="golden", data_path=tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def executions():
    """What the session's own file says, read without the explorer's readers."""
    return container.read(next(SESSION.rglob("ntrace.pb"))).tables["executions"].to_pylist()


def test_every_nanosecond_of_the_span_is_accounted_for(golden, executions):
    row = compare([golden]).compared[0].to_row()
    programs = [e for e in executions if e["kind"] == "exec"]
    span = max(e["end_ns"] for e in programs) - min(e["start_ns"] for e in programs)
    assert row["span_ns"] == span == row["launch_ns"] + row["program_ns"] + row["gaps_ns"]
    assert row["device_time_ns"] == sum(e["end_ns"] - e["start_ns"] for e in programs)
    assert row["executions"] == len(programs) == 6
    assert row["launch_ns"] == 6 * 385_000
    assert row["bytes_moved"] == sum(e["bytes_read"] + e["bytes_written"] for e in programs)


def test_operators_are_those_that_launched_the_work(golden, executions):
    rows = {row.name: row for row in golden.operators().rows if row.device_time_ns}
    want = {}
    for execution in executions:
        if execution["kind"] == "exec":  # the copy of a scalar is the runtime's: no device time, as in torch's table
            want[execution["op"]] = want.get(execution["op"], 0) + execution["end_ns"] - execution["start_ns"]
    assert {name: row.device_time_ns for name, row in rows.items()} == want
    assert {name: row.calls for name, row in rows.items()} == {
        "aten::mul": 3, "aten::add": 1, "aten::rsqrt": 1, "aten::mean": 1,
    }  # fmt: skip
    assert rows["aten::add"].copies == 1 and rows["aten::add"].estimated_ns == 1_400


def test_both_cores_lead_back_to_the_same_call(golden, client_of):
    client = client_of(create_app([golden]))
    card = client.get("/api/profiles/golden").json()
    shorts = [track["short"] for group in card["groups"] for track in group["tracks"]]
    assert [short for short in shorts if short.startswith("neuron_hw/NC0:")][:2] == [
        "neuron_hw/NC0:4",
        "neuron_hw/NC0:5",
    ]
    hits = client.get("/api/profiles/golden/search?q=nc_exec_running").json()
    assert hits["total"] == 12
    causes = {}
    for hit in hits["events"]:
        chain = client.get(f"/api/profiles/golden/events/{hit['id']}/chain").json()
        assert [e["role"] for e in chain["events"]][-2:] == ["execution", "execution"]
        assert chain["events"][0]["role"] == "dispatch" and chain["events"][0]["name"].startswith("aten::")
        assert chain["upstream"][0] == chain["cause"] and hit["id"] not in chain["upstream"]
        causes.setdefault(chain["cause"], []).append(hit["lane_label"])
    assert sorted(map(sorted, causes.values())) == [["neuron_hw/NC0:4", "neuron_hw/NC0:5"]] * 6


def test_a_real_devices_trace_has_kernels_busy_time_and_late_host(tmp_path):
    spec = importlib.util.spec_from_file_location("synthetic", TESTS / "synthetic.py")
    synthetic = importlib.util.module_from_spec(spec)
    sys.modules["synthetic"] = synthetic
    spec.loader.exec_module(synthetic)
    want = synthetic.write(tmp_path / "cuda.json.gz", steps=2, calls=30)
    profile = neuronscope.open(tmp_path / "cuda.json.gz", data_path=tmp_path / "library")
    summary = profile.summary(profile.whole_range)
    answer = summary.to_dict()
    assert (answer["executions"], answer["device_busy_ns"], answer["span_ns"]) == (
        want.kernels, want.kernel_total_ns, want.span_ns,
    )  # fmt: skip
    assert answer["launch_ns"] is None
    assert [(row["cause"], row["count"]) for row in answer["idle"]] == [("host_late", want.host_late)]
    assert "host late 100 %" in summary.facts[1] and "Trainium" not in summary.facts[1]
    assert len(profile.steps) == 2
    assert profile.operators().total.executions in (30, 60)
