// Texts and memory of the tokenizer.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

static_assert(std::endian::native == std::endian::little, "words are read in little-endian order");

namespace tokenizer {

constexpr size_t kPadding = 64;      // zeros after a text; more than any read ahead
constexpr size_t kKept = 64u << 20;  // bytes of memory that are kept from call to call

struct Text {
  const uint8_t* data;
  size_t size;
};

inline uint64_t word_at(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

inline bool same(const uint8_t* at, const char* wanted, size_t size) { return std::memcmp(at, wanted, size) == 0; }

inline bool equal(Text a, Text b) { return a.size == b.size && std::memcmp(a.data, b.data, a.size) == 0; }

// Memory that grows and is used again: fresh pages cost the system more time than reading the text does.
struct Scratch {
  std::unique_ptr<uint8_t[]> data;
  size_t size = 0;

  uint8_t* take(size_t wanted) {
    if (wanted > size || size > kKept) {
      data.reset(new uint8_t[wanted]);
      size = wanted;
    }
    return data.get();
  }
};

// Memory of a finished column, on its way to Python and back.
struct Block {
  std::unique_ptr<uint8_t[]> data;
  size_t size = 0, capacity = 0;
};

// Blocks that Python has let go of, for the next ones of about their size.
class Blocks {
 public:
  Block take(size_t size) {
    Block block;
    {
      const std::lock_guard lock(mutex_);
      for (Block& one : free_) {
        if (one.capacity < size || one.capacity > 2 * size + 4096) continue;
        block = std::move(one);
        one = std::move(free_.back());
        free_.pop_back();
        held_ -= block.capacity;
        break;
      }
    }
    if (!block.data) {
      block.capacity = size + size / 8 + 64;
      block.data.reset(new uint8_t[block.capacity]);
    }
    block.size = size;
    return block;
  }

  // Never throws: what can't be kept is freed.
  void give(Block block) noexcept {
    const std::lock_guard lock(mutex_);
    if (!block.data || free_.size() == kMost || held_ + block.capacity > kHeld) return;
    held_ += block.capacity;
    free_.push_back(std::move(block));
  }

  static Blocks& all() {
    static Blocks* blocks = new Blocks;  // never destroyed: Python may give blocks back until the very end
    return *blocks;
  }

 private:
  static constexpr size_t kMost = 256, kHeld = 16u << 20;

  Blocks() { free_.reserve(kMost); }

  std::mutex mutex_;
  std::vector<Block> free_;
  size_t held_ = 0;
};

// Texts of one field back to back, as an Arrow column wants them.
struct Joined {
  uint8_t* data = nullptr;
  size_t size = 0;
  std::vector<int32_t> offsets{0};

  void start(uint8_t* memory) {
    data = memory;
    size = 0;
    offsets.assign(1, 0);
  }

  void append(Text text) {
    if (text.size) std::memcpy(data + size, text.data, text.size);
    size += text.size;
  }

  void append(const char* text) { append({reinterpret_cast<const uint8_t*>(text), std::strlen(text)}); }

  void end() { offsets.push_back(static_cast<int32_t>(size)); }

  void add(Text text) {
    append(text);
    end();
  }
};

// Distinct texts, numbered in order of appearance.
class Distinct {
 public:
  explicit Distinct(uint64_t seed) : seed_(seed), slots_(256, -1) {}

  int32_t code(Text text) {
    if (!texts_.empty() && equal(texts_[static_cast<size_t>(last_)], text)) return last_;
    const uint64_t hash = hashed(text, seed_);
    size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot] >= 0) {
      const auto known = static_cast<size_t>(slots_[slot]);
      if (hashes_[known] == hash && equal(texts_[known], text)) return last_ = slots_[slot];
      slot = (slot + 1) & (slots_.size() - 1);
    }
    last_ = static_cast<int32_t>(texts_.size());
    slots_[slot] = last_;
    texts_.push_back(text);
    hashes_.push_back(hash);
    if (texts_.size() * 2 > slots_.size()) grow();
    return last_;
  }

  const std::vector<Text>& texts() const { return texts_; }

  // The hash of a text; of what follows another one with that one's hash as the seed.
  static uint64_t hashed(Text text, uint64_t seed) {
    constexpr uint64_t kMix = 0x9E3779B97F4A7C15u;
    uint64_t hash = seed ^ (text.size * kMix);
    size_t left = text.size;
    const uint8_t* at = text.data;
    for (; left >= 8; left -= 8, at += 8) hash = std::rotl((hash ^ word_at(at)) * kMix, 29);
    if (left) hash = (hash ^ (word_at(at) & ((uint64_t{1} << (8 * left)) - 1))) * kMix;
    hash ^= hash >> 32;
    return (hash * kMix) ^ (hash >> 29);
  }

 private:
  void grow() {
    slots_.assign(slots_.size() * 2, -1);
    for (size_t known = 0; known < texts_.size(); ++known) {
      size_t slot = hashes_[known] & (slots_.size() - 1);
      while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = static_cast<int32_t>(known);
    }
  }

  uint64_t seed_;  // differs from run to run, so that no file can be made of texts that collide
  std::vector<int32_t> slots_;
  std::vector<uint64_t> hashes_;
  std::vector<Text> texts_;
  int32_t last_ = 0;
};

}  // namespace tokenizer
