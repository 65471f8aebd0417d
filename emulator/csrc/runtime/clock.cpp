#include "runtime/clock.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/recorder.h"

namespace neuron {

DeviceCosts& device_costs() {
  static auto* costs = new DeviceCosts;  // leaked: used by threads that outlive static destruction
  return *costs;
}

int64_t DeviceCosts::launch_cost_ns() const {
  return Recorder::get().device_mode() ? launch_cost_profiled_ns : launch_cost_plain_ns;
}

int64_t DeviceCosts::copy_ns(int64_t bytes, bool to_device) const {
  const int64_t rate = std::max<int64_t>(to_device ? to_device_bytes_per_second : to_host_bytes_per_second, 1);
  return copy_fixed_ns + static_cast<int64_t>(static_cast<__int128>(bytes) * 1'000'000'000 / rate);
}

std::atomic<int64_t> HostClock::offset_ns_{0};

int64_t HostClock::real_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void HostClock::reach(int64_t time_ns, bool really) {
  if (really) {
    for (int64_t left = time_ns - now_ns(); left > 0; left = time_ns - now_ns()) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(left));
    }
    return;
  }
  int64_t offset = offset_ns_.load();
  int64_t wanted = time_ns - real_ns();
  while (wanted > offset && !offset_ns_.compare_exchange_weak(offset, wanted)) {
  }
}

Slot DeviceClock::enqueue(int64_t launch_ns, int64_t program_ns, int64_t not_before_ns) {
  const DeviceCosts& costs = device_costs();
  std::lock_guard<std::mutex> lock(mutex_);
  Slot slot;
  slot.launch_ns = launch_ns;
  slot.program_ns = program_ns;
  slot.enqueue_ns = HostClock::now_ns();
  const int64_t tail = tail_ns_.load(std::memory_order_relaxed);
  const int64_t by_host = slot.enqueue_ns + costs.launch_latency_ns;
  const int64_t by_core = tail == 0 ? 0 : tail + costs.execution_gap_ns;
  slot.start_ns = std::max({by_host, by_core, not_before_ns});
  if (tail != 0) {
    slot.gap_ns = slot.start_ns - tail;
    if (slot.start_ns == by_core) {
      slot.gap_cause = "execution_gap";
    } else if (slot.start_ns == not_before_ns) {
      slot.gap_cause = "stream";
    } else if (after_sync_) {
      slot.gap_cause = "sync";
    } else {
      slot.gap_cause = slot.enqueue_ns > tail ? "host_late" : "launch_latency";
    }
  }
  after_sync_ = false;
  tail_ns_.store(slot.end_ns(), std::memory_order_release);
  return slot;
}

}  // namespace neuron
