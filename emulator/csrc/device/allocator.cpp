#include "device/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "device/runtime.h"

namespace neuron {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kMinBytes = 256;
constexpr size_t kSmallBytes = size_t{1} << 20;   // below: the small pool
constexpr size_t kLargeBytes = size_t{16} << 20;  // from here on requests are not rounded
// Host memory that queued work alone may hold before its issue waits for it.
constexpr size_t kMaxInFlightBytes = size_t{256} << 20;

// Eight size classes per power of two, 256 B at least.
size_t round_size(size_t bytes) {
  if (bytes <= kMinBytes) return kMinBytes;
  if (bytes >= kLargeBytes) return bytes;
  size_t step = kMinBytes;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

template <typename Update>
void for_pools(StatArray& stat, size_t block_bytes, Update update) {
  update(stat[static_cast<size_t>(StatType::AGGREGATE)]);
  update(stat[static_cast<size_t>(block_bytes < kSmallBytes ? StatType::SMALL_POOL : StatType::LARGE_POOL)]);
}

void increase(StatArray& stat, size_t block_bytes, size_t amount) {
  for_pools(stat, block_bytes, [amount](auto& pool) { pool.increase(amount); });
}

void decrease(StatArray& stat, size_t block_bytes, size_t amount) {
  for_pools(stat, block_bytes, [amount](auto& pool) { pool.decrease(amount); });
}

// Memory of one device: what the device has free for reuse, the host memory kept behind it, and statistics.
struct Pool {
  std::mutex mutex;
  std::multiset<size_t> free_blocks;              // sizes; counted as reserved
  std::multimap<size_t, void*> free_host_memory;  // what no queued work uses any more
  size_t in_flight_bytes = 0;                     // host memory that only queued work holds
  DeviceStats stats;
  int64_t reserved() const { return stats.reserved_bytes[0].current; }
  int64_t allocated() const { return stats.allocated_bytes[0].current; }
};

Pool& pool(c10::DeviceIndex device) {
  static auto* pools = new std::array<Pool, 128>;
  return (*pools)[static_cast<size_t>(device)];
}

void count_allocation(Pool& from, const Block& block) {
  increase(from.stats.allocation, block.bytes, 1);
  increase(from.stats.active, block.bytes, 1);
  increase(from.stats.allocated_bytes, block.bytes, block.bytes);
  increase(from.stats.active_bytes, block.bytes, block.bytes);
  increase(from.stats.requested_bytes, block.bytes, block.requested_bytes);
}

void count_segment(Pool& from, size_t bytes) {
  increase(from.stats.segment, bytes, 1);
  increase(from.stats.reserved_bytes, bytes, bytes);
  ++from.stats.num_device_alloc;
}

void count_segment_freed(Pool& from, size_t bytes) {
  decrease(from.stats.segment, bytes, 1);
  decrease(from.stats.reserved_bytes, bytes, bytes);
  ++from.stats.num_device_free;
}

void report(const Pool& from, const Block& block, int64_t bytes) {
  c10::reportMemoryUsageToProfiler(block.data, bytes, static_cast<size_t>(from.allocated()),
                                   static_cast<size_t>(from.reserved()),
                                   c10::Device(c10::DeviceType::PrivateUse1, block.device));
}

void release_cached(Pool& from) {
  for (const size_t bytes : from.free_blocks) count_segment_freed(from, bytes);
  from.free_blocks.clear();
  for (auto& [bytes, memory] : from.free_host_memory) c10::free_cpu(memory);
  from.free_host_memory.clear();
}

// The smallest free entry that fits. Small sizes come in classes; a large one may waste at most an eighth of it.
template <typename Container, typename Size>
typename Container::iterator find_free(Container& free, size_t bytes, Size size) {
  auto found = free.lower_bound(bytes);
  return found != free.end() && size(*found) <= bytes + bytes / 8 ? found : free.end();
}

// One owner of the memory less; the last one gives it back.
void release_reference(Block* block) {
  if (block->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    Pool& from = pool(block->device);
    std::lock_guard<std::mutex> lock(from.mutex);
    from.in_flight_bytes -= block->memory_bytes;
    if (!block->is_adopted) from.free_host_memory.emplace(block->memory_bytes, block->data);
  }
  delete block;
}

void release_alias(void* context) { release_reference(static_cast<Block*>(context)); }

void release_storage(void* context) {
  auto* block = static_cast<Block*>(context);
  if (block->storages.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Pool& from = pool(block->device);
  {
    std::lock_guard<std::mutex> lock(from.mutex);
    decrease(from.stats.allocation, block->bytes, 1);
    decrease(from.stats.active, block->bytes, 1);
    decrease(from.stats.allocated_bytes, block->bytes, block->bytes);
    decrease(from.stats.active_bytes, block->bytes, block->bytes);
    decrease(from.stats.requested_bytes, block->bytes, block->requested_bytes);
    if (block->is_adopted) {
      count_segment_freed(from, block->bytes);
    } else {
      from.free_blocks.insert(block->bytes);
    }
    from.in_flight_bytes += block->memory_bytes;
  }
  report(from, *block, -static_cast<int64_t>(block->bytes));
  release_reference(block);
}

bool fits(const Pool& from, size_t bytes) {
  return static_cast<int64_t>(bytes) <= options().memory_bytes - from.reserved();
}

class NeuronAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return neuron::allocate(bytes, current_device()); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  bool initialized() override { return is_initialized(); }

  void emptyCache(c10::MempoolId_t) override {
    for (int device = 0; device < neuron::device_count(); ++device) {
      Pool& from = pool(static_cast<c10::DeviceIndex>(device));
      std::lock_guard<std::mutex> lock(from.mutex);
      release_cached(from);
    }
  }

  // Queued work holds its operands' blocks itself.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    check_device_index(device);
    Pool& from = pool(device);
    std::lock_guard<std::mutex> lock(from.mutex);
    return from.stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    for_all_stats(device, [](auto& stat) { stat.reset_accumulated(); });
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    for_all_stats(device, [](auto& stat) { stat.reset_peak(); });
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    check_device_index(device);
    Pool& from = pool(device);
    std::lock_guard<std::mutex> lock(from.mutex);
    const int64_t total = options().memory_bytes;
    return {static_cast<size_t>(std::max<int64_t>(total - from.reserved(), 0)), static_cast<size_t>(total)};
  }

 private:
  template <typename Update>
  void for_all_stats(c10::DeviceIndex device, Update update) {
    check_device_index(device);
    Pool& from = pool(device);
    std::lock_guard<std::mutex> lock(from.mutex);
    DeviceStats& stats = from.stats;
    for (StatArray* array :
         {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
          &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
      for (auto& stat : *array) update(stat);
    }
  }
};

NeuronAllocator& instance() {
  static auto* only = new NeuronAllocator;
  return *only;
}

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &instance());

}  // namespace

