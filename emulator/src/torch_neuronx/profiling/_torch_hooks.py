"""Where a capture hooks into torch's profiler: start, stop, and the table.

Torch 2.13 has no callbacks for these, so four methods of `torch.autograd.profiler.profile` and one of `EventList` are
wrapped. `install` is called once, when the device is registered.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from torch.autograd import DeviceType
from torch.autograd import profiler as torch_profiler
from torch.autograd.profiler_util import EventList

from torch_neuronx.profiling.config import NeuronConfig, check_packed, settings_of

_SESSION = "_neuron_session"
_DEVICE = "neuron"
_CARRIER = "neuron capture"  # the plug-in's own event, see HiddenRows in csrc/profiler/plugin.cpp


def session_of(profile: Any) -> Any:
    """The `CaptureSession` of a `torch.autograd.profiler.profile`, or None."""
    return getattr(profile, _SESSION, None)


def install() -> None:
    """Wrap torch's methods; a second call changes nothing."""
    cls = torch_profiler.profile
    if getattr(cls, "_neuron_hooks_installed", False):
        return
    cls._neuron_hooks_installed = True
    # Kineto prints two lines of its own bookkeeping for every profile; this level leaves them out.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    cls._prepare_trace = _wrap(cls._prepare_trace, _prepare)
    cls._start_trace = _wrap(cls._start_trace, _start)
    cls.__exit__ = _wrap(cls.__exit__, _exit)
    cls.export_chrome_trace = _wrap(cls.export_chrome_trace, _export_chrome_trace)
    EventList.key_averages = _wrap(EventList.key_averages, _key_averages)


def _wrap(original: Any, replacement: Any) -> Any:
    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(original, self, *args, **kwargs)

    return wrapper


def _prepare(original: Any, self: Any) -> None:
    from torch_neuronx.profiling._session import CaptureSession, conflicting_environment, device_is_profiled

    setattr(self, _SESSION, None)
    config = self.experimental_config
    if not device_is_profiled(self.kineto_activities):
        if isinstance(config, NeuronConfig):
            warnings.warn(
                "NeuronConfig is ignored: activities lacks ProfilerActivity.PrivateUse1, so the device isn't recorded",
                stacklevel=3,
            )
        original(self)
        return
    check_packed(getattr(config, "custom_profiler_config", "") or "")
    if variable := conflicting_environment():
        warnings.warn(f"{variable} is ignored while torch.profiler records the neuron device", stacklevel=3)
    session = CaptureSession(settings_of(config), getattr(config, "event_filter", lambda _name: True))
    session.prepare()
    try:
        original(self)
    except BaseException:
        session.abandon()
        raise
    setattr(self, _SESSION, session)


def _start(original: Any, self: Any) -> None:
    session = session_of(self)
    if session is None:
        original(self)
        return
    session.start()
    try:
        original(self)
    except BaseException:
        session.abandon()
        setattr(self, _SESSION, None)
        raise


def _exit(original: Any, self: Any, *args: Any) -> Any:
    session = session_of(self)
    if session is None:
        return original(self, *args)
    # Torch synchronizes the device on its way out. The window ends before that: forgetting to synchronize inside the
    # recorded loop must show, as it does on the device.
    session.close_window()
    result = original(self, *args)
    session.finish(recorded_by_torch=lambda: any(e.name() != _CARRIER for e in self.kineto_results.events()))
    return result


def _export_chrome_trace(original: Any, self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    session = session_of(self)
    written = getattr(session, "trace_file", None)
    if written is not None and written.exists() and not kwargs.get("use_python_export"):
        # Kineto saves a trace once; a script may export it after `export_trace` did, as on the device.
        shutil.copyfile(written, path)
        return None
    if session is None or kwargs.get("use_python_export"):
        return original(self, path, *args, **kwargs)
    if any(character in os.fspath(path) for character in "\\\r\n"):
        # Kineto drops these from the names of its files.
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "trace.json"
            original(self, str(plain), *args, **kwargs)
            shutil.move(plain, path)
    else:
        original(self, path, *args, **kwargs)
    session.trace_file = Path(path)
    return None


def _key_averages(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if self._use_device != _DEVICE:
        return original(self, *args, **kwargs)
    return fold_device_rows(self, lambda events: original(events, *args, **kwargs))


def fold_device_rows(events: EventList, average: Any) -> EventList:
    """Average events without the rows of executions that an op already carries.

    Torch adds an execution's time to the op that launched it, and then lists the execution as a row of its own. The
    second is left out here; executions no op claims stay. The total below the table is summed from the ops instead.
    """
    carried = Counter(
        _execution(kernel.name, kernel.device, kernel.duration)
        for event in events
        if event.device_type == DeviceType.CPU
        for kernel in event.kernels
    )
    kept = EventList(
        (e for e in events if not _is_folded(e, carried)),
        use_device=events._use_device,
        profile_memory=events._profile_memory,
        with_flops=events._with_flops,
    )
    kept._tree_built = events._tree_built
    averages = average(kept)
    for row in averages:
        if row.device_type == DeviceType.CPU:
            row.is_legacy = True  # "device time is stored in the CPU row": the table's total then counts it
    return averages


def _is_folded(event: Any, carried: Counter[tuple[str, int, int]]) -> bool:
    """Whether an op carries this row's execution; each of `carried` answers for one row.

    By the executions that ops carry, not by the ids they are linked with: torch merges an op into its caller of the
    same name (`aten::mean` over all dimensions calls itself), and the merged op's id is gone.
    """
    if event.device_type != DeviceType.PrivateUse1:
        return False
    if event.is_user_annotation:
        return True
    execution = _execution(event.name, event.device_index, event.time_range.elapsed_us())
    if event.linked_correlation_id == 0 or not carried[execution]:
        return False
    carried[execution] -= 1
    return True


def _execution(name: str, device: int, duration_us: float) -> tuple[str, int, int]:
    return name, device, round(duration_us * 1000)
