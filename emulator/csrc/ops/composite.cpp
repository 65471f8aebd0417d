#include "ops/composite.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>

namespace neuron {
namespace {

using torch::jit::Stack;

std::optional<at::Tensor> optional_tensor(const c10::IValue& value) {
  if (value.isNone() || !value.toTensor().defined()) return std::nullopt;
  return value.toTensor();
}

std::optional<double> optional_double(const c10::IValue& value) {
  return value.isNone() ? std::nullopt : std::optional<double>(value.toDouble());
}

// As autograd differentiates addmm on the CPU, so that a training step has the same bits.
void linear_backward(Stack* stack) {
  auto arguments = std::move(*stack);
  stack->clear();
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& grad = arguments[1].toTensor();
  const at::Tensor& weight = arguments[2].toTensor();
  const auto mask = arguments[3].toBoolList();
  at::Tensor grad_input, grad_weight, grad_bias;
  const int64_t rows = c10::multiply_integers(grad.sizes().begin(), grad.sizes().end() - 1);
  const at::Tensor grad_rows = grad.dim() == 2 ? grad : grad.reshape({rows, grad.size(-1)});
  if (mask.get(0)) grad_input = grad_rows.mm(weight).view(input.sizes());
  if (mask.get(1)) {
    const at::Tensor input_rows = input.dim() == 2 ? input : input.reshape({rows, input.size(-1)});
    grad_weight = grad_rows.t().mm(input_rows);
  }
  if (mask.get(2)) grad_bias = grad_rows.sum(at::IntArrayRef{0});
  stack->emplace_back(std::move(grad_input));
  stack->emplace_back(std::move(grad_weight));
  stack->emplace_back(std::move(grad_bias));
}

// y = x * rstd * w, rstd = (mean(x^2) + eps)^-1/2; statistics in fp32.
void fused_rms_norm_backward(Stack* stack) {
  auto arguments = std::move(*stack);
  stack->clear();
  const at::Tensor& grad = arguments[0].toTensor();
  const at::Tensor& input = arguments[1].toTensor();
  const auto normalized = static_cast<int64_t>(arguments[2].toListRef().size());
  const std::optional<at::Tensor> weight = optional_tensor(arguments[4]);
  const auto mask = arguments[5].toBoolList();
  const int64_t leading = input.dim() - normalized;
  auto statistics = input.sizes().vec();
  std::vector<int64_t> reduced, rows;
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    (dim < leading ? rows : reduced).push_back(dim);
    if (dim >= leading) statistics[static_cast<size_t>(dim)] = 1;
  }
  const at::ScalarType compute = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor rstd = arguments[3].toTensor().to(compute).view(statistics);
  const at::Tensor x_hat = input.to(compute) * rstd;
  const at::Tensor grad_wide = grad.to(compute);
  at::Tensor grad_input, grad_weight;
  if (mask.get(0)) {
    const at::Tensor grad_x_hat = weight ? grad_wide * weight->to(compute) : grad_wide;
    grad_input = ((grad_x_hat - x_hat * (grad_x_hat * x_hat).mean(reduced, true)) * rstd).to(input.scalar_type());
  }
  if (mask.get(1) && weight) {
    at::Tensor sum = grad_wide * x_hat;
    if (!rows.empty()) sum = sum.sum(rows);
    grad_weight = sum.to(weight->scalar_type());
  }
  stack->emplace_back(std::move(grad_input));
  stack->emplace_back(std::move(grad_weight));
}

void attention(Stack* stack) {
  auto arguments = std::move(*stack);
  stack->clear();
  const at::Tensor& query = arguments[0].toTensor();
  const at::Tensor& key = arguments[1].toTensor();
  auto [output, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, key, arguments[2].toTensor(), arguments[4].toDouble(), arguments[5].toBool(),
      optional_tensor(arguments[3]), optional_double(arguments[7]));
  stack->emplace_back(std::move(output));
  stack->emplace_back(std::move(logsumexp));
  stack->emplace_back(at::Tensor());  // cumulative sequence lengths: nested tensors only
  stack->emplace_back(at::Tensor());
  stack->emplace_back(query.size(2));
  stack->emplace_back(key.size(2));
  stack->emplace_back(at::empty({2}, query.options().dtype(at::kLong)).zero_());  // no dropout, so no random state
  stack->emplace_back(at::empty({2}, query.options().dtype(at::kLong)).zero_());
  stack->emplace_back(at::Tensor());
}

void attention_backward(Stack* stack) {
  auto arguments = std::move(*stack);
  stack->clear();
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      arguments[0].toTensor(), arguments[1].toTensor(), arguments[2].toTensor(), arguments[3].toTensor(),
      arguments[6].toTensor(), arguments[7].toTensor(), arguments[12].toDouble(), arguments[13].toBool(),
      optional_tensor(arguments[4]), optional_double(arguments[16]));
  stack->emplace_back(std::move(grad_query));
  stack->emplace_back(std::move(grad_key));
  stack->emplace_back(std::move(grad_value));
  stack->emplace_back(at::Tensor());
}

