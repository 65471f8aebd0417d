#include <algorithm>
#include <numeric>

#include "columns.h"

namespace neuroncore {

namespace {

// Half-open extent in a memory: rows [top, bottom), columns [left, right).
struct Region {
  int64_t top, bottom, left, right;
  bool operator==(const Region& other) const = default;
  bool overlaps(const Region& o) const { return o.top < bottom && top < o.bottom && o.left < right && left < o.right; }
  bool covers(const Region& o) const {
    return top <= o.top && o.bottom <= bottom && left <= o.left && o.right <= right;
  }
};

constexpr int64_t kWide = 32;
constexpr int64_t kMostBuckets = 4096;
constexpr Region kEverything{0, int64_t{1} << 62, 0, int64_t{1} << 62};

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

// Who touched which region of one memory space.
class Records {
 public:
  explicit Records(int64_t bucket) : bucket_(bucket) {}

  template <typename Visit>
  void overlapping(const Region& region, Visit visit) {
    lists(region, [&](std::vector<Record>& records) {
      for (const Record& record : records) {
        if (record.region.overlaps(region)) visit(record.stream, record.index);
      }
    });
  }

  void drop_covered(const Region& region) {
    lists(region, [&](std::vector<Record>& records) {
      std::erase_if(records, [&](const Record& record) { return region.covers(record.region); });
    });
  }

  void add(const Region& region, int stream, int index) {
    auto [first, last] = range(region);
    if (last - first >= kWide) {
      put(wide_, region, stream, index);
      return;
    }
    for (int64_t b = first; b <= last; ++b) put(bucket(b), region, stream, index);
  }

 private:
  struct Record {
    Region region;
    int stream, index;
  };

  static void put(std::vector<Record>& records, const Region& region, int stream, int index) {
    for (Record& record : records) {
      if (record.stream == stream && record.region == region) {
        record.index = index;
        return;
      }
    }
    records.push_back({region, stream, index});
  }

  std::pair<int64_t, int64_t> range(const Region& region) const {
    return {floor_div(region.top, bucket_), floor_div(region.bottom - 1, bucket_)};
  }

  std::vector<Record>& bucket(int64_t number) {
    auto clamped = static_cast<size_t>(std::clamp<int64_t>(number, 0, kMostBuckets));
    if (clamped >= buckets_.size()) buckets_.resize(clamped + 1);
    return buckets_[clamped];
  }

  template <typename Visit>
  void lists(const Region& region, Visit visit) {
    auto [first, last] = range(region);
    if (!wide_.empty()) visit(wide_);
    if (last - first >= kWide) {
      for (auto& records : buckets_) visit(records);
      return;
    }
    for (int64_t b = first; b <= last; ++b) {
      auto clamped = static_cast<size_t>(std::clamp<int64_t>(b, 0, kMostBuckets));
      if (clamped < buckets_.size()) visit(buckets_[clamped]);
    }
  }

  int64_t bucket_;
  std::vector<std::vector<Record>> buckets_;
  std::vector<Record> wide_;
};

Region region_of(const Access& access, const Buffer& buffer, int64_t offset) {
  if (access.indexed) return kEverything;
  int64_t low = offset + access.low, high = offset + access.high + 1;
  if (!buffer.tensor) {
    int64_t first = buffer.first + access.start_partition;
    return {buffer.base + low * access.bytes, buffer.base + high * access.bytes, first, first + access.partitions};
  }
  Region region;
  int64_t top = floor_div(offset, buffer.width), left = offset - top * buffer.width;
  if (access.rectangle && left + access.columns < buffer.width) {
    region = {top, top + access.rows + 1, left, left + access.columns + 1};
  } else {
    int64_t own = buffer.element_bytes;
    region = {floor_div(floor_div(low * access.bytes, own), buffer.width),
              floor_div(floor_div(high * access.bytes - 1, own), buffer.width) + 1, 0, buffer.width};
  }
  return buffer.flat ? Region{region.left, region.right, region.top, region.bottom} : region;
}

// What is known to be complete: per stream, the number of its last instruction.
class History {
 public:
  explicit History(size_t streams) : streams_(streams), rows_(streams), sizes_(streams) {}
  const int32_t* at(int stream, int index) const { return rows_[stream].data() + (index - 1) * streams_; }
  int known(int stream, int index) const { return sizes_[stream][index - 1]; }
  void push(int stream, const std::vector<int32_t>& knowledge) {
    rows_[stream].insert(rows_[stream].end(), knowledge.begin(), knowledge.end());
    sizes_[stream].push_back(
        static_cast<int32_t>(std::count_if(knowledge.begin(), knowledge.end(), [](int32_t i) { return i > 0; })));
  }

