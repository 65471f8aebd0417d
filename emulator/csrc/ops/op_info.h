// What the runtime knows about one operator, worked out once from its schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace neuron {

enum class OpKind : uint8_t {
  kDevice,    // runs on the NeuronCore: one execution
  kFallback,  // the real device runs it on the host: copies, never a NEFF
  kView,      // metadata only
};

struct OpInfo {
  OpInfo(const c10::OperatorHandle& handle, OpKind op_kind);
  OpInfo(const OpInfo&) = delete;
  OpInfo& operator=(const OpInfo&) = delete;

  c10::OperatorHandle op;
  OpKind kind;
  std::string name;       // "aten::mul"
  std::string full_name;  // "aten::mul.Tensor"
  size_t arguments = 0;

  bool may_queue = false;      // returns only tensors whose metadata follow from the arguments' metadata
  bool awaited = false;        // the host can't go on without the result: its shape depends on the data
  bool mixed_devices = false;  // accepts CPU tensors that are no scalars (indices, optimizer steps)
  bool exact_scalars = false;  // floating scalars decide the program or the output's size
  bool hidden_random = false;  // draws from the default generator without taking one
  int16_t generator_argument = -1;
  std::vector<int16_t> returned_argument;  // per result: the argument that is returned after being written, or -1
  std::vector<bool> written;               // per argument
  // Computes the op on CPU tensors where torch has no CPU kernel for it; null: the CPU kernel.
  void (*body)(std::vector<c10::IValue>* stack) = nullptr;
  // Structured kernel that writes into given outputs; same arithmetic, no copy afterwards.
  std::optional<c10::OperatorHandle> out_variant;

  mutable std::atomic<bool> executed{false}, fell_back{false};
};

// All operators with a kernel of ours, for the tracking functions.
std::vector<std::unique_ptr<OpInfo>>& all_ops();
// Keeps the op; the reference is stable.
OpInfo& add_op(const c10::OperatorHandle& handle, OpKind kind);

// Runs the op's arithmetic on the CPU tensors on the stack, invisible to profilers, autograd and autocast.
void compute(const OpInfo& info, std::vector<c10::IValue>* stack);
void compute(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack);

}  // namespace neuron
