// The columns of some events while they grow, and their finished form.
#pragma once

#include <array>
#include <vector>

#include "text.h"

namespace tokenizer {

// Names of the fields of an event; the order is that of the answer.
enum Field { kPh, kCat, kName, kPid, kTid, kTs, kDur, kId, kArgs, kBinding, kOther };
constexpr int kLabels = kTid + 1;  // fields that few texts are in: their columns hold codes
// Names of the ids among the arguments, in the order of `_SOURCES` in readers/native.py.
enum IdKey { kCorrelation, kExternalId, kExternalId2021, kDevice, kStream, kStreamId, kBytes, kExecutionId, kIdKeys };

// What has to be worked out in Python: a time or an id in another form than plain digits.
struct Odd {
  int32_t column;  // 0 ts, 1 dur, 2 + IdKey
  int32_t row;
  Text text;
};

// One event's part of the columns of numbers.
struct Row {
  std::array<int32_t, kLabels> labels;
  std::array<int64_t, 2> times;  // ts, dur in ns
  std::array<bool, 2> valid;
  std::array<int64_t, kIdKeys> ids;
  unsigned ids_seen;  // a bit per IdKey
};

// Whole numbers in the narrowest of 1, 2, 4 and 8 bytes that holds them all.
template <class T>
Block narrow(const std::vector<T>& values) {
  uint64_t bits = 0;
  for (const T value : values) bits |= static_cast<uint64_t>(value ^ (value >> (8 * sizeof(T) - 1)));
  const auto written = [&values]<class N>(N) {
    Block block = Blocks::all().take(values.size() * sizeof(N));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<N>(values[i]);
      std::memcpy(block.data.get() + i * sizeof(N), &value, sizeof(N));
    }
    return block;
  };
  if (bits < 1u << 7) return written(int8_t{});
  if (bits < 1u << 15) return written(int16_t{});
  if (bits < 1u << 31) return written(int32_t{});
  return written(int64_t{});
}

template <class T>
Block copied(const T* values, size_t count) {
  Block block = Blocks::all().take(count * sizeof(T));
  if (count) std::memcpy(block.data.get(), values, count * sizeof(T));
  return block;
}

struct Columns {
  std::array<Distinct, kLabels> distinct;
  std::array<std::vector<int32_t>, kLabels> codes;
  Joined ids, args;
  // While `sliced`, the arguments are not copied: begin and end of each in the text, which begins at `text`.
  bool sliced = false;
  std::vector<int32_t> slices;
  const uint8_t* text = nullptr;
  std::array<std::vector<int64_t>, 2> times;
  std::array<std::vector<int8_t>, 2> valid;
  std::array<std::vector<int64_t>, kIdKeys> numbers;  // empty until one is met
  std::vector<Odd> odd;
  int32_t rows = 0;

  explicit Columns(uint64_t seed)
      : distinct{Distinct(seed), Distinct(seed), Distinct(seed), Distinct(seed), Distinct(seed)} {}

  // Empty again, with the memory it has.
  void clear(uint64_t seed) {
    slices.clear();
    distinct.fill(Distinct(seed));
    for (auto& column : codes) column.clear();
    for (auto& column : times) column.clear();
    for (auto& column : valid) column.clear();
    for (auto& column : numbers) column.clear();
    odd.clear();
    rows = 0;
  }

  void add_args(Text value) {
    if (!sliced) return args.add(value);
    slices.push_back(static_cast<int32_t>(value.data - text));
    slices.push_back(static_cast<int32_t>(value.data + value.size - text));
  }

  // From here on with arguments that do not stand in the text so.
  void stop_slicing() {
    if (!sliced) return;
    sliced = false;
    for (size_t i = 0; i < slices.size(); i += 2)
      args.add({text + slices[i], static_cast<size_t>(slices[i + 1] - slices[i])});
  }

  // All but the texts of one more event; those are added before.
  void add(const Row& row) {
    for (size_t i = 0; i < kLabels; ++i) codes[i].push_back(row.labels[i]);
    for (size_t i = 0; i < 2; ++i) {
      times[i].push_back(row.times[i]);
      valid[i].push_back(row.valid[i]);
    }
    for (size_t key = 0; key < kIdKeys; ++key) {
      auto& column = numbers[key];
      if (row.ids_seen >> key & 1) {
        if (column.empty()) column.assign(static_cast<size_t>(rows), -1);
        column.push_back(row.ids[key]);
      } else if (!column.empty()) {
        column.push_back(-1);
      }
    }
    ++rows;
  }
};

// The same, finished.
struct Finished {
  std::array<Block, kLabels> codes;
  Block id_offsets, ids, arg_offsets, args;
  Block ts, has_ts, dur, has_dur;
  std::array<Block, kIdKeys> numbers;

  explicit Finished(const Columns& columns)
      : id_offsets(copied(columns.ids.offsets.data(), columns.ids.offsets.size())),
        ids(copied(columns.ids.data, columns.ids.size)),
        arg_offsets(columns.sliced ? copied(columns.slices.data(), columns.slices.size())
                                   : copied(columns.args.offsets.data(), columns.args.offsets.size())),
        args(columns.sliced ? Block{} : copied(columns.args.data, columns.args.size)),
        ts(copied(columns.times[0].data(), columns.times[0].size())),
        has_ts(copied(columns.valid[0].data(), columns.valid[0].size())),
        dur(narrow(columns.times[1])),
        has_dur(copied(columns.valid[1].data(), columns.valid[1].size())) {
    for (size_t i = 0; i < kLabels; ++i) codes[i] = narrow(columns.codes[i]);
    for (size_t key = 0; key < kIdKeys; ++key)
      if (!columns.numbers[key].empty()) numbers[key] = narrow(columns.numbers[key]);
  }
};

}  // namespace tokenizer
