#pragma once

#include <cstdint>
#include <optional>

#include "runtime/config/config.hpp"
#include "runtime/config/grpo_choices.hpp"

namespace mgpu::grpo {

// What the loss of a micro-batch is. Names and defaults are the recipe's.
struct LossSettings {
  train::LossType type = train::LossType::dapo;
  train::ImportanceLevel level = train::ImportanceLevel::token;
  double epsilon = .2;
  std::optional<double> epsilon_high;  // nothing: epsilon
  std::optional<double> delta;         // the largest ratio, of the types that clip
  double beta = 0;                     // moves with target_kl: AdaptiveKl
  bool bias_corrected_kl = true;
  std::optional<double> off_policy_threshold;
  double top_entropy_quantile = 1;  // below 1 a threshold of entropies comes with each micro-batch
  double entropy_coef = 0;          // moves with use_adaptive_entropy: AdaptiveEntropy
  double sapo_positive = 1, sapo_negative = 1.05;  // temperatures
  double vespo_k_positive = 2, vespo_lambda_positive = 3;
  double vespo_k_negative = 3, vespo_lambda_negative = 2;

  // The sampler's log-probs, where they are given, are measured in this way; they change the loss
  // only if `correct_sampler`.
  bool correct_sampler = true;
  train::SamplerCorrection correction = train::SamplerCorrection::sequence_mask;
  std::optional<double> sampler_clip_max = 3, sampler_clip_min;

  train::LossNormalization normalization = train::LossNormalization::window;

  double upper_clip() const { return epsilon_high.value_or(epsilon); }
  bool clips() const;  // the types whose ratio is clipped to 1 - epsilon, 1 + epsilon_high
  friend bool operator==(const LossSettings&, const LossSettings&) = default;
};

// What a loss is divided by: sums over all ranks and micro-batches, padding left out, known before
// the first backward. A window is what one optimizer step is made of.
struct Denominators {
  std::int64_t completions = 0;             // of the window, masked ones too
  std::int64_t tokens = 0;                  // of the window, that count
  std::int64_t micro_batches = 1;           // of the window, over all ranks
  std::int64_t generation_completions = 0;  // of the generation batch, for normalization: trl
  std::int64_t generation_tokens = 0;       // of the generation batch, for normalization: trl
  std::int64_t max_completion_length = 0;   // for dr_grpo

  // TRL divides by the generation's tokens x accumulation / steps_per_generation, which is this.
  double trl_tokens() const;
  friend bool operator==(const Denominators&, const Denominators&) = default;
};

// Those of a recipe for GRPO.
LossSettings loss_settings(const train::TrainConfig& config);

}  // namespace mgpu::grpo
