"""Streams and events. Unless host collectives are enabled, every stream is the default one, as on the real device."""

from __future__ import annotations

import os
from functools import cache
from types import TracebackType
from typing import Any

import torch

from torch_neuronx import _C
from torch_neuronx._devices import DeviceLike, index_of

_REAL_STREAMS = ("NEURON_RT_ENABLE_HOST_CC", "TORCH_NEURONX_ENABLE_HOST_CC")


@cache
def _read_stream_variable() -> None:
    _C.set_real_streams(any(os.environ.get(name) == "1" for name in _REAL_STREAMS))


class Stream(torch.Stream):
    """A queue of device work.

    Args:
        device: the device; None for the current one.
        priority: accepted; the emulated queues have one priority.
        stream_id, device_index, device_type: an existing stream.

    Raises:
        RuntimeError: the device is no neuron device.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **kwargs: Any) -> Stream:
        """Creates the stream, or names an existing one."""
        _read_stream_variable()
        if kwargs:
            stream = super().__new__(cls, **kwargs)
        else:
            if not isinstance(device, int) and device is not None and torch.device(device).type != "neuron":
                raise RuntimeError(f"Expected Neuron device, got: {torch.device(device)}")
            stream = super().__new__(cls, device=torch.device("neuron", index_of(device)))
        stream.priority = priority
        return stream

    # Torch's own two methods take no subclass of torch.Event.
    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records `event`, or a new one, after what the stream holds now."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: torch.Event) -> None:
        """Later work of this stream starts after `event`."""
        event.wait(self)


class Event(torch.Event):
    """A point in a stream's work: `torch.Event(device="neuron")` with the errors of `elapsed_time` below.

    Args:
        enable_timing: `elapsed_time` may be asked; it is simulated time in milliseconds.
        blocking: accepted.
    """

    _enable_timing: bool

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, **_kwargs: Any) -> Event:
        """Creates the event; its device is that of the stream it is recorded in."""
        event = super().__new__(cls, device="neuron", enable_timing=enable_timing, blocking=blocking)
        event._enable_timing = bool(enable_timing)
        return event

    def elapsed_time(self, end: torch.Event) -> float:
        """Simulated milliseconds from this event to `end`.

        Raises:
            RuntimeError: an event has no timing, was not recorded, or is on another device.
        """
        if not (self._enable_timing and getattr(end, "_enable_timing", True)):
            raise RuntimeError("Event was not created with timing enabled")
        return float(_C.event_elapsed_ms(self.event_id, end.event_id))

    @property
    def neuron_event(self) -> int:
        """Handle of the recorded event, 0 before."""
        return int(self.event_id)


class StreamContext:
    """Context manager that makes a stream the current one of its device; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: torch.Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._previous = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            set_stream(self._previous)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager for `stream`."""
    return StreamContext(stream)


def _existing(stream_id: int, index: int) -> Stream:
    device_type = torch.Stream(device=torch.device("neuron", index)).device_type
    return Stream(stream_id=stream_id, device_index=index, device_type=device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """The stream that this thread's ops on `device` go to."""
    index = index_of(device)
    return _existing(_C.current_stream(index), index)


def default_stream(device: DeviceLike = None) -> Stream:
    """Stream 0 of `device`."""
    return _existing(0, index_of(device))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` the current one of its device."""
    if stream is not None:
        _C.set_stream(index_of(stream.device), stream.stream_id)


def synchronize(device: DeviceLike = None) -> None:
    """Waits until all work of a device is done and raises the first error among it."""
    _C.synchronize(index_of(device))


def wait_stream(stream: torch.Stream) -> None:
    """Later work of the current stream starts after what `stream` holds now."""
    current_stream().wait_stream(stream)


def wait_event(event: torch.Event) -> None:
    """Later work of the current stream starts after `event`."""
    current_stream().wait_event(event)


def record_event(event: torch.Event | None = None) -> torch.Event:
    """Records `event` (a new one for None) in the current stream."""
    return current_stream().record_event(event)


def query() -> bool:
    """Whether the current stream has done all its work."""
    return bool(current_stream().query())
