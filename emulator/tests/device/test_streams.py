"""Streams, events and the simulated clock."""

import subprocess
from itertools import pairwise

import pytest
import torch
import torch_neuronx
from torch_neuronx import _C


def test_every_stream_is_the_default_one_unless_enabled() -> None:
    stream = torch.neuron.Stream(priority=-1)
    assert stream.stream_id == 0
    assert stream.priority == -1
    assert stream == torch.neuron.default_stream()
    with torch.neuron.stream(stream):
        assert torch.neuron.current_stream() == stream
    with pytest.raises(RuntimeError, match="Expected Neuron device, got: cpu"):
        torch.neuron.Stream(device="cpu")


def test_elapsed_time_is_simulated_and_the_same_every_time() -> None:
    x = torch.ones(64, 64, device="neuron")
    x + x

    def measure() -> float:
        start, end = (torch.neuron.Event(enable_timing=True) for _ in range(2))
        for _ in range(50):  # the host gets ahead, so that only device time counts
            x + x
        start.record()
        for _ in range(10):
            x + x
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    first = measure()
    assert first == measure()
    assert first > 10 * 0.012  # ten launches


def test_events() -> None:
    event = torch.neuron.Event()
    assert event.query()
    assert isinstance(event, torch.neuron.Event)
    x = torch.ones(4, device="neuron") + 1
    event.record()
    event.synchronize()
    assert event.query()
    torch.neuron.wait_event(event)
    torch.neuron.current_stream().wait_stream(torch.neuron.default_stream())
    assert torch.neuron.record_event().query()
    assert torch.neuron.query()
    assert x.tolist() == [2] * 4


def test_events_between_streams_events_and_torchs_own() -> None:
    stream, generic = torch.neuron.current_stream(), torch.Event(device="neuron", enable_timing=True)
    ours = torch.neuron.Event(enable_timing=True)
    assert isinstance(ours, torch.Event)
    assert isinstance(stream.record_event(), torch.neuron.Event)
    assert ours.neuron_event == 0
    assert stream.record_event(ours) is ours
    assert ours.neuron_event != 0
    torch.ones(4, device="neuron") + 1
    stream.record_event(generic)
    stream.wait_event(generic)
    torch.accelerator.current_stream().wait_event(generic)
    assert ours.elapsed_time(generic) > 0


def test_elapsed_time_says_what_is_missing() -> None:
    untimed, unrecorded, here, there = (torch.neuron.Event(enable_timing=i > 0) for i in range(4))
    here.record()
    with torch.neuron.device(1):
        there.record()
    for first, second, message in (
        (untimed, here, "Event was not created with timing enabled"),
        (here, untimed, "Event was not created with timing enabled"),
        (here, unrecorded, "Event has not been recorded"),
        (here, there, "Events must be on the same device"),
    ):
        with pytest.raises(RuntimeError, match=message):
            first.elapsed_time(second)


def test_work_is_in_order_and_never_overlaps() -> None:
    x = torch.ones(8, device="neuron")
    x + x
    torch.neuron.synchronize()
    ends = []
    for _ in range(5):
        x + x
        ends.append(_C.simulated_end_ns(0))
    steps = {later - earlier for earlier, later in pairwise(ends)}
    assert min(steps) > 0


def test_synchronize_brings_the_host_to_the_devices_end_without_sleeping() -> None:
    x = torch.ones(8, device="neuron")
    for _ in range(1000):
        x = x + 1
    before = _C.host_offset_ns()
    torch.neuron.synchronize()
    assert _C.host_offset_ns() >= before
    assert x.tolist() == [1001] * 8


def test_accelerator_interface() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == "neuron"
    assert torch.accelerator.device_count() == torch.neuron.device_count()
    torch.accelerator.set_device_index(1)
    assert torch.neuron.current_device() == 1
    torch.accelerator.set_device_index(0)
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream().device.type == "neuron"
    assert torch.accelerator.memory_allocated() == torch_neuronx.memory_allocated()


REAL_STREAMS = """
import torch
side, main = torch.neuron.Stream(), torch.neuron.current_stream()
assert side != main and side.stream_id == 1
x = torch.ones(256, 256, device="neuron")
for _ in range(20):
    x = x @ x / 256
event = torch.neuron.Event()
event.record()
with torch.neuron.stream(side):
    side.wait_event(event)
    y = x + 1
side.synchronize()
assert y.unique().tolist() == [2.0]
print("ok")
"""


def test_real_streams_with_host_collectives(script) -> None:
    result: subprocess.CompletedProcess[str] = script(REAL_STREAMS, NEURON_RT_ENABLE_HOST_CC="1")
    assert result.stdout.strip() == "ok", result.stderr


def test_the_host_waits_for_a_shape_that_depends_on_data() -> None:
    x = torch.ones(64, device="neuron")
    x.nonzero()
    for _ in range(100):
        x + x
    x.nonzero()
    assert _C.simulated_now_ns() >= _C.simulated_end_ns(0)
