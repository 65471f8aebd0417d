// Events: a point in a stream's functional order and in simulated time.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>

namespace neuron {

struct Event {
  c10::DeviceIndex device = 0;
  c10::StreamId stream = 0;
  uint64_t ticket = 0;  // work of the stream that precedes the event
  int64_t time_ns = 0;  // simulated
  bool timing = false;
  bool recorded = false;
};

void record_event(Event& event, c10::DeviceIndex device, c10::StreamId stream);
// Work issued to `stream` from now on starts after the event, in values and in simulated time.
void block_stream(const Event& event, c10::DeviceIndex device, c10::StreamId stream);
bool query_event(const Event& event);
void synchronize_event(const Event& event);
// Milliseconds of simulated time. Raises where either event lacks timing or was never recorded.
double elapsed_ms(const Event& start, const Event& end);

bool query_stream(c10::DeviceIndex device, c10::StreamId stream);

}  // namespace neuron
