// Host time and the simulated time of one logical NeuronCore. All times are nanoseconds since the epoch.
//
// Device times are decided when work is enqueued and never depend on how long the arithmetic takes here. Outside a
// capture the host does not wait for them: a sync point moves a virtual offset forward instead, so that the host is
// never ahead of the work it depends on. While a profiler records, the offset is frozen and sync points wait, so both
// halves share one clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace neuron {

// Costs that the target file states (neuroncore/targets); nothing is made up before `configure_device` has set them.
struct DeviceCosts {
  std::atomic<int64_t> launch_cost_plain_ns{0};
  std::atomic<int64_t> launch_cost_profiled_ns{0};
  std::atomic<int64_t> launch_latency_ns{0};
  std::atomic<int64_t> execution_gap_ns{0};
  std::atomic<int64_t> copy_fixed_ns{0};
  std::atomic<int64_t> to_device_bytes_per_second{0};
  std::atomic<int64_t> to_host_bytes_per_second{0};

  // A DEVICE capture raises the fixed cost of every execution.
  int64_t launch_cost_ns() const;
  int64_t copy_ns(int64_t bytes, bool to_device) const;
};
DeviceCosts& device_costs();

class HostClock {
 public:
  // CLOCK_REALTIME, the clock of torch's rows.
  static int64_t real_ns();
  // Real time plus the virtual offset: the axis on which device times are kept.
  static int64_t now_ns() { return real_ns() + offset_ns(); }
  static int64_t offset_ns() { return offset_ns_.load(std::memory_order_relaxed); }
  // Returns once now_ns() >= time_ns: by waiting when `really`, else by moving the offset.
  static void reach(int64_t time_ns, bool really);

 private:
  static std::atomic<int64_t> offset_ns_;
};

// When one piece of work runs on the device; end = start + launch + program.
struct Slot {
  int64_t enqueue_ns = 0, start_ns = 0, launch_ns = 0, program_ns = 0;
  int64_t gap_ns = -1;              // idle before start since the previous end, -1 for the first
  const char* gap_cause = "first";  // see LaunchRecord::gap_cause
  int64_t end_ns() const { return start_ns + launch_ns + program_ns; }
};

// The in-order execution queue of one logical NeuronCore, as far as time is concerned. Thread-safe.
class DeviceClock {
 public:
  // start = max(now + launch latency, previous end + gap between executions, `not_before_ns`).
  Slot enqueue(int64_t launch_ns, int64_t program_ns, int64_t not_before_ns = 0);
  // End of the last piece of work, 0 when there was none.
  int64_t tail_ns() const { return tail_ns_.load(std::memory_order_acquire); }
  // The next gap follows a host synchronization.
  void mark_sync() { after_sync_ = true; }

 private:
  std::mutex mutex_;
  std::atomic<int64_t> tail_ns_{0};
  std::atomic<bool> after_sync_{false};
};

}  // namespace neuron
