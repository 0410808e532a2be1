#include "runtime/config/grpo_choices.hpp"

namespace mgpu::train {

const Choices<LossType>& loss_types() {
  using enum LossType;
  static const Choices<LossType> choices{{"grpo", grpo},   {"bnpo", bnpo},   {"dr_grpo", dr_grpo},
                                         {"dapo", dapo},   {"cispo", cispo}, {"sapo", sapo},
                                         {"luspo", luspo}, {"vespo", vespo}};
  return choices;
}

const Choices<ImportanceLevel>& importance_levels() {
  using enum ImportanceLevel;
  static const Choices<ImportanceLevel> choices{{"token", token}, {"sequence", sequence}};
  return choices;
}

const Choices<ScaleRewards>& reward_scales() {
  using enum ScaleRewards;
  static const Choices<ScaleRewards> choices{
      {"group", group}, {"batch", batch}, {"none", none}, {"true", group}, {"false", none}};
  return choices;
}

const Choices<RewardAggregation>& reward_aggregations() {
  using enum RewardAggregation;
  static const Choices<RewardAggregation> choices{{"sum_then_normalize", sum_then_normalize},
                                                  {"normalize_then_sum", normalize_then_sum}};
  return choices;
}

const Choices<SamplerCorrection>& sampler_corrections() {
  using enum SamplerCorrection;
  static const Choices<SamplerCorrection> choices{{"token_truncate", token_truncate},
                                                  {"token_mask", token_mask},
                                                  {"sequence_truncate", sequence_truncate},
                                                  {"sequence_mask", sequence_mask}};
  return choices;
}

const Choices<LossNormalization>& loss_normalizations() {
  using enum LossNormalization;
  static const Choices<LossNormalization> choices{{"window", window}, {"trl", trl}};
  return choices;
}

const Choices<VllmMode>& vllm_modes() {
  using enum VllmMode;
  static const Choices<VllmMode> choices{{"colocate", colocate}, {"server", server}};
  return choices;
}

}  // namespace mgpu::train