c10::DeviceAllocator& allocator() { return instance(); }

c10::DataPtr allocate(size_t bytes, c10::DeviceIndex device) {
  Core& owner = core(device);  // initializes; checks fork and index
  auto block = std::make_unique<Block>();
  block->requested_bytes = bytes;
  block->bytes = round_size(bytes);
  block->device = device;
  Pool& from = pool(device);
  const auto drain_streams = [&owner] {
    for (StreamState* stream : owner.streams()) drain(*stream);
  };
  std::unique_lock<std::mutex> lock(from.mutex);
  if (from.in_flight_bytes + block->bytes > kMaxInFlightBytes && from.in_flight_bytes > 0) {
    lock.unlock();
    drain_streams();
    lock.lock();
  }
  for (bool drained = false;; drained = true) {
    auto found = find_free(from.free_blocks, block->bytes, [](size_t size) { return size; });
    if (found != from.free_blocks.end()) {
      block->bytes = *found;
      from.free_blocks.erase(found);
      break;
    }
    if (fits(from, block->bytes)) {
      count_segment(from, block->bytes);
      break;
    }
    if (drained) {
      ++from.stats.num_ooms;
      const int64_t total = options().memory_bytes, used = from.allocated();
      lock.unlock();
      TORCH_CHECK(false, "NRT allocation failed for size ", bytes, " (OOM): neuron:", static_cast<int>(device), " has ",
                  total, " bytes of HBM, ", used, " of them allocated. Use smaller batches or free tensors.");
    }
    ++from.stats.num_alloc_retries;
    lock.unlock();
    drain_streams();
    lock.lock();
    release_cached(from);
  }
  auto memory = find_free(from.free_host_memory, block->bytes, [](const auto& entry) { return entry.first; });
  if (memory != from.free_host_memory.end()) {
    block->memory_bytes = memory->first;
    block->data = memory->second;
    from.free_host_memory.erase(memory);
  } else {
    try {
      block->data = c10::alloc_cpu(block->bytes);
    } catch (...) {
      from.free_blocks.insert(block->bytes);
      throw;
    }
    block->memory_bytes = block->bytes;
  }
  count_allocation(from, *block);
  lock.unlock();
  report(from, *block, static_cast<int64_t>(block->bytes));
  Block* owned = block.release();
  return {owned->data, owned, &release_storage, c10::Device(c10::DeviceType::PrivateUse1, device)};
}

Block* block_of(const c10::DataPtr& pointer) {
  const bool ours = pointer.get_deleter() == &release_storage || pointer.get_deleter() == &release_alias;
  return ours ? static_cast<Block*>(pointer.get_context()) : nullptr;
}

c10::DataPtr share_block(Block* block, c10::Device where) {
  if (where.is_cpu()) {
    block->references.fetch_add(1, std::memory_order_relaxed);
    return {block->data, block, &release_alias, where};
  }
  if (block->storages.fetch_add(1, std::memory_order_acq_rel) == 0) {
    // Only an alias was left: the memory is the program's again.
    block->references.fetch_add(1, std::memory_order_relaxed);
    Pool& from = pool(block->device);
    {
      std::lock_guard<std::mutex> lock(from.mutex);
      from.in_flight_bytes -= block->memory_bytes;
      auto found = from.free_blocks.find(block->bytes);
      if (!block->is_adopted && found != from.free_blocks.end()) {
        from.free_blocks.erase(found);
      } else {
        count_segment(from, block->bytes);
      }
      count_allocation(from, *block);
    }
    report(from, *block, static_cast<int64_t>(block->bytes));
  }
  return {block->data, block, &release_storage, where};
}

c10::DataPtr adopt(c10::DataPtr memory, size_t bytes, c10::DeviceIndex device) {
  const c10::Device where(c10::DeviceType::PrivateUse1, device);
  if (Block* block = block_of(memory); block != nullptr && block->device == device) return share_block(block, where);
  auto block = std::make_unique<Block>();
  block->data = memory.get();
  block->requested_bytes = bytes;
  block->bytes = round_size(bytes);
  block->memory_bytes = bytes;
  block->device = device;
  block->adopted = std::move(memory);
  block->is_adopted = true;
  Pool& from = pool(device);
  {
    std::lock_guard<std::mutex> lock(from.mutex);
    count_segment(from, block->bytes);
    count_allocation(from, *block);
  }
  report(from, *block, static_cast<int64_t>(block->bytes));
  Block* owned = block.release();
  return {owned->data, owned, &release_storage, where};
}

}  // namespace neuron
