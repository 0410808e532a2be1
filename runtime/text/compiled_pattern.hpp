#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

struct pcre2_real_code_8;

namespace mgpu::text {

// How much one search may cost. Patterns and texts come from models, data sets and recipes; without
// limits a short pattern can take minutes and gigabytes. They are limits of work and memory, not of
// time, so that every rank gets the same result.
struct MatchLimits {
  std::uint32_t steps = 10'000'000;
  std::uint32_t depth = 10'000'000;  // of recursion
  std::uint32_t kibibytes = 32 << 10;

  friend bool operator==(const MatchLimits&, const MatchLimits&) = default;
};

struct PatternOptions {
  // well_formed: the caller promises UTF-8; checked: other texts are an error; any_bytes: bytes
  // that are not UTF-8 match nothing.
  enum class Texts { well_formed, checked, any_bytes };

  Texts texts = Texts::checked;
  bool unicode_classes = false;  // \d, \s, \w and \b by Unicode's properties
  bool whole_text = false;       // a match begins where the search begins and ends with the text
  bool any_case = false;
  bool many_lines = false;          // ^ and $ at every line
  bool dot_all = false;             // . matches newlines
  bool verbose = false;             // ignores white space and comments in the pattern
  bool no_single_bytes = false;     // rejects \C
  bool to_machine_code = false;     // slower to compile, much faster to search with
  std::uint32_t most_nested = 250;  // parentheses
};

// what() is PCRE2's message.
class PatternError : public std::runtime_error {
 public:
  PatternError(const std::string& message, std::size_t place)
      : std::runtime_error(message), place_(place) {}
  std::size_t place() const { return place_; }  // in the pattern, or where the search began

 private:
  std::size_t place_;
};

struct PatternMatch {
  std::size_t begin = 0;
  std::size_t end = 0;                      // before begin if \K has moved the beginning behind it
  std::optional<std::string_view> group{};  // the first group, if there is one and it matched
};

// A regular expression that PCRE2 has compiled; it frees it. Any number of threads may search with
// it at once: what a search needs belongs to the thread.
class CompiledPattern {
 public:
  CompiledPattern(std::string_view pattern, const PatternOptions& options);  // throws PatternError

  // The first match at or after `from`. Throws PatternError if the search exceeds a limit, and if
  // the text is not as the options require.
  std::optional<PatternMatch> find(std::string_view text, std::size_t from,
                                   const MatchLimits& limits) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::uint32_t search_options_ = 0;
};

}  // namespace mgpu::text
