#pragma once

#include <cstdint>
#include <optional>

#include "runtime/config/config.hpp"
#include "runtime/config/grpo_choices.hpp"

namespace mgpu::grpo {

// Settings of the loss. Names and defaults are those of the recipe.
struct LossSettings {
  train::LossType type = train::LossType::dapo;
  train::ImportanceLevel level = train::ImportanceLevel::token;
  double epsilon = .2;
  std::optional<double> epsilon_high;  // default: epsilon
  std::optional<double> delta;         // the maximum ratio, for the types that clip
  double beta = 0;                     // adapted with target_kl, see AdaptiveKl
  bool bias_corrected_kl = true;
  std::optional<double> off_policy_threshold;
  double top_entropy_quantile = 1;  // below 1: LossInput needs an entropy_threshold
  double entropy_coef = 0;          // adapted with use_adaptive_entropy, see AdaptiveEntropy
  double sapo_positive = 1, sapo_negative = 1.05;  // temperatures
  double vespo_k_positive = 2, vespo_lambda_positive = 3;
  double vespo_k_negative = 3, vespo_lambda_negative = 2;

  // How the sampler's log-probs, if given, are measured. They change the loss only if
  // `correct_sampler`.
  bool correct_sampler = true;
  train::SamplerCorrection correction = train::SamplerCorrection::sequence_mask;
  std::optional<double> sampler_clip_max = 3, sampler_clip_min;

  train::LossNormalization normalization = train::LossNormalization::window;

  double upper_clip() const { return epsilon_high.value_or(epsilon); }
  bool clips() const;  // whether the type clips the ratio to 1 - epsilon, 1 + epsilon_high
  friend bool operator==(const LossSettings&, const LossSettings&) = default;
};

// The denominators of a loss: sums over all ranks and micro-batches without padding, known before
// the first backward pass. The window is all completions of one optimizer step.
struct Denominators {
  std::int64_t completions = 0;             // of the window, including masked ones
  std::int64_t tokens = 0;                  // of the window, in the loss
  std::int64_t micro_batches = 1;           // of the window, over all ranks
  std::int64_t generation_completions = 0;  // of the generation batch, for normalization: trl
  std::int64_t generation_tokens = 0;       // of the generation batch, for normalization: trl
  std::int64_t max_completion_length = 0;   // for dr_grpo

  // TRL's denominator: the generation's tokens x accumulation / steps_per_generation.
  double trl_tokens() const;
  friend bool operator==(const Denominators&, const Denominators&) = default;
};

// Reads the settings of a GRPO recipe.
LossSettings loss_settings(const train::TrainConfig& config);

}  // namespace mgpu::grpo