 private:
  size_t streams_;
  std::vector<std::vector<int32_t>> rows_, sizes_;
};

class Synchronizer {
 public:
  Synchronizer(const Text& text, int64_t dma_increment)
      : text_(text),
        streams_(text.streams.all().size()),
        history_(streams_),
        known_(text.engines.all().size(), std::vector<int32_t>(streams_, 0)),
        counts_(streams_, 0),
        increments_(streams_, 0),
        rank_(streams_),
        raw_(streams_, 0),
        other_(streams_, 0) {
    std::vector<int64_t> buckets(text.spaces, 1);
    for (const Buffer& buffer : text.buffers) buckets[buffer.space] = buffer.bucket;
    for (int64_t bucket : buckets) {
      writers_.emplace_back(bucket);
      readers_.emplace_back(bucket);
    }
    const auto& names = text.streams.all();
    std::vector<int> order(streams_);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return names[a] < names[b]; });
    for (size_t i = 0; i < streams_; ++i) rank_[order[i]] = static_cast<int>(i);
    for (const Instruction& instruction : text.instructions) {
      increments_[instruction.stream] = instruction.dma ? dma_increment : 1;
    }
  }

  void add(const Instruction& instruction, const std::vector<int64_t>& indices, std::vector<int64_t>& start,
           std::vector<int32_t>& semaphore, std::vector<int64_t>& value) {
    std::fill(raw_.begin(), raw_.end(), 0);
    std::fill(other_.begin(), other_.end(), 0);
    places_.clear();
    for (const Access& access : instruction.accesses) {
      if (access.reads) touch(access, indices, false);
    }
    for (const Access& access : instruction.accesses) {
      if (access.writes) touch(access, indices, true);
    }
    if (!instruction.dma) {
      other_[instruction.stream] = 0;                               // in order anyway
      if (instruction.tensor_engine) raw_[instruction.stream] = 0;  // matmuls accumulate in PSUM back to back
    }
    needed_.clear();
    for (size_t s = 0; s < streams_; ++s) {
      int index = std::max(raw_[s], other_[s]);
      if (index > 0) needed_.emplace_back(static_cast<int>(s), index);
    }
    // Most recent first: its history may already imply the others.
    std::sort(needed_.begin(), needed_.end(), [&](const auto& a, const auto& b) {
      int first = history_.known(a.first, a.second), second = history_.known(b.first, b.second);
      return first != second ? first > second : rank_[a.first] < rank_[b.first];
    });
    std::vector<int32_t>& knowledge = known_[instruction.engine];
    for (auto [s, i] : needed_) {
      if (knowledge[s] >= i) continue;
      semaphore.push_back(s);
      value.push_back(i * increments_[s]);
      knowledge[s] = i;
      const int32_t* implied = history_.at(s, i);
      for (size_t o = 0; o < streams_; ++o) knowledge[o] = std::max(knowledge[o], implied[o]);
    }
    start.push_back(static_cast<int64_t>(semaphore.size()));
    int stream = instruction.stream, index = ++counts_[stream];
    history_.push(stream, knowledge);
    for (const Place& place : places_) {
      if (!place.writing) continue;
      writers_[place.space].drop_covered(place.region);
      readers_[place.space].drop_covered(place.region);
    }
    for (const Place& place : places_) {
      (place.writing ? writers_ : readers_)[place.space].add(place.region, stream, index);
    }
  }

 private:
  struct Place {
    int space;
    Region region;
    bool writing;
  };

  void touch(const Access& access, const std::vector<int64_t>& indices, bool writing) {
    const Buffer& buffer = text_.buffers[access.buffer];
    // A tensor nobody writes needs no order; a tile may share its memory with one that is written.
    if (!writing && buffer.tensor && !text_.written[access.buffer]) return;
    Region region = region_of(access, buffer, access.offset + advance(access.steps, indices));
    places_.push_back({buffer.space, region, writing});
    auto& wanted = writing ? other_ : raw_;
    writers_[buffer.space].overlapping(region, [&](int s, int i) { wanted[s] = std::max(wanted[s], i); });
    if (writing) {
      readers_[buffer.space].overlapping(region, [&](int s, int i) { other_[s] = std::max(other_[s], i); });
    }
  }

  const Text& text_;
  size_t streams_;
  History history_;
  std::vector<std::vector<int32_t>> known_;
  std::vector<int> counts_;
  std::vector<int64_t> increments_;
  std::vector<int> rank_, raw_, other_;
  std::vector<Records> writers_, readers_;
  std::vector<Place> places_;
  std::vector<std::pair<int, int>> needed_;
};

}  // namespace

void derive_waits(const Text& text, int64_t dma_increment, std::vector<int64_t>& start, std::vector<int32_t>& semaphore,
                  std::vector<int64_t>& value) {
  Synchronizer synchronizer(text, dma_increment);
  std::vector<int64_t> indices(text.loops, 0);
  auto visit = [&](int number, const std::vector<int64_t>& at) {
    synchronizer.add(text.instructions[number], at, start, semaphore, value);
  };
  walk(text.body, indices, visit);
}

}  // namespace neuroncore
