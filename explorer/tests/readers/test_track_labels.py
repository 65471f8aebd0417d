"""Every lane says what it holds and whether its times were measured, simulated or recorded."""

from __future__ import annotations

from pathlib import Path

from neuronscope.store import Store


def test_lanes_of_an_emulated_session_say_which_of_their_times_are_measured(golden: Path, tmp_path: Path) -> None:
    tracks = Store(tmp_path).add(golden).table("Track").to_pylist()
    said = {t["short"].split(":")[0]: t["subtitle"] for t in tracks if not t["short"].endswith(":transfers")}
    assert said == {
        "framework/TID": "dispatch · host, measured",
        "framework/Stream": "enqueue measured · end emulated",  # the host enqueued it, the model says when it ended
        "neuron_rt/NC": "runtime calls · host, measured",
        "neuron_hw/NC0": "executions · emulated",
    }
    assert [t["subtitle"] for t in tracks if t["kind"] == "copy"] == ["copies from and to the host · emulated"]
