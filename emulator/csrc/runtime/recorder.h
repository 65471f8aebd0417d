// What happened on the device, kept while a profiler records: one LaunchRecord per execution or copy, in a ring buffer per
// logical NeuronCore. Written on the launching thread (device times are decided at enqueue), read once at stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace neuron {

// A compiled program as the runtime needs it. Lives for the process; the cache hands out stable pointers.
struct Executable {
  int64_t id = 0;             // process-wide, from 1
  std::string neff;           // decimal content hash
  std::string op;             // "aten::mul", or the compiled graph's name
  std::string overload;       // "aten::mul.Tensor"
  int64_t program_ns = 0;     // simulated engine and DMA time
  int64_t estimated_ns = 0;   // part of it that is an estimate
  int64_t bytes_read = 0, bytes_written = 0, flops = 0;
  std::string shapes, dtypes;  // "[4,512] x [512]", "bf16 x bf16"
};

enum class LaunchKind : uint8_t { kExec, kCopyToDevice, kCopyToHost };

struct LaunchRecord {
  int64_t execution_id = 0;             // process-wide, from 1; the flow id of its whole chain
  LaunchKind kind = LaunchKind::kExec;
  const Executable* executable = nullptr;  // null for copies
  int64_t bytes = 0;                    // copies
  int32_t device = 0, stream = 0;       // logical NeuronCore, framework stream
  int64_t thread_id = 0;                // OS thread id
  uint64_t external_id = 0;             // torch correlation id on top of this thread's stack, 0 none
  int64_t dispatch_begin_ns = 0, dispatch_end_ns = 0;  // host: whole boxed kernel
  int64_t schedule_begin_ns = 0, schedule_end_ns = 0;  // host: nrta_execute_schedule
  int64_t enqueue_ns = 0;
  int64_t start_ns = 0, launch_ns = 0, program_ns = 0; // device, simulated; end = start + launch + program
  int64_t gap_ns = -1;                  // idle before start since previous end, -1 for the first
  const char* gap_cause = "first";      // execution_gap | launch_latency | host_late | sync | stream | first
  int32_t source_id = -1, module_id = -1;  // into Recorder::strings()
  int64_t step = -1;
};

// A host-side interval that is no launch: compile on a miss, synchronize waits, emulation lag, fallback on the CPU.
struct HostRecord {
  const char* name;      // "neuron_compile", "nrt_synchronize", "emulation_lag", "cpu_fallback"
  std::string detail;    // op name or NEFF hash
  int64_t begin_ns = 0, end_ns = 0, thread_id = 0;
  uint64_t external_id = 0;
  int32_t device = 0;
};

}  // namespace neuron
