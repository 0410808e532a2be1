#include "runtime/text/regex.hpp"

#include <array>
#include <stdexcept>

#include <fmt/format.h>
#include <pcre2.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/text/match_limits.hpp"

namespace mgpu::text {
namespace {

constexpr std::size_t kJitStack = 1 << 20;
constexpr std::size_t kShownPattern = 500;
constexpr std::uint32_t kOptions =
    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;

// The match data of a thread: created once per thread and shared by all patterns.
struct Workspace {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  MatchContext compiled = make_match_context({});
  MatchContext interpreted = make_match_context({});
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStack, nullptr);

  Workspace() {
    if (!match || !stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(compiled.get(), nullptr, stack);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(match);
  }
};

Workspace& workspace() {
  thread_local Workspace mine;
  return mine;
}

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

Regex::Regex(std::string_view pattern) {
  try {
    compile(to_pcre2(pattern));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("cannot use the pattern {}: {}",
                                         rendezvous::shown(pattern, kShownPattern), error.what()));
  }
}

Regex Regex::literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80) {
      pattern += fmt::format("\\x{{{:02x}}}", static_cast<unsigned char>(c));
    } else {
      pattern.push_back(c);
    }
  }
  Regex regex;
  regex.compile(pattern);
  return regex;
}

Regex Regex::of_pcre2(const std::string& pattern) {
  Regex regex;
  regex.compile(pattern);
  return regex;
}

void Regex::compile(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions,
                            &error, &at, context.get()));
  if (!code_) throw std::runtime_error(fmt::format("{} (at byte {})", message_of(error), at));
  // If PCRE2 was built without JIT, the interpreter finds the same matches.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

bool Regex::find(std::string_view text, std::size_t from, Match& match) const {
  Workspace& mine = workspace();
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data() ? text.data() : "");
  int found = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, mine.match,
                          mine.compiled.get());
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        mine.match, mine.interpreted.get());
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    throw std::runtime_error(fmt::format(
        "cannot split text by the tokenizer's pattern, at byte {}: {}", from, message_of(found)));
  }
  const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(mine.match);
  if (bounds[0] > bounds[1] || bounds[0] < from) {
    throw std::runtime_error(
        fmt::format("the tokenizer's pattern moves its match backwards, at byte {}", from));
  }
  match = {bounds[0], bounds[1]};
  return true;
}

}  // namespace mgpu::text
