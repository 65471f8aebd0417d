// Python access to the profiler plug-in; torch_neuronx.profiling is its only caller.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron::profiler {

// Adds the submodule `profiler` to `module`.
void bind_profiler(pybind11::module_& module);

}  // namespace neuron::profiler
