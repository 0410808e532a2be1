#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/text/compiled_pattern.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {

struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Translates a pattern to PCRE2's syntax. Tokenizer files are written for Oniguruma, whose classes
// are those of Unicode 16 and whose ^ and $ match at every line. Throws an error that names any
// construct that cannot be translated with the same meaning.
std::string to_pcre2(std::string_view pattern);

// The contents of a bracket class that matches the same characters as \w in patterns of added
// tokens.
std::string word_class();

// A compiled pattern of a tokenizer file. Any number of threads may search with it at once.
class Regex {
 public:
  // Throws an error with the pattern and the reason.
  explicit Regex(std::string_view pattern);
  static Regex literal(std::string_view text);        // matches exactly this text
  static Regex of_pcre2(const std::string& pattern);  // without translation

  // Finds the next match at or after `from` in well-formed UTF-8. Returns false if there is none.
  bool find(std::string_view text, std::size_t from, Match& match) const;

 private:
  explicit Regex(CompiledPattern pattern) : pattern_(std::move(pattern)) {}

  CompiledPattern pattern_;
};

// Calls each(match) for all matches, left to right. Ignores an empty match at the end of the
// previous match.
template <class Each>
void for_each_match(const Regex& regex, std::string_view text, Each each) {
  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  Match match;
  while (from <= text.size() && regex.find(text, from, match)) {
    if (match.begin == match.end && match.end == last_end) {
      if (from >= text.size()) break;
      from += code_point_at(text, from).size;
      continue;
    }
    each(match);
    from = last_end = match.end;
  }
}

}  // namespace mgpu::text
