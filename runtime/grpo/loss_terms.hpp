#pragma once

#include "runtime/grpo/loss_tokens.hpp"
#include "runtime/grpo/metric_sums.hpp"

namespace mgpu::grpo {

// A loss of every token before it is weighted, and what it depends on: the token's log-prob by
// itself, and the log of the importance ratio, which is the token's or its sequence's.
struct Terms {
  Tensor value;
  Tensor by_log_prob;
  Tensor by_log_ratio;
};

// How the policy of now stands to the one that sampled, [n].
struct Ratios {
  Tensor log_ratio;  // of the token
  Tensor ratio;      // of the token, or of its sequence
};
Ratios ratios(const Tokens& tokens, const Tensor& old_log_probs, const LossSettings& settings);

// What makes up for a sampler that computes otherwise than the policy, without gradient: [n], 1
// where it knows nothing. `clipped` is by token or by sequence, as the correction is.
struct Correction {
  Tensor ratio;
  Tensor clipped;
  bool by_sequence = false;
};
Correction sampler_correction(const Tokens& tokens, const Tensor& difference,
                              const LossSettings& settings);

// 1 for tokens of sequences that learn: their advantage is not negative, or the policy is still
// near the sampler's. [n]
Tensor near_policy(const Tokens& tokens, const Tensor& sampler_log_probs, double threshold);

// The divergence from the reference.
Terms kl_terms(const Tokens& tokens, const Tensor& ref_log_probs, const Ratios& ratios,
               const LossSettings& settings);

// The policy's loss, and what its type measures into the sums. `correction` is what VESPO takes
// into its weight; undefined: none.
Terms policy_terms(const Tokens& tokens, const Ratios& ratios, const Tensor& correction,
                   const LossSettings& settings, MetricSums& sums);

}  // namespace mgpu::grpo
