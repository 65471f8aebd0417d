#include "device/event.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>

#include "device/runtime.h"

namespace neuron {
namespace {

// Runs in the waiting stream: later tasks there see the values of the stream it waits for.
class WaitTask final : public Task {
 public:
  WaitTask(StreamState& other, uint64_t ticket) : other_(other), ticket_(ticket) {}
  void run() override { other_.queue.wait(ticket_); }

 private:
  StreamState& other_;
  const uint64_t ticket_;
};

bool reached(int64_t time_ns) { return !Recorder::get().active() || HostClock::now_ns() >= time_ns; }

}  // namespace

void record_event(Event& event, c10::DeviceIndex device, c10::StreamId stream) {
  StreamState& state = core(device).stream(stream);
  event.device = device;
  event.stream = stream;
  event.ticket = state.queue.pushed();
  event.time_ns = std::max(state.tail_ns.load(), HostClock::now_ns());
  event.recorded = true;
}

void block_stream(const Event& event, c10::DeviceIndex device, c10::StreamId stream) {
  if (!event.recorded) return;
  StreamState& waiting = core(device).stream(stream);
  StreamState& other = core(event.device).stream(event.stream);
  if (&waiting == &other) return;
  waiting.not_before_ns.store(std::max(waiting.not_before_ns.load(), event.time_ns));
  if (!other.queue.finished(event.ticket)) waiting.queue.push(std::make_unique<WaitTask>(other, event.ticket));
}

bool query_event(const Event& event) {
  if (!event.recorded) return true;
  return core(event.device).stream(event.stream).queue.finished(event.ticket) && reached(event.time_ns);
}

void synchronize_event(const Event& event) {
  if (!event.recorded) return;
  Core& device = core(event.device);
  StreamState& stream = device.stream(event.stream);
  const int64_t begin_ns = HostClock::real_ns();
  if (auto without_gil = python_hooks().without_gil) {
    without_gil([&] { stream.queue.wait(event.ticket); });
  } else {
    stream.queue.wait(event.ticket);
  }
  reach_simulated(device, begin_ns, event.time_ns, "nrt_event_synchronize");
  rethrow_error(stream);
}

double elapsed_ms(const Event& start, const Event& end) {
  TORCH_CHECK(start.timing && end.timing, "Event was not created with timing enabled");
  TORCH_CHECK(start.recorded && end.recorded, "Event has not been recorded");
  TORCH_CHECK(start.device == end.device, "Events must be on the same device");
  return static_cast<double>(end.time_ns - start.time_ns) * 1e-6;
}

bool query_stream(c10::DeviceIndex device, c10::StreamId stream) {
  StreamState& state = core(device).stream(stream);
  return state.queue.finished(state.queue.pushed()) && reached(state.tail_ns.load());
}

}  // namespace neuron
