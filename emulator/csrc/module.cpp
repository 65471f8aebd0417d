// torch_neuronx._C: Python's way to the device. Thin: every function forwards to one of ours.
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "device/allocator.h"
#include "device/event.h"
#include "device/generator.h"
#include "device/hooks.h"
#include "device/runtime.h"
#include "ops/alias.h"
#include "ops/boxed.h"
#include "ops/register.h"
#include "profiler/bindings.h"
#include "runtime/executable_cache.h"

namespace py = pybind11;

namespace neuron {
namespace {

// Python objects that C++ keeps are leaked: they may be called until the process ends.
py::object* keep(py::object object) { return new py::object(std::move(object)); }

// Calls Python from a thread that may not hold the GIL; a Python exception travels through torch unchanged.
template <typename Result, typename... Arguments>
Result call_python(const py::object& function, Arguments&&... arguments) {
  try {
    if constexpr (std::is_void_v<Result>) {
      function(std::forward<Arguments>(arguments)...);
    } else {
      return function(std::forward<Arguments>(arguments)...).template cast<Result>();
    }
  } catch (py::error_already_set& error) {
    error.restore();
    python_error carried;
    carried.persist();
    throw carried;
  }
}

py::object dtype_object(at::ScalarType type) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
}

py::object tensor_object(const at::Tensor& tensor) {
  if (!tensor.defined()) return py::none();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    const at::Scalar number = tensor.item();
    if (number.isComplex()) return py::cast(std::complex<double>(number.toComplexDouble()));
    if (number.isBoolean()) return py::cast(number.toBool());
    return number.isIntegral(false) ? py::cast(number.toLong()) : py::cast(number.toDouble());
  }
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}

// An op's argument as neuroncore's graph wants it: tensors as they are, numbers from the host as Python numbers.
py::object to_python(const c10::IValue& value, const c10::Type& type) {
  const c10::Type* inner = &type;
  if (type.kind() == c10::TypeKind::OptionalType) inner = type.castRaw<c10::OptionalType>()->getElementType().get();
  if (value.isNone()) return py::none();
  if (value.isTensor()) return tensor_object(value.toTensor());
  if (value.isBool()) return py::cast(value.toBool());
  if (value.isInt()) {
    if (inner->kind() == c10::TypeKind::ScalarTypeType) return dtype_object(static_cast<at::ScalarType>(value.toInt()));
    return py::cast(value.toInt());
  }
  if (value.isDouble()) return py::cast(value.toDouble());
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return py::cast(std::complex<double>(number.real(), number.imag()));
  }
  if (value.isString()) return py::cast(std::string(value.toStringView()));
  if (value.isList()) {
    const auto* list = inner->castRaw<c10::ListType>();
    py::list items;
    for (const c10::IValue& item : value.toListRef()) {
      items.append(to_python(item, list != nullptr ? *list->getElementType() : *inner));
    }
    return std::move(items);
  }
  return py::none();  // devices and generators: the program depends on neither
}

Executable read_executable(const py::dict& fields) {
  Executable executable;
  executable.neff = fields["neff"].cast<std::string>();
  executable.op = fields["op"].cast<std::string>();
  executable.overload = fields["overload"].cast<std::string>();
  executable.program_ns = fields["program_ns"].cast<int64_t>();
  executable.estimated_ns = fields["estimated_ns"].cast<int64_t>();
  executable.bytes_read = fields["bytes_read"].cast<int64_t>();
  executable.bytes_written = fields["bytes_written"].cast<int64_t>();
  executable.flops = fields["flops"].cast<int64_t>();
  executable.shapes = fields["shapes"].cast<std::string>();
  executable.dtypes = fields["dtypes"].cast<std::string>();
  executable.bound = fields["bound"].cast<std::string>();
  return executable;
}

py::list argument_objects(const OpInfo& info, const torch::jit::Stack& arguments) {
  const auto& schema = info.op.schema();
  py::list values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    values.append(to_python(arguments[i], *schema.arguments()[i].real_type()));
  }
  return values;
}

py::list tensor_objects(const std::vector<at::Tensor>& tensors) {
  py::list objects;
  for (const auto& tensor : tensors) objects.append(tensor_object(tensor));
  return objects;
}

