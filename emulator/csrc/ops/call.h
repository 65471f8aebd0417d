// One call of an op: what identifies it, which device it runs on, and its arguments as CPU tensors.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include "ops/alias.h"
#include "ops/op_info.h"
#include "runtime/executable_cache.h"

namespace neuron {

class Call {
 public:
  // Reads the arguments on top of the stack. Raises when tensors live on different devices.
  Call(const OpInfo& info, const torch::jit::Stack& stack);

  c10::DeviceIndex device() const { return device_; }
  const Signature& signature() const { return signature_; }
  // Has CPU tensors that are no scalars; they may change before a queued op would read them.
  bool has_host_tensors() const { return has_host_tensors_; }
  // Bytes of single numbers in host tensors (a Python number among tensors): the runtime copies them in.
  int64_t host_scalar_bytes() const { return host_scalar_bytes_; }
  int64_t bytes_in() const { return bytes_in_; }  // neuron tensors that are read

  // The arguments for the CPU kernel. `queued`: they must not change although the caller goes on.
  torch::jit::Stack cpu_arguments(const torch::jit::Stack& stack, CpuAliases& aliases, bool queued) const;

 private:
  void add(const c10::IValue& value, bool is_written);
  void add_tensor(const at::Tensor& tensor, bool is_written);

  const OpInfo& info_;
  Signature& signature_;
  c10::DeviceIndex device_ = -1;
  bool has_host_tensors_ = false;
  bool exact_ = false;
  int64_t bytes_in_ = 0, host_scalar_bytes_ = 0;
  c10::SmallVector<const void*, 8> seen_;
};

}  // namespace neuron
