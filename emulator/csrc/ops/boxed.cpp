#include "ops/boxed.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Tensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/ops/copy_native.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "device/runtime.h"
#include "ops/alias.h"
#include "ops/call.h"
#include "runtime/executable_cache.h"

namespace neuron {
namespace {

using torch::jit::Stack;

MissHandler& miss_handler() {
  static auto* handler = new MissHandler;
  return *handler;
}

ProgramRunner& program_runner() {
  static auto* runner = new ProgramRunner;
  return *runner;
}

void copy_result(const at::Tensor& from, at::Tensor& to, const OpInfo& info) {
  TORCH_INTERNAL_ASSERT(from.sizes() == to.sizes() && from.dtype() == to.dtype(), info.full_name, " returned ",
                        from.sizes(), " where its first call with this signature returned ", to.sizes());
  if (from.strides() == to.strides() && from.is_non_overlapping_and_dense()) {
    if (to.nbytes() > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
  } else {
    at::native::copy_(to, from, false);
  }
}

// A queued op. Holds CPU aliases only: dropping a neuron tensor here could need the Python lock.
class OpTask final : public Task {
 public:
  OpTask(const OpInfo& info, Stack arguments, std::vector<at::Tensor> outputs)
      : info_(info), arguments_(std::move(arguments)), outputs_(std::move(outputs)) {}

  void run() override {
    if (info_.out_variant) {
      for (auto& output : outputs_) arguments_.emplace_back(output);
      compute(*info_.out_variant, &arguments_);
      return;
    }
    compute(info_, &arguments_);
    size_t next = 0;
    for (size_t i = 0; i < info_.returned_argument.size(); ++i) {
      if (info_.returned_argument[i] >= 0) continue;
      const c10::IValue& result = arguments_[i];
      if (result.isTensor()) {
        copy(result.toTensor(), next);
      } else if (result.isTensorList()) {
        for (const c10::IValue& item : result.toListRef()) copy(item.toTensor(), next);
      }
    }
  }

 private:
  void copy(const at::Tensor& result, size_t& next) {
    at::Tensor& output = outputs_[next++];
    if (result.defined() && output.defined()) copy_result(result, output, info_);
  }

  const OpInfo& info_;
  Stack arguments_;
  std::vector<at::Tensor> outputs_;
};

void replace_arguments(Stack* stack, size_t count, Stack results) {
  torch::jit::drop(*stack, count);
  for (auto& result : results) stack->push_back(std::move(result));
}

// The results of a call whose metadata are known, in fresh memory. Flattened into `tensors`.
Stack make_results(const OpInfo& info, const CacheEntry& entry, const Stack& stack, c10::DeviceIndex device,
                   std::vector<at::Tensor>& tensors) {
  Stack results;
  size_t next = 0;
  auto make = [&]() -> at::Tensor {
    const OutputSpec& spec = entry.outputs[next++];
    tensors.push_back(spec.defined
                          ? empty_neuron(spec.sizes, spec.strides, static_cast<at::ScalarType>(spec.dtype), device)
                          : at::Tensor());
    return tensors.back();
  };
  const size_t first = stack.size() - info.arguments;
  for (size_t i = 0; i < info.returned_argument.size(); ++i) {
    if (info.returned_argument[i] >= 0) {
      results.push_back(stack[first + static_cast<size_t>(info.returned_argument[i])]);
      continue;
    }
    const ReturnShape shape = entry.returns[i];
    if (shape.count == ReturnShape::kConstant) {
      results.emplace_back(shape.constant);
    } else if (shape.count == ReturnShape::kSingle) {
      results.emplace_back(make());
    } else {
      c10::List<at::Tensor> list;
      for (int32_t item = 0; item < shape.count; ++item) list.push_back(make());
      results.emplace_back(std::move(list));
    }
  }
  return results;
}

// Metadata of the results of a first call. False where a later call could differ or needs more than fresh dense memory.
bool describe_results(const OpInfo& info, const Stack& results, const CpuAliases& aliases, CacheEntry& entry) {
  auto describe = [&](const at::Tensor& tensor) {
    OutputSpec spec;
    spec.defined = tensor.defined();
    if (spec.defined) {
      if (tensor.layout() != at::kStrided || aliases.is_alias(tensor) || tensor.storage_offset() != 0 ||
          !tensor.is_non_overlapping_and_dense() || tensor.is_conj() || tensor.is_neg() ||
          tensor.storage().use_count() != 1) {
        return false;
      }
      spec.sizes = tensor.sizes().vec();
      spec.strides = tensor.strides().vec();
      spec.dtype = static_cast<int8_t>(tensor.scalar_type());
    }
    entry.outputs.push_back(std::move(spec));
    return true;
  };
  for (size_t i = 0; i < results.size(); ++i) {
    ReturnShape shape;
    if (info.returned_argument[i] < 0) {
      const c10::IValue& result = results[i];
      if (result.isTensor()) {
        if (!describe(result.toTensor())) return false;
      } else if (result.isTensorList()) {
        shape.count = static_cast<int32_t>(result.toListRef().size());
        for (const c10::IValue& item : result.toListRef()) {
          if (!describe(item.toTensor())) return false;
        }
      } else if (result.isInt()) {
        shape.count = ReturnShape::kConstant;
        shape.constant = result.toInt();
      } else {
        return false;
      }
    }
    entry.returns.push_back(shape);
  }
  return true;
}

void flatten(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const c10::IValue& item : value.toListRef()) tensors.push_back(item.toTensor());
  }
}

c10::IValue to_neuron(const c10::IValue& value, CpuAliases& aliases, c10::DeviceIndex device) {
  if (value.isTensor()) return aliases.to_neuron(value.toTensor(), device);
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const c10::IValue& item : value.toListRef()) list.push_back(aliases.to_neuron(item.toTensor(), device));
  return list;
}

