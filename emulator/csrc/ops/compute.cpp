// The arithmetic behind an op: torch's own CPU kernels, shielded from the state of the thread that issued it.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <mutex>

#include "device/generator.h"
#include "device/runtime.h"
#include "device/thread_state.h"
#include "ops/op_info.h"

namespace neuron {
namespace {

const c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

// The memory a CPU kernel allocates becomes device memory; reported as such when adopted, not as CPU memory before.
class NoMemoryReports {
 public:
  NoMemoryReports() {
    if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) == nullptr) return;
    saved_ = c10::ThreadLocalDebugInfo::current();
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
  }
  ~NoMemoryReports() {
    if (saved_) c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(std::move(saved_));
  }

 private:
  std::shared_ptr<c10::ThreadLocalDebugInfo> saved_;
};

// Ops that draw from the CPU's default generator get the device's numbers, and the CPU's sequence stays where it was.
class DeviceNumbers {
 public:
  explicit DeviceNumbers(bool active) : generator_(at::detail::getDefaultCPUGenerator()), active_(active) {
    if (!active_) return;
    auto own = generator_for_op(at::Generator(), current_device());
    std::lock_guard<std::mutex> lock(generator_.mutex());
    saved_ = generator_.get_state();
    generator_.set_current_seed(own.current_seed());
  }
  ~DeviceNumbers() {
    if (!active_) return;
    std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(saved_);
  }

 private:
  at::Generator generator_;
  bool active_;
  at::Tensor saved_;
};

}  // namespace

void with_worker_thread_state(const std::function<void()>& loop) {
  at::init_num_threads();
  loop();
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::RecordFunctionGuard no_rows(false);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  NoMemoryReports no_reports;
  op.redispatchBoxed(kCpu, stack);
}

void compute(const OpInfo& info, torch::jit::Stack* stack) {
  DeviceNumbers numbers(info.hidden_random);
  if (info.body == nullptr) return compute(info.op, stack);
  at::RecordFunctionGuard no_rows(false);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  NoMemoryReports no_reports;
  info.body(stack);
}

}  // namespace neuron
