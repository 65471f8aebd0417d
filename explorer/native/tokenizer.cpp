// Trace events in strict JSON → typed buffers. The optional fast form of readers/pieces.py: parse_piece.
//
// It accepts less than the plain parser and never mends anything: at the first thing out of the ordinary it answers
// None, and the plain parser gets the same text. What it does accept it must read exactly alike; tests compare the two.
//
// The text is copied into a buffer that ends in zeros before it is looked at. So no other process can change it under
// our feet, every loop ends at a zero at the latest (a zero is legal nowhere in JSON), and whole words may be read
// without asking where the text ends.

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#endif

static_assert(std::endian::native == std::endian::little, "words are read in little-endian order");

namespace {

constexpr size_t kPadding = 64;        // zeros after the text; more than any read ahead
constexpr size_t kKept = 64u << 20;    // bytes of scratch memory that are kept from call to call
constexpr int kMaxDepth = 64;          // of nested values; the plain parser goes deeper
constexpr size_t kLongestTime = 40;    // characters; longer ones need decimal arithmetic
constexpr int kWholeDigits = 15;       // an integer part this long, in us, is below 2^63 ns
constexpr int kIdDigits = 18;          // a number this long is below 2^63
constexpr size_t kMaxText = 1u << 30;  // offsets stay far below 2^31

struct Text {
  const uint8_t* data;
  size_t size;
};

uint64_t word_at(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

bool same(const uint8_t* at, const char* wanted, size_t size) { return std::memcmp(at, wanted, size) == 0; }

// Distinct texts, numbered in order of appearance.
class Distinct {
 public:
  explicit Distinct(uint64_t seed) : seed_(seed), slots_(256, -1) {}

  int32_t code(Text text) {
    if (!texts_.empty() && equal(texts_[last_], text)) return last_;
    const uint64_t hash = hashed(text);
    size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot] >= 0) {
      const int32_t known = slots_[slot];
      if (hashes_[known] == hash && equal(texts_[known], text)) return last_ = known;
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

 private:
  static bool equal(Text a, Text b) { return a.size == b.size && std::memcmp(a.data, b.data, a.size) == 0; }

  uint64_t hashed(Text text) const {
    constexpr uint64_t kMix = 0x9E3779B97F4A7C15u;
    uint64_t hash = seed_ ^ (text.size * kMix);
    size_t left = text.size;
    const uint8_t* at = text.data;
    for (; left >= 8; left -= 8, at += 8) hash = std::rotl((hash ^ word_at(at)) * kMix, 29);
    if (left) hash = (hash ^ (word_at(at) & ((uint64_t{1} << (8 * left)) - 1))) * kMix;
    hash ^= hash >> 32;
    return (hash * kMix) ^ (hash >> 29);
  }

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

// Texts of one field back to back, as `TextColumn` wants them.
struct Joined {
  uint8_t* data = nullptr;
  size_t size = 0;
  std::vector<int64_t> offsets{0};

  void append(Text text) {
    if (text.size) std::memcpy(data + size, text.data, text.size);
    size += text.size;
  }

  void append(const char* text) { append({reinterpret_cast<const uint8_t*>(text), std::strlen(text)}); }

  void end() { offsets.push_back(static_cast<int64_t>(size)); }

  void add(Text text) {
    append(text);
    end();
  }
};

// Names of the fields of an event; the order is that of the answer.
enum Field { kPh, kCat, kName, kPid, kTid, kTs, kDur, kId, kArgs, kBinding, kOther };
// Names of the ids among the arguments, in the order of `_SOURCES` in readers/native.py.
enum IdKey { kCorrelation, kExternalId, kExternalId2021, kDevice, kStream, kStreamId, kBytes, kExecutionId, kIdKeys };

// What has to be worked out in Python: a time or an id in another form than plain digits.
struct Odd {
  int32_t column;  // 0 ts, 1 dur, 2 + IdKey
  int32_t row;
  Text text;
};

struct Columns {
  explicit Columns(uint64_t seed)
      : coded{Distinct(seed), Distinct(seed), Distinct(seed), Distinct(seed), Distinct(seed)} {}

  std::array<Distinct, 5> coded;  // ph, cat, name, pid, tid
  std::array<std::vector<int32_t>, 5> codes;
  Joined ids, args;
  std::array<std::vector<int64_t>, 2> times;  // ts, dur in ns
  std::array<std::vector<int8_t>, 2> valid;
  std::array<std::vector<int64_t>, kIdKeys> numbers;  // empty until one is met
  std::vector<Odd> odd;
  int32_t rows = 0;
};

class Tokenizer {
 public:
  Tokenizer(const uint8_t* text, size_t size, Columns& columns) : at_(text), end_(text + size), columns_(columns) {}

  // One object, of which the values of some keys are noted; empty where it lacks one.
  bool members(const std::vector<Text>& keys, Text* found) {
    if (*at_ != '{') return false;
    ++at_;
    space();
    if (*at_ == '}') {
      ++at_;
      return at_ == end_;
    }
    for (;;) {
      Text key;
      if (!key_and_colon(key)) return false;
      const uint8_t* begin = at_;
      if (!value(2)) return false;
      for (size_t i = 0; i < keys.size(); ++i) {
        if (keys[i].size != key.size || std::memcmp(keys[i].data, key.data, key.size) != 0) continue;
        if (found[i].size) return false;
        found[i] = {begin, static_cast<size_t>(at_ - begin)};
      }
      space();
      if (*at_ == '}') {
        ++at_;
        return at_ == end_;
      }
      if (*at_ != ',') return false;
      ++at_;
      space();
    }
  }

  // All events; false when anything is out of the ordinary.
  bool events() {
    space();
    while (event()) {
      space();
      if (*at_ != ',') return at_ == end_;
      ++at_;
      space();
    }
    return false;
  }

 private:
  void space() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
  }

  bool event() {
    if (*at_ != '{') return false;
    ++at_;
    space();
    std::array<Text, 9> found;
    found.fill({at_, 0});
    others_.clear();
    std::array<int64_t, kIdKeys> ids;
    unsigned seen = 0, ids_seen = 0;
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
            if (!arguments(ids, ids_seen)) return false;
          } else if (!value(1)) {
            return false;
          }
          const Text value{begin, static_cast<size_t>(at_ - begin)};
          if (field < kBinding) found[field] = value;
          if (field == kOther) {
            for (const auto& [other, _] : others_)
              if (other.size == key.size && !std::memcmp(other.data, key.data, key.size)) return false;
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
    keep(found, ids, ids_seen);
    return true;
  }

  void keep(const std::array<Text, 9>& found, const std::array<int64_t, kIdKeys>& ids, unsigned ids_seen) {
    for (int field = kPh; field <= kTid; ++field)
      columns_.codes[field].push_back(columns_.coded[field].code(found[field]));
    for (int which = 0; which < 2; ++which) {
      int64_t ns = 0;
      const Text text = found[kTs + which];
      const bool plain = text.size && nanoseconds(text, ns);
      if (text.size && !plain) columns_.odd.push_back({which, columns_.rows, text});
      columns_.times[which].push_back(plain ? ns : 0);
      columns_.valid[which].push_back(plain);
    }
    columns_.ids.add(found[kId]);
    if (others_.empty())
      columns_.args.add(found[kArgs]);
    else
      args_with_others(found[kArgs]);
    for (int key = 0; key < kIdKeys; ++key) {
      auto& numbers = columns_.numbers[key];
      if (ids_seen >> key & 1) {
        if (numbers.empty()) numbers.assign(columns_.rows, -1);
        numbers.push_back(ids[key]);
      } else if (!numbers.empty()) {
        numbers.push_back(-1);
      }
    }
    ++columns_.rows;
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
  bool arguments(std::array<int64_t, kIdKeys>& ids, unsigned& seen) {
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
      if (id == kIdKeys) {
        if (!value(2)) return false;
      } else {
        if (seen >> id & 1) return false;
        seen |= 1u << id;
        const uint8_t* begin = at_;
        if (!value(2)) return false;
        const Text text{begin, static_cast<size_t>(at_ - begin)};
        ids[id] = -1;
        if (!whole(text, ids[id])) columns_.odd.push_back({2 + id, columns_.rows, text});
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

  // A key without escapes and what follows up to the value.
  bool key_and_colon(Text& key) {
    if (*at_ != '"') return false;
    const uint8_t* begin = ++at_;
    if (!string()) return false;
    if (escaped_) return false;
    key = {begin, static_cast<size_t>(at_ - begin) - 1};
    space();
    if (*at_ != ':') return false;
    ++at_;
    space();
    return true;
  }

  bool value(int depth) {
    switch (*at_) {
      case '"':
        ++at_;
        return string();
      case '{':
        return depth < kMaxDepth && object(depth + 1);
      case '[':
        return depth < kMaxDepth && array(depth + 1);
      case 't':
        return literal("true", 4);
      case 'f':
        return literal("false", 5);
      case 'n':
        return literal("null", 4);
      default:
        return number();
    }
  }

  bool literal(const char* wanted, size_t size) {
    if (!same(at_, wanted, size)) return false;
    at_ += size;
    return true;
  }

  bool object(int depth) {
    ++at_;
    space();
    if (*at_ == '}') {
      ++at_;
      return true;
    }
    for (;;) {
      if (*at_ != '"') return false;
      ++at_;
      if (!string()) return false;
      space();
      if (*at_ != ':') return false;
      ++at_;
      space();
      if (!value(depth)) return false;
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

  bool array(int depth) {
    ++at_;
    space();
    if (*at_ == ']') {
      ++at_;
      return true;
    }
    for (;;) {
      if (!value(depth)) return false;
      space();
      if (*at_ == ']') {
        ++at_;
        return true;
      }
      if (*at_ != ',') return false;
      ++at_;
      space();
    }
  }

  static bool digit(uint8_t c) { return static_cast<uint8_t>(c - '0') < 10; }

  bool number() {
    if (*at_ == '-') ++at_;
    if (*at_ == '0') {
      ++at_;
    } else {
      if (!digit(*at_)) return false;
      while (digit(*at_)) ++at_;
    }
    if (*at_ == '.') {
      ++at_;
      if (!digit(*at_)) return false;
      while (digit(*at_)) ++at_;
    }
    if (*at_ == 'e' || *at_ == 'E') {
      ++at_;
      if (*at_ == '+' || *at_ == '-') ++at_;
      if (!digit(*at_)) return false;
      while (digit(*at_)) ++at_;
    }
    return true;
  }

  // The rest of a string, its closing quote included. Sets `escaped_`.
  bool string() {
    escaped_ = false;
    for (;;) {
      to_special();
      const uint8_t c = *at_;
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c == '\\') {
        escaped_ = true;
        if (!escape()) return false;
      } else if (c < 0x80 || !utf8()) {
        return false;
      }
    }
  }

  // Forward to the next quote, backslash, control character or byte beyond ASCII.
  void to_special() {
#if defined(__SSE2__) || defined(_M_X64)
    for (;;) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at_));
      const __m128i low = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));  // signed: also what is beyond ASCII
      const __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
      const __m128i slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
      const unsigned mask = static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(low, _mm_or_si128(quote, slash))));
      if (mask) {
        at_ += std::countr_zero(mask);
        return;
      }
      at_ += 16;
    }
#else
    constexpr uint64_t kOnes = 0x0101010101010101u, kHigh = 0x8080808080808080u;
    for (;;) {
      const uint64_t word = word_at(at_), quote = word ^ (kOnes * '"'), slash = word ^ (kOnes * '\\');
      // Of each kind the lowest bit that is set is right; a borrow can only set those above it.
      const uint64_t mask =
          (((quote - kOnes) & ~quote) | ((slash - kOnes) & ~slash) | (word - kOnes * 0x20) | word) & kHigh;
      if (mask) {
        at_ += std::countr_zero(mask) / 8;
        return;
      }
      at_ += 8;
    }
#endif
  }

  static int hex(uint8_t c) {
    if (digit(c)) return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  }

  bool code_unit(unsigned& unit) {
    unit = 0;
    for (int i = 0; i < 4; ++i) {
      const int value = hex(*at_);
      if (value < 0) return false;
      unit = unit * 16 + static_cast<unsigned>(value);
      ++at_;
    }
    return true;
  }

  bool escape() {
    ++at_;
    const uint8_t c = *at_;
    if (c == 0) return false;
    ++at_;
    if (c != 'u') return std::strchr("\"\\/bfnrt", c) != nullptr;
    unsigned unit;
    if (!code_unit(unit)) return false;
    if (unit < 0xD800 || unit > 0xDFFF) return true;
    if (unit > 0xDBFF || !same(at_, "\\u", 2)) return false;
    at_ += 2;
    return code_unit(unit) && unit >= 0xDC00 && unit <= 0xDFFF;
  }

  // One character beyond ASCII; no overlong forms, surrogates or what Unicode does not have.
  bool utf8() {
    const uint8_t a = at_[0], b = at_[1];
    if (a >= 0xC2 && a <= 0xDF) {
      if ((b & 0xC0) != 0x80) return false;
      at_ += 2;
      return true;
    }
    if (a >= 0xE0 && a <= 0xEF) {
      const uint8_t low = a == 0xE0 ? 0xA0 : 0x80, high = a == 0xED ? 0x9F : 0xBF;
      if (b < low || b > high || (at_[2] & 0xC0) != 0x80) return false;
      at_ += 3;
      return true;
    }
    if (a >= 0xF0 && a <= 0xF4) {
      const uint8_t low = a == 0xF0 ? 0x90 : 0x80, high = a == 0xF4 ? 0x8F : 0xBF;
      if (b < low || b > high || (at_[2] & 0xC0) != 0x80 || (at_[3] & 0xC0) != 0x80) return false;
      at_ += 4;
      return true;
    }
    return false;
  }

  // Microseconds in plain digits, quoted or not, → nanoseconds, rounded half up past the third decimal.
  static bool nanoseconds(Text text, int64_t& ns) {
    if (text.size >= 2 && text.data[0] == '"') text = {text.data + 1, text.size - 2};
    if (text.size > kLongestTime) return false;
    const uint8_t *at = text.data, *end = at + text.size;
    int64_t value = 0;
    while (at < end && digit(*at)) {
      if (at - text.data >= kWholeDigits) return false;
      value = value * 10 + (*at++ - '0');
    }
    if (at == text.data) return false;
    int missing = 3;
    bool up = false;
    if (at < end) {
      if (*at++ != '.') return false;
      for (; at < end && digit(*at); ++at) {
        if (missing > 0) {
          value = value * 10 + (*at - '0');
          --missing;
        } else if (missing == 0) {
          up = *at >= '5';
          missing = -1;
        }
      }
      if (at != end) return false;
    }
    for (; missing > 0; --missing) value *= 10;
    ns = value + up;
    return true;
  }

  // A whole number in plain digits.
  static bool whole(Text text, int64_t& number) {
    const bool negative = text.data[0] == '-';
    const uint8_t *at = text.data + negative, *end = text.data + text.size;
    if (end - at < 1 || end - at > kIdDigits || (negative && *at == '0')) return false;
    int64_t value = 0;
    for (; at < end; ++at) {
      if (!digit(*at)) return false;
      value = value * 10 + (*at - '0');
    }
    number = negative ? -value : value;
    return true;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  Columns& columns_;
  bool escaped_ = false;
  std::vector<std::pair<Text, Text>> others_;  // of the event at hand
};