// Output metadata from torch's meta kernels, for a call whose values can't be computed. Empty where the arguments are
// wrong.
std::optional<CacheEntry> infer_results(const OpInfo& info, const Stack& stack) {
  auto to_meta = [](const at::Tensor& tensor) -> at::Tensor {
    if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
    return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  };
  Stack arguments;
  for (size_t i = stack.size() - info.arguments; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) {
      arguments.emplace_back(to_meta(value.toTensor()));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& item : value.toListRef()) list.push_back(to_meta(item.toTensor()));
      arguments.emplace_back(std::move(list));
    } else if (value.isOptionalTensorList()) {
      return std::nullopt;
    } else {
      arguments.push_back(value.isDevice() ? c10::IValue(c10::Device(at::kMeta)) : value);
    }
  }
  CacheEntry entry;
  try {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    info.op.callBoxed(&arguments);
    if (!describe_results(info, arguments, CpuAliases(), entry)) return std::nullopt;
  } catch (...) {
    return std::nullopt;
  }
  return entry;
}

// An error of the data (an index out of range) appears at the next synchronization, an error of the call at once.
bool is_call_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::NotImplementedError&) {
    return true;
  } catch (const std::exception& e) {
    return std::string_view(e.what()).find("not implemented for") != std::string_view::npos;
  }
  return true;
}

void run_view(const OpInfo& info, Stack* stack) {
  CpuAliases aliases;
  const Call call(info, *stack);
  Stack arguments = call.cpu_arguments(*stack, aliases, /*queued=*/false);
  compute(info, &arguments);
  for (auto& result : arguments) result = to_neuron(result, aliases, call.device());
  replace_arguments(stack, info.arguments, std::move(arguments));
}

// The copies of the call's host scalars into device memory. They have no time of their own on the device (the launch
// cost, calibrated on such a call, contains them), so they are rows of the runtime's lane only.
void record_scalar_copies(const Call& call, const Core& device) {
  if (call.host_scalar_bytes() == 0 || !Recorder::get().active()) return;
  record_host("dmem_buf_copyin", std::to_string(call.host_scalar_bytes()) + " bytes of host scalars",
              HostClock::real_ns(), device.index);
}

