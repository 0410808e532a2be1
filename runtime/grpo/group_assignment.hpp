#pragma once

#include <cstdint>
#include <span>

#include "runtime/grpo/generation_plan.hpp"

namespace mgpu::grpo {

// What a completion costs in a micro-batch: its own tokens, and those of its prompt unless another
// completion of the micro-batch has the same prompt.
struct CompletionCost {
  std::uint32_t prompt = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;
};

// As assign_to_ranks, but completions of one prompt are in one micro-batch as far as the rank with
// most to do is done earlier. Groups are divided where they do not fit or would leave other ranks
// without work.
Assignments assign_groups_to_ranks(std::span<const CompletionCost> completions, int world,
                                   std::int64_t per_device);

// The cost of the rank with most to do.
double busiest_rank(const Assignments& ranks, std::span<const CompletionCost> completions);

}  // namespace mgpu::grpo
