// Autocast on neuron: the CUDA lists, applied by boxed kernels; every op not in a list passes through.
#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <memory>
#include <string>
#include <utility>

namespace neuron {
namespace {

constexpr c10::DeviceType kNeuron = c10::DeviceType::PrivateUse1;

enum class Policy { kLowerPrecision, kFp32, kFp32SetDtype, kPromote };

template <typename Visit>
void for_each_tensor(c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = visit(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& item : value.toListRef()) {
      const at::Tensor& tensor = item.toTensor();
      list.push_back(tensor.defined() ? visit(tensor) : tensor);
    }
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& item : value.toListRef()) {
      list.push_back(item.isNone() ? std::optional<at::Tensor>() : std::optional<at::Tensor>(visit(item.toTensor())));
    }
    value = std::move(list);
  }
}

class CastOp final : public c10::OperatorKernel {
 public:
  explicit CastOp(Policy policy) : policy_(policy) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
    const size_t count = op.schema().arguments().size();
    auto arguments = torch::jit::last(*stack, count);
    const size_t first = stack->size() - count;
    at::ScalarType type = at::kFloat;
    if (policy_ == Policy::kFp32SetDtype) {
      set_dtype(op, stack, first);
      op.callBoxed(stack);
      return;
    }
    if (policy_ == Policy::kLowerPrecision) type = at::autocast::get_autocast_dtype(kNeuron);
    if (policy_ == Policy::kPromote) {
      type = at::autocast::get_lower_precision_fp_from_device_type(kNeuron);
      for (const auto& argument : arguments) {
        c10::IValue value = argument;
        for_each_tensor(value, [&type](const at::Tensor& tensor) {
          type = at::autocast::prioritize(type, tensor, kNeuron);
          return tensor;
        });
      }
    }
    for (size_t i = first; i < stack->size(); ++i) {
      for_each_tensor((*stack)[i],
                      [type](const at::Tensor& tensor) { return at::autocast::cached_cast(type, tensor, kNeuron); });
    }
    op.callBoxed(stack);
  }

 private:
  static void set_dtype(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first) {
    const c10::IValue& input = (*stack)[first];
    if (!input.isTensor() || !at::autocast::is_eligible(input.toTensor(), kNeuron)) return;
    const auto index = op.schema().argumentIndexWithName("dtype");
    if (index && (*stack)[first + static_cast<size_t>(*index)].isNone()) {
      (*stack)[first + static_cast<size_t>(*index)] = at::kFloat;
    }
  }

  const Policy policy_;
};

at::Tensor binary_cross_entropy_banned(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                       int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
              "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
              "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
              "or torch.nn.BCEWithLogitsLoss; these are safe to autocast.");
}

void cast(torch::Library& library, Policy policy, const char* op, const char* overload = "") {
  const std::string name = *overload == '\0' ? std::string(op) : std::string(op) + "." + overload;
  if (!c10::Dispatcher::singleton().findSchema({"aten::" + std::string(op), overload})) return;  // not in this torch
  library.impl(name.c_str(), torch::CppFunction::makeFromBoxedKernel(
                                 c10::BoxedKernel::makeFromFunctor(std::make_unique<CastOp>(policy))));
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define NEURON_LOWER(...) NEURON_CAST(Policy::kLowerPrecision, __VA_ARGS__)
#define NEURON_FP32(...) NEURON_CAST(Policy::kFp32, __VA_ARGS__)
#define NEURON_FP32_SET(...) NEURON_CAST(Policy::kFp32SetDtype, __VA_ARGS__)
#define NEURON_PROMOTE(...) NEURON_CAST(Policy::kPromote, __VA_ARGS__)
#define NEURON_CAST(policy, ...) NEURON_PICK(__VA_ARGS__, NEURON_CAST2, NEURON_CAST1)(policy, __VA_ARGS__)
#define NEURON_PICK(a, b, name, ...) name
#define NEURON_CAST1(policy, op) cast(m, policy, #op);
#define NEURON_CAST2(policy, op, overload) cast(m, policy, #op, #overload);

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(NEURON_LOWER)
  AT_FORALL_FP32(NEURON_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NEURON_FP32_SET)
  AT_FORALL_PROMOTE(NEURON_PROMOTE)
  cast(m, Policy::kFp32, "norm", "Scalar");
  cast(m, Policy::kFp32, "norm", "ScalarOpt_dim");
  cast(m, Policy::kPromote, "stack");
  cast(m, Policy::kPromote, "cat");
  m.impl("binary_cross_entropy", &binary_cross_entropy_banned);
}

}  // namespace
}  // namespace neuron
