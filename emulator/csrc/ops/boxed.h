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

// Computes an op's values by its program instead of its CPU kernel: called before the kernel runs, with the op and its
// arguments (as on the stack); what it gives is called after it, with the executable and the results, and overwrites
// them. Takes the Python lock.
using ProgramResult = std::function<void(const Executable& executable, const std::vector<at::Tensor>& results)>;
using ProgramRunner = std::function<ProgramResult(const OpInfo& info, const torch::jit::Stack& arguments)>;
void set_program_runner(ProgramRunner runner);

class DeviceOp final : public c10::OperatorKernel {
 public:
  explicit DeviceOp(const OpInfo& info) : info_(info) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  const OpInfo& info_;
};

// As DeviceOp, for kernels of ours that end in an op.
// For benchmarks: every device op looks its program up `repeats` more times (0: none); what one took on average, in ns.
void set_lookup_repeats(int64_t repeats);
double lookup_ns();

void run_op(const OpInfo& info, torch::jit::Stack* stack);

}  // namespace neuron