void register_miss_handler(py::object handler) {
  set_miss_handler([kept = keep(std::move(handler))](const OpInfo& info, const torch::jit::Stack& arguments,
                                                     const std::vector<at::Tensor>& results) -> const Executable* {
    py::gil_scoped_acquire gil;
    const auto fields = call_python<py::dict>(*kept, info.name, info.full_name, argument_objects(info, arguments),
                                              tensor_objects(results));
    return ExecutableCache::get().add(read_executable(fields));
  });
}

void register_program_runner(py::object runner) {
  set_program_runner([kept = keep(std::move(runner))](const OpInfo& info, const torch::jit::Stack& arguments) {
    py::gil_scoped_acquire gil;
    std::shared_ptr<py::object> finish(
        new py::object(call_python<py::object>(*kept, info.full_name, argument_objects(info, arguments))),
        [](py::object* object) {
          py::gil_scoped_acquire gil;
          delete object;
        });
    return ProgramResult([finish](const Executable& executable, const std::vector<at::Tensor>& results) {
      py::gil_scoped_acquire gil;
      call_python<void>(*finish, executable.neff, tensor_objects(results));
    });
  });
}

void configure_device(int64_t launch_cost_plain_ns, int64_t launch_cost_profiled_ns, int64_t launch_latency_ns,
                      int64_t execution_gap_ns, int64_t host_copy_latency_ns, int64_t to_device_bytes_per_second,
                      int64_t to_host_bytes_per_second, int64_t memory_bytes) {
  DeviceCosts& costs = device_costs();
  costs.launch_cost_plain_ns = launch_cost_plain_ns;
  costs.launch_cost_profiled_ns = launch_cost_profiled_ns;
  costs.launch_latency_ns = launch_latency_ns;
  costs.execution_gap_ns = execution_gap_ns;
  costs.copy_fixed_ns = host_copy_latency_ns;
  costs.to_device_bytes_per_second = to_device_bytes_per_second;
  costs.to_host_bytes_per_second = to_host_bytes_per_second;
  options().memory_bytes = memory_bytes;
}

// One execution of a compiled graph: `body` issues the arithmetic of its ops, in order with eager ones; they launch
// nothing.
py::object launch(int64_t executable_id, int64_t device_index, const py::object& body) {
  const int64_t begin_ns = HostClock::real_ns();
  const Executable* executable = ExecutableCache::get().by_id(executable_id);
  TORCH_CHECK_VALUE(executable != nullptr, "No executable ", executable_id);
  Core& device = core(static_cast<c10::DeviceIndex>(device_index < 0 ? current_device() : device_index));
  StreamState& stream = device.stream(current_stream(device.index));
  const Slot slot = launch_execution(device, stream, *executable, begin_ns);
  py::object result;
  {
    GraphBody graph;
    at::RecordFunctionGuard no_rows(false);
    result = body();
  }
  if (options().launch_blocking) reach_simulated(device, begin_ns, slot.end_ns(), "nrt_synchronize");
  return result;
}

at::Tensor cpu_view(const at::Tensor& tensor) {
  CpuAliases aliases;
  return aliases.to_cpu(tensor);
}

py::dict stat_dict(const c10::CachingAllocator::StatArray& array) {
  py::dict pools;
  const char* names[] = {"all", "small_pool", "large_pool"};
  for (size_t i = 0; i < 3; ++i) {
    py::dict stat;
    stat["current"] = array[i].current;
    stat["peak"] = array[i].peak;
    stat["allocated"] = array[i].allocated;
    stat["freed"] = array[i].freed;
    pools[names[i]] = std::move(stat);
  }
  return pools;
}

py::dict memory_stats(int64_t device) {
  const auto stats = allocator().getDeviceStats(static_cast<c10::DeviceIndex>(device));
  py::dict all;
  all["allocation"] = stat_dict(stats.allocation);
  all["segment"] = stat_dict(stats.segment);
  all["active"] = stat_dict(stats.active);
  all["allocated_bytes"] = stat_dict(stats.allocated_bytes);
  all["reserved_bytes"] = stat_dict(stats.reserved_bytes);
  all["active_bytes"] = stat_dict(stats.active_bytes);
  all["requested_bytes"] = stat_dict(stats.requested_bytes);
  all["num_alloc_retries"] = stats.num_alloc_retries;
  all["num_ooms"] = stats.num_ooms;
  all["num_device_alloc"] = stats.num_device_alloc;
  all["num_device_free"] = stats.num_device_free;
  return all;
}

