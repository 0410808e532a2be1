#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/grpo/loss_metrics.hpp"
#include "runtime/grpo/loss_settings.hpp"

namespace mgpu::grpo {

using at::Tensor;

// The sampled tokens of a micro-batch, sequences end to end without padding: n tokens of s
// sequences, of which some may have none. Log-probs and entropies are fp32 or fp64, all alike.
struct LossInput {
  Tensor log_probs;          // [n] of the policy as it is
  Tensor entropies;          // [n]; undefined: neither measured nor used
  Tensor old_log_probs;      // [n] of the policy that sampled; undefined: log_probs themselves
  Tensor ref_log_probs;      // [n]; needed with beta
  Tensor sampler_log_probs;  // [n] as the sampler saw them, NaN where it cannot say; or undefined
  Tensor sequence;           // [n] int64, each token's, rising
  Tensor advantages;         // [s]
  Tensor weights;            // [s] 1, or 0 for what is masked or fills a place
  Tensor entropy_threshold;  // [] as entropy_threshold() gives it; undefined: every token counts
};

struct Loss {
  Tensor value;              // [] fp64
  Tensor log_prob_gradient;  // [n] of `value`, in log_probs' dtype
  Tensor entropy_gradient;   // [n]; undefined without entropy_coef
  LossMetrics metrics;
};

// The loss of a micro-batch as it goes into the optimizer, and its gradient. Values and gradients
// of all micro-batches and ranks are summed, never averaged, and are then what docs/grpo.md
// says of the loss_type. Nothing waits for the device; sums are made in fp64 and in a fixed order.
//
// Tokens of sequences with weight 0 have no part in anything, whatever their numbers are.
Loss loss(const LossInput& input, const LossSettings& settings, const Denominators& denominators);

// For top_entropy_quantile: a micro-batch's entropies as all ranks share them, NaN for tokens that
// do not count; and the least entropy of those that learn, of all ranks' (gathered end to end, with
// NaN where ranks have fewer). NaN, which masks all, when no token counts.
Tensor entropies_to_share(const LossInput& input);
Tensor entropy_threshold(const Tensor& entropies, double top_entropy_quantile);

}  // namespace mgpu::grpo
