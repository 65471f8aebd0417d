"""What to capture: `ProfileMode` and `NeuronConfig`, the `experimental_config` of `torch.profiler.profile`."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import torch

#: Events kept per logical NeuronCore unless told otherwise; the default of the vendor's runtime.
DEFAULT_MAX_EVENTS_PER_NC = 1_000_000
#: Where profiles go unless told otherwise; the default of the vendor's runtime.
DEFAULT_OUTPUT_DIR = "./output"


class ProfileMode(Enum):
    """A stream of data to capture; its value is the name it has in the session's files."""

    DEVICE = "DEVICE"  # instruction timelines: *.neff and *.ntff. Raises the launch cost of every execution.
    RUNTIME = "RUNTIME"  # runtime and execution events: ntrace.pb and trace_info.pb
    CPU_UTIL = "CPU_UTIL"  # cpu_util.pb
    HOST_MEMORY = "HOST_MEMORY"  # host_mem.pb


@dataclass(frozen=True)
class Settings:
    """The decoded content of a config; all values are checked.

    `cores` are logical NeuronCore numbers, empty for all of them.
    """

    modes: tuple[ProfileMode, ...] = (ProfileMode.DEVICE, ProfileMode.RUNTIME)
    max_events_per_nc: int = DEFAULT_MAX_EVENTS_PER_NC
    cores: tuple[int, ...] = ()
    profile_output_dir: str = DEFAULT_OUTPUT_DIR
    neff_cache_dir: str | None = None
    correlate_device_time: bool = False


class NeuronConfig(torch._C._profiler._ExperimentalConfig):
    """Options of a capture, given to `torch.profiler.profile(experimental_config=…)`.

    Args:
        modes: streams to capture; None is `[ProfileMode.DEVICE, ProfileMode.RUNTIME]`. Members or their names.
        max_events_per_nc: executions and copies kept per logical NeuronCore. Beyond it the oldest are dropped and
            counted.
        capture_enabled_for_nc: logical NeuronCores to record, such as "0" or "0,2-5"; None for all. Work on other cores
            leaves no rows and no device time.
        profile_output_dir: the session directory `<instance>_pid_<pid>/<timestamp>/` is created below it.
        neff_cache_dir: folder that is searched for NEFF files of executables this process no longer holds.
        precache_node_info: accepted for scripts that set it; the emulator knows its node at once, so False has no
            effect (a warning says so).
        correlate_device_time: True carries each execution's device time to the op that launched it, so that
            `key_averages()` has filled NEURON columns. The default is False: scripts written for the device pass True
            explicitly, so with False a script prints here what it prints there, empty device columns. trace.json has
            the device interaction rows (`privateuse1_driver`) either way, the executions' `kernel` rows only with True.
        **torch_options: further options of torch's own `_ExperimentalConfig`, such as `trace_only`.

    Raises:
        ValueError: an unknown mode, a bad core list or one beyond this process's devices, a negative event limit.
        OSError: `profile_output_dir` can't be written.
        TypeError: an argument of the wrong type.
    """

    def __init__(
        self,
        modes: Iterable[ProfileMode | str] | None = None,
        max_events_per_nc: int | None = None,
        capture_enabled_for_nc: str | None = None,
        profile_output_dir: str | os.PathLike[str] | None = None,
        neff_cache_dir: str | os.PathLike[str] | None = None,
        precache_node_info: bool = True,
        correlate_device_time: bool = False,
        **torch_options: Any,
    ) -> None:
        if "custom_profiler_config" in torch_options:
            raise TypeError("NeuronConfig packs custom_profiler_config itself; pass its settings as arguments")
        chosen = Settings.modes if modes is None else _modes(modes)
        events = DEFAULT_MAX_EVENTS_PER_NC if max_events_per_nc is None else _max_events(max_events_per_nc)
        cores = _cores(capture_enabled_for_nc)
        output = os.fspath(DEFAULT_OUTPUT_DIR if profile_output_dir is None else profile_output_dir)
        if not isinstance(correlate_device_time, bool | int):
            raise TypeError(f"correlate_device_time must be True or False, got {correlate_device_time!r}")
        _check_writable(output)
        if not precache_node_info:
            warnings.warn("NeuronConfig: precache_node_info=False has no effect in the emulator", stacklevel=2)
        packed = {
            "modes": ",".join(mode.value for mode in chosen),
            "max_events_per_nc": str(events),
            "capture_enabled_for_nc": ",".join(map(str, cores)),
            "profile_output_dir": output,
            "neff_cache_dir": "" if neff_cache_dir is None else os.fspath(neff_cache_dir),
            "correlate_device_time": str(int(bool(correlate_device_time))),
        }
        try:
            super().__init__(custom_profiler_config=_pack(packed), **torch_options)
        except TypeError:
            raise TypeError(
                f"NeuronConfig got {', '.join(torch_options)}, which neither it nor torch's _ExperimentalConfig takes; "
                f"its own arguments: {', '.join(packed)}, precache_node_info"
            ) from None

    @property
    def settings(self) -> Settings:
        """The checked values. Read back from the packed string, so that copies made by torch keep them."""
        return parse(self.custom_profiler_config)

    @property
    def modes(self) -> list[ProfileMode]:
        """Streams to capture."""
        return list(self.settings.modes)

    @property
    def max_events_per_nc(self) -> int:
        """Executions and copies kept per logical NeuronCore."""
        return self.settings.max_events_per_nc

    @property
    def capture_enabled_for_nc(self) -> str | None:
        """Logical NeuronCores to record, "0,2,3"; None for all."""
        return ",".join(map(str, self.settings.cores)) or None

    @property
    def profile_output_dir(self) -> str:
        """Folder below which session directories are created."""
        return self.settings.profile_output_dir

    @property
    def neff_cache_dir(self) -> str | None:
        """Folder searched for NEFF files this process no longer holds."""
        return self.settings.neff_cache_dir

    @property
    def correlate_device_time(self) -> bool:
        """Whether device time is carried to ops."""
        return self.settings.correlate_device_time

    def __repr__(self) -> str:
        s = self.settings
        return (
            f"NeuronConfig(modes={[m.value for m in s.modes]}, max_events_per_nc={s.max_events_per_nc}, "
            f"capture_enabled_for_nc={self.capture_enabled_for_nc!r}, profile_output_dir={s.profile_output_dir!r}, "
            f"neff_cache_dir={s.neff_cache_dir!r}, correlate_device_time={s.correlate_device_time})"
        )


