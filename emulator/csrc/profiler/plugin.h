// The Kineto child profiler of device "neuron": turns a Capture into the rows of torch's trace.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "runtime/recorder.h"

namespace neuron::profiler {

// How the next capture records and what it shows; set from Python just before torch starts its profiler.
struct SessionOptions {
  CaptureOptions capture;
  // Also emit `kernel` rows, which torch folds into the device columns of key_averages().
  bool correlate_device_time = true;
  // Entries for the head of trace.json, values in JSON: what made this trace.
  std::unordered_map<std::string, std::string> metadata;
};

void set_next_session_options(SessionOptions options);

// Ends the window of the running capture: what the device finishes later is lost. No effect when none runs.
void close_window();

// The capture that torch processed last; null when there was none since the previous call.
std::shared_ptr<const Capture> take_capture();

// Torch's correlation of an execution: int32, never equal to one of torch's own ids, which count from 1.
int32_t correlation_of(int64_t execution_id);

}  // namespace neuron::profiler
