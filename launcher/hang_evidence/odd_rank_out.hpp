#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/hang_evidence/rank_state.hpp"

namespace mgpu::launcher {

// The rank that the others wait for, and the reason why it is this one.
struct OddRank {
  std::optional<int> rank;  // nullopt: no rank differs from all others
  std::string reason;       // one sentence, without a full stop
};

// Finds the rank that differs from the others: it is suspended, it has exited, it waits in the
// kernel, it is not in the collective that the others are in, or its stack differs. The first of
// these that applies is the reason. A pure function.
OddRank odd_rank_out(const std::vector<RankState>& ranks);

// What the main thread is doing, as far as it is known: "all_reduce (train.py:10)". A pure
// function.
std::string activity_of(const RankState& rank);

}  // namespace mgpu::launcher
