#pragma once

#include <cstdint>
#include <vector>

namespace mgpu::data {

inline constexpr std::int32_t kNoTarget = -100;

// One micro-batch: sequences laid end to end, without padding. Attention does not cross sequences.
// A rank without work in a step gets a batch of one token without a target: it takes part in every
// collective and adds nothing.
struct Batch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;  // of each token, from 0 at the start of its sequence
  std::vector<std::int32_t> targets;    // per token: the label of the *next* token, or kNoTarget
  std::vector<std::int32_t> starts;     // where sequences begin, and the end: sequences + 1 entries
  std::int32_t longest = 0;             // length of the longest sequence
  std::int64_t target_tokens = 0;       // targets that are not kNoTarget
};

}  // namespace mgpu::data