void drain_all() {
  if (!is_initialized() || is_in_bad_fork()) return;
  for (int index = 0; index < device_count(); ++index) {
    for (StreamState* stream : core(static_cast<c10::DeviceIndex>(index)).streams()) drain(*stream);
  }
}

// Sends a backward pass of ours through autograd's thread of a device, behind the one that it may still hold. From a
// thread of its own and without Python objects: freeing this one never needs the interpreter.
void finish_backward(c10::DeviceIndex device) {
  std::packaged_task<void()> pass([device] {
    const auto options = at::TensorOptions().device(c10::Device(at::kPrivateUse1, device));
    const at::Tensor x = at::empty({1}, options).requires_grad_();
    torch::autograd::grad({x.view({1})}, {x}, {at::empty({1}, options)});
  });
  auto done = pass.get_future();
  std::thread(std::move(pass)).detach();
  done.wait_for(std::chrono::seconds(10));  // a hook of the user's may hold the thread
}

void check_torch() {
  const std::string version = py::module_::import("torch").attr("__version__").cast<std::string>();
  const std::string minor = version.substr(0, version.find('.', version.find('.') + 1));
  if (minor != NEURON_TORCH_MINOR) {
    throw py::import_error("built for torch " NEURON_TORCH_MINOR ", but torch is " + version +
                           "; install 'torch==" NEURON_TORCH_MINOR ".*' or rebuild neuronscope-emulator");
  }
}

