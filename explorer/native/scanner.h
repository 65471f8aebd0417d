// Strict JSON, as the plain parser accepts it or less: `Scanner` steps over values, and exact numbers from plain
// digits.
#pragma once

#include <cstring>
#include <vector>

#include "text.h"

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#endif

namespace tokenizer {

constexpr int kMaxDepth = 64;        // of nested values; the plain parser goes deeper
constexpr size_t kLongestTime = 40;  // characters; longer ones need decimal arithmetic
constexpr int kWholeDigits = 15;     // an integer part this long, in us, is below 2^63 ns
constexpr int kIdDigits = 18;        // a number this long is below 2^63

inline bool digit(uint8_t c) { return static_cast<uint8_t>(c - '0') < 10; }

// Where a number in plain digits that begins here ends, and its value; null for any other. What follows the digits is
// not looked at.
inline const uint8_t* whole_at(const uint8_t* at, int64_t& number) {
  const bool negative = *at == '-';
  const uint8_t* begin = at += negative;
  uint64_t value = 0;
  while (digit(*at)) value = value * 10 + (*at++ - uint64_t{'0'});
  const auto digits = at - begin;
  if (digits < 1 || digits > kIdDigits || (*begin == '0' && (digits > 1 || negative))) return nullptr;
  number = negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
  return at;
}

// The same for microseconds → nanoseconds.
inline const uint8_t* time_at(const uint8_t* at, int64_t& ns) {
  const uint8_t* begin = at;
  int64_t value = 0;
  while (digit(*at) && at - begin <= kWholeDigits) value = value * 10 + (*at++ - '0');
  const auto digits = at - begin;
  if (digits < 1 || digits > kWholeDigits || (*begin == '0' && digits > 1)) return nullptr;
  int missing = 3;
  bool up = false;
  if (*at == '.') {
    const uint8_t* point = at++;
    for (; missing > 0 && digit(*at); --missing) value = value * 10 + (*at++ - '0');
    if (digit(*at)) {
      up = *at >= '5';
      while (digit(*at)) ++at;
    }
    if (at == point + 1 || static_cast<size_t>(at - begin) > kLongestTime) return nullptr;
  }
  for (; missing > 0; --missing) value *= 10;
  ns = value + up;
  return at;
}

// Where any number that begins here ends; null for what is none.
inline const uint8_t* number_at(const uint8_t* at) {
  if (*at == '-') ++at;
  if (*at == '0') {
    ++at;
  } else {
    if (!digit(*at)) return nullptr;
    while (digit(*at)) ++at;
  }
  if (*at == '.') {
    ++at;
    if (!digit(*at)) return nullptr;
    while (digit(*at)) ++at;
  }
  if (*at == 'e' || *at == 'E') {
    ++at;
    if (*at == '+' || *at == '-') ++at;
    if (!digit(*at)) return nullptr;
    while (digit(*at)) ++at;
  }
  return at;
}

// Whether a whole JSON value is a number in plain digits.
inline bool whole(Text text, int64_t& number) { return whole_at(text.data, number) == text.data + text.size; }

// The same for a time, which may be quoted.
inline bool nanoseconds(Text text, int64_t& ns) {
  if (text.size >= 2 && text.data[0] == '"') text = {text.data + 1, text.size - 2};
  return time_at(text.data, ns) == text.data + text.size;
}

class Scanner {
 public:
  Scanner(const uint8_t* text, size_t size) : at_(text), end_(text + size) {}

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

 protected:
  void space() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
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

  bool number() {
    const uint8_t* after = number_at(at_);
    if (after) at_ = after;
    return after != nullptr;
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

  const uint8_t* at_;
  const uint8_t* end_;
  bool escaped_ = false;  // whether the last string had a backslash
};

}  // namespace tokenizer