// A copy of a text that ends in zeros, in memory that this thread keeps.
const uint8_t* padded(const uint8_t* given, size_t size) {
  thread_local Scratch scratch;
  uint8_t* text = scratch.take(size + kPadding);
  std::memcpy(text, given, size);
  std::memset(text + size, 0, kPadding);
  return text;
}

// Everything that needs no interpreter. False when the plain parser has to read the text.
bool read(const uint8_t* given, size_t size, Columns& columns) {
  thread_local std::array<Scratch, 2> scratch;
  columns.args.data = scratch[0].take(size + 1);
  columns.ids.data = scratch[1].take(size + 1);
  return Tokenizer(padded(given, size), size, columns).events();
}

// The same for the arguments of many events: values of some keys, as JSON texts back to back.
bool read_members(const uint8_t* data, const int32_t* offsets, size_t count, const std::vector<Text>& keys,
                  std::vector<Joined>& columns) {
  thread_local std::vector<Scratch> scratch;
  const size_t size = static_cast<size_t>(offsets[count] - offsets[0]);
  const uint8_t* text = padded(data + offsets[0], size);
  scratch.resize(std::max(scratch.size(), keys.size()));
  for (size_t i = 0; i < keys.size(); ++i) columns[i].data = scratch[i].take(size + 1);
  Columns unused(0);
  std::vector<Text> found(keys.size());
  for (size_t row = 0; row < count; ++row) {
    const size_t begin = static_cast<size_t>(offsets[row] - offsets[0]);
    const size_t length = static_cast<size_t>(offsets[row + 1] - offsets[row]);
    std::fill(found.begin(), found.end(), Text{text, 0});
    if (length && !Tokenizer(text + begin, length, unused).members(keys, found.data())) return false;
    for (size_t i = 0; i < keys.size(); ++i) columns[i].add(found[i]);
  }
  return true;
}

