#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/model/transformer.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/prompts.hpp"

namespace mgpu::rl {

// Where log-probs go: ScoredCompletion::old_log_probs or ref_log_probs.
using LogProbsList = std::vector<float> ScoredCompletion::*;

// Gives each completion the values of its tokens; `values` has those of all completions, end to
// end.
void divide_log_probs(std::span<const float> values, std::span<ScoredCompletion> completions,
                      LogProbsList list);

struct LogProbsRequest {
  LogProbsList list;
  std::int64_t at_once = 1;      // completions per forward pass
  std::int64_t most_tokens = 0;  // its tokens instead, if not 0; see grpo::LaidOutTokens
  at::Device device;
  // Computes the log-probs of the target tokens of a batch.
  std::function<at::Tensor(const model::DeviceBatch& batch)> score;
};

// Sets the log-probs of every completion's tokens under some model.
void set_log_probs(std::vector<ScoredCompletion>& completions, const std::vector<Prompt>& prompts,
                   const LogProbsRequest& request);

}  // namespace mgpu::rl
