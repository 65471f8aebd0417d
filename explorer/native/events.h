// Some events → `Columns`.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "columns.h"
#include "scanner.h"
#include "shapes.h"
#include "text.h"

namespace tokenizer {

class EventReader : private Scanner {
 public:
  // The text ends in `kPadding` zeros; `columns` has memory for its own texts.
  EventReader(const uint8_t* text, size_t size, uint64_t seed, Columns& columns)
      : Scanner(text, size), columns_(columns), shapes_(seed) {}

  // All events; false when anything is out of the ordinary.
  bool events() {
    space();
    for (;;) {
      Row row;
      Text id, args;
      if (const uint8_t* after = shapes_.read(at_, end_, row, id, args)) {
        at_ = after;
        columns_.ids.add(id);
        columns_.add_args(args);
        row_of(row);
      } else if (!event()) {
        return false;
      }
      space();
      if (*at_ != ',') return at_ == end_;
      ++at_;
      space();
    }
  }

 private:
  bool event() {
    const uint8_t* const start = at_;
    if (*at_ != '{') return false;
    ++at_;
    space();
    std::array<Text, 9> found;
    found.fill({at_, 0});
    others_.clear();
    holes_.clear();
    plain_ = true;
    place_ = {};
    Row row;
    row.ids_seen = 0;
    unsigned seen = 0;
    if (*at_ == '}') {
      ++at_;
    } else {
      for (;;) {
        Text key;
        if (!key_and_colon(key)) return false;
        const Field field = field_of(key);
        if (field != kOther) {
          if (seen >> field & 1) return false;
          seen |= 1u << field;
        }
        const uint8_t* begin = at_;
        if (field <= kName) {
          if (*at_ != '"') return false;
          ++at_;
          if (!string()) return false;
          found[field] = {begin + 1, static_cast<size_t>(at_ - begin) - 2};
        } else {
          if ((field == kPid || field == kTid) && (*at_ == '{' || *at_ == '[' || *at_ == 't' || *at_ == 'f'))
            return false;
          if (field == kArgs && *at_ == '{') {
            place_.holes_before = static_cast<uint32_t>(holes_.size());
            if (!arguments(start, row)) return false;
            place_.holes_until = static_cast<uint32_t>(holes_.size());
            place_.begin = static_cast<uint32_t>(begin - start);
            place_.end = static_cast<uint32_t>(at_ - start);
          } else if (!value(1)) {
            return false;
          }
          const Text value{begin, static_cast<size_t>(at_ - begin)};
          if (field < kBinding) found[field] = value;
          if (field == kTs || field == kDur || field == kId) {
            hole(start, value, field == kTs ? kTimeSlot : field == kDur ? kDurationSlot : kIdSlot);
          } else if (field == kArgs) {
            plain_ &= value.data[0] == '{';
          } else if (field == kOther) {
            for (const auto& [other, _] : others_)
              if (equal(other, key)) return false;
            others_.push_back({key, value});
          }
        }
        space();
        if (*at_ == '}') {
          ++at_;
          break;
        }
        if (*at_ != ',') return false;
        ++at_;
        space();
      }
    }
    keep(found, row);
    if (plain_ && others_.empty() && shapes_.wanted())
      shapes_.add({start, static_cast<size_t>(at_ - start)}, holes_, place_, row);
    else
      shapes_.skip();
    return true;
  }

  // A value that differs from event to event; only numbers are expected to.
  void hole(const uint8_t* start, Text value, int slot) {
    plain_ &= digit(value.data[0]) || value.data[0] == '-';
    const auto begin = static_cast<uint32_t>(value.data - start);
    holes_.push_back({begin, begin + static_cast<uint32_t>(value.size), static_cast<uint8_t>(slot)});
  }

  void keep(const std::array<Text, 9>& found, Row& row) {
    for (size_t field = kPh; field <= kTid; ++field) row.labels[field] = columns_.distinct[field].code(found[field]);
    for (size_t which = 0; which < 2; ++which) {
      const Text text = found[kTs + which];
      int64_t ns = 0;
      const bool digits = text.size && nanoseconds(text, ns);
      if (text.size && !digits) {
        columns_.odd.push_back({static_cast<int32_t>(which), columns_.rows, text});
        plain_ = false;
      }
      row.times[which] = digits ? ns : 0;
      row.valid[which] = digits;
    }
    columns_.ids.add(found[kId]);
    if (others_.empty()) {
      columns_.add_args(found[kArgs]);
    } else {
      columns_.stop_slicing();
      args_with_others(found[kArgs]);
    }
    columns_.add(row);
  }

