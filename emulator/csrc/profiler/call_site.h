// Which line of the user's program launched an execution, and inside which nn.Module.
#pragma once

#include <string>
#include <vector>

#include "runtime/recorder.h"

namespace neuron::profiler {

// Finds the call site of the current thread. In a backward pass, where no Python frame exists, it is that of the
// forward op whose gradient is being computed.
CallSite current_call_site();

// Files below these folders are not the user's: torch, torch_neuronx, neuroncore. Each ends with a slash.
void set_library_folders(std::vector<std::string> folders);

// Sources below this folder are shown relative to it. Ends with a slash, or is empty.
void set_working_folder(std::string folder);

// The stack of modules whose forward runs on this thread; pushed and popped by nn.Module hooks while recording.
void push_module(int32_t module_id);
void pop_module();

// Forgets which forward op had which autograd sequence number.
void clear_forward_sites();

}  // namespace neuron::profiler
