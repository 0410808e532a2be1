#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include <pcre2.h>

namespace mgpu::text {

// How much one search with PCRE2 may cost. Patterns and texts come from models, data sets and
// recipes; without limits a short pattern can take minutes and gigabytes. They are limits of work
// and memory, not of time, so that every rank gets the same result.
struct MatchLimits {
  std::uint32_t steps = 10'000'000;
  std::uint32_t depth = 10'000'000;  // of recursion
  std::uint32_t kibibytes = 32 << 10;
};

using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;

// All searches use a context that was made here.
inline MatchContext make_match_context(const MatchLimits& limits) {
  MatchContext context(pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), limits.steps);
  pcre2_set_depth_limit(context.get(), limits.depth);
  pcre2_set_heap_limit(context.get(), limits.kibibytes);
  return context;
}

}  // namespace mgpu::text
