#pragma once

#include "runtime/grpo/loss_tokens.hpp"
#include "runtime/grpo/metric_sums.hpp"

namespace mgpu::grpo {

// The loss of every token before weighting, and its derivatives: by the token's log-prob, and by
// the log of the importance ratio, which is the token's or its sequence's.
struct Terms {
  Tensor value;
  Tensor by_log_prob;
  Tensor by_log_ratio;
};

// Importance ratios between the current policy and the one that sampled, [n].
struct Ratios {
  Tensor log_ratio;  // of the token
  Tensor ratio;      // of the token, or of its sequence
};
Ratios ratios(const Tokens& tokens, const Tensor& old_log_probs, const LossSettings& settings);

// Importance correction for a sampler that computes differently from the policy, without gradient:
// [n], 1 if the sampler's log-prob is unknown. `clipped` is per token or per sequence, like the
// correction.
struct Correction {
  Tensor ratio;
  Tensor clipped;
  bool by_sequence = false;
};
Correction sampler_correction(const Tokens& tokens, const Tensor& difference,
                              const LossSettings& settings);

// The off-policy mask, [n]: 1 for tokens of sequences whose advantage is not negative, or for which
// the policy is still near the sampler's; else 0.
Tensor near_policy(const Tokens& tokens, const Tensor& sampler_log_probs, double threshold);

// The KL divergence from the reference model.
Terms kl_terms(const Tokens& tokens, const Tensor& ref_log_probs, const Ratios& ratios,
               const LossSettings& settings);

// The policy loss; adds the metrics of its type to `sums`. VESPO includes `correction` in its
// weight; undefined: none.
Terms policy_terms(const Tokens& tokens, const Ratios& ratios, const Tensor& correction,
                   const LossSettings& settings, MetricSums& sums);

}  // namespace mgpu::grpo
