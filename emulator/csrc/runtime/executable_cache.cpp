#include "runtime/executable_cache.h"

#include <utility>

namespace neuron {

void Signature::finish() {
  uint64_t hash = 0x9E3779B97F4A7C15ULL;
  for (uint64_t word : words_) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93ULL;
    hash ^= hash >> 32;
  }
  hash_ = hash;
}

ExecutableCache& ExecutableCache::get() {
  static auto* cache = new ExecutableCache;  // leaked: records and worker threads outlive static destruction
  return *cache;
}

const CacheEntry* ExecutableCache::find(const Signature& signature) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  auto found = entries_.find(signature);
  return found == entries_.end() ? nullptr : found->second.get();
}

const CacheEntry* ExecutableCache::insert(const Signature& signature, CacheEntry entry) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  auto& slot = entries_[signature];
  if (!slot) slot = std::make_unique<CacheEntry>(std::move(entry));  // a second thread that missed too keeps the first
  return slot.get();
}

void ExecutableCache::clear() {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  for (auto& [signature, entry] : entries_) retired_.push_back(std::move(entry));
  entries_.clear();
}

size_t ExecutableCache::size() const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  return entries_.size();
}

const Executable* ExecutableCache::add(Executable executable) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  executable.id = static_cast<int64_t>(executables_.size()) + 1;
  executables_.push_back(std::move(executable));
  return &executables_.back();
}

const Executable* ExecutableCache::by_id(int64_t id) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  if (id < 1 || id > static_cast<int64_t>(executables_.size())) return nullptr;
  return &executables_[static_cast<size_t>(id - 1)];
}

}  // namespace neuron
