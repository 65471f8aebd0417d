#include "profiler/bindings.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/call_site.h"
#include "profiler/plugin.h"

namespace py = pybind11;

namespace neuron::profiler {
namespace {

// One numpy column of a field of every record.
template <typename Records, typename Field>
py::array_t<int64_t> column(const Records& records, Field field) {
  py::array_t<int64_t> values(static_cast<py::ssize_t>(records.size()));
  int64_t* out = values.mutable_data();
  for (const auto& record : records) *out++ = static_cast<int64_t>(field(record));
  return values;
}

// Distinct values in order of first appearance, and the index of each record's value among them.
template <typename Key, typename Records, typename Field>
std::pair<std::vector<Key>, py::array_t<int64_t>> factorize(const Records& records, Field field) {
  std::vector<Key> distinct;
  std::unordered_map<Key, int64_t> index;
  auto values = column(records, [&](const auto& record) {
    const auto [found, is_new] = index.try_emplace(field(record), static_cast<int64_t>(distinct.size()));
    if (is_new) distinct.push_back(found->first);
    return found->second;
  });
  return {std::move(distinct), std::move(values)};
}

py::list strings_of(const std::vector<int32_t>& ids) {
  py::list strings;
  for (const int32_t id : ids) strings.append(Recorder::get().string(id));
  return strings;
}

const char* kind_name(LaunchKind kind) {
  switch (kind) {
    case LaunchKind::kCopyToDevice:
      return "memcpy_h2d";
    case LaunchKind::kCopyToHost:
      return "memcpy_d2h";
    case LaunchKind::kExec:
      break;
  }
  return "exec";
}

py::dict executable_dict(const Executable* executable) {
  using namespace py::literals;
  static const Executable none;
  const Executable& e = executable != nullptr ? *executable : none;
  return py::dict("neff"_a = e.neff, "op"_a = e.op, "overload"_a = e.overload, "estimated_ns"_a = e.estimated_ns,
                  "bytes_read"_a = e.bytes_read, "bytes_written"_a = e.bytes_written, "flops"_a = e.flops,
                  "shapes"_a = e.shapes, "dtypes"_a = e.dtypes, "bound"_a = e.bound);
}

py::dict launches_dict(const std::vector<LaunchRecord>& launches) {
  py::dict out;
#define NEURON_COLUMN(name) out[#name] = column(launches, [](const LaunchRecord& r) { return r.name; })
  NEURON_COLUMN(execution_id);
  NEURON_COLUMN(bytes);
  NEURON_COLUMN(device);
  NEURON_COLUMN(stream);
  NEURON_COLUMN(thread_id);
  NEURON_COLUMN(external_id);
  NEURON_COLUMN(dispatch_begin_ns);
  NEURON_COLUMN(dispatch_end_ns);
  NEURON_COLUMN(schedule_begin_ns);
  NEURON_COLUMN(schedule_end_ns);
  NEURON_COLUMN(enqueue_ns);
  NEURON_COLUMN(start_ns);
  NEURON_COLUMN(launch_ns);
  NEURON_COLUMN(program_ns);
  NEURON_COLUMN(gap_ns);
  NEURON_COLUMN(step);
#undef NEURON_COLUMN
  out["correlation"] = column(launches, [](const LaunchRecord& r) { return correlation_of(r.execution_id); });

  auto [executables, executable_index] =
      factorize<const Executable*>(launches, [](const LaunchRecord& r) { return r.executable; });
  py::list executable_rows;
  for (const Executable* executable : executables) executable_rows.append(executable_dict(executable));
  out["executables"] = executable_rows;
  out["executable_index"] = executable_index;

  auto [sources, source_index] = factorize<int32_t>(launches, [](const LaunchRecord& r) { return r.source_id; });
  out["sources"] = strings_of(sources);
  out["source_index"] = source_index;
  auto [modules, module_index] = factorize<int32_t>(launches, [](const LaunchRecord& r) { return r.module_id; });
  out["modules"] = strings_of(modules);
  out["module_index"] = module_index;
  auto [causes, cause_index] =
      factorize<std::string>(launches, [](const LaunchRecord& r) { return std::string(r.gap_cause); });
  out["gap_causes"] = causes;
  out["gap_cause_index"] = cause_index;
  auto [kinds, kind_index] =
      factorize<std::string>(launches, [](const LaunchRecord& r) { return std::string(kind_name(r.kind)); });
  out["kinds"] = kinds;
  out["kind_index"] = kind_index;
  return out;
}

py::dict hosts_dict(const std::vector<HostRecord>& hosts) {
  py::dict out;
  auto [names, name_index] = factorize<std::string>(hosts, [](const HostRecord& r) { return std::string(r.name); });
  out["names"] = names;
  out["name_index"] = name_index;
  out["begin_ns"] = column(hosts, [](const HostRecord& r) { return r.begin_ns; });
  out["end_ns"] = column(hosts, [](const HostRecord& r) { return r.end_ns; });
  out["thread_id"] = column(hosts, [](const HostRecord& r) { return r.thread_id; });
  out["external_id"] = column(hosts, [](const HostRecord& r) { return r.external_id; });
  out["device"] = column(hosts, [](const HostRecord& r) { return r.device; });
  std::vector<std::string> details;
  details.reserve(hosts.size());
  for (const auto& host : hosts) details.push_back(host.detail);
  out["details"] = details;
  return out;
}

py::object take_capture_dict() {
  const auto capture = take_capture();
  if (!capture) return py::none();
  py::dict out;
  out["start_ns"] = capture->start_ns;
  out["stop_ns"] = capture->stop_ns;
  out["dropped"] = capture->dropped;
  out["dropped_hosts"] = capture->dropped_hosts;
  out["launches"] = launches_dict(capture->launches);
  out["hosts"] = hosts_dict(capture->hosts);
  return std::move(out);
}

void prepare(int64_t max_events_per_nc, std::vector<int32_t> cores, bool device_mode, bool correlate_device_time,
             std::unordered_map<std::string, std::string> metadata) {
  SessionOptions options;
  options.capture.max_events_per_nc = max_events_per_nc;
  options.capture.cores = std::move(cores);
  options.capture.device_mode = device_mode;
  options.correlate_device_time = correlate_device_time;
  options.metadata = std::move(metadata);
  set_next_session_options(std::move(options));
}

}  // namespace

void bind_profiler(py::module_& module) {
  auto m = module.def_submodule("profiler", "Capture of what runs on the device.");
  Recorder::get().set_call_site_provider(current_call_site);
  m.def("prepare", &prepare, py::arg("max_events_per_nc"), py::arg("cores"), py::arg("device_mode"),
        py::arg("correlate_device_time"), py::arg("metadata"), "Options of the captures that start from now on.");
  m.def("active", [] { return Recorder::get().active(); }, "Whether a capture records now.");
  m.def("close_window", &close_window, "End the running capture's window; what ends later on the device is lost.");
  m.def("take_capture", &take_capture_dict, "The last capture as columns, once; None if there is none.");
  m.def("set_library_folders", &set_library_folders, py::arg("folders"), "Files below these are not the user's.");
  m.def("set_working_folder", &set_working_folder, py::arg("folder"), "Sources below it are shown relative to it.");
  m.def(
      "push_module", [](const std::string& path) { push_module(Recorder::get().intern(path)); }, py::arg("path"),
      "This thread enters the forward of the module with this qualified path.");
  m.def("pop_module", &pop_module, "This thread leaves a module's forward.");
}

}  // namespace neuron::profiler
