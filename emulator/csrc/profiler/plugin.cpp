#include "profiler/plugin.h"

#include <ATen/record_function.h>
#include <libkineto.h>
#include <output_base.h>
#include <time.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "profiler/call_site.h"

namespace neuron::profiler {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

// The lane of executions in a core's process row; framework streams, the other lanes there, count from 0.
constexpr int32_t kExecutionLane = 1 << 20;

std::mutex state_mutex;
SessionOptions next_options;
std::shared_ptr<const Capture> last_capture;

int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

std::string json_escaped(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  }
  return out;
}

int64_t end_ns(const LaunchRecord& launch) { return launch.start_ns + launch.launch_ns + launch.program_ns; }

// ProfilerStep#N regions carry the step number of what runs inside them.
std::unique_ptr<at::ObserverContext> enter_region(const at::RecordFunction& region) {
  static constexpr std::string_view prefix = "ProfilerStep#";
  const std::string_view name = region.name();
  if (name.substr(0, prefix.size()) == prefix) {
    Recorder::get().set_step(std::strtoll(name.data() + prefix.size(), nullptr, 10));
  }
  return nullptr;
}

// Rows that belong in trace.json but not among torch's events, where they would count as CPU time of whatever they
// overlap: torch sees this one annotation, the exporter calls log() and gets all of them.
class HiddenRows : public GenericTraceActivity {
 public:
  HiddenRows(const libkineto::TraceSpan& span, int64_t begin_ns, int32_t device)
      : GenericTraceActivity(span, ActivityType::GPU_USER_ANNOTATION, "neuron capture") {
    startTime = begin_ns;
    endTime = begin_ns;  // no duration: it must not count as device time anywhere
    this->device = device;
    resource = kExecutionLane;
  }

  void log(libkineto::ActivityLogger& logger) const override {
    for (const auto& info : devices) logger.handleDeviceInfo(info, startTime);
    for (const auto& info : resources) logger.handleResourceInfo(info, startTime);
    for (const auto& row : rows) logger.handleGenericActivity(*row);
  }

  std::vector<std::unique_ptr<GenericTraceActivity>> rows;
  std::vector<libkineto::DeviceInfo> devices;
  std::vector<libkineto::ResourceInfo> resources;
};

libkineto::DeviceInfo device_info(int32_t device) {
  return {device, libkineto::kExceedMaxPid + device, "NeuronCore " + std::to_string(device) + " (emulated)",
          "NeuronCore"};
}

class Session : public libkineto::IActivityProfilerSession {
 public:
  ~Session() override {
    if (started_) stop();  // torch dropped the session without stopping it
  }

