// The kernel behind every op: looks up the call, queues or runs its arithmetic, and launches one execution.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

#include "ops/op_info.h"
#include "runtime/recorder.h"

namespace neuron {

// Compiles an op that the cache doesn't know: the op, its arguments (as on the stack), its results. Takes the Python
// lock.
using MissHandler = std::function<const Executable*(const OpInfo& info, const torch::jit::Stack& arguments,
                                                    const std::vector<at::Tensor>& results)>;
void set_miss_handler(MissHandler handler);

class DeviceOp final : public c10::OperatorKernel {
 public:
  explicit DeviceOp(const OpInfo& info) : info_(info) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  const OpInfo& info_;
};

// As DeviceOp, for kernels of ours that end in an op.
void run_op(const OpInfo& info, torch::jit::Stack* stack);

}  // namespace neuron
