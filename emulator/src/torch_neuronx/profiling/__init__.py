"""Profiling of the neuron device with `torch.profiler`. Start at `NeuronConfig`.

A capture goes: `_torch_hooks` (torch starts its profiler) -> `_session` (directory, samplers) -> the Kineto plug-in in
`csrc/profiler` (records) -> `_files` (columns) -> `neuronscope.formats` (files).
"""

from __future__ import annotations

from torch_neuronx.profiling._torch_hooks import install
from torch_neuronx.profiling.config import NeuronConfig, ProfileMode
from torch_neuronx.profiling.errors import NRTProfilerError

__all__ = ["NRTProfilerError", "NeuronConfig", "NeuronProfiler", "ProfileMode", "install"]


def __getattr__(name: str) -> object:
    # NeuronProfiler needs pyarrow and numpy; importing torch must not.
    if name == "NeuronProfiler":
        from torch_neuronx.profiling.profiler import NeuronProfiler

        return NeuronProfiler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