  void start() override {
    {
      std::lock_guard<std::mutex> lock(state_mutex);
      options_ = next_options;
    }
    clear_forward_sites();
    step_callback_ =
        at::addGlobalCallback(at::RecordFunctionCallback(enter_region).scopes({at::RecordScope::USER_SCOPE}));
    started_ = true;
    owns_capture_ = Recorder::get().start(options_.capture, now_ns());
    if (!owns_capture_) errors_.emplace_back("another capture of the neuron device is running");
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    if (!started_) return;
    started_ = false;
    at::removeCallback(step_callback_);
    capture_ = std::make_shared<Capture>();
    if (owns_capture_) *capture_ = Recorder::get().stop(now_ns());
    clear_forward_sites();
    status_ = libkineto::TraceStatus::PROCESSING;
    std::lock_guard<std::mutex> lock(state_mutex);
    last_capture = capture_;
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t,
                    int64_t) override {
    if (!capture_ || !buffer_) return;
    buffer_->span = libkineto::TraceSpan(capture_->start_ns, capture_->stop_ns, "neuron");
    auto hidden = std::make_unique<HiddenRows>(buffer_->span, capture_->start_ns, lowest_device(*capture_));
    for (const LaunchRecord& launch : capture_->launches) {
      const auto* op = launch.external_id != 0 ? linked(static_cast<int32_t>(launch.external_id)) : nullptr;
      add_dispatch(launch, op, *hidden);
      // An execution that had not ended when the window closed is lost: its dispatch is all that is known.
      if (launch.kind != LaunchKind::kExec || end_ns(launch) > capture_->stop_ns) continue;
      add_device(launch, op, *hidden, logger);
    }
    name_lanes(*capture_, *hidden);
    logger.handleActivity(*hidden);
    buffer_->activities.push_back(std::move(hidden));
    buffer_->gpuOpCount = static_cast<int>(buffer_->activities.size());
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(device_info(capture_ ? lowest_device(*capture_) : 0));
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    const int32_t device = capture_ ? lowest_device(*capture_) : 0;
    return {{kExecutionLane, kExecutionLane, device, "executions (simulated)"}};
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  std::unordered_map<std::string, std::string> getMetadata() override {
    auto metadata = options_.metadata;
    if (capture_) {
      int64_t dropped = 0, unfinished = 0;
      for (const auto& [core, count] : capture_->dropped) dropped += count;
      for (const auto& launch : capture_->launches) {
        unfinished += launch.kind == LaunchKind::kExec && end_ns(launch) > capture_->stop_ns ? 1 : 0;
      }
      metadata["neuronscope_dropped_events"] = std::to_string(dropped);
      metadata["neuronscope_unfinished_executions"] = std::to_string(unfinished);
    }
    return metadata;
  }

  void pushCorrelationId(uint64_t id) override { push_external_id(id); }
  void popCorrelationId() override { pop_external_id(); }

 private:
  static int32_t lowest_device(const Capture& capture) {
    int32_t lowest = INT32_MAX;
    for (const auto& launch : capture.launches) lowest = std::min(lowest, launch.device);
    return lowest == INT32_MAX ? 0 : lowest;
  }

  std::unique_ptr<GenericTraceActivity> row(ActivityType type, const std::string& name, const LaunchRecord& launch,
                                            int64_t begin, int64_t end) const {
    auto row = std::make_unique<GenericTraceActivity>(buffer_->span, type, name);
    row->startTime = begin;
    row->endTime = std::max(end, begin);
    row->id = correlation_of(launch.execution_id);
    row->threadId = static_cast<int32_t>(launch.thread_id);
    row->addMetadata("correlation", row->id);
    row->addMetadata("device", launch.device);
    row->addMetadata("stream", launch.stream);
    row->addMetadata("execution_id", launch.execution_id);
    if (launch.executable != nullptr) {
      row->addMetadataQuoted("neff", launch.executable->neff);
      row->addMetadataQuoted("shapes", json_escaped(launch.executable->shapes));
      row->addMetadataQuoted("dtypes", json_escaped(launch.executable->dtypes));
      row->addMetadata("launch_ns", launch.launch_ns);
      row->addMetadata("program_ns", launch.program_ns);
      row->addMetadata("estimated_ns", launch.executable->estimated_ns);
      if (!launch.executable->bound.empty()) row->addMetadataQuoted("bound", json_escaped(launch.executable->bound));
    } else {
      row->addMetadata("bytes", launch.bytes);
    }
    if (launch.source_id >= 0) row->addMetadataQuoted("source", json_escaped(Recorder::get().string(launch.source_id)));
    if (launch.module_id >= 0) row->addMetadataQuoted("module", json_escaped(Recorder::get().string(launch.module_id)));
    if (launch.step >= 0) row->addMetadata("step", launch.step);
    return row;
  }

  static void link_by_args(GenericTraceActivity& row, const LaunchRecord& launch) {
    if (launch.external_id != 0) row.addMetadata("External id", launch.external_id);
  }

  void add_dispatch(const LaunchRecord& launch, const libkineto::ITraceActivity* op, HiddenRows& hidden) const {
    const bool exec = launch.kind == LaunchKind::kExec && launch.executable != nullptr;
    const char* copy = launch.kind == LaunchKind::kCopyToHost ? "dmem_buf_copyout" : "dmem_buf_copyin";
    int64_t begin = launch.dispatch_begin_ns, end = launch.dispatch_end_ns;
    if (op != nullptr) {
      // Torch reads another clock; keep the row inside its op so that viewers nest the two.
      const int64_t op_end = op->timestamp() + op->duration();
      begin = std::clamp(begin, op->timestamp(), op_end);
      end = std::clamp(end, begin, op_end);
    }
    auto dispatch =
        row(ActivityType::PRIVATEUSE1_RUNTIME, exec ? launch.executable->overload : copy, launch, begin, end);
    dispatch->device = static_cast<int32_t>(::getpid());
    dispatch->resource = static_cast<int32_t>(launch.thread_id);
    link_by_args(*dispatch, launch);
    if (exec && end_ns(launch) <= capture_->stop_ns) set_flow(*dispatch, launch, true);
    hidden.rows.push_back(std::move(dispatch));
  }

  void add_device(const LaunchRecord& launch, const libkineto::ITraceActivity* op, HiddenRows& hidden,
                  libkineto::ActivityLogger& logger) const {
    const std::string overload = launch.executable != nullptr ? launch.executable->overload : "unknown";
    auto driver = row(ActivityType::PRIVATEUSE1_DRIVER, overload, launch, launch.enqueue_ns, end_ns(launch));
    driver->device = launch.device;
    driver->resource = launch.stream;
    link_by_args(*driver, launch);
    if (!options_.correlate_device_time) set_flow(*driver, launch, false);
    hidden.rows.push_back(std::move(driver));
    if (!options_.correlate_device_time) return;
    // Named unlike the op: key_averages() groups by name, and this row is not a call of the op.
    auto kernel =
        row(ActivityType::CONCURRENT_KERNEL, "nc_exec_running " + overload, launch, launch.start_ns, end_ns(launch));
    kernel->device = launch.device;
    kernel->resource = kExecutionLane;
    kernel->linked = op;
    const bool is_first = launch.start_ns - launch.gap_ns < capture_->start_ns;  // as in the executions table
    kernel->addMetadata("gap_ns", is_first ? -1 : launch.gap_ns);
    kernel->addMetadataQuoted("gap_cause", is_first ? "first" : launch.gap_cause);
    if (launch.executable != nullptr) {
      kernel->addMetadata("bytes_read", launch.executable->bytes_read);
      kernel->addMetadata("bytes_written", launch.executable->bytes_written);
      kernel->addMetadata("flops", launch.executable->flops);
    }
    if (op == nullptr) link_by_args(*kernel, launch);
    set_flow(*kernel, launch, false);
    logger.handleActivity(*kernel);
    buffer_->activities.push_back(std::move(kernel));
  }

  static void set_flow(GenericTraceActivity& row, const LaunchRecord& launch, bool start) {
    row.flow.id = static_cast<uint32_t>(correlation_of(launch.execution_id));
    row.flow.type = libkineto::kLinkAsyncCpuGpu;
    row.flow.start = start ? 1 : 0;
  }

  static void name_lanes(const Capture& capture, HiddenRows& hidden) {
    std::set<int32_t> devices;
    std::set<std::pair<int32_t, int32_t>> streams;
    for (const auto& launch : capture.launches) {
      devices.insert(launch.device);
      streams.emplace(launch.device, launch.stream);
    }
    for (const int32_t device : devices) {
      if (device == lowest_device(capture)) continue;  // named by getDeviceInfo()
      hidden.devices.push_back(device_info(device));
      hidden.resources.push_back({kExecutionLane, kExecutionLane, device, "executions (simulated)"});
    }
    for (const auto& [device, stream] : streams) {
      hidden.resources.push_back(
          {stream, stream, device, "Stream " + std::to_string(stream) + " (device interaction)"});
    }
  }

  SessionOptions options_;
  bool started_ = false, owns_capture_ = false;
  at::CallbackHandle step_callback_ = 0;
  std::shared_ptr<Capture> capture_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
  std::vector<std::string> errors_;
};

class NeuronActivityProfiler : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "__neuron_profiler__";
    return name;
  }

  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_USER_ANNOTATION,
                                              ActivityType::PRIVATEUSE1_RUNTIME, ActivityType::PRIVATEUSE1_DRIVER};
    return types;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    // Asked on every profile, a CPU-only one included.
    if (types.count(ActivityType::CONCURRENT_KERNEL) == 0) return nullptr;
    return std::make_unique<Session>();
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }
};

REGISTER_PRIVATEUSE1_PROFILER(NeuronActivityProfiler);

}  // namespace

void set_next_session_options(SessionOptions options) {
  std::lock_guard<std::mutex> lock(state_mutex);
  next_options = std::move(options);
}

void close_window() { Recorder::get().close(now_ns()); }

std::shared_ptr<const Capture> take_capture() {
  std::lock_guard<std::mutex> lock(state_mutex);
  return std::exchange(last_capture, nullptr);
}

int32_t correlation_of(int64_t execution_id) {
  constexpr int64_t base = int64_t{1} << 30;
  return static_cast<int32_t>(base + execution_id % base);
}

}  // namespace neuron::profiler
