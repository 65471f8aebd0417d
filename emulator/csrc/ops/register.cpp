// Which op gets which kernel.
#include "ops/register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "ops/boxed.h"
#include "ops/composite.h"
#include "ops/op_info.h"

namespace neuron {
namespace {

constexpr auto kNeuronKey = c10::DispatchKey::PrivateUse1;

std::unordered_set<std::string>& device_names() {
  static auto* names = new std::unordered_set<std::string>;  // "aten::mul"
  return *names;
}

bool is_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

OpKind kind_of(const c10::FunctionSchema& schema) {
  if (is_view(schema)) return OpKind::kView;
  std::string base = schema.name();
  if (device_names().count(base) > 0) return OpKind::kDevice;
  // The in-place form of an op is the same program.
  if (base.size() > 1 && base.back() == '_' && base[base.size() - 2] != '_') base.pop_back();
  return device_names().count(base) > 0 ? OpKind::kDevice : OpKind::kFallback;
}

bool has_tensor_argument(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& argument) {
    return argument.type()->str().find("Tensor") != std::string::npos;
  });
}

// Torch implements these by other ops; on the device they are one execution of their own.
bool is_one_execution(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> kDecomposed = {"aten::_to_copy", "aten::copy_", "aten::mean"};
  const auto& schema = op.schema();
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
         kind_of(schema) == OpKind::kDevice && has_tensor_argument(schema) && kDecomposed.count(schema.name()) == 0;
}

torch::CppFunction kernel(const OpInfo& info) {
  return torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(std::make_unique<DeviceOp>(info)));
}

// Ops of other libraries, and whatever was defined after load: their CPU kernel on the host.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<c10::OperatorName, OpInfo*>;
  OpInfo* info = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex);
    OpInfo*& slot = (*known)[op.operator_name()];
    if (slot == nullptr) {
      TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), "Operation ",
                                  op.operator_name(),
                                  " is not implemented for Neuron, and it has no CPU kernel to "
                                  "fall back to.");
      slot = &add_op(op, is_view(op.schema()) ? OpKind::kView : OpKind::kFallback);
    }
    info = slot;
  }
  run_op(*info, stack);
}

std::vector<std::string> names_where(std::atomic<bool> OpInfo::* flag) {
  std::vector<std::string> names;
  for (const auto& info : all_ops()) {
    if (((*info).*flag).load(std::memory_order_relaxed)) names.push_back(info->full_name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

void register_ops(const std::vector<std::string>& device_ops) {
  for (const auto& name : device_ops) device_names().insert("aten::" + name);
  // Leaked: kernels stay registered until the process ends.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kNeuronKey, __FILE__, __LINE__);
  static auto* rest = new torch::Library(torch::Library::IMPL, "_", kNeuronKey, __FILE__, __LINE__);
  const auto& bodies = composite_bodies();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(kNeuronKey)) continue;
    const std::string full_name = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    const auto body = bodies.find(full_name);
    const bool ours = body != bodies.end();
    if (!ours && !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && !is_one_execution(*op)) continue;
    OpInfo& info = add_op(*op, ours ? OpKind::kDevice : kind_of(op->schema()));
    if (ours && body->second != nullptr) {
      info.body = body->second;
      info.out_variant.reset();
      info.may_queue = !info.hidden_random;
    }
    library->impl(full_name.substr(6).c_str(), kernel(info));
  }
  rest->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

std::vector<std::string> executed_ops() { return names_where(&OpInfo::executed); }
std::vector<std::string> fallback_ops() { return names_where(&OpInfo::fell_back); }

std::vector<std::string> device_op_names() {
  std::vector<std::string> names;
  for (const auto& info : all_ops()) {
    if (info->kind == OpKind::kDevice) names.push_back(info->full_name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void clear_op_tracking() {
  for (const auto& info : all_ops()) info->executed = info->fell_back = false;
}

}  // namespace neuron
