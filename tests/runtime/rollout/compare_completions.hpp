#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "runtime/rollout/generation_settings.hpp"
#include "tests/support/catch.hpp"

namespace mgpu::rollout_test {

// Requires the same tokens and ends, and log-probabilities that differ by rounding only.
inline void check_near(const std::vector<std::vector<rollout::Completion>>& ours,
                       const std::vector<std::vector<rollout::Completion>>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t p = 0; p < ours.size(); ++p) {
    REQUIRE(ours[p].size() == theirs[p].size());
    for (std::size_t i = 0; i < ours[p].size(); ++i) {
      const auto &a = ours[p][i], &b = theirs[p][i];
      CAPTURE(p, i);
      CHECK(a.tokens == b.tokens);
      CHECK(a.stop_reason == b.stop_reason);
      REQUIRE(a.log_probs.size() == b.log_probs.size());
      for (std::size_t t = 0; t < a.log_probs.size(); ++t)
        CHECK(std::abs(a.log_probs[t] - b.log_probs[t]) < 1e-4);
    }
  }
}

}  // namespace mgpu::rollout_test
