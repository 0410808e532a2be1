#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <string>

#include "runtime/grpo/loss_settings.hpp"

namespace mgpu::grpo {

// What is added up over tokens, sequences, micro-batches and ranks.
enum class Sum {
  loss,
  policy_loss,  // without the entropy's part
  tokens,       // that count
  sequences,    // that have such tokens
  kl,
  entropy,
  learning_entropy,  // of tokens that top_entropy_quantile leaves
  learning_tokens,
  clipped_low,  // these four by token, or by sequence with importance_sampling_level: sequence
  clipped_high,
  clipped,
  cispo_clipped,
  phi,                 // by sequence
  sampler_difference,  // |log-prob - the sampler's| where it has one
  sampler_tokens,
  sampler_ratio,  // by token or by sequence
  sampler_ratios,
  count
};

// What the largest is kept of; the least of x is the largest -x.
enum class Most {
  clipped_low_least,  // these two of the shares of sequences
  clipped_high,
  sampler_difference,
  sampler_ratio,
  sampler_ratio_least,
  count
};

// Numbers of the loss on the device, in fp64. Over micro-batches `add`; over ranks all-reduce
// `sums` by sum and `most` by max.
struct LossMetrics {
  at::Tensor sums;  // [Sum::count]
  at::Tensor most;  // [Most::count], -inf where there is none

  void add(const LossMetrics& other);
};

// Of no token.
LossMetrics no_metrics(at::Device device);

// The numbers by TRL's names, each a mean over all tokens (or sequences) of what was added up. What
// has no value is not there: no token counts, or no sampler's log-probs were given. Besides, `loss`
// is that of the optimizer's step if a step's micro-batches were added up.
std::map<std::string, double> metric_values(const LossSettings& settings,
                                            std::span<const double> sums,
                                            std::span<const double> most);

}  // namespace mgpu::grpo
