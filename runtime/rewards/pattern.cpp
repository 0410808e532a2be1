#include "runtime/rewards/pattern.hpp"

#include <fmt/format.h>
#include <pcre2.h>

#include <cstdint>
#include <new>
#include <stdexcept>

#include "rendezvous/base/spelling.hpp"
#include "runtime/text/match_limits.hpp"

namespace mgpu::rewards {
namespace {

// A search of a whole completion with a reasonable pattern takes thousands of steps.
constexpr text::MatchLimits kLimits{.steps = 2'000'000, .depth = 20'000};

std::string pcre_message(int error) {
  PCRE2_UCHAR text[200];
  return pcre2_get_error_message(error, text, sizeof text) >= 0
             ? reinterpret_cast<const char*>(text)
             : fmt::format("error {}", error);
}

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;
  pcre2_match_data* found = nullptr;
  text::MatchContext limits = text::make_match_context(kLimits);
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_match_data_free(found);
    pcre2_code_free(code);
  }
};

Pattern::Pattern(const std::string& pattern, const Flags& flags)
    : pattern_(pattern), code_(std::make_unique<Code>()) {
  std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
  if (flags.any_case) options |= PCRE2_CASELESS;
  if (flags.many_lines) options |= PCRE2_MULTILINE;
  if (flags.dot_all) options |= PCRE2_DOTALL;
  if (flags.verbose) options |= PCRE2_EXTENDED;
  int error = 0;
  PCRE2_SIZE place = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                              &error, &place, nullptr);
  if (!code_->code)
    throw std::runtime_error(fmt::format("pattern {} is invalid at character {}: {}",
                                         rendezvous::shown(pattern), place + 1,
                                         pcre_message(error)));
  code_->found = pcre2_match_data_create_from_pattern(code_->code, nullptr);
  if (!code_->found) throw std::bad_alloc();
}

Pattern::Pattern(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

std::optional<Pattern::Match> Pattern::find(std::string_view text, std::size_t from) const {
  const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                 text.size(), from, 0, code_->found, code_->limits.get());
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0)
    throw std::runtime_error(fmt::format("cannot search for pattern {}: {}",
                                         rendezvous::shown(pattern_), pcre_message(result)));
  const auto* ends = pcre2_get_ovector_pointer(code_->found);
  Match match{ends[0], std::max(ends[0], ends[1]), std::nullopt};
  if (result > 1 && ends[2] != PCRE2_UNSET)
    match.group = std::string(text.substr(ends[2], ends[3] - ends[2]));
  return match;
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
      throw std::runtime_error(
          fmt::format("unknown flag {} of a pattern; supported are i, m, s and x",
                      rendezvous::shown(std::string(1, c))));
    }
  }
  return flags;
}

}  // namespace mgpu::rewards
