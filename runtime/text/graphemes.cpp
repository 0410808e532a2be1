#include "runtime/text/graphemes.hpp"

#include <algorithm>

#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

using enum GraphemeClass;

constexpr char32_t kJoiner = 0x200D, kNonJoiner = 0x200C;
constexpr char32_t kFirstSyllable = 0xAC00, kSyllablesPerVowel = 28;

GraphemeClass class_of(char32_t c) {
  const auto ranges = grapheme_ranges();
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), c,
      [](char32_t value, const GraphemeRange& range) { return value < range.first; });
  if (after == ranges.begin() || c > (after - 1)->last) return other;
  return (after - 1)->kind;
}

// A Hangul syllable without a trailing consonant can get one.
bool is_open(char32_t syllable_code) {
  return (syllable_code - kFirstSyllable) % kSyllablesPerVowel == 0;
}

// The code points of one cluster, read from its start.
class Cluster {
 public:
  explicit Cluster(char32_t first) { append(first, class_of(first)); }

  // Appends a code point if it belongs to the cluster; otherwise returns false.
  bool take(char32_t next) {
    const GraphemeClass kind = class_of(next);
    if (!joins(next, kind)) return false;
    append(next, kind);
    return true;
  }

 private:
  bool joins(char32_t next, GraphemeClass kind) const {
    if (last_ == '\r' && next == '\n') return true;
    if (last_class_ == control || kind == control) return false;
    if (kind == extend || kind == linker || kind == spacing || last_class_ == prepend) return true;
    switch (kind) {
      case leading:
      case syllable:
        return last_class_ == leading;
      case vowel:
        return last_class_ == leading || last_class_ == vowel || after_open_syllable();
      case trailing:
        return last_class_ == vowel || last_class_ == trailing || last_class_ == syllable;
      case consonant:
        return linked_;
      case pictograph:
        return after_pictograph_ && last_ == kJoiner;
      case regional:
        return regionals_ % 2 == 1;
      default:
        return false;
    }
  }

  bool after_open_syllable() const { return last_class_ == syllable && is_open(last_); }

  void append(char32_t c, GraphemeClass kind) {
    const bool extends = kind == extend || kind == linker;
    if (kind == consonant) {
      after_consonant_ = true;
      linked_ = false;
    } else if (!extends || c == kNonJoiner) {
      after_consonant_ = linked_ = false;
    } else if (kind == linker) {
      linked_ = after_consonant_;
    }
    if (!extends) after_pictograph_ = kind == pictograph;
    regionals_ = kind == regional ? regionals_ + 1 : 0;
    last_ = c;
    last_class_ = kind;
  }

  char32_t last_ = 0;
  GraphemeClass last_class_ = other;
  bool after_consonant_ = false;   // a consonant and only extenders since then
  bool linked_ = false;            // and a linker among them
  bool after_pictograph_ = false;  // a pictograph and only extenders since then
  int regionals_ = 0;
};

}  // namespace

std::size_t grapheme_end(std::string_view text, std::size_t begin) {
  CodePoint c = code_point_at(text, begin);
  Cluster cluster(c.value);
  std::size_t end = begin + c.size;
  while (end < text.size()) {
    c = code_point_at(text, end);
    if (!cluster.take(c.value)) break;
    end += c.size;
  }
  return end;
}

}  // namespace mgpu::text
