"""What the runtime asks once: how many devices there are, what a launch costs, which ops run on the device."""

from __future__ import annotations

import atexit
import os
from functools import cache
from pathlib import Path
from typing import Any

MAX_DEVICES = 128

#: Defaults that the real package sets on import, where the user left them unset.
ENVIRONMENT_DEFAULTS = {
    "NEURON_LAUNCH_BLOCKING": "0",
    "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS": "1",
    "TORCH_NEURONX_MLIR_ATEN_OPS": "1",
    "TORCH_NEURONX_RETAIN_DEVICE_MODE": "0",
    "TORCH_NEURONX_ENABLE_ASYNC_NRT": "1",
    "TORCH_NEURONX_ENABLE_STACK_TRACE": "0",
    "NEURON_RT_ALLOW_LEGACY_NEFF": "1",
    "NEURON_RT_DBG_ZEROCOPY": "1",
}


def apply_environment() -> None:
    """Sets the defaults above and tells the runtime about those that concern it."""
    from torch_neuronx import _C

    for name, value in ENVIRONMENT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    _C.set_launch_blocking(flag("NEURON_LAUNCH_BLOCKING"))
    if os.environ.get("NEURONSCOPE_EXECUTE", "") not in {"", "kernel"}:
        _C.set_exact_scalars(True)
        _C.register_program_runner(_around_call)
    # Queued arithmetic and backward passes must not run while the interpreter is taken down.
    atexit.register(_C.drain)
    atexit.register(_finish_backward)


def by_program() -> bool:
    """Whether NEURONSCOPE_EXECUTE asks that programs, executed on the machine, compute the values.

    Raises:
        ValueError: it asks for something else.
    """
    mode = os.environ.get("NEURONSCOPE_EXECUTE", "")
    if mode not in {"", "kernel", "program"}:
        raise ValueError(
            f"NEURONSCOPE_EXECUTE={mode!r}: write program (the machine executes every program), "
            "or kernel (torch's CPU kernels compute, the default)"
        )
    return mode == "program"


def _around_call(overload: str, args: list[Any]) -> Any:
    by_program()  # refuses a variable that was mistyped
    from torch_neuronx._by_program import around_call  # late: importing torch must load neither machine nor Arrow

    return around_call(overload, args)


def _finish_backward() -> None:
    """Waits until autograd's device threads have let go of the last backward pass.

    A thread frees the pass after `backward()` returned, and that may need the interpreter; if the interpreter is being
    taken down by then, the process aborts.
    """
    from torch_neuronx import _C

    if _C.is_in_bad_fork() or not _C.is_initialized() or not _has_autograd_threads():
        return
    for index in range(_C.device_count()):
        if _C.simulated_end_ns(index):  # used
            _C.finish_backward(index)


def _has_autograd_threads() -> bool:
    for name in Path("/proc/self/task").glob("*/comm"):
        try:
            if name.read_text().startswith("pt_autograd"):
                return True
        except OSError:
            continue  # the thread has ended
    return False


def flag(name: str) -> bool:
    """Whether an environment variable is switched on."""
    return os.environ.get(name, "").strip().lower() not in {"", "0", "false", "no", "off"}


@cache
def registered_ops() -> list[str]:
    """Base names of the ATen ops that run on the device; the others fall back to the CPU, as on the real one."""
    return (Path(__file__).parent / "registered_ops.txt").read_text().split()


def logical_core_size() -> int:
    """Physical cores of one logical NeuronCore.

    Raises:
        ValueError: NEURON_LOGICAL_NC_CONFIG is neither 1 nor 2.
    """
    for name in ("NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE"):
        if text := os.environ.get(name):
            if text not in {"1", "2"}:
                raise ValueError(f"{name}={text!r}: a logical NeuronCore has 1 or 2 physical ones")
            return int(text)
    from neuroncore.targets import load_target

    return load_target().physical_cores_per_logical_core


def device_count() -> int:
    """Devices of this process: NEURON_RT_NUM_CORES, NEURON_RT_VISIBLE_CORES, or the logical cores of one chip.

    Raises:
        ValueError: a malformed variable, or more devices than torch can number.
    """
    if text := os.environ.get("NEURON_RT_NUM_CORES"):
        count = _number("NEURON_RT_NUM_CORES", text)
    elif text := os.environ.get("NEURON_RT_VISIBLE_CORES"):
        count = len(parse_cores("NEURON_RT_VISIBLE_CORES", text))
    else:
        from neuroncore.targets import load_target

        count = load_target().physical_cores_per_chip // logical_core_size()
    if count > MAX_DEVICES:
        raise ValueError(
            f"{count} NeuronCores are visible, a process can use {MAX_DEVICES}; "
            "set NEURON_RT_NUM_CORES or NEURON_RT_VISIBLE_CORES"
        )
    return count


def initialize() -> None:
    """Reads the target file and tells the runtime what launches, gaps and copies cost."""
    from neuroncore.targets import load_target

    from torch_neuronx import _C

    target = load_target()
    _C.configure_device(
        launch_cost_plain_ns=target.launch_cost_plain_ns,
        launch_cost_profiled_ns=target.launch_cost_profiled_ns,
        launch_latency_ns=target.launch_latency_ns,
        execution_gap_ns=target.execution_gap_ns,
        host_copy_latency_ns=target.host_copy_latency_ns,
        to_device_bytes_per_second=int(target.host_to_device_bytes_per_second),
        to_host_bytes_per_second=int(target.device_to_host_bytes_per_second),
        memory_bytes=memory_bytes(),
    )


def memory_bytes() -> int:
    """HBM of one logical NeuronCore."""
    from neuroncore.targets import load_target

    target = load_target()
    return target.hbm_bytes_per_chip * logical_core_size() // target.physical_cores_per_chip


def parse_cores(variable: str, text: str) -> list[int]:
    """Core numbers of "a-b,c".

    Raises:
        ValueError: not such a list.
    """
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = _number(variable, first)
        high = _number(variable, last) if dash else low
        if high < low:
            raise ValueError(f"{variable}={text!r}: the range {part.strip()} is empty; write it as low-high")
        cores.extend(range(low, high + 1))
    if len(set(cores)) < len(cores):
        twice = next(core for core in cores if cores.count(core) > 1)
        raise ValueError(f"{variable}={text!r} names core {twice} twice")
    return cores


def _number(variable: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{variable}: {text!r} is no core number; write for example 4, 0-3 or 0,2")
    return int(text)
