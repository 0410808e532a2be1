#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <string>

#include "runtime/grpo/loss_settings.hpp"

namespace mgpu::grpo {

// Values that are summed over tokens, sequences, micro-batches and ranks.
enum class Sum {
  loss,
  policy_loss,  // without the entropy term
  tokens,       // in the loss
  sequences,    // with at least one token in the loss
  kl,
  entropy,
  learning_entropy,  // of tokens that top_entropy_quantile keeps
  learning_tokens,
  clipped_low,  // these four per token, or per sequence with importance_sampling_level: sequence
  clipped_high,
  clipped,
  cispo_clipped,
  phi,                 // per sequence
  sampler_difference,  // |log-prob - the sampler's| if the sampler reports one
  sampler_tokens,
  sampler_ratio,  // per token or per sequence
  sampler_ratios,
  count
};

// Values of which the maximum is kept; the minimum of x is the maximum of -x.
enum class Max {
  negated_clipped_low,  // these two are fractions per sequence
  clipped_high,
  sampler_difference,
  sampler_ratio,
  negated_sampler_ratio,
  count
};

// Metrics of the loss on the device, in fp64. Combine micro-batches with add(); combine ranks by
// all-reducing `sums` with sum and `maxima` with max.
struct LossMetrics {
  at::Tensor sums;    // [Sum::count]
  at::Tensor maxima;  // [Max::count], -inf if there is no value

  void add(const LossMetrics& other);
};

// Metrics of no tokens.
LossMetrics no_metrics(at::Device device);

// The metrics by TRL's names, each a mean over all tokens or sequences. Metrics without a value are
// absent: there are no tokens in the loss, or no log-probs of a sampler. `loss` is the loss of the
// optimizer step if all its micro-batches were added.
std::map<std::string, double> metric_values(const LossSettings& settings,
                                            std::span<const double> sums,
                                            std::span<const double> maxima);

}  // namespace mgpu::grpo
