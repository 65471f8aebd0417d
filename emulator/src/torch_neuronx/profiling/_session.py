"""One capture from its preparation to its files: `CaptureSession`."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from neuroncore.runtime import Executable
from neuroncore.targets import Target, load_target
from neuronscope.formats import container, neff
from neuronscope.formats.errors import FormatError

from torch_neuronx import _C, _executables
from torch_neuronx._initialize import logical_core_size
from torch_neuronx.profiling import _files
from torch_neuronx.profiling._modules import ModuleTracker
from torch_neuronx.profiling._samplers import CpuSampler, MemorySampler
from torch_neuronx.profiling.config import ProfileMode, Settings, parse_core_list

_session_numbers = itertools.count()


def instance_id() -> str:
    """The name of this machine in profiles: "i-emulated" and a suffix that never changes here."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    machine = machine or f"{platform.node()}:{uuid.getnode()}"
    return "i-emulated" + hashlib.sha256(machine.encode()).hexdigest()[:8]


class CaptureSession:
    """Records what one run of `torch.profiler` sees of the device.

    Args:
        settings: where and what to write; None records for torch's own table and trace only.
        event_filter: says by name which runtime events are written.

    Attributes:
        directory: `<instance>_pid_<pid>/<timestamp>/`, exists from `prepare` on; None without settings.
        unfinished_executions: those that ended on the device after the window, known after `finish`.
        dropped_events: launches lost to a full ring buffer, by logical NeuronCore, known after `finish`.
    """

    def __init__(self, settings: Settings | None, event_filter: Callable[[str], bool] = lambda _name: True) -> None:
        self.settings = settings
        self.directory: Path | None = None
        self.trace_file: Path | None = None  # the first one exported
        self.unfinished_executions = 0
        self.dropped_events: dict[int, int] = {}
        self.capture: Mapping[str, Any] | None = None
        self._event_filter = event_filter
        self._number = -1
        self._modules = ModuleTracker()
        self._cpu = CpuSampler() if self._wants(ProfileMode.CPU_UTIL) else None
        self._memory = MemorySampler() if self._wants(ProfileMode.HOST_MEMORY) else None
        self._running = False

    def prepare(self) -> None:
        """Create the session directory.

        Raises:
            OSError: it can't be created.
        """
        if self.settings is not None:
            self.directory = _create_directory(Path(self.settings.profile_output_dir))

    def start(self) -> None:
        """Set the device up for the recording that torch starts next."""
        settings = self.settings or Settings(modes=(ProfileMode.RUNTIME,), correlate_device_time=True)
        self._number = next(_session_numbers)
        _C.profiler.set_library_folders(_library_folders())
        _C.profiler.set_working_folder(str(Path.cwd()).rstrip("/") + "/")
        _C.profiler.prepare(
            max_events_per_nc=settings.max_events_per_nc,
            cores=list(settings.cores),
            device_mode=ProfileMode.DEVICE in settings.modes,
            correlate_device_time=settings.correlate_device_time,
            metadata={"neuronscope": json.dumps(self._origin(settings))},
        )
        _C.profiler.take_capture()  # one that nobody fetched must not be taken for ours
        for sampler in (self._cpu, self._memory):
            if sampler is not None:
                sampler.start()
        self._modules.start()
        self._running = True

    def close_window(self) -> None:
        """End the window: what the device finishes from now on is lost."""
        _C.profiler.close_window()
        self._end_trackers()

    def finish(self, recorded_by_torch: Callable[[], bool] = lambda: True) -> None:
        """Fetch what torch recorded, write the session's files, and warn of what is missing.

        Args:
            recorded_by_torch: whether torch itself recorded anything. A schedule that ends while warming up starts and
                stops torch's profiler back to back; that is no profile and leaves no directory.

        Raises:
            OSError: a file can't be written.
        """
        self._end_trackers()
        self.capture = _C.profiler.take_capture()
        if self.capture is None:
            return
        launches = _files.Launches.of(self.capture)
        if not len(launches.kind) and not len(self.capture["hosts"]["begin_ns"]) and not recorded_by_torch():
            self._remove_directory()
            return
        self.unfinished_executions = int((launches.is_execution & ~launches.finished).sum())
        self.dropped_events = {int(core): int(count) for core, count in self.capture["dropped"].items()}
        if self.settings is not None and self.directory is not None:
            self._write(self.settings, self.directory, launches)
        self._warn()

    def keep(self) -> None:
        """Write the files of a recording in which nothing ran: somebody asked for its export after all.

        Raises:
            OSError: a file can't be written.
        """
        if self.settings is not None and self.directory is None and self.capture is not None:
            self.prepare()
            assert self.directory is not None
            self._write(self.settings, self.directory, _files.Launches.of(self.capture))

    def abandon(self) -> None:
        """Undo `prepare` and `start` where torch failed to start its profiler."""
        self._end_trackers()
        self._remove_directory()

    def _remove_directory(self) -> None:
        if self.directory is not None:
            self.directory.rmdir()
            self.directory = None

    def _wants(self, mode: ProfileMode) -> bool:
        return self.settings is not None and mode in self.settings.modes

    def _end_trackers(self) -> None:
        if not self._running:
            return
        self._running = False
        self._modules.stop()
        for sampler in (self._cpu, self._memory):
            if sampler is not None:
                sampler.stop()

    def _write(self, settings: Settings, directory: Path, launches: _files.Launches) -> None:
        assert self.capture is not None
        target = load_target()
        facts = self._facts(settings, target)
        if self._wants(ProfileMode.RUNTIME):
            container.write(directory / "trace_info.pb", "trace_info", facts)
            rows = {
                "executions": _files.executions(launches),
                "events": _files.events(launches, self.capture["hosts"], physical_cores, self._event_filter),
            }
            container.write(directory / "ntrace.pb", "ntrace", facts, rows)
        if self._wants(ProfileMode.DEVICE):
            self._write_device(settings, directory, launches, facts, target)
        if self._cpu is not None:
            container.write(directory / "cpu_util.pb", "cpu_util", facts, {"cpu_util": self._cpu.rows})
        if self._memory is not None:
            container.write(directory / "host_mem.pb", "host_mem", facts, {"host_mem": self._memory.rows})

    def _write_device(
        self,
        settings: Settings,
        directory: Path,
        launches: _files.Launches,
        facts: container.Session,
        target: Target,
    ) -> None:
        ran = launches.is_execution & launches.finished
        programs: dict[str, Executable] = {}
        for core in sorted(set(launches["device"][ran].tolist())):
            on_core = ran & (launches["device"] == core)
            for hash_ in dict.fromkeys(launches.neff[on_core].tolist()):
                executable = _executables.find(hash_)
                data = executable.neff if executable is not None else _cached_neff(settings.neff_cache_dir, hash_)
                if executable is not None:
                    programs[hash_] = executable
                # None: an op whose time is only an estimate has no program; torch_neuronx said so when it met the op.
                if data is not None:
                    neff.write(directory / f"neff_{hash_}_vnc_{core}.neff", data)
            name = f"profile_nc_{core}_session_{self._number}.ntff"
            container.write(directory / name, "ntff", facts, _files.ntff(launches, core, programs, target))

    def _facts(self, settings: Settings, target: Target) -> container.Session:
        assert self.capture is not None
        return container.Session(
            producer="neuronscope-emulator",
            producer_version=_version(),
            emulated=True,
            model_version=_model_version(),
            target=target.name,
            target_hash=target.hash,
            instance_id=instance_id(),
            process_id=os.getpid(),
            session_id=self._number,
            lnc=logical_core_size(),
            modes=tuple(mode.value for mode in settings.modes),
            start_ns=self.capture["start_ns"],
            stop_ns=self.capture["stop_ns"],
            dropped_events={core: count for core, count in self.dropped_events.items() if count},
            unfinished_executions=self.unfinished_executions,
            host_model="measured",
            **_device_costs(settings, target),
        )

    def _origin(self, settings: Settings) -> dict[str, Any]:
        """What a reader of trace.json alone must know: that the device rows are simulated, and by which model."""
        target = load_target()
        return {
            "emulated": True,
            "producer_version": _version(),
            "model_version": _model_version(),
            "target": target.name,
            "target_hash": target.hash,
            "instance_id": instance_id(),
            "session_id": self._number,
            "lnc": logical_core_size(),
            "modes": [mode.value for mode in settings.modes],
            **_device_costs(settings, target),
        }

    def _warn(self) -> None:
        if self.unfinished_executions:
            warnings.warn(
                f"{self.unfinished_executions} executions had not finished on the device when recording stopped; they "
                "are not in the profile. Call torch.neuron.synchronize() inside the profiled loop, before prof.step().",
                stacklevel=2,
            )
        if dropped := sum(self.dropped_events.values()):
            by_core = ", ".join(f"NeuronCore {core}: {n}" for core, n in self.dropped_events.items() if n)
            warnings.warn(
                f"{dropped} of the oldest device events were dropped because a buffer was full ({by_core}). "
                "Raise max_events_per_nc or record fewer steps.",
                stacklevel=2,
            )


