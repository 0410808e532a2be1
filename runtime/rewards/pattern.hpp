#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/compiled_pattern.hpp"

namespace mgpu::rewards {

// A regular expression in Python's syntax over arbitrary text. The work of one search is bounded in
// steps, depth and memory, not in time, so that every rank gets the same result.
class Pattern {
 public:
  struct Flags {
    bool any_case = false;    // i
    bool many_lines = false;  // m: ^ and $ at every line
    bool dot_all = false;     // s: . matches newlines
    bool verbose = false;     // x
  };
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::optional<std::string> group{};  // the first group, if the pattern has one and it matched
  };

  Pattern(const std::string& pattern,
          const Flags& flags);  // throws with the pattern and the position

  // The first match at or after `from`. Throws if the search needs too much work.
  std::optional<Match> find(std::string_view text, std::size_t from = 0) const;
  std::size_t count(std::string_view text) const;  // of non-overlapping matches

  // Flags as letters, such as "ims"; throws for others.
  static Flags flags_of(const std::string& letters);

 private:
  std::string pattern_;
  text::CompiledPattern compiled_;
};

}  // namespace mgpu::rewards