void native_dropout(Stack* stack) {
  auto arguments = std::move(*stack);
  stack->clear();
  const at::Tensor& input = arguments[0].toTensor();
  const double p = arguments[1].toDouble();
  const bool train = arguments[2].isNone() || arguments[2].toBool();
  at::Tensor mask = at::empty(input.sizes(), input.options().dtype(at::kBool));
  if (!train || input.numel() == 0) {
    stack->emplace_back(input.clone());
    stack->emplace_back(mask.fill_(true));
    return;
  }
  mask.bernoulli_(1 - p);
  const double scale = p == 1 ? 0.0 : 1.0 / (1.0 - p);
  stack->emplace_back(input.mul(mask).mul_(scale));
  stack->emplace_back(std::move(mask));
}

void call(const char* name, Stack* stack) { c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack); }

void convolution(Stack* stack) { call("aten::convolution", stack); }

void convolution_backward(Stack* stack) {
  // The overrideable form lacks bias_sizes, which only says how the bias gradient is shaped.
  const bool transposed = (*stack)[6].toBool();
  const at::Tensor& weight = (*stack)[2].toTensor();
  const int64_t channels = transposed ? weight.size(1) * (*stack)[8].toInt() : weight.size(0);
  stack->insert(stack->begin() + 3, c10::IValue(std::vector<int64_t>{channels}));
  call("aten::convolution_backward", stack);
}

// Fused where torch's CPU kernel can do it; otherwise attention decomposes into matmuls and a softmax.
int64_t fused_sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool, std::optional<double>, bool) {
  const bool four = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  const bool fits = four && dropout == 0.0 && query.size(1) == key.size(1) && key.size(1) == value.size(1) &&
                    query.size(3) == key.size(3) && key.size(3) == value.size(3) && query.numel() > 0 &&
                    key.numel() > 0 && at::isFloatingType(query.scalar_type());
  const bool plain_mask = !mask || !mask->defined() ||
                          (!mask->requires_grad() && (mask->dim() == 2 || mask->dim() == 4) &&
                           (mask->scalar_type() == query.scalar_type() || mask->scalar_type() == at::kBool));
  return static_cast<int64_t>(fits && plain_mask ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

// nn.LSTM and nn.GRU ask for fused cells on accelerators; these are the CPU's cells, differentiable as they stand.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cell,
                                                         const std::optional<at::Tensor>& input_bias,
                                                         const std::optional<at::Tensor>& hidden_bias) {
  at::Tensor gates = input_gates + hidden_gates;
  if (input_bias && input_bias->defined()) gates = gates + *input_bias;
  if (hidden_bias && hidden_bias->defined()) gates = gates + *hidden_bias;
  const auto parts = gates.chunk(4, 1);
  const at::Tensor next_cell = parts[1].sigmoid() * cell + parts[0].sigmoid() * parts[2].tanh();
  return {parts[3].sigmoid() * next_cell.tanh(), next_cell, gates};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                            const at::Tensor& hidden, const std::optional<at::Tensor>& input_bias,
                                            const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor from_input = input_bias && input_bias->defined() ? input_gates + *input_bias : input_gates;
  const at::Tensor from_hidden = hidden_bias && hidden_bias->defined() ? hidden_gates + *hidden_bias : hidden_gates;
  const auto inputs = from_input.chunk(3, 1);
  const auto hiddens = from_hidden.chunk(3, 1);
  const at::Tensor reset = (hiddens[0] + inputs[0]).sigmoid();
  const at::Tensor update = (hiddens[1] + inputs[1]).sigmoid();
  const at::Tensor fresh = (inputs[2] + hiddens[2] * reset).tanh();
  return {(hidden - fresh) * update + fresh, from_input};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", &fused_sdp_choice); }

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
}

}  // namespace

const std::unordered_map<std::string, Body>& composite_bodies() {
  static const auto* bodies = new std::unordered_map<std::string, Body>{
      {"aten::linear", nullptr},
      {"aten::linear_backward", &linear_backward},
      {"aten::convolution", nullptr},
      {"aten::convolution_backward", nullptr},
      {"aten::convolution_overrideable", &convolution},
      {"aten::convolution_backward_overrideable", &convolution_backward},
      {"aten::embedding", nullptr},
      {"aten::_fused_rms_norm", nullptr},
      {"aten::_fused_rms_norm_backward", &fused_rms_norm_backward},
      {"aten::native_dropout", &native_dropout},
      {"aten::_scaled_dot_product_fused_attention_overrideable", &attention},
      {"aten::_scaled_dot_product_fused_attention_overrideable_backward", &attention_backward},
  };
  return *bodies;
}

}  // namespace neuron

namespace at::native {

// Attention asks this table, not the dispatcher.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &neuron::fused_sdp_choice)

}  // namespace at::native
