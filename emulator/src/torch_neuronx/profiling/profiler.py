"""`NeuronProfiler`: the trace exporter of `torch.profiler`, and the older stand-alone profiler."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from torch_neuronx.profiling import _files, _torch_hooks
from torch_neuronx.profiling._session import CaptureSession
from torch_neuronx.profiling.config import DEFAULT_OUTPUT_DIR, NeuronConfig, ProfileMode
from torch_neuronx.profiling.errors import NRTProfilerError


class NeuronProfiler:
    """Exports what `torch.profiler.profile` recorded, or records by itself.

    With a `NeuronConfig`, its `export_trace` is the `on_trace_ready` callback:

        config = NeuronConfig(profile_output_dir="profiles")
        with torch.profiler.profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
            experimental_config=config,
            on_trace_ready=NeuronProfiler(config).export_trace,
        ) as prof:
            ...

    Without one it is a context manager of its own, with `start` and `stop`.

    Args:
        pytorch_activities: the config, or (stand-alone) torch's activities; None records the device only.
        record_shapes: stand-alone: as in `torch.profiler.profile`.
        pytorch_trace_file: stand-alone: where to write torch's trace at stop.
        neuron_output_dir: stand-alone: folder below which the session directory is created.
        event_filters: stand-alone: `{"nc": ["0", "2-5"], "types": ["hardware", "nrta_execute_schedule"]}`; a type is an
            event name or the group "hardware" or "software", a leading "^" excludes it.
    """

    def __init__(
        self,
        pytorch_activities: NeuronConfig | Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        pytorch_trace_file: str | None = None,
        neuron_output_dir: str = DEFAULT_OUTPUT_DIR,
        event_filters: Mapping[str, Iterable[Any]] | None = None,
        *,
        config: NeuronConfig | None = None,
    ) -> None:
        if isinstance(pytorch_activities, torch._C._profiler._ExperimentalConfig):
            config, pytorch_activities = pytorch_activities, None
        filters = {key: [str(item) for item in items] for key, items in (event_filters or {}).items()}
        if unknown := set(filters) - {"nc", "types"}:
            raise ValueError(f"event_filters has unknown keys {sorted(unknown)}; known: nc, types")
        self._activities = None if pytorch_activities is None else list(pytorch_activities)
        self._record_shapes = record_shapes
        self._trace_file = pytorch_trace_file
        self.config = config or NeuronConfig(
            profile_output_dir=neuron_output_dir,
            capture_enabled_for_nc=",".join(filters.get("nc", [])) or None,
            correlate_device_time=True,
        )
        if types := filters.get("types"):
            self.config.event_filter = event_filter(types)
        self._profile: Any = None
        self._active = False

    def export_trace(self, prof: Any) -> None:
        """Write trace.json of a finished `torch.profiler.profile` into its session directory.

        Raises:
            NRTProfilerError: the profile recorded nothing yet.
        """
        if getattr(prof, "profiler", None) is None:
            raise NRTProfilerError("nothing has been recorded yet: export_trace is for on_trace_ready, or after stop()")
        session = _torch_hooks.session_of(prof.profiler)
        if session is not None:
            session.keep()
        if session is None or session.directory is None:
            raise NRTProfilerError(
                "this torch.profiler.profile did not record the neuron device to files: pass "
                "experimental_config=config (the NeuronConfig) and ProfilerActivity.PrivateUse1 in activities"
            )
        prof.export_chrome_trace(str(session.directory / "trace.json"))

    def start(self) -> None:
        """Begin to record.

        Raises:
            NRTProfilerError: it records already.
        """
        if self._active:
            raise NRTProfilerError("Profiler is already active")
        activities = {ProfilerActivity.CPU, ProfilerActivity.PrivateUse1, *(self._activities or [])}
        self._profile = torch.profiler.profile(
            activities=activities, record_shapes=self._record_shapes, experimental_config=self.config
        )
        self._profile.start()
        self._active = True

    def stop(self) -> None:
        """Wait for the device, stop recording and write the files.

        Raises:
            NRTProfilerError: it does not record, or a file can't be written.
        """
        if not self._active:
            raise NRTProfilerError("Profiler is not active")
        self._active = False
        torch.neuron.synchronize()
        try:
            self._profile.stop()
            self._write_mapping()
            if self.has_pytorch_profiling:
                default = str(Path(self.get_nrt_output_directory()) / "pytorch_trace.json")
                self.export_pytorch_trace(self._trace_file or default)
        except OSError as error:
            raise NRTProfilerError(f"Profiling errors: {error}") from error

    def __enter__(self) -> NeuronProfiler:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @property
    def is_active(self) -> bool:
        """Whether it records now."""
        return self._active

    @property
    def has_pytorch_profiling(self) -> bool:
        """Whether torch's own trace was asked for."""
        return self._activities is not None

    def get_pytorch_trace(self) -> Any:
        """The `torch.profiler.profile` of the last recording; None where torch's trace was not asked for."""
        return self._profile if self.has_pytorch_profiling else None

    def get_nrt_output_directory(self) -> str:
        """The session directory of the last recording.

        Raises:
            NRTProfilerError: nothing was recorded.
        """
        return str(self._session.directory)

    def export_pytorch_trace(self, filename: str = "pytorch_trace.json") -> None:
        """Write torch's trace of the last recording.

        Raises:
            NRTProfilerError: nothing was recorded, or torch's trace was not asked for.
        """
        if not self.has_pytorch_profiling:
            raise NRTProfilerError("no PyTorch trace: pass pytorch_activities")
        if self._session is not None:
            self._profile.export_chrome_trace(filename)

    @property
    def _session(self) -> CaptureSession:
        session = None if self._profile is None else _torch_hooks.session_of(self._profile.profiler)
        if session is None:
            raise NRTProfilerError("nothing has been recorded yet")
        return session

    def _write_mapping(self) -> None:
        """Which framework op each execution came from, as older tools read it."""
        session = self._session
        if session.capture is None or session.directory is None:
            return
        launches = _files.Launches.of(session.capture)
        rows = launches.is_execution & launches.finished
        columns = [launches[name][rows].tolist() for name in ("execution_id", "external_id", "thread_id", "stream")]
        data = [
            {
                "nrta_seq_id": execution,
                "framework_op_exec_ids": [{"seq_nr": external, "th_id": thread, "stream_id": stream}],
            }
            for execution, external, thread, stream in zip(*columns, strict=True)
        ]
        now = time.time_ns()
        stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(now // 10**9)) + f"_{now // 10**6 % 1000:03d}"
        path = Path(session.directory) / f"framework_mapping_{stamp}.json"
        path.write_text(json.dumps({"version": 1, "data": data}))


def event_filter(types: Iterable[str]) -> Callable[[str], bool]:
    """The test of `event_filters["types"]`: wanted names and groups, and "^" for excluded ones."""
    wanted = {t for t in types if not t.startswith("^")}
    excluded = {t[1:] for t in types if t.startswith("^")}

    def passes(name: str) -> bool:
        group = "hardware" if name in _files.HARDWARE_EVENTS else "software"
        return (not wanted or bool({name, group} & wanted)) and not {name, group} & excluded

    return passes


__all__ = ["NeuronProfiler", "ProfileMode", "event_filter"]