def settings_of(config: Any) -> Settings | None:
    """The capture settings in an `_ExperimentalConfig`: a NeuronConfig's, or those of the older "key:value;…" string.

    Returns None when it asks for no capture to files.
    """
    text = getattr(config, "custom_profiler_config", "") or ""
    if isinstance(config, NeuronConfig) or text:
        return parse(text)
    return None


# "=" ends a key and "#" a line for Kineto's own parser, ":" and ";" for ours; everything unusual is percent-encoded.
_MARK = "encoding:percent"


def _pack(values: Mapping[str, str]) -> str:
    return ";".join([_MARK, *(f"{key}:{quote(value, safe='/,._-')}" for key, value in values.items())])


def check_packed(text: str) -> None:
    """Refuse a config string that would end the process inside Kineto's parser.

    Raises:
        ValueError: it holds "=" or a line break.
    """
    if bad := re.search(r"[=\r\n]", text):
        raise ValueError(
            f"custom_profiler_config holds {bad.group()!r} at position {bad.start()}, which Kineto can't parse. "
            "Use torch_neuronx.profiling.NeuronConfig, which encodes its values."
        )


def parse(text: str) -> Settings:
    """Decode a packed config, or the older plain form, whose unreadable or unknown items are skipped with a warning."""
    percent = text.startswith(_MARK)
    values: dict[str, Any] = {}
    for item in text.split(";"):
        if not item or item == _MARK:
            continue
        key, colon, value = item.partition(":")
        if not colon or ":" in value:
            warnings.warn(f"profiler config item {item!r} ignored: expected one key:value pair", stacklevel=3)
            continue
        value = unquote(value) if percent else value
        try:
            values.update(_decode(key.strip(), value))
        except (KeyError, ValueError) as error:
            reason = "unknown key" if isinstance(error, KeyError) else error
            warnings.warn(f"profiler config item {item!r} ignored: {reason}", stacklevel=3)
    if values.pop("host_memory", False):
        values["modes"] = (*values.get("modes", Settings.modes), ProfileMode.HOST_MEMORY)
    if not percent:
        # The older form knew no such choice; torch's usual behaviour is to show device time.
        values.setdefault("correlate_device_time", True)
    return Settings(**values)


