#include "device/runtime.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <limits>

#include "device/thread_state.h"

namespace neuron {
namespace {

std::atomic<bool> initialized{false};
std::atomic<bool> bad_fork{false};
std::atomic<int> known_count{-1};
std::atomic<int> process_device{0};
std::mutex cores_mutex;
std::atomic<int64_t> next_execution_id{1};

thread_local int thread_device = -1;
thread_local std::vector<c10::StreamId> thread_streams;

auto& cores() {
  static auto* all = new std::vector<std::unique_ptr<Core>>;  // leaked: workers may outlive static destruction
  return *all;
}

void wait_without_gil(const std::function<void()>& wait) {
  if (auto without_gil = python_hooks().without_gil) {
    without_gil(wait);
  } else {
    wait();
  }
}

Slot launch(Core& device, StreamState& stream, LaunchKind kind, const Executable* executable, int64_t bytes,
            int64_t launch_ns, int64_t program_ns, int64_t dispatch_begin_ns) {
  Recorder& recorder = Recorder::get();
  const bool recording = recorder.active();
  const int64_t schedule_begin_ns = recording ? HostClock::real_ns() : 0;
  const int64_t execution_id = next_execution_id.fetch_add(1, std::memory_order_relaxed);
  const Slot slot = device.clock.enqueue(launch_ns, program_ns, stream.not_before_ns.load());
  stream.tail_ns.store(slot.end_ns());
  if (!recording) return slot;
  const int64_t offset = HostClock::offset_ns();
  LaunchRecord record;
  record.execution_id = execution_id;
  record.kind = kind;
  record.executable = executable;
  record.bytes = bytes;
  record.device = device.index;
  record.stream = static_cast<int32_t>(stream.id);
  record.dispatch_begin_ns = dispatch_begin_ns;
  record.schedule_begin_ns = schedule_begin_ns;
  record.enqueue_ns = slot.enqueue_ns - offset;
  record.start_ns = slot.start_ns - offset;
  record.launch_ns = slot.launch_ns;
  record.program_ns = slot.program_ns;
  record.gap_ns = slot.gap_ns;
  record.gap_cause = slot.gap_cause;
  record.schedule_end_ns = HostClock::real_ns();
  record.dispatch_end_ns = record.schedule_end_ns;
  recorder.submit(std::move(record));
  return slot;
}

}  // namespace

PythonHooks& python_hooks() {
  static auto* hooks = new PythonHooks;
  return *hooks;
}

RuntimeOptions& options() {
  static auto* values = new RuntimeOptions;
  return *values;
}

StreamState::StreamState(c10::StreamId stream_id) : id(stream_id), queue(&with_worker_thread_state) {}

Core::Core(c10::DeviceIndex core_index) : index(core_index) { new_stream(); }

StreamState& Core::stream(c10::StreamId id) {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(id >= 0 && id < static_cast<int64_t>(streams_.size()), "Stream ", id,
              " does not exist on neuron:", static_cast<int>(index), "; it has ", streams_.size(), " streams");
  return *streams_[static_cast<size_t>(id)];
}

c10::StreamId Core::new_stream() {
  std::lock_guard<std::mutex> lock(mutex_);
  streams_.push_back(std::make_unique<StreamState>(static_cast<c10::StreamId>(streams_.size())));
  return streams_.back()->id;
}

std::vector<StreamState*> Core::streams() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<StreamState*> all;
  for (auto& stream : streams_) all.push_back(stream.get());
  return all;
}

bool is_initialized() { return initialized; }
bool is_in_bad_fork() { return bad_fork; }

void ensure_initialized() {
  TORCH_CHECK(!bad_fork,
              "Cannot re-initialize the Neuron runtime in a forked subprocess. To use the device with multiprocessing, "
              "use the 'spawn' start method: multiprocessing.set_start_method('spawn').");
  if (initialized.load(std::memory_order_acquire)) return;
  // No lock: the Python hook takes the GIL, and two threads that race here compute the same.
  const auto count = device_count_or_throw();
  if (python_hooks().initialize) python_hooks().initialize();
  {
    std::lock_guard<std::mutex> lock(cores_mutex);
    for (auto index = static_cast<int>(cores().size()); index < count; ++index) {
      cores().push_back(std::make_unique<Core>(static_cast<c10::DeviceIndex>(index)));
    }
  }
  if (!initialized.exchange(true)) {
    pthread_atfork(nullptr, nullptr, [] { bad_fork = true; });
  }
}

int device_count_or_throw() {
  int count = known_count;
  if (count < 0) {
    count = static_cast<int>(python_hooks().device_count ? python_hooks().device_count() : 1);
    known_count = count;
  }
  return count;
}

int device_count() noexcept {
  try {
    return device_count_or_throw();
  } catch (...) {
    return 0;
  }
}

c10::DeviceIndex torch_device_count() noexcept {
  return static_cast<c10::DeviceIndex>(std::min<int>(device_count(), std::numeric_limits<c10::DeviceIndex>::max()));
}