def _device_costs(settings: Settings, target: Target) -> dict[str, Any]:
    """The target file's fixed costs as this capture used them, and the status of each."""
    launch_cost = "profiled" if ProfileMode.DEVICE in settings.modes else "plain"
    costs = {
        "launch_cost": f"launch_cost_{launch_cost}_ns",
        "launch_latency": "launch_latency_ns",
        "execution_gap": "execution_gap_ns",
    }
    return {
        "device_cost_ns": {name: getattr(target, key) for name, key in costs.items()},
        "device_cost_status": {name: target.provenance[key].status for name, key in costs.items()},
    }


def physical_cores(core: int) -> list[int]:
    """Numbers of the physical cores behind this process's logical NeuronCore `core`."""
    lnc = logical_core_size()
    visible = os.environ.get("NEURON_RT_VISIBLE_CORES")
    cores = parse_core_list(visible) if visible else ()
    logical = cores[core] if core < len(cores) else core
    return [logical * lnc + number for number in range(lnc)]


def _create_directory(output: Path) -> Path:
    parent = output / f"{instance_id()}_pid_{os.getpid()}"
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        now = time.time_ns()
        stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(now // 10**9))
        directory = parent / f"{stamp}_{now % 10**9 // 1000:06d}"
        try:
            directory.mkdir()
        except FileExistsError:
            continue  # another capture took this microsecond
        return directory


def _library_folders() -> list[str]:
    modules = ("torch", "torch_neuronx", "neuroncore", "nki")
    files = [getattr(sys.modules.get(name), "__file__", None) for name in modules]
    return [str(Path(file).parent) + "/" for file in files if file]


def _cached_neff(folder: str | None, hash_: str) -> bytes | None:
    if folder is None:
        return None
    for path in sorted(Path(folder).rglob("*.neff")):
        try:
            found = neff.read(path)
        except (FormatError, OSError):
            continue  # the cache may hold other producers' files
        if found.hash == hash_:
            return path.read_bytes()
    return None


def _version() -> str:
    try:
        return metadata.version("neuronscope-emulator")
    except metadata.PackageNotFoundError:
        return "unknown"


def _model_version() -> str:
    return _version()


def conflicting_environment() -> str | None:
    """The environment variable that asks for a capture of its own beside this one, if set."""
    return "NEURON_RT_INSPECT_ENABLE" if os.environ.get("NEURON_RT_INSPECT_ENABLE", "0") not in ("", "0") else None


def device_is_profiled(activities: Any) -> bool:
    """Whether a torch profiler records the neuron device."""
    return torch.profiler.ProfilerActivity.PrivateUse1 in activities