void queue_op(const OpInfo& info, const Call& call, const CacheEntry& entry, Core& device, StreamState& stream,
              int64_t begin_ns, Stack* stack) {
  CpuAliases aliases;
  Stack arguments = call.cpu_arguments(*stack, aliases, /*queued=*/true);
  std::vector<at::Tensor> outputs;
  Stack results = make_results(info, entry, *stack, call.device(), outputs);
  CpuAliases output_aliases;
  for (auto& output : outputs) output = output_aliases.to_cpu(output);
  if (entry.executable != nullptr) {
    record_scalar_copies(call, device);
    launch_execution(device, stream, *entry.executable, begin_ns);
  }
  stream.queue.push(std::make_unique<OpTask>(info, std::move(arguments), std::move(outputs)));
  replace_arguments(stack, info.arguments, std::move(results));
}

// What is left of a call that failed, or comes after one that did: results of the right shape, and the error kept.
void skip_op(const OpInfo& info, const Call& call, StreamState& stream, std::exception_ptr error, Stack* stack) {
  std::optional<CacheEntry> entry;
  if (info.may_queue && !options().launch_blocking && !(error && is_call_error(error))) {
    entry = infer_results(info, *stack);
  }
  if (!entry) {
    if (error) std::rethrow_exception(error);
    rethrow_error(stream);
  }
  if (error) stream.queue.fail(error);
  std::vector<at::Tensor> outputs;
  Stack results = make_results(info, *entry, *stack, call.device(), outputs);
  replace_arguments(stack, info.arguments, std::move(results));
}

// As the real device's CPU fallback: inputs are copied to the host, results back.
void run_on_host(const OpInfo& info, const Call& call, Core& device, StreamState& stream, int64_t begin_ns,
                 Stack* stack) {
  if (!in_graph_body()) info.fell_back.store(true, std::memory_order_relaxed);
  rethrow_error(stream);
  if (call.bytes_in() > 0) {
    const Slot read = launch_copy(device, stream, LaunchKind::kCopyToHost, call.bytes_in(), begin_ns);
    reach_simulated(device, begin_ns, read.end_ns(), "nrt_tensor_read");
  }
  const int64_t host_begin_ns = HostClock::real_ns();
  CpuAliases aliases;
  Stack arguments = call.cpu_arguments(*stack, aliases, /*queued=*/false);
  compute(info, &arguments);
  record_host("cpu_fallback", info.full_name, host_begin_ns, device.index);
  const size_t first = stack->size() - info.arguments;
  int64_t bytes = 0;
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& result = arguments[i];
    result = info.returned_argument[i] >= 0 ? (*stack)[first + static_cast<size_t>(info.returned_argument[i])]
                                            : to_neuron(result, aliases, call.device());
    flatten(result, written);
  }
  for (size_t i = 0; i < info.arguments && arguments.empty(); ++i) {
    if (info.written[i]) flatten((*stack)[first + i], written);
  }
  aliases.push_back(call.device());
  for (const auto& tensor : written) bytes += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  if (bytes > 0) launch_copy(device, stream, LaunchKind::kCopyToDevice, bytes, host_begin_ns);
  replace_arguments(stack, info.arguments, std::move(arguments));
}