template <class T>
PyObject* bytes_of(const std::vector<T>& values) {
  return PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(values.data()),
                                       static_cast<Py_ssize_t>(values.size() * sizeof(T)));
}

PyObject* bytes_of(Text text) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(text.data), static_cast<Py_ssize_t>(text.size));
}

PyObject* list_of(const std::vector<Text>& texts) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(texts.size()));
  for (size_t i = 0; list && i < texts.size(); ++i) {
    PyObject* item = bytes_of(texts[i]);
    if (!item || PyList_SetItem(list, static_cast<Py_ssize_t>(i), item) < 0) Py_CLEAR(list);
  }
  return list;
}

// The answer as a dict of plain Python objects; see `tokenize` below.
PyObject* answer(const Columns& columns) {
  PyObject* found = PyDict_New();
  auto put = [&found](const char* name, PyObject* value) {
    if (found && (!value || PyDict_SetItemString(found, name, value) < 0)) Py_CLEAR(found);
    Py_XDECREF(value);
  };
  constexpr const char* kCoded[] = {"ph", "cat", "name", "pid", "tid"};
  for (int i = 0; i < 5; ++i)
    put(kCoded[i], Py_BuildValue("(NN)", bytes_of(columns.codes[i]), list_of(columns.coded[i].texts())));
  for (const auto& [name, joined] : {std::pair{"id", &columns.ids}, std::pair{"args", &columns.args}})
    put(name, Py_BuildValue("(NN)", bytes_of(joined->offsets), bytes_of(Text{joined->data, joined->size})));
  constexpr const char* kTimes[] = {"ts", "dur"};
  for (int i = 0; i < 2; ++i)
    put(kTimes[i], Py_BuildValue("(NN)", bytes_of(columns.times[i]), bytes_of(columns.valid[i])));
  PyObject* numbers = PyList_New(kIdKeys);
  for (int key = 0; numbers && key < kIdKeys; ++key) {
    PyObject* column = bytes_of(columns.numbers[key]);
    if (!column || PyList_SetItem(numbers, key, column) < 0) Py_CLEAR(numbers);
  }
  put("numbers", numbers);
  PyObject* odd = PyList_New(static_cast<Py_ssize_t>(columns.odd.size()));
  for (size_t i = 0; odd && i < columns.odd.size(); ++i) {
    const Odd& one = columns.odd[i];
    PyObject* item = Py_BuildValue("(iiN)", one.column, one.row, bytes_of(one.text));
    if (!item || PyList_SetItem(odd, static_cast<Py_ssize_t>(i), item) < 0) Py_CLEAR(odd);
  }
  put("odd", odd);
  return found;
}

