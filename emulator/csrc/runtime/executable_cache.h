// Signature of an eager op -> its compiled program and the metadata of its outputs. The hit path takes no Python lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "runtime/recorder.h"

namespace neuron {

// One result tensor.
struct OutputSpec {
  std::vector<int64_t> sizes, strides;
  int8_t dtype = 0;
  bool defined = true;
};

// One returned value: a tensor (kSingle), an integer that follows from the signature (kConstant), or a list of `count`
// tensors.
struct ReturnShape {
  static constexpr int32_t kSingle = -1, kConstant = -2;
  int32_t count = kSingle;
  int64_t constant = 0;
};

struct CacheEntry {
  const Executable* executable = nullptr;  // null: runs on the host, or inside a compiled graph
  bool asynchronous = false;               // outputs below hold for every call with this signature
  std::vector<ReturnShape> returns;
  std::vector<OutputSpec> outputs;
};

// The words that identify a call: op, device, and for every argument its type and metadata.
class Signature {
 public:
  void clear() { words_.clear(); }
  void add(uint64_t word) { words_.push_back(word); }
  void finish();
  uint64_t hash() const { return hash_; }
  bool operator==(const Signature& other) const { return hash_ == other.hash_ && words_ == other.words_; }

 private:
  std::vector<uint64_t> words_;
  uint64_t hash_ = 0;
};

class ExecutableCache {
 public:
  static ExecutableCache& get();

  const CacheEntry* find(const Signature& signature) const;
  const CacheEntry* insert(const Signature& signature, CacheEntry entry);
  // Forgets signatures (not executables: records point to them).
  void clear();
  size_t size() const;

  // Numbers the executable and keeps it for the life of the process.
  const Executable* add(Executable executable);
  const Executable* by_id(int64_t id) const;

 private:
  struct Hash {
    size_t operator()(const Signature& signature) const { return signature.hash(); }
  };
  mutable std::shared_mutex mutex_;
  std::unordered_map<Signature, std::unique_ptr<CacheEntry>, Hash> entries_;
  std::vector<std::unique_ptr<CacheEntry>> retired_;  // other threads may still read them
  std::deque<Executable> executables_;
};

}  // namespace neuron
