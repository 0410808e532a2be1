#include "runtime/text/compiled_pattern.hpp"

#include <array>
#include <new>

#include <fmt/format.h>
#include <pcre2.h>

namespace mgpu::text {
namespace {

constexpr std::size_t kJitStack = 1 << 20;
constexpr std::uint32_t kPairs = 2;  // of the match and of the first group

// What a thread searches with: created once per thread and shared by all patterns.
class Workspace {
 public:
  Workspace() {
    if (!match_ || !context_ || !stack_) throw std::bad_alloc();
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    set_limits();
  }

  pcre2_match_context* context(const MatchLimits& limits) {
    if (limits != limits_) {
      limits_ = limits;
      set_limits();
    }
    return context_.get();
  }
  pcre2_match_data* match() { return match_.get(); }

 private:
  template <class Object>
  using Owned = std::unique_ptr<Object, void (*)(Object*)>;

  void set_limits() {
    pcre2_set_match_limit(context_.get(), limits_.steps);
    pcre2_set_depth_limit(context_.get(), limits_.depth);
    pcre2_set_heap_limit(context_.get(), limits_.kibibytes);
  }

  Owned<pcre2_match_data> match_{pcre2_match_data_create(kPairs, nullptr), pcre2_match_data_free};
  Owned<pcre2_match_context> context_{pcre2_match_context_create(nullptr),
                                      pcre2_match_context_free};
  Owned<pcre2_jit_stack> stack_{pcre2_jit_stack_create(32 << 10, kJitStack, nullptr),
                                pcre2_jit_stack_free};
  MatchLimits limits_;
};

Workspace& workspace() {
  thread_local Workspace mine;
  return mine;
}

PatternError error_of(int error, std::size_t place) {
  std::array<PCRE2_UCHAR, 256> text{};
  if (pcre2_get_error_message(error, text.data(), text.size()) < 0)
    return {fmt::format("error {}", error), place};
  return {reinterpret_cast<const char*>(text.data()), place};
}

std::uint32_t compile_options(const PatternOptions& options) {
  std::uint32_t bits = PCRE2_UTF;
  const auto add = [&bits](bool wanted, std::uint32_t bit) {
    if (wanted) bits |= bit;
  };
  add(options.texts == PatternOptions::Texts::any_bytes, PCRE2_MATCH_INVALID_UTF);
  add(options.unicode_classes, PCRE2_UCP);
  add(options.whole_text, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
  add(options.any_case, PCRE2_CASELESS);
  add(options.many_lines, PCRE2_MULTILINE);
  add(options.dot_all, PCRE2_DOTALL);
  add(options.verbose, PCRE2_EXTENDED);
  add(options.no_single_bytes, PCRE2_NEVER_BACKSLASH_C);
  return bits;
}

PCRE2_SPTR bytes_of_text(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data() ? text.data() : "");
}

}  // namespace

void CompiledPattern::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

CompiledPattern::CompiledPattern(std::string_view pattern, const PatternOptions& options)
    : search_options_(options.texts == PatternOptions::Texts::well_formed ? PCRE2_NO_UTF_CHECK
                                                                          : 0) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), options.most_nested);
  int error = 0;
  PCRE2_SIZE place = 0;
  code_.reset(pcre2_compile(bytes_of_text(pattern), pattern.size(), compile_options(options),
                            &error, &place, context.get()));
  if (!code_) throw error_of(error, place);
  // If PCRE2 was built without JIT, the interpreter finds the same matches.
  if (options.to_machine_code) pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

std::optional<PatternMatch> CompiledPattern::find(std::string_view text, std::size_t from,
                                                  const MatchLimits& limits) const {
  Workspace& mine = workspace();
  pcre2_match_context* const context = mine.context(limits);
  int found = pcre2_match(code_.get(), bytes_of_text(text), text.size(), from, search_options_,
                          mine.match(), context);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)
    found = pcre2_match(code_.get(), bytes_of_text(text), text.size(), from,
                        search_options_ | PCRE2_NO_JIT, mine.match(), context);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) throw error_of(found, from);
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(mine.match());
  PatternMatch match{ends[0], ends[1]};
  // 1: only the pattern itself matched; 0: it has more groups than we keep.
  if (found != 1 && ends[2] != PCRE2_UNSET) match.group = text.substr(ends[2], ends[3] - ends[2]);
  return match;
}

}  // namespace mgpu::text
