// Ops that the device runs as one execution although torch has no CPU kernel for them.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace neuron {

using Body = void (*)(std::vector<c10::IValue>* stack);

// Full name -> arithmetic on CPU tensors; null: torch's composite implementation is the arithmetic.
const std::unordered_map<std::string, Body>& composite_bodies();

}  // namespace neuron
