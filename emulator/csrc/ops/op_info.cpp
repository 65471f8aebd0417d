#include "ops/op_info.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>

#include <mutex>
#include <string_view>
#include <unordered_set>

namespace neuron {
namespace {

bool only_tensors(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    const auto& type = result.type();
    const bool tensor = type->kind() == c10::TypeKind::TensorType;
    const bool list = type->kind() == c10::TypeKind::ListType &&
                      type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
    if (!tensor && !list) return false;
  }
  return true;
}

// "aten::mul.out" for "aten::mul.Tensor": same arguments, then one written tensor per result.
std::optional<c10::OperatorHandle> find_out_variant(const c10::OperatorHandle& handle) {
  const auto& schema = handle.schema();
  if (schema.is_mutable()) return std::nullopt;
  for (const auto& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType || result.alias_info() != nullptr) return std::nullopt;
  }
  const std::string& overload = schema.overload_name();
  for (const std::string& suffix : {overload.empty() ? std::string("out") : overload + "_out", std::string("out")}) {
    auto found = c10::Dispatcher::singleton().findSchema({schema.name(), suffix});
    if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    const auto& arguments = found->schema().arguments();
    if (arguments.size() != schema.arguments().size() + schema.returns().size()) continue;
    bool same = true;
    for (size_t i = 0; i < arguments.size() && same; ++i) {
      const bool input = i < schema.arguments().size();
      const bool is_written = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
      same = input ? arguments[i].name() == schema.arguments()[i].name() &&
                         *arguments[i].type() == *schema.arguments()[i].type()
                   : is_written;
    }
    if (same) return found;
  }
  return std::nullopt;
}

std::mutex ops_mutex;

}  // namespace

OpInfo::OpInfo(const c10::OperatorHandle& handle, OpKind op_kind) : op(handle), kind(op_kind) {
  const c10::FunctionSchema& schema = handle.schema();
  name = schema.name();
  full_name = schema.overload_name().empty() ? name : name + "." + schema.overload_name();
  arguments = schema.arguments().size();
  for (const auto& argument : schema.arguments()) {
    if (argument.type()->str().find("Generator") != std::string::npos) {
      generator_argument = static_cast<int16_t>(written.size());
    }
    written.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
  }
  for (const auto& result : schema.returns()) {
    int16_t returned = -1;
    if (const auto* alias = result.alias_info(); alias != nullptr && alias->isWrite()) {
      for (size_t i = 0; i < arguments; ++i) {
        const auto* other = schema.arguments()[i].alias_info();
        if (other != nullptr && other->isWrite() && other->beforeSets() == alias->beforeSets()) {
          returned = static_cast<int16_t>(i);
        }
      }
    }
    returned_argument.push_back(returned);
  }
  bool random = false;
  for (const auto tag : handle.getTags()) {
    awaited |= tag == at::Tag::dynamic_output_shape || tag == at::Tag::data_dependent_output;
    random |= tag == at::Tag::nondeterministic_seeded;
  }
  hidden_random = random && generator_argument < 0;
  may_queue = kind == OpKind::kDevice && !awaited && !hidden_random && only_tensors(schema);
  static const std::unordered_set<std::string_view> kMixed = {
      "aten::index",          "aten::_index_put_impl_",
      "aten::index_put_",     "aten::_unsafe_index",
      "aten::_fused_adamw_",  "aten::_fused_adam_",
      "aten::_fused_sgd_",    "aten::_fused_adagrad_",
      "aten::copy_",          "aten::searchsorted",
      "aten::bucketize",      "aten::set_",
      "aten::_foreach_copy_", "aten::_amp_foreach_non_finite_check_and_unscale_"};
  mixed_devices = kMixed.count(name) > 0 || name.rfind("aten::_foreach_", 0) == 0;
  static const std::unordered_set<std::string_view> kExact = {
      "aten::arange", "aten::range",       "aten::linspace",     "aten::logspace",     "aten::pow",
      "aten::pow_",   "aten::float_power", "aten::_foreach_pow", "aten::_foreach_pow_"};
  exact_scalars = kExact.count(name) > 0;
  if (may_queue) out_variant = find_out_variant(handle);
}

std::vector<std::unique_ptr<OpInfo>>& all_ops() {
  static auto* ops = new std::vector<std::unique_ptr<OpInfo>>;
  return *ops;
}

OpInfo& add_op(const c10::OperatorHandle& handle, OpKind kind) {
  auto info = std::make_unique<OpInfo>(handle, kind);
  OpInfo& reference = *info;
  std::lock_guard<std::mutex> lock(ops_mutex);
  all_ops().push_back(std::move(info));
  return reference;
}

}  // namespace neuron
