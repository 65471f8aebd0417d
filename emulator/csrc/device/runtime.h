// The emulated NeuronCores of this process: devices, streams, the current ones, synchronization and launches.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/queue.h"
#include "runtime/recorder.h"

namespace neuron {

// What only Python can answer. Set once by module.cpp; called with no lock of ours held.
struct PythonHooks {
  std::function<int64_t()> device_count;  // from the environment; may throw
  std::function<void()> initialize;       // reads the target file and calls configure()
  // Gives up the Python lock, where this thread holds it, for the length of `wait`.
  void (*without_gil)(const std::function<void()>& wait) = nullptr;
};
PythonHooks& python_hooks();

struct StreamState {
  explicit StreamState(c10::StreamId stream_id);
  const c10::StreamId id;
  WorkQueue queue;
  std::atomic<int64_t> not_before_ns{0};  // simulated time of the latest event this stream waits for
  std::atomic<int64_t> tail_ns{0};        // simulated end of this stream's last work
};

class Core {
 public:
  explicit Core(c10::DeviceIndex core_index);
  const c10::DeviceIndex index;
  DeviceClock clock;

  StreamState& stream(c10::StreamId id);
  c10::StreamId new_stream();
  std::vector<StreamState*> streams();

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<StreamState>> streams_;
};

struct RuntimeOptions {
  std::atomic<bool> launch_blocking{false};
  std::atomic<bool> real_streams{false};          // else every new stream is the default one
  std::atomic<bool> exact_scalars{false};         // scalars are part of an executable's identity
  std::atomic<int64_t> memory_bytes{24LL << 30};  // HBM of one logical NeuronCore
};
RuntimeOptions& options();

// Raises after fork() in the child of a process that had started the runtime. First call initializes.
void ensure_initialized();
bool is_initialized();
bool is_in_bad_fork();

// 0 where the environment is unusable; the message is what device_count_or_throw() raises. An int: up to 128 devices,
// while torch's own index type ends at 127.
int device_count() noexcept;
int device_count_or_throw();
// As torch's generic calls can say it: at most 127.
c10::DeviceIndex torch_device_count() noexcept;
void check_device_index(int64_t index);
Core& core(c10::DeviceIndex index);

c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::StreamId current_stream(c10::DeviceIndex index);
c10::StreamId exchange_stream(c10::DeviceIndex index, c10::StreamId id);

// Functional completion only: values are in memory. Doesn't look at errors or at the clock.
void drain(StreamState& stream);
// Drains, raises a stored error, and brings the host to the simulated end. `what` names the wait in the trace.
void synchronize_stream(Core& device, StreamState& stream, const char* what);
void synchronize_device(c10::DeviceIndex index);
void rethrow_error(StreamState& stream);
// The host waits for simulated time `end_ns`; records emulation lag where the arithmetic was slower than the device.
void reach_simulated(Core& device, int64_t begin_ns, int64_t end_ns, const char* what);

// While one lives, what this thread runs belongs to one compiled graph, whose launch was already made: the arithmetic
// is queued as ever, but ops, copies and waits of its own take no device time and leave no rows.
class GraphBody {
 public:
  GraphBody();
  ~GraphBody();
  GraphBody(const GraphBody&) = delete;
  GraphBody& operator=(const GraphBody&) = delete;
};
bool in_graph_body();

// Times and, while a profiler records, records one execution or copy. `dispatch_begin_ns` is when the op entered.
Slot launch_execution(Core& device, StreamState& stream, const Executable& executable, int64_t dispatch_begin_ns);
Slot launch_copy(Core& device, StreamState& stream, LaunchKind kind, int64_t bytes, int64_t dispatch_begin_ns);
void record_host(const char* name, std::string detail, int64_t begin_ns, c10::DeviceIndex device);

}  // namespace neuron