void bind_device(py::module_& m) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  m.def("init", torch::wrap_pybind_function_no_gil(&ensure_initialized));
  m.def("is_initialized", &is_initialized);
  m.def("is_in_bad_fork", &is_in_bad_fork);
  m.def("device_count", torch::wrap_pybind_function(&device_count_or_throw));
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", torch::wrap_pybind_function([](int64_t index) {
          check_device_index(index);
          set_current_device(static_cast<c10::DeviceIndex>(index));
        }));
  m.def("current_stream", [](int64_t index) { return current_stream(static_cast<c10::DeviceIndex>(index)); });
  m.def("set_stream", torch::wrap_pybind_function([](int64_t index, int64_t id) {
          core(static_cast<c10::DeviceIndex>(index)).stream(id);
          exchange_stream(static_cast<c10::DeviceIndex>(index), id);
        }));
  m.def("synchronize", torch::wrap_pybind_function_no_gil(
                           [](int64_t index) { synchronize_device(static_cast<c10::DeviceIndex>(index)); }));
  m.def("event_elapsed_ms", torch::wrap_pybind_function([](int64_t start, int64_t end) {
          TORCH_CHECK(start != 0 && end != 0, "Event has not been recorded");
          return elapsed_ms(*reinterpret_cast<const Event*>(start), *reinterpret_cast<const Event*>(end));
        }),
        "Simulated milliseconds between two recorded events, given by torch.Event.event_id.");
  m.def(
      "finish_backward", [](int64_t index) { finish_backward(static_cast<c10::DeviceIndex>(index)); }, release,
      "Waits until autograd's thread of a device has let go of the last backward pass.");
  m.def("drain", &drain_all, release, "Waits until queued arithmetic is done; looks at no error and no clock.");
  m.def("set_launch_blocking", [](bool on) { options().launch_blocking = on; });
  m.def("set_real_streams", [](bool on) { options().real_streams = on; });
  m.def("set_exact_scalars", [](bool on) { options().exact_scalars = on; });
  m.def("host_offset_ns", &HostClock::offset_ns, "How far simulated time is ahead of this machine's clock.");
  m.def("simulated_now_ns", &HostClock::now_ns, "The host's time on the simulated axis.");
  m.def("simulated_end_ns", torch::wrap_pybind_function([](int64_t index) {
          return core(static_cast<c10::DeviceIndex>(index)).clock.tail_ns();
        }),
        "End of the device's last work on the simulated axis, 0 before the first.");
  m.def("memory_stats", torch::wrap_pybind_function(&memory_stats));
  m.def("memory_info", torch::wrap_pybind_function([](int64_t device) {
          return allocator().getMemoryInfo(static_cast<c10::DeviceIndex>(device));
        }));
  m.def("empty_cache", [] { allocator().emptyCache(); }, release);
  m.def("reset_peak_memory_stats", torch::wrap_pybind_function([](int64_t device) {
          allocator().resetPeakStats(static_cast<c10::DeviceIndex>(device));
        }));
  m.def("reset_accumulated_memory_stats", torch::wrap_pybind_function([](int64_t device) {
          allocator().resetAccumulatedStats(static_cast<c10::DeviceIndex>(device));
        }));
  m.def("default_generator", torch::wrap_pybind_function([](int64_t device) {
          return py::reinterpret_steal<py::object>(
              THPGenerator_Wrap(default_generator(static_cast<c10::DeviceIndex>(device))));
        }));
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "The emulated device: memory, queues, clock, operators. Use torch.neuron and torch_neuronx instead.";
  check_torch();
  python_hooks().without_gil = [](const std::function<void()>& wait) {
    if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return wait();
    py::gil_scoped_release no_gil;
    wait();
  };
  bind_device(m);
  m.def("register_hooks", &register_hooks);
  m.def("register_ops", torch::wrap_pybind_function(&register_ops));
  m.def("set_device_count_hook", [](py::object function) {
    python_hooks().device_count = [kept = keep(std::move(function))] {
      py::gil_scoped_acquire gil;
      return call_python<int64_t>(*kept);
    };
  });
  m.def("set_initializer", [](py::object function) {
    python_hooks().initialize = [kept = keep(std::move(function))] {
      py::gil_scoped_acquire gil;
      call_python<void>(*kept);
    };
  });
  m.def("configure_device", &configure_device, py::kw_only(), py::arg("launch_cost_plain_ns"),
        py::arg("launch_cost_profiled_ns"), py::arg("launch_latency_ns"), py::arg("execution_gap_ns"),
        py::arg("host_copy_latency_ns"), py::arg("to_device_bytes_per_second"), py::arg("to_host_bytes_per_second"),
        py::arg("memory_bytes"));
  m.def("register_miss_handler", &register_miss_handler,
        "handler(op, overload, args, outputs) -> dict with the fields of an executable; called once per signature.");
  m.def("register_program_runner", &register_program_runner,
        "runner(overload, args) -> finish(neff, outputs); called around every eager op, to compute its values.");
  m.def("create_executable",
        [](const py::dict& fields) { return ExecutableCache::get().add(read_executable(fields))->id; });
  m.def("host_now_ns", &HostClock::real_ns, "The clock of recorded host rows.");
  m.def(
      "record_compile",
      [](std::string what, int64_t begin_ns, int64_t device) {
        record_host("neuron_compile", std::move(what), begin_ns, static_cast<c10::DeviceIndex>(device));
      },
      "A row of its own for compiling, from begin_ns to now, while a profiler records.");
  m.def("launch", torch::wrap_pybind_function(&launch), py::arg("executable_id"), py::arg("device"), py::arg("body"));
  m.def("cpu_view", torch::wrap_pybind_function(&cpu_view),
        "CPU tensor over the same memory. Values are valid inside a launch body or after synchronize().");
  m.def("adopt", torch::wrap_pybind_function([](const at::Tensor& cpu, int64_t device) {
          return adopt_tensor(cpu, static_cast<c10::DeviceIndex>(device), /*take=*/false);
        }),
        "Neuron tensor over the memory of a CPU tensor.");
  m.def("set_lookup_repeats", &set_lookup_repeats,
        "For benchmarks: each device op looks its program up that many more times; 0 stops it.");
  m.def("lookup_ns", &lookup_ns, "What such a look-up of the last op took on average, its signature included.");
  m.def("cached_signatures", [] { return ExecutableCache::get().size(); });
  m.def("clear_executable_cache", [] { ExecutableCache::get().clear(); });
  m.def("executed_ops", &executed_ops);
  m.def("fallback_ops", &fallback_ops);
  m.def("device_op_names", &device_op_names);
  m.def("clear_op_tracking", &clear_op_tracking);
  profiler::bind_profiler(m);
}

}  // namespace neuron
