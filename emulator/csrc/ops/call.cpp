#include "ops/call.h"

#include <ATen/Tensor.h>
#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <ATen/ops/clone.h>

#include <cstring>
#include <functional>
#include <string_view>

#include "device/generator.h"
#include "device/runtime.h"

namespace neuron {
namespace {

enum Tag : uint64_t {
  kNone = 1,
  kInt,
  kDouble,
  kBool,
  kComplex,
  kString,
  kDevice,
  kGenerator,
  kList,
  kTensor,
  kNoTensor,
  kGraph
};

// One per thread, so that the hit path allocates nothing.
Signature& thread_signature() {
  thread_local Signature signature;
  return signature;
}

uint64_t bits(double value) {
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

[[noreturn]] void raise_devices(const OpInfo& info, c10::Device first, c10::Device second) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", first, " and ",
              second, "! (when checking arguments of ", info.full_name, ")");
}

c10::IValue to_cpu(const c10::IValue& value, CpuAliases& aliases, bool queued);

at::Tensor tensor_to_cpu(const at::Tensor& tensor, CpuAliases& aliases, bool queued) {
  if (!tensor.defined() || tensor.is_privateuseone()) return aliases.to_cpu(tensor);
  const bool may_change = queued && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
  return may_change ? tensor.detach().clone() : tensor;
}

c10::IValue to_cpu(const c10::IValue& value, CpuAliases& aliases, bool queued) {
  if (value.isTensor()) return tensor_to_cpu(value.toTensor(), aliases, queued);
  if (value.isDevice()) {
    return value.toDevice().is_privateuseone() ? c10::IValue(c10::Device(at::kCPU)) : value;
  }
  if (!value.isList()) return value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    list.reserve(value.toListRef().size());
    for (const c10::IValue& item : value.toListRef()) list.push_back(tensor_to_cpu(item.toTensor(), aliases, queued));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& item : value.toListRef()) {
      list.push_back(item.isNone() ? std::optional<at::Tensor>()
                                   : std::optional<at::Tensor>(tensor_to_cpu(item.toTensor(), aliases, queued)));
    }
    return list;
  }
  return value;
}

}  // namespace

Call::Call(const OpInfo& info, const torch::jit::Stack& stack) : info_(info), signature_(thread_signature()) {
  signature_.clear();
  signature_.add(reinterpret_cast<uint64_t>(&info));
  exact_ = info.exact_scalars || options().exact_scalars;
  const size_t first = stack.size() - info.arguments;
  for (size_t i = 0; i < info.arguments; ++i) add(stack[first + i], info.written[i]);
  if (device_ < 0) device_ = current_device();
  signature_.add(static_cast<uint64_t>(device_));
  if (in_graph_body()) signature_.add(kGraph);  // entries without a program of their own
  signature_.finish();
}

void Call::add(const c10::IValue& value, bool is_written) {
  if (value.isTensor()) {
    add_tensor(value.toTensor(), is_written);
  } else if (value.isNone()) {
    signature_.add(kNone);
  } else if (value.isInt()) {
    signature_.add(kInt);
    signature_.add(static_cast<uint64_t>(value.toInt()));
  } else if (value.isDouble()) {
    // The program takes a floating scalar as an input: learning rates change every step and must not recompile.
    signature_.add(kDouble);
    if (exact_) signature_.add(bits(value.toDouble()));
  } else if (value.isBool()) {
    signature_.add(kBool | (static_cast<uint64_t>(value.toBool()) << 8));
  } else if (value.isList()) {
    const auto items = value.toListRef();
    signature_.add(kList | (items.size() << 8));
    for (const c10::IValue& item : items) add(item, is_written);
  } else if (value.isDevice()) {
    const c10::Device device = value.toDevice();
    if (device.is_privateuseone() && device_ < 0) device_ = device.has_index() ? device.index() : current_device();
    signature_.add(kDevice | (static_cast<uint64_t>(device.type()) << 8));
  } else if (value.isGenerator()) {
    signature_.add(kGenerator);
  } else if (value.isString()) {
    signature_.add(kString);
    signature_.add(std::hash<std::string_view>{}(value.toStringView()));
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    signature_.add(kComplex);
    signature_.add(bits(number.real()));
    signature_.add(bits(number.imag()));
  } else if (value.isSymInt()) {
    signature_.add(kInt);
    signature_.add(static_cast<uint64_t>(value.toSymInt().guard_int(__FILE__, __LINE__)));
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, info_.full_name, ": neuron cannot take an argument of type ", value.tagKind());
  }
}

void Call::add_tensor(const at::Tensor& tensor, bool is_written) {
  if (!tensor.defined()) {
    signature_.add(kNoTensor);
    return;
  }
  const auto* impl = tensor.unsafeGetTensorImpl();
  const bool neuron = tensor.is_privateuseone();
  if (neuron) {
    const c10::DeviceIndex index = tensor.device().index();
    if (device_ < 0) {
      device_ = index;
    } else if (device_ != index) {
      raise_devices(info_, c10::Device(at::kPrivateUse1, device_), tensor.device());
    }
    if (!is_written) bytes_in_ += static_cast<int64_t>(tensor.numel()) * static_cast<int64_t>(tensor.itemsize());
  } else if (tensor.dim() > 0) {
    if (!info_.mixed_devices && !tensor.is_meta()) {
      raise_devices(info_, c10::Device(at::kPrivateUse1, device_ < 0 ? current_device() : device_), tensor.device());
    }
    has_host_tensors_ = true;
  } else {
    host_scalar_bytes_ += static_cast<int64_t>(tensor.itemsize());
  }
  const bool wrapped = impl->is_wrapped_number();
  signature_.add(kTensor | (static_cast<uint64_t>(tensor.scalar_type()) << 8) | (static_cast<uint64_t>(neuron) << 16) |
                 (static_cast<uint64_t>(wrapped) << 17) | (static_cast<uint64_t>(tensor.is_conj()) << 18) |
                 (static_cast<uint64_t>(tensor.is_neg()) << 19) | (static_cast<uint64_t>(tensor.dim()) << 24));
  for (int64_t size : tensor.sizes()) signature_.add(static_cast<uint64_t>(size));
  for (int64_t stride : tensor.strides()) signature_.add(static_cast<uint64_t>(stride));
  if (wrapped && exact_) signature_.add(bits(tensor.item().toDouble()));
  // x * x reads one operand, x * y two: same sizes, another program.
  if (neuron && seen_.size() < 8) {
    for (size_t i = 0; i < seen_.size(); ++i) {
      if (seen_[i] == impl) {
        signature_.add(0x100000000ULL + i);
        break;
      }
    }
    seen_.push_back(impl);
  }
}

torch::jit::Stack Call::cpu_arguments(const torch::jit::Stack& stack, CpuAliases& aliases, bool queued) const {
  torch::jit::Stack arguments;
  arguments.reserve(info_.arguments + info_.returned_argument.size());
  const size_t first = stack.size() - info_.arguments;
  for (size_t i = 0; i < info_.arguments; ++i) {
    const c10::IValue& value = stack[first + i];
    if (static_cast<int16_t>(i) == info_.generator_argument) {
      arguments.emplace_back(generator_for_op(value.isNone() ? at::Generator() : value.toGenerator(), device_));
    } else {
      arguments.push_back(to_cpu(value, aliases, queued));
    }
  }
  return arguments;
}

}  // namespace neuron
