#include "runtime/checkpoint/name_pattern.hpp"

#include <fmt/format.h>
#include <pcre2.h>

#include <cstdint>
#include <stdexcept>

#include "runtime/checkpoint/json_text.hpp"
#include "runtime/text/match_limits.hpp"

namespace mgpu::checkpoint {

namespace {

// Names are short; a pattern that needs more steps than this backtracks without end.
constexpr text::MatchLimits kLimits{.steps = 1'000'000, .depth = 20'000};

std::string words_of(int error) {
  PCRE2_UCHAR text[200];
  return pcre2_get_error_message(error, text, sizeof text) >= 0
             ? reinterpret_cast<const char*>(text)
             : fmt::format("error {}", error);
}

}  // namespace

struct NamePattern::Code {
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

NamePattern::NamePattern(const std::string& pattern)
    : pattern_(pattern), code_(std::make_unique<Code>()) {
  int error = 0;
  PCRE2_SIZE place = 0;
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &place, nullptr);
  if (!code_->code)
    throw std::runtime_error(fmt::format("invalid pattern {} at character {}: {}",
                                         in_quotes(pattern), place + 1, words_of(error)));
  code_->found = pcre2_match_data_create_from_pattern(code_->code, nullptr);
  if (!code_->found) throw std::bad_alloc();
}

NamePattern::NamePattern(NamePattern&&) noexcept = default;
NamePattern::~NamePattern() = default;

bool NamePattern::matches(std::string_view name) const {
  const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(name.data()),
                                 name.size(), 0, 0, code_->found, code_->limits.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  throw std::runtime_error(fmt::format("pattern {} cannot be matched against {}: {}",
                                       in_quotes(pattern_), in_quotes(name), words_of(result)));
}

}  // namespace mgpu::checkpoint