void check_device_index(int64_t index) {
  const int count = device_count_or_throw();
  TORCH_CHECK(count > 0,
              "No NeuronCore is visible to this process; see NEURON_RT_NUM_CORES and NEURON_RT_VISIBLE_CORES");
  TORCH_CHECK(index >= 0 && index < count, "Device index ", index, " is out of range. Valid range is 0 to ", count - 1,
              " for this process");
}

Core& core(c10::DeviceIndex index) {
  ensure_initialized();
  if (index < 0 || index >= static_cast<int>(cores().size())) check_device_index(index);
  return *cores()[static_cast<size_t>(index)];
}

c10::DeviceIndex current_device() {
  return static_cast<c10::DeviceIndex>(thread_device >= 0 ? thread_device : process_device.load());
}

void set_current_device(c10::DeviceIndex index) {
  if (index == current_device()) return;
  check_device_index(index);
  thread_device = index;
}

c10::StreamId current_stream(c10::DeviceIndex index) {
  const auto at = static_cast<size_t>(index);
  return at < thread_streams.size() ? thread_streams[at] : 0;
}

c10::StreamId exchange_stream(c10::DeviceIndex index, c10::StreamId id) {
  const auto previous = current_stream(index);
  if (id == previous) return previous;
  const auto at = static_cast<size_t>(index);
  if (thread_streams.size() <= at) thread_streams.resize(at + 1, 0);
  thread_streams[at] = id;
  return previous;
}

void drain(StreamState& stream) {
  if (stream.queue.finished(stream.queue.pushed())) return;
  wait_without_gil([&stream] { stream.queue.drain(); });
}

void rethrow_error(StreamState& stream) {
  if (auto error = stream.queue.take_error()) std::rethrow_exception(error);
}

namespace {
thread_local int graph_depth = 0;
}  // namespace

GraphBody::GraphBody() { ++graph_depth; }
GraphBody::~GraphBody() { --graph_depth; }
bool in_graph_body() { return graph_depth > 0; }

void reach_simulated(Core& device, int64_t begin_ns, int64_t end_ns, const char* what) {
  if (in_graph_body()) return;
  Recorder& recorder = Recorder::get();
  const bool recording = recorder.active();
  device.clock.mark_sync();
  if (!recording) {
    HostClock::reach(end_ns, false);
    return;
  }
  const int64_t computed_ns = HostClock::now_ns();
  if (computed_ns < end_ns) wait_without_gil([end_ns] { HostClock::reach(end_ns, true); });
  record_host(what, "", begin_ns, device.index);
  // The real device would have been done at end_ns (or before the wait began); the rest is this machine's arithmetic.
  const int64_t offset = HostClock::offset_ns();
  const int64_t due_ns = std::max(end_ns - offset, begin_ns);
  if (computed_ns - offset > due_ns + 1'000) {
    HostRecord lag;
    lag.name = "emulation_lag";
    lag.begin_ns = due_ns;
    lag.end_ns = computed_ns - offset;
    lag.device = device.index;
    recorder.submit(std::move(lag));
  }
}

void synchronize_stream(Core& device, StreamState& stream, const char* what) {
  const int64_t begin_ns = HostClock::real_ns();
  drain(stream);
  reach_simulated(device, begin_ns, stream.tail_ns.load(), what);
  rethrow_error(stream);
}

void synchronize_device(c10::DeviceIndex index) {
  Core& device = core(index);
  const int64_t begin_ns = HostClock::real_ns();
  for (StreamState* stream : device.streams()) drain(*stream);
  reach_simulated(device, begin_ns, device.clock.tail_ns(), "nrt_synchronize");
  for (StreamState* stream : device.streams()) rethrow_error(*stream);
}

Slot launch_execution(Core& device, StreamState& stream, const Executable& executable, int64_t dispatch_begin_ns) {
  if (in_graph_body()) return {};
  return launch(device, stream, LaunchKind::kExec, &executable, 0, device_costs().launch_cost_ns(),
                executable.program_ns, dispatch_begin_ns);
}

Slot launch_copy(Core& device, StreamState& stream, LaunchKind kind, int64_t bytes, int64_t dispatch_begin_ns) {
  if (in_graph_body()) return {};
  return launch(device, stream, kind, nullptr, bytes, 0,
                device_costs().copy_ns(bytes, kind == LaunchKind::kCopyToDevice), dispatch_begin_ns);
}

void record_host(const char* name, std::string detail, int64_t begin_ns, c10::DeviceIndex device) {
  Recorder& recorder = Recorder::get();
  if (!recorder.active() || in_graph_body()) return;
  HostRecord record;
  record.name = name;
  record.detail = std::move(detail);
  record.begin_ns = begin_ns;
  record.end_ns = HostClock::real_ns();
  record.device = device;
  recorder.submit(std::move(record));
}

}  // namespace neuron