PyDoc_STRVAR(
    tokenize_doc,
    "tokenize(text, /)\n--\n\n"
    "Events separated by commas → buffers; None when the plain parser has to read the text.\n\n"
    "A dict: ph, cat, name (contents of the strings), pid, tid (JSON texts) as (int32 codes, distinct texts);\n"
    "id, args as (int64 offsets, JSON texts back to back); ts, dur as (int64 ns, int8 valid); numbers: int64\n"
    "per id key, empty where no event has it; odd: (column, row, JSON text) of times (0 ts, 1 dur) and ids\n"
    "(2 + key) that are not in plain digits. The interpreter's lock is released while it reads.");

PyObject* tokenize(PyObject*, PyObject* given) {
  Py_buffer view;
  if (PyObject_GetBuffer(given, &view, PyBUF_SIMPLE) < 0) return nullptr;
  const size_t size = static_cast<size_t>(view.len);
  std::unique_ptr<Columns> columns;
  bool good = false, memory = true;
  Py_BEGIN_ALLOW_THREADS;
  try {
    if (size <= kMaxText) {
      const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
      columns.reset(new Columns(static_cast<uint64_t>(now) ^ reinterpret_cast<uintptr_t>(&view)));
      good = read(static_cast<const uint8_t*>(view.buf), size, *columns);
    }
  } catch (const std::bad_alloc&) {
    memory = false;
  }
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&view);
  if (!memory) return PyErr_NoMemory();
  if (!good) return Py_NewRef(Py_None);
  return answer(*columns);
}

