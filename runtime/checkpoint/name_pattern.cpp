#include "runtime/checkpoint/name_pattern.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"

namespace mgpu::checkpoint {

namespace {

// Names are short; a pattern that needs more steps than this backtracks without end.
constexpr text::MatchLimits kLimits{.steps = 1'000'000, .depth = 20'000};

text::CompiledPattern compiled(const std::string& pattern) {
  try {
    return {pattern, {.whole_text = true}};
  } catch (const text::PatternError& error) {
    throw rendezvous::InputError(fmt::format("invalid pattern {} at character {}: {}",
                                             in_quotes(pattern), error.place() + 1, error.what()));
  }
}

}  // namespace

NamePattern::NamePattern(const std::string& pattern)
    : pattern_(pattern), compiled_(compiled(pattern)) {}

bool NamePattern::matches(std::string_view name) const {
  try {
    return compiled_.find(name, 0, kLimits).has_value();
  } catch (const text::PatternError& error) {
    throw rendezvous::InputError(fmt::format("pattern {} cannot be matched against {}: {}",
                                             in_quotes(pattern_), in_quotes(name), error.what()));
  }
}

}  // namespace mgpu::checkpoint
