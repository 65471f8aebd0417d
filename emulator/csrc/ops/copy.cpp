// Copies: on the device (one execution), to it and from it, and scalars read by the host.
#include <ATen/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <torch/library.h>

#include <memory>
#include <utility>

#include "device/runtime.h"
#include "ops/alias.h"
#include "ops/boxed.h"
#include "ops/op_info.h"

namespace neuron {
namespace {

// Copies between CPU aliases: how values move in every direction.
void copy_values(at::Tensor& to, const at::Tensor& from) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  torch::jit::Stack stack{to, from, false};
  compute(op, &stack);
}

class CopyTask final : public Task {
 public:
  CopyTask(at::Tensor to, at::Tensor from) : to_(std::move(to)), from_(std::move(from)) {}
  void run() override { copy_values(to_, from_); }

 private:
  at::Tensor to_, from_;
};

StreamState& stream_of(Core& device) { return device.stream(current_stream(device.index)); }

void copy_to_device(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const int64_t begin_ns = HostClock::real_ns();
  Core& device = core(to.device().index());
  StreamState& stream = stream_of(device);
  CpuAliases aliases;
  at::Tensor target = aliases.to_cpu(to);
  const Slot slot = launch_copy(device, stream, LaunchKind::kCopyToDevice, static_cast<int64_t>(to.nbytes()), begin_ns);
  if (stream.queue.finished(stream.queue.pushed())) {
    if (!stream.queue.failed()) copy_values(target, from);
  } else {
    // The caller may change pageable memory as soon as this returns.
    stream.queue.push(std::make_unique<CopyTask>(std::move(target), from.detach().clone()));
  }
  if (!non_blocking) reach_simulated(device, begin_ns, slot.end_ns(), "nrt_tensor_write");
}

void copy_to_host(at::Tensor& to, const at::Tensor& from) {
  const int64_t begin_ns = HostClock::real_ns();
  Core& device = core(from.device().index());
  StreamState& stream = stream_of(device);
  drain(stream);
  const Slot slot = launch_copy(device, stream, LaunchKind::kCopyToHost, static_cast<int64_t>(from.nbytes()), begin_ns);
  reach_simulated(device, begin_ns, slot.end_ns(), "nrt_tensor_read");
  rethrow_error(stream);
  CpuAliases aliases;
  copy_values(to, aliases.to_cpu(from));
}

void copy_between_devices(const at::Tensor& to, const at::Tensor& from) {
  const int64_t begin_ns = HostClock::real_ns();
  Core& source = core(from.device().index());
  Core& target = core(to.device().index());
  for (Core* device : {&source, &target}) {
    drain(stream_of(*device));
    rethrow_error(stream_of(*device));
  }
  const auto bytes = static_cast<int64_t>(from.nbytes());
  const Slot read = launch_copy(source, stream_of(source), LaunchKind::kCopyToHost, bytes, begin_ns);
  reach_simulated(source, begin_ns, read.end_ns(), "nrt_tensor_read");
  launch_copy(target, stream_of(target), LaunchKind::kCopyToDevice, bytes, begin_ns);
  CpuAliases aliases;
  at::Tensor destination = aliases.to_cpu(to);
  CpuAliases source_aliases;
  copy_values(destination, source_aliases.to_cpu(from));
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  if (self.is_same(from)) return self;
  if (self.is_privateuseone() && from.is_privateuseone()) {
    if (self.device() != from.device()) {
      copy_between_devices(self, from.expand(self.sizes()));
      return self;
    }
    static const OpInfo& info =
        add_op(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""), OpKind::kDevice);
    torch::jit::Stack stack{self, from, non_blocking};
    run_op(info, &stack);
  } else if (self.is_privateuseone()) {
    copy_to_device(self, from, non_blocking);
  } else {
    copy_to_host(self, from);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  at::Tensor target = to;
  return copy_(target, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

void check_memory_format(const char* op, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!format || *format == at::MemoryFormat::Contiguous || *format == at::MemoryFormat::Preserve, op,
              ": Neuron tensors only support contiguous or preserve memory format");
}

// Torch's own two, after a check: the device rearranges no tensor into another format.
at::Tensor clone(const at::Tensor& self, std::optional<at::MemoryFormat> format) {
  check_memory_format("aten::clone", format);
  return at::native::clone(self, format);
}

at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                   std::optional<at::Device> device, std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<at::MemoryFormat> format) {
  if (self.is_privateuseone() && (!device || device->is_privateuseone())) check_memory_format("aten::_to_copy", format);
  return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const int64_t begin_ns = HostClock::real_ns();
  Core& device = core(self.device().index());
  StreamState& stream = stream_of(device);
  drain(stream);
  const Slot slot =
      launch_copy(device, stream, LaunchKind::kCopyToHost, static_cast<int64_t>(self.itemsize()), begin_ns);
  reach_simulated(device, begin_ns, slot.end_ns(), "nrt_tensor_read");
  rethrow_error(stream);
  CpuAliases aliases;
  return at::native::_local_scalar_dense_cpu(aliases.to_cpu(self));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("clone", &clone);
  m.impl("_to_copy", &to_copy);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

}  // namespace
}  // namespace neuron
