#include "runtime/rewards/pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::rewards {
namespace {

// A search of a whole completion with a reasonable pattern takes thousands of steps.
constexpr text::MatchLimits kLimits{.steps = 2'000'000, .depth = 20'000};

text::CompiledPattern compiled(const std::string& pattern, const Pattern::Flags& flags) {
  try {
    return {pattern,
            {.texts = text::PatternOptions::Texts::any_bytes,
             .unicode_classes = true,
             .any_case = flags.any_case,
             .many_lines = flags.many_lines,
             .dot_all = flags.dot_all,
             .verbose = flags.verbose,
             .no_single_bytes = true}};
  } catch (const text::PatternError& error) {
    throw rendezvous::InputError(fmt::format("pattern {} is invalid at character {}: {}",
                                             rendezvous::shown(pattern), error.place() + 1,
                                             error.what()));
  }
}

}  // namespace

Pattern::Pattern(const std::string& pattern, const Flags& flags)
    : pattern_(pattern), compiled_(compiled(pattern, flags)) {}

std::optional<Pattern::Match> Pattern::find(std::string_view text, std::size_t from) const {
  try {
    const auto found = compiled_.find(text, from, kLimits);
    if (!found) return std::nullopt;
    Match match{found->begin, std::max(found->begin, found->end), std::nullopt};
    if (found->group) match.group = std::string(*found->group);
    return match;
  } catch (const text::PatternError& error) {
    throw rendezvous::InputError(
        fmt::format("cannot search for pattern {}: {}", rendezvous::shown(pattern_), error.what()));
  }
}

std::size_t Pattern::count(std::string_view text) const {
  std::size_t matches = 0;
  std::size_t from = 0;
  while (from <= text.size()) {
    const auto match = find(text, from);
    if (!match) break;
    ++matches;
    from = match->end;
    if (match->begin == match->end) {  // continue after one character, which may be several bytes
      ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    }
  }
  return matches;
}

Pattern::Flags Pattern::flags_of(const std::string& letters) {
  Flags flags;
  for (const char c : letters) {
    if (c == 'i') {
      flags.any_case = true;
    } else if (c == 'm') {
      flags.many_lines = true;
    } else if (c == 's') {
      flags.dot_all = true;
    } else if (c == 'x') {
      flags.verbose = true;
    } else {
      throw rendezvous::InputError(
          fmt::format("unknown flag {} of a pattern; supported are i, m, s and x",
                      rendezvous::shown(std::string(1, c))));
    }
  }
  return flags;
}

}  // namespace mgpu::rewards
