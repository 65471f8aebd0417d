// What happened on the device, kept while a profiler records: one LaunchRecord per execution or copy, in a ring buffer
// per logical NeuronCore. Written on the launching thread (device times are decided at enqueue), read once at stop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace neuron {

// A compiled program as the runtime needs it. Lives for the process; the cache hands out stable pointers.
struct Executable {
  int64_t id = 0;            // process-wide, from 1
  std::string neff;          // decimal content hash
  std::string op;            // "aten::mul", or the compiled graph's name
  std::string overload;      // "aten::mul.Tensor"
  int64_t program_ns = 0;    // simulated engine and DMA time
  int64_t estimated_ns = 0;  // part of it that is an estimate
  int64_t bytes_read = 0, bytes_written = 0, flops = 0;
  std::string shapes, dtypes;  // "[4,512] x [512]", "bf16 x bf16"
  std::string bound;           // ops of it whose real time depends on data, "aten.embedding.default"
};

enum class LaunchKind : uint8_t { kExec, kCopyToDevice, kCopyToHost };

// All times are CLOCK_REALTIME nanoseconds since the epoch, so that host rows, torch's rows and device rows share one
// clock.
struct LaunchRecord {
  int64_t execution_id = 0;  // process-wide, from 1; the flow id of its whole chain
  LaunchKind kind = LaunchKind::kExec;
  const Executable* executable = nullptr;              // null for copies
  int64_t bytes = 0;                                   // copies
  int32_t device = 0, stream = 0;                      // logical NeuronCore, framework stream
  int64_t thread_id = 0;                               // OS thread id
  uint64_t external_id = 0;                            // torch correlation id on top of this thread's stack, 0 none
  int64_t dispatch_begin_ns = 0, dispatch_end_ns = 0;  // host: whole boxed kernel
  int64_t schedule_begin_ns = 0, schedule_end_ns = 0;  // host: nrta_execute_schedule
  int64_t enqueue_ns = 0;
  int64_t start_ns = 0, launch_ns = 0, program_ns = 0;  // device, simulated; end = start + launch + program
  int64_t gap_ns = -1;                                  // idle before start since previous end, -1 for the first
  const char* gap_cause = "first";         // execution_gap | launch_latency | host_late | sync | stream | first
  int32_t source_id = -1, module_id = -1;  // into Recorder::strings()
  int64_t step = -1;
};

// A host-side interval that is no launch: compile on a miss, synchronize waits, emulation lag, fallback on the CPU.
struct HostRecord {
  const char* name;    // "neuron_compile", "nrt_synchronize", "emulation_lag", "cpu_fallback"
  std::string detail;  // op name or NEFF hash
  int64_t begin_ns = 0, end_ns = 0, thread_id = 0;
  uint64_t external_id = 0;
  int32_t device = 0;
};

// What to record, fixed while a capture runs.
struct CaptureOptions {
  int64_t max_events_per_nc = 1'000'000;  // ring size; the oldest records are dropped and counted
  std::vector<int32_t> cores;             // logical NeuronCores to record; empty = all
  bool device_mode = false;               // ProfileMode.DEVICE: launches cost what they cost under instruction tracing
};

// Everything one capture recorded, in launch order per core, handed over by stop().
struct Capture {
  CaptureOptions options;
  int64_t start_ns = 0, stop_ns = 0;
  std::vector<LaunchRecord> launches;  // sorted by execution id
  std::vector<HostRecord> hosts;
  std::map<int32_t, int64_t> dropped;  // per logical NeuronCore: records overwritten because the ring was full
  int64_t dropped_hosts = 0;
};

// What the launching Python thread was doing; filled by providers so that this file needs neither Python nor torch.
struct CallSite {
  int32_t source_id = -1, module_id = -1;
};

// Torch's correlation id on top of this thread's stack, 0 when no profiler is pushing.
uint64_t current_external_id();
void push_external_id(uint64_t id);
void pop_external_id();

// The one recorder of the process. How the device uses it, on the launching thread after dispatch_end_ns is known:
//
//   if (Recorder::get().active()) { LaunchRecord r; ...; Recorder::get().submit(std::move(r)); }
//
// submit() fills thread_id, external_id, source, module and step where the caller left the defaults. Call it without
// holding a lock: finding the source line may wait for the GIL.
class Recorder {
 public:
  static Recorder& get();

  // One relaxed load: cheap enough for every launch.
  bool active() const { return active_.load(std::memory_order_relaxed); }

  // True while a capture with ProfileMode.DEVICE records: the device then charges the profiled launch cost.
  bool device_mode() const { return device_mode_.load(std::memory_order_relaxed); }

  void submit(LaunchRecord record);
  void submit(HostRecord record);

  // Starts recording. Returns false when a capture already runs (there is one ring per core).
  bool start(CaptureOptions options, int64_t now_ns);
  // Ends the window: nothing later is recorded. Idempotent; the first call decides stop_ns.
  void close(int64_t now_ns);
  // Closes the window and hands over what it holds.
  Capture stop(int64_t now_ns);

  // Strings are interned for the life of the process, so ids stay valid across captures.
  int32_t intern(std::string_view text);
  std::string string(int32_t id) const;  // "" for -1

  // The step number of the surrounding ProfilerStep#N, -1 outside.
  void set_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }

  // Called on the launching thread for each submitted record; set once at load.
  void set_call_site_provider(std::function<CallSite()> provider);
  // Told (true) just before recording starts and (false) just after it ends. The device freezes its virtual host
  // offset.
  void on_change(std::function<void(bool)> listener);

 private:
  struct Ring {
    std::vector<LaunchRecord> records;
    size_t next = 0;  // slot that the next record overwrites once the ring is full
    int64_t dropped = 0;
  };

  std::atomic<bool> active_{false}, device_mode_{false};
  std::atomic<int64_t> step_{-1};
  mutable std::mutex mutex_;  // rings, hosts, options
  CaptureOptions options_;
  bool open_ = false;  // a capture exists, even when its window is closed
  int64_t start_ns_ = 0, stop_ns_ = 0;
  std::map<int32_t, Ring> rings_;
  std::vector<HostRecord> hosts_;
  int64_t dropped_hosts_ = 0;

  mutable std::mutex strings_mutex_;
  std::vector<std::unique_ptr<std::string>> strings_;
  std::unordered_map<std::string_view, int32_t> string_ids_;

  std::function<CallSite()> call_site_;
  std::vector<std::function<void(bool)>> listeners_;
};

}  // namespace neuron