  // A row of a known shape, which sets no more than it has.
  void row_of(Row& row) {
    for (size_t which = 0; which < 2; ++which)
      if (!row.valid[which]) row.times[which] = 0;
    columns_.add(row);
  }

  // Members that no column holds join the arguments, as `pieces.with_member` writes them.
  void args_with_others(Text args) {
    Joined& to = columns_.args;
    to.append("{\"event\": {");
    for (size_t i = 0; i < others_.size(); ++i) {
      to.append(i ? ", \"" : "\"");
      to.append(others_[i].first);
      to.append("\": ");
      to.append(others_[i].second);
    }
    to.append("}");
    if (args.size && args.data[0] == '{') {
      size_t at = 1;
      while (args.data[at] == ' ' || args.data[at] == '\n' || args.data[at] == '\r' || args.data[at] == '\t') ++at;
      if (args.data[at] != '}') to.append(", ");
      to.append({args.data + at, args.size - at});
    } else {
      if (args.size) to.append(", \"args\": ");
      to.append(args);
      to.append("}");
    }
    to.end();
  }

  static Field field_of(Text key) {
    const uint8_t* k = key.data;
    switch (key.size) {
      case 2:
        return same(k, "ph", 2)   ? kPh
               : same(k, "ts", 2) ? kTs
               : same(k, "id", 2) ? kId
               : same(k, "bp", 2) ? kBinding
                                  : kOther;
      case 3:
        return same(k, "cat", 3)   ? kCat
               : same(k, "pid", 3) ? kPid
               : same(k, "tid", 3) ? kTid
               : same(k, "dur", 3) ? kDur
                                   : kOther;
      case 4:
        return same(k, "name", 4) ? kName : same(k, "args", 4) ? kArgs : kOther;
      default:
        return kOther;
    }
  }

  static IdKey id_key_of(Text key) {
    const uint8_t* k = key.data;
    switch (key.size) {
      case 5:
        return same(k, "bytes", 5) ? kBytes : kIdKeys;
      case 6:
        return same(k, "device", 6) ? kDevice : same(k, "stream", 6) ? kStream : kIdKeys;
      case 9:
        return same(k, "Stream Id", 9) ? kStreamId : kIdKeys;
      case 11:
        return same(k, "correlation", 11)   ? kCorrelation
               : same(k, "External id", 11) ? kExternalId
               : same(k, "external id", 11) ? kExternalId2021
                                            : kIdKeys;
      case 12:
        return same(k, "execution_id", 12) ? kExecutionId : kIdKeys;
      default:
        return kIdKeys;
    }
  }

  // The arguments, noting the ids among them.
  bool arguments(const uint8_t* start, Row& row) {
    ++at_;
    space();
    if (*at_ == '}') {
      ++at_;
      return true;
    }
    for (;;) {
      Text key;
      if (!key_and_colon(key)) return false;
      const IdKey id = id_key_of(key);
      const uint8_t* begin = at_;
      if (!value(2)) return false;
      const Text text{begin, static_cast<size_t>(at_ - begin)};
      if (id != kIdKeys) {
        if (row.ids_seen >> id & 1) return false;
        row.ids_seen |= 1u << id;
        row.ids[id] = -1;
        if (whole(text, row.ids[id])) {
          hole(start, text, static_cast<int>(kArgument) + id);
        } else {
          columns_.odd.push_back({2 + id, columns_.rows, text});
          plain_ = false;
        }
      } else if (digit(*begin) || *begin == '-') {
        hole(start, text, kIgnored);
      }
      space();
      if (*at_ == '}') {
        ++at_;
        return true;
      }
      if (*at_ != ',') return false;
      ++at_;
      space();
    }
  }

  Columns& columns_;
  Shapes shapes_;
  // Of the event at hand:
  std::vector<std::pair<Text, Text>> others_;  // members that no column holds
  std::vector<Hole> holes_;
  ArgumentsPlace place_;
  bool plain_ = true;  // whether it may be a shape
};

}  // namespace tokenizer
