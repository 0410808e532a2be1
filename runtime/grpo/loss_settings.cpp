#include "runtime/grpo/loss_settings.hpp"

#include <algorithm>

#include "runtime/config/grpo_values.hpp"

namespace mgpu::grpo {

using train::LossType;

bool LossSettings::clips() const {
  switch (type) {
    case LossType::grpo:
    case LossType::bnpo:
    case LossType::dr_grpo:
    case LossType::dapo:
    case LossType::luspo:
      return true;
    case LossType::cispo:
    case LossType::sapo:
    case LossType::vespo:
      break;
  }
  return false;
}

double Denominators::trl_tokens() const {
  const auto of_generation = static_cast<double>(std::max<std::int64_t>(generation_tokens, 1));
  return of_generation * static_cast<double>(completions) /
         static_cast<double>(std::max<std::int64_t>(generation_completions, 1));
}

LossSettings loss_settings(const train::TrainConfig& config) {
  const train::GrpoValues values(config);
  LossSettings settings;
  settings.type = values.choice("loss_type", train::loss_types());
  settings.level = values.choice("importance_sampling_level", train::importance_levels());
  settings.epsilon = values.number("epsilon").value();
  settings.epsilon_high = values.number("epsilon_high");
  settings.delta = values.number("delta");
  settings.beta = values.number("beta").value();
  settings.bias_corrected_kl = values.flag("use_bias_correction_kl");
  settings.off_policy_threshold = values.number("off_policy_mask_threshold");
  settings.top_entropy_quantile = values.number("top_entropy_quantile").value();
  settings.entropy_coef = values.number("entropy_coef").value();
  settings.sapo_positive = values.number("sapo_temperature_pos").value();
  settings.sapo_negative = values.number("sapo_temperature_neg").value();
  settings.vespo_k_positive = values.number("vespo_k_pos").value();
  settings.vespo_lambda_positive = values.number("vespo_lambda_pos").value();
  settings.vespo_k_negative = values.number("vespo_k_neg").value();
  settings.vespo_lambda_negative = values.number("vespo_lambda_neg").value();
  settings.correct_sampler = values.flag("vllm_importance_sampling_correction");
  settings.correction =
      values.choice("vllm_importance_sampling_mode", train::sampler_corrections());
  // VESPO's weight uses per-token corrections. A sequence mode set explicitly is rejected
  // elsewhere.
  if (settings.type == LossType::vespo && !values.is_set("vllm_importance_sampling_mode"))
    settings.correction = train::SamplerCorrection::token_mask;
  settings.sampler_clip_max = values.number("vllm_importance_sampling_clip_max");
  settings.sampler_clip_min = values.number("vllm_importance_sampling_clip_min");
  settings.normalization = values.choice("loss_normalization", train::loss_normalizations());
  return settings;
}

}  // namespace mgpu::grpo