PyDoc_STRVAR(
    members_doc,
    "members(data, offsets, keys, /)\n--\n\n"
    "Of JSON objects back to back in `data`, between int32 `offsets`, the values of some keys (a tuple of bytes):\n"
    "for each key (int64 offsets, JSON texts back to back), empty where an object lacks it or has no text. None\n"
    "when a text is no plain object; then the plain parser has to read them.");

PyObject* members(PyObject*, PyObject* arguments) {
  Py_buffer data, offsets;
  PyObject* keys;
  if (!PyArg_ParseTuple(arguments, "y*y*O!", &data, &offsets, &PyTuple_Type, &keys)) return nullptr;
  std::vector<Text> wanted;
  std::vector<Joined> columns;
  bool good = false, memory = true;
  PyObject* found = nullptr;
  const auto* at = static_cast<const int32_t*>(offsets.buf);
  const size_t count = static_cast<size_t>(offsets.len) / sizeof(int32_t);
  bool sound =
      count > 0 && reinterpret_cast<uintptr_t>(at) % alignof(int32_t) == 0 && at[0] >= 0 && at[count - 1] <= data.len;
  for (size_t i = 1; sound && i < count; ++i) sound = at[i] >= at[i - 1];
  for (Py_ssize_t i = 0; sound && i < PyTuple_Size(keys); ++i) {
    char* text;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(keys, i), &text, &size) < 0) goto done;
    wanted.push_back({reinterpret_cast<const uint8_t*>(text), static_cast<size_t>(size)});
  }
  if (!sound) {
    PyErr_SetString(PyExc_ValueError, "offsets that are no offsets into the data");
    goto done;
  }
  columns.resize(wanted.size());
  Py_BEGIN_ALLOW_THREADS;
  try {
    good = read_members(static_cast<const uint8_t*>(data.buf), at, count - 1, wanted, columns);
  } catch (const std::bad_alloc&) {
    memory = false;
  }
  Py_END_ALLOW_THREADS;
  if (!memory) {
    PyErr_NoMemory();
  } else if (!good) {
    found = Py_NewRef(Py_None);
  } else if ((found = PyList_New(static_cast<Py_ssize_t>(columns.size())))) {
    for (size_t i = 0; found && i < columns.size(); ++i) {
      PyObject* item =
          Py_BuildValue("(NN)", bytes_of(columns[i].offsets), bytes_of(Text{columns[i].data, columns[i].size}));
      if (!item || PyList_SetItem(found, static_cast<Py_ssize_t>(i), item) < 0) Py_CLEAR(found);
    }
  }
done:
  PyBuffer_Release(&data);
  PyBuffer_Release(&offsets);
  return found;
}

PyMethodDef methods[] = {{"tokenize", tokenize, METH_O, tokenize_doc},
                         {"members", members, METH_VARARGS, members_doc},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT,
                      "_tokenizer",
                      "Fast reader of trace events; see readers/native.py.",
                      -1,
                      methods,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__tokenizer() { return PyModule_Create(&module); }