// Runs the arithmetic here and now: a first call, or one whose results can't be known before.
void run_now(const OpInfo& info, const Call& call, const CacheEntry* entry, Core& device, StreamState& stream,
             int64_t begin_ns, Stack* stack) {
  drain(stream);
  if (info.kind == OpKind::kFallback) return run_on_host(info, call, device, stream, begin_ns, stack);
  if (stream.queue.failed()) return skip_op(info, call, stream, nullptr, stack);

  ProgramResult program;
  if (program_runner() && !in_graph_body()) {
    program = program_runner()(info, Stack(stack->end() - static_cast<std::ptrdiff_t>(info.arguments), stack->end()));
  }
  CpuAliases aliases;
  Stack arguments = call.cpu_arguments(*stack, aliases, /*queued=*/false);
  try {
    compute(info, &arguments);
  } catch (...) {
    return skip_op(info, call, stream, std::current_exception(), stack);
  }
  CacheEntry fresh;
  bool queueable = false;
  if (entry == nullptr) {
    queueable = info.may_queue && !call.has_host_tensors() && describe_results(info, arguments, aliases, fresh);
  }
  if (aliases.push_back(call.device())) queueable = false;
  const size_t first = stack->size() - info.arguments;
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    arguments[i] = info.returned_argument[i] >= 0 ? (*stack)[first + static_cast<size_t>(info.returned_argument[i])]
                                                  : to_neuron(arguments[i], aliases, call.device());
    flatten(arguments[i], outputs);
  }
  if (entry == nullptr) {
    const Signature signature = call.signature();  // compiling may run ops of its own
    const int64_t compile_begin_ns = HostClock::real_ns();
    fresh.asynchronous = queueable;
    if (!in_graph_body()) {  // there, the program of the whole graph contains the op
      const Stack original(stack->end() - static_cast<std::ptrdiff_t>(info.arguments), stack->end());
      fresh.executable = miss_handler()(info, original, outputs);
    }
    record_host("neuron_compile", info.full_name, compile_begin_ns, device.index);
    begin_ns += HostClock::real_ns() - compile_begin_ns;  // its own row, not part of the op's dispatch
    entry = ExecutableCache::get().insert(signature, std::move(fresh));
  }
  if (entry->executable != nullptr) {
    if (program) program(*entry->executable, outputs);
    record_scalar_copies(call, device);
    const Slot slot = launch_execution(device, stream, *entry->executable, begin_ns);
    if (info.awaited || options().launch_blocking) {
      reach_simulated(device, HostClock::real_ns(), slot.end_ns(), "nrt_synchronize");
    }
  }
  replace_arguments(stack, info.arguments, std::move(arguments));
}

}  // namespace

void set_miss_handler(MissHandler handler) { miss_handler() = std::move(handler); }

void set_program_runner(ProgramRunner runner) { program_runner() = std::move(runner); }

namespace {

std::atomic<int64_t>& lookup_repeats() {
  static std::atomic<int64_t> repeats{0};
  return repeats;
}

std::atomic<double>& lookup_average() {
  static std::atomic<double> average{0.0};
  return average;
}

// What finding an op's program costs, apart from everything else: its signature and the search, again and again.
void measure_lookup(const OpInfo& info, const Stack& stack, int64_t repeats) {
  int64_t found = 0;
  const int64_t begin_ns = HostClock::real_ns();
  for (int64_t i = 0; i < repeats; ++i) {
    const Call again(info, stack);
    found += ExecutableCache::get().find(again.signature()) != nullptr;
  }
  const int64_t spent_ns = HostClock::real_ns() - begin_ns;
  if (found == repeats) lookup_average() = static_cast<double>(spent_ns) / static_cast<double>(repeats);
}

}  // namespace

void set_lookup_repeats(int64_t repeats) { lookup_repeats() = repeats; }

double lookup_ns() { return lookup_average(); }

void run_op(const OpInfo& info, Stack* stack) {
  if (info.kind == OpKind::kView) return run_view(info, stack);
  const int64_t repeats = lookup_repeats().load(std::memory_order_relaxed);
  if (repeats > 0 && info.kind == OpKind::kDevice) measure_lookup(info, *stack, repeats);
  const int64_t begin_ns = Recorder::get().active() ? HostClock::real_ns() : 0;
  const Call call(info, *stack);
  Core& device = core(call.device());
  StreamState& stream = device.stream(current_stream(call.device()));
  const CacheEntry* entry = nullptr;
  if (info.kind == OpKind::kDevice) {
    if (!in_graph_body()) info.executed.store(true, std::memory_order_relaxed);
    entry = ExecutableCache::get().find(call.signature());
    const bool by_program = program_runner() && !in_graph_body();
    if (entry != nullptr && entry->asynchronous && !call.has_host_tensors() && !options().launch_blocking &&
        !by_program) {
      return queue_op(info, call, *entry, device, stream, begin_ns, stack);
    }
  }
  run_now(info, call, entry, device, stream, begin_ns, stack);
}

void DeviceOp::operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) { run_op(info_, stack); }

}  // namespace neuron