def _decode(key: str, value: str) -> dict[str, Any]:
    match key:
        case "modes":
            return {"modes": _modes(value.split(","))}
        case "max_events_per_nc":
            return {key: _max_events(int(value))}
        case "capture_enabled_for_nc":
            return {"cores": _cores(value or None)}
        case "profile_output_dir":
            return {key: value}
        case "neff_cache_dir":
            return {key: value or None}
        case "correlate_device_time" | "host_memory":
            return {key: value.lower() in ("1", "true", "yes", "on")}
    raise KeyError(key)


def _modes(modes: Iterable[ProfileMode | str]) -> tuple[ProfileMode, ...]:
    known = ", ".join(ProfileMode.__members__)
    if isinstance(modes, (str, ProfileMode)) or not isinstance(modes, Iterable):
        raise TypeError(f"modes must be a list of ProfileMode, got {modes!r}; for example [ProfileMode.RUNTIME]")
    chosen: list[ProfileMode] = []
    for given in modes:
        mode = ProfileMode.__members__.get(given.upper()) if isinstance(given, str) else given
        if not isinstance(mode, ProfileMode):
            raise ValueError(f"unknown profile mode {given!r}; known modes: {known}")  # noqa: TRY004 - a wrong value too
        if mode not in chosen:
            chosen.append(mode)
    if not chosen:
        raise ValueError(f"modes is empty; name at least one of {known}")
    return tuple(chosen)


def _max_events(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"max_events_per_nc must be an int, got {value!r}")
    if value < 0:
        raise ValueError(f"max_events_per_nc must not be negative, got {value}")
    return value


def parse_core_list(text: str) -> tuple[int, ...]:
    """Parse "0,2-5" into core numbers, sorted, each once.

    Raises:
        ValueError: an item is neither a number nor a rising range.
    """
    cores: set[int] = set()
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", item)
        if match is None:
            raise ValueError(f"bad core list {text!r}: {item!r} is neither a core number nor a range such as 2-5")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise ValueError(f"bad core list {text!r}: range {item.strip()!r} runs backwards")
        if last >= 128:  # torch's device index is an int8
            raise ValueError(f"bad core list {text!r}: core {last} does not exist, the last possible one is 127")
        cores.update(range(first, last + 1))
    return tuple(sorted(cores))


def _cores(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    if isinstance(text, bool) or not isinstance(text, (str, int)):
        raise TypeError(f'capture_enabled_for_nc must be a string such as "0,2-5", got {text!r}')
    cores = parse_core_list(str(text))
    count = torch.neuron.device_count() if hasattr(torch, "neuron") else 0
    if count and cores[-1] >= count:
        raise ValueError(
            f"capture_enabled_for_nc={text!r} names NeuronCore {cores[-1]}, but this process has {count} "
            f"(0 to {count - 1}); see NEURON_RT_NUM_CORES and NEURON_RT_VISIBLE_CORES"
        )
    return cores


def _check_writable(folder: str) -> None:
    """Find out early, without creating anything, that a profile could not be written."""
    if not folder or "\0" in folder:
        raise ValueError(f"profile_output_dir {folder!r} is no path; '.' is the working folder")
    existing = Path(folder).absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise NotADirectoryError(f"profile_output_dir {folder!r} can't be created: {existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"profile_output_dir {folder!r} can't be written: no permission to write in {existing}")
