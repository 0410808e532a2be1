#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::rewards {

// A regular expression in Python's words over text that may be anything. The work of one search is
// bounded in steps, depth and memory, not in time: every rank finds the same.
class Pattern {
 public:
  struct Flags {
    bool any_case = false;    // i
    bool many_lines = false;  // m: ^ and $ at every line
    bool dot_all = false;     // s: . takes newlines
    bool verbose = false;     // x
  };
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::optional<std::string>
        group{};  // the first group, where the pattern has one that took part
  };

  Pattern(const std::string& pattern, const Flags& flags);  // throws naming pattern and place
  Pattern(Pattern&&) noexcept;
  ~Pattern();

  // The first match at or behind `from`. Throws when the search needs too much work.
  std::optional<Match> find(std::string_view text, std::size_t from = 0) const;
  std::size_t count(std::string_view text) const;  // of matches that do not overlap

  // Flags as letters, such as "ims"; throws for others.
  static Flags flags_of(const std::string& letters);

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace mgpu::rewards
