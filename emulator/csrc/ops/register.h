#pragma once

#include <string>
#include <vector>

namespace neuron {

// Gives every aten op a kernel on neuron: ops whose base name is in `device_ops` run on the device, the others on the
// host as the real device's CPU fallback does. Once, at load.
void register_ops(const std::vector<std::string>& device_ops);

std::vector<std::string> executed_ops();
std::vector<std::string> fallback_ops();
std::vector<std::string> device_op_names();
void clear_op_tracking();

}  // namespace neuron
