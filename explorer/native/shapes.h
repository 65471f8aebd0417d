// Events that differ from an earlier one in nothing but numbers: most of a trace.
//
// A shape is such an event: its text, and the places of the numbers in it that are data. A text that equals it
// everywhere else, and has numbers in plain digits at those places, is read without looking at the rest of it: its
// structure, texts and keys are the same. Any other goes the long way and may become a shape itself. Which shape comes
// after which is remembered, so that the next one is guessed instead of looked up.
#pragma once

#include <array>
#include <vector>

#include "columns.h"
#include "scanner.h"
#include "text.h"

namespace tokenizer {

// What a number is: a field, or (from kArgument on) an id among the arguments.
enum Slot : uint8_t { kTimeSlot, kDurationSlot, kIdSlot, kIgnored, kArgument };

struct Hole {
  uint32_t begin, end;  // of the number, from the event's first byte
  uint8_t slot;
};

// Where the arguments stand in an event, and how many holes there are before them and up to their end.
struct ArgumentsPlace {
  uint32_t begin = 0, end = 0;
  uint32_t holes_before = 0, holes_until = 0;
};

struct Shape {
  Text text;
  uint64_t hash;
  size_t first_hole, holes;
  ArgumentsPlace args;
  std::array<int32_t, kLabels> labels;
  std::array<bool, 2> valid;
  unsigned ids_seen;
  std::vector<int32_t> next;  // shapes that came after this one, in the order they came first
  size_t guess = 0;           // of them, the one to try first: traces are made of loops
};

class Shapes {
 public:
  explicit Shapes(uint64_t seed) : seed_(seed), slots_(kSlots, -1) {}

  // Reads the event at `at` if it has one of the shapes that came after the last one's: its end, else null.
  const uint8_t* read(const uint8_t* at, const uint8_t* end, Row& row, Text& id, Text& args) {
    ++asked_;
    if (last_ < 0) return nullptr;
    Shape& before = shapes_[static_cast<size_t>(last_)];
    const size_t count = before.next.size();
    for (size_t i = 0, guess = before.guess; i < count; ++i, guess = guess + 1 < count ? guess + 1 : 0) {
      if (const uint8_t* found = match(shapes_[static_cast<size_t>(before.next[guess])], at, end, row, id, args)) {
        last_ = before.next[guess];
        before.guess = guess + 1 < count ? guess + 1 : 0;
        ++read_;
        return found;
      }
    }
    return nullptr;
  }

  // Whether it is worth the time to keep more shapes.
  bool wanted() const { return asked_ < 1024 || read_ * 4 > asked_; }

  // An event that was read the long way.
  void add(Text text, const std::vector<Hole>& holes, const ArgumentsPlace& args, const Row& row) {
    uint64_t hash = seed_;
    uint32_t from = 0;
    for (const Hole& hole : holes) {
      hash = Distinct::hashed({text.data + from, hole.begin - from}, hash + hole.slot);
      from = hole.end;
    }
    hash = Distinct::hashed({text.data + from, text.size - from}, hash);
    size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
      const Shape& known = shapes_[static_cast<size_t>(slots_[slot])];
      if (known.hash == hash && alike(known, text, holes)) return follow(slots_[slot]);
    }
    if (shapes_.size() * 2 >= slots_.size()) return skip();  // as many as a piece can use
    slots_[slot] = static_cast<int32_t>(shapes_.size());
    shapes_.push_back({text, hash, holes_.size(), holes.size(), args, row.labels, row.valid, row.ids_seen, {}});
    holes_.insert(holes_.end(), holes.begin(), holes.end());
    follow(slots_[slot]);
  }

  // An event without a shape.
  void skip() { last_ = -1; }

 private:
  bool alike(const Shape& shape, Text text, const std::vector<Hole>& holes) const {
    if (shape.holes != holes.size()) return false;
    uint32_t from = 0, known_from = 0;
    for (size_t i = 0; i <= holes.size(); ++i) {
      const bool last = i == holes.size();
      const Hole* known = holes_.data() + shape.first_hole + i;
      const size_t until = last ? text.size : holes[i].begin, known_until = last ? shape.text.size : known->begin;
      if (!equal({text.data + from, until - from}, {shape.text.data + known_from, known_until - known_from}))
        return false;
      if (last) return true;
      if (holes[i].slot != known->slot) return false;
      from = holes[i].end;
      known_from = known->end;
    }
    return true;
  }

  void follow(int32_t shape) {
    if (last_ >= 0) {
      Shape& before = shapes_[static_cast<size_t>(last_)];
      if (before.next.size() < kGuesses)
        before.next.push_back(shape);
      else
        before.next[before.guess] = shape;
      before.guess = before.guess + 1 < before.next.size() ? before.guess + 1 : 0;
    }
    last_ = shape;
  }

  const uint8_t* match(const Shape& shape, const uint8_t* at, const uint8_t* end, Row& row, Text& id,
                       Text& args) const {
    const uint8_t* const begin = at;
    const Hole* hole = holes_.data() + shape.first_hole;
    const uint8_t* const known = shape.text.data;
    uint32_t from = 0;
    id = {begin, 0};
    const uint8_t* args_begin = begin + shape.args.begin;
    const uint8_t* args_end = begin + shape.args.end;
    for (size_t i = 0; i < shape.holes; ++i, ++hole) {
      const size_t fixed = hole->begin - from;
      if (static_cast<size_t>(end - at) < fixed || std::memcmp(at, known + from, fixed) != 0) return nullptr;
      at += fixed;
      const uint8_t* const number = at;
      switch (hole->slot) {
        case kTimeSlot:
          at = time_at(at, row.times[0]);
          break;
        case kDurationSlot:
          at = time_at(at, row.times[1]);
          break;
        case kIdSlot:
          at = number_at(at);
          if (at) id = {number, static_cast<size_t>(at - number)};
          break;
        case kIgnored:
          at = number_at(at);
          break;
        default:
          at = whole_at(at, row.ids[hole->slot - kArgument]);
      }
      if (!at) return nullptr;
      from = hole->end;
      const auto moved = (at - begin) - static_cast<ptrdiff_t>(from);
      if (i + 1 == shape.args.holes_before) args_begin = begin + shape.args.begin + moved;
      if (i + 1 == shape.args.holes_until) args_end = begin + shape.args.end + moved;
    }
    const size_t fixed = shape.text.size - from;
    if (static_cast<size_t>(end - at) < fixed || std::memcmp(at, known + from, fixed) != 0) return nullptr;
    args = {args_begin, static_cast<size_t>(args_end - args_begin)};
    row.labels = shape.labels;
    row.valid = shape.valid;
    row.ids_seen = shape.ids_seen;
    return at + fixed;
  }

  static constexpr size_t kGuesses = 16;
  static constexpr size_t kSlots = 8192;  // twice as many as shapes

  uint64_t seed_;
  std::vector<int32_t> slots_;
  std::vector<Shape> shapes_;
  std::vector<Hole> holes_;
  int32_t last_ = -1;
  size_t asked_ = 0, read_ = 0;
};

}  // namespace tokenizer
