#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/hang_evidence/rank_state.hpp"

namespace mgpu::launcher {

// Which rank the others wait for, and why it is thought to be this one.
struct OddRank {
  std::optional<int> rank;  // nullopt: no rank differs from all others
  std::string reason;       // one sentence, without a full stop
};

// Finds the rank that differs from the others: it is suspended, it is gone, it waits in the kernel,
// it is not in the collective in which the others are, or its stack is another one. The first of
// these that applies is the reason. A pure function.
OddRank odd_rank_out(const std::vector<RankState>& ranks);

// "all_reduce (train.py:10)": what the main thread does, as far as it is known; pure.
std::string activity_of(const RankState& rank);

}  // namespace mgpu::launcher
