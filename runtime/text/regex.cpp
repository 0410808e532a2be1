#include "runtime/text/regex.hpp"

#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::text {
namespace {

constexpr std::size_t kShownPattern = 500;
constexpr PatternOptions kOptions{.texts = PatternOptions::Texts::well_formed,
                                  .unicode_classes = true,
                                  .many_lines = true,
                                  .no_single_bytes = true,
                                  .to_machine_code = true,
                                  .most_nested = 100};

CompiledPattern compiled(const std::string& pattern) {
  try {
    return {pattern, kOptions};
  } catch (const PatternError& error) {
    throw rendezvous::InputError(fmt::format("{} (at byte {})", error.what(), error.place()));
  }
}

CompiledPattern translated(std::string_view pattern) {
  try {
    return compiled(to_pcre2(pattern));
  } catch (const std::runtime_error& error) {
    rendezvous::throw_like(error,
                           fmt::format("cannot use the pattern {}: {}",
                                       rendezvous::shown(pattern, kShownPattern), error.what()));
  }
}

}  // namespace

Regex::Regex(std::string_view pattern) : pattern_(translated(pattern)) {}

Regex Regex::literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80) {
      pattern += fmt::format("\\x{{{:02x}}}", static_cast<unsigned char>(c));
    } else {
      pattern.push_back(c);
    }
  }
  return Regex(compiled(pattern));
}

Regex Regex::of_pcre2(const std::string& pattern) {
  return Regex(compiled(pattern));
}

bool Regex::find(std::string_view text, std::size_t from, Match& match) const {
  std::optional<PatternMatch> found;
  try {
    found = pattern_.find(text, from, {});
  } catch (const PatternError& error) {
    throw rendezvous::InputError(fmt::format(
        "cannot split text by the tokenizer's pattern, at byte {}: {}", from, error.what()));
  }
  if (!found) return false;
  if (found->begin > found->end || found->begin < from) {
    throw rendezvous::InputError(
        fmt::format("the tokenizer's pattern moves its match backwards, at byte {}", from));
  }
  match = {found->begin, found->end};
  return true;
}

}  // namespace mgpu::text
