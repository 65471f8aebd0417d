// Device memory: host memory behind a caching allocator that keeps the statistics of the real one.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstdint>

namespace neuron {

// One piece of device memory. Storages and the CPU aliases of them share it, so memory outlives whoever still computes
// on it. Statistics follow the storages alone: on the device, memory that the program released is free for what is
// issued next on the same stream, whether or not this machine has caught up with the arithmetic.
struct Block {
  void* data = nullptr;
  size_t bytes = 0;         // after rounding; what statistics count
  size_t memory_bytes = 0;  // host memory behind it
  size_t requested_bytes = 0;
  c10::DeviceIndex device = 0;
  std::atomic<int64_t> storages{1};    // neuron storages: the program still uses it
  std::atomic<int64_t> references{1};  // those together (one) and each CPU alias
  c10::DataPtr adopted;                // memory that an op's CPU kernel or the user allocated
  bool is_adopted = false;
};

c10::DeviceAllocator& allocator();
c10::DataPtr allocate(size_t bytes, c10::DeviceIndex device);

// The block behind a neuron (or alias) DataPtr, null for foreign memory.
Block* block_of(const c10::DataPtr& pointer);
// Another owner of `block`: a neuron storage or, with `where` the CPU, an alias.
c10::DataPtr share_block(Block* block, c10::Device where);
// Device memory made of existing host memory, zero-copy.
c10::DataPtr adopt(c10::DataPtr memory, size_t bytes, c10::DeviceIndex device);

}  // namespace neuron
