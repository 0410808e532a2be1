#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/grpo/loss_metrics.hpp"
#include "runtime/grpo/loss_settings.hpp"

namespace mgpu::grpo {

using at::Tensor;

// The sampled tokens of a micro-batch, concatenated without padding: n tokens of s sequences, some
// of which may be empty. Log-probs and entropies are all fp32 or all fp64.
struct LossInput {
  Tensor log_probs;          // [n] of the current policy
  Tensor entropies;          // [n]; undefined: neither measured nor used
  Tensor old_log_probs;      // [n] of the policy that sampled; undefined: log_probs themselves
  Tensor ref_log_probs;      // [n]; needed with beta
  Tensor sampler_log_probs;  // [n] reported by the sampler, NaN if unknown; or undefined
  Tensor sequence;           // [n] int64, each token's sequence, ascending
  Tensor advantages;         // [s]
  Tensor weights;            // [s] 1; 0 for completions that are masked or fill the batch
  Tensor entropy_threshold;  // [] from entropy_threshold(); undefined: no threshold
};

struct Loss {
  Tensor value;              // [] fp64
  Tensor log_prob_gradient;  // [n] of `value`, in log_probs' dtype
  Tensor entropy_gradient;   // [n]; undefined without entropy_coef
  LossMetrics metrics;
};

// The loss of a micro-batch and its gradient, scaled for the optimizer: values and gradients of all
// micro-batches and ranks are summed, never averaged; the sum is the loss of docs/grpo.md for
// the loss_type. Does not wait for the device. Sums are computed in fp64 in a fixed order.
//
// Tokens of sequences with weight 0 have no effect, whatever their values are.
Loss loss(const LossInput& input, const LossSettings& settings, const Denominators& denominators);

// Whether the gradient depends on the values of log_probs and entropies. It does not while the
// policy that is trained is the one that sampled, because every ratio is then 1.
bool gradient_needs_scores(const LossInput& input, const LossSettings& settings);

// For top_entropy_quantile. entropies_to_share() returns a micro-batch's entropies, NaN for tokens
// with weight 0. entropy_threshold() returns the lowest entropy of the tokens that are trained on,
// from the gathered entropies of all ranks (padded with NaN); NaN, which masks every token, if
// there are none.
Tensor entropies_to_share(const LossInput& input);
Tensor entropy_threshold(const Tensor& entropies, double top_entropy_quantile);

}  // namespace mgpu::grpo
