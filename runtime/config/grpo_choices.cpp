#include "runtime/config/grpo_choices.hpp"

namespace mgpu::train {

const Words<LossType>& loss_types() {
  using enum LossType;
  static const Words<LossType> words{{"grpo", grpo},   {"bnpo", bnpo},   {"dr_grpo", dr_grpo},
                                     {"dapo", dapo},   {"cispo", cispo}, {"sapo", sapo},
                                     {"luspo", luspo}, {"vespo", vespo}};
  return words;
}

const Words<ImportanceLevel>& importance_levels() {
  using enum ImportanceLevel;
  static const Words<ImportanceLevel> words{{"token", token}, {"sequence", sequence}};
  return words;
}

const Words<ScaleRewards>& reward_scales() {
  using enum ScaleRewards;
  static const Words<ScaleRewards> words{
      {"group", group}, {"batch", batch}, {"none", none}, {"true", group}, {"false", none}};
  return words;
}

const Words<RewardAggregation>& reward_aggregations() {
  using enum RewardAggregation;
  static const Words<RewardAggregation> words{{"sum_then_normalize", sum_then_normalize},
                                              {"normalize_then_sum", normalize_then_sum}};
  return words;
}

const Words<SamplerCorrection>& sampler_corrections() {
  using enum SamplerCorrection;
  static const Words<SamplerCorrection> words{{"token_truncate", token_truncate},
                                              {"token_mask", token_mask},
                                              {"sequence_truncate", sequence_truncate},
                                              {"sequence_mask", sequence_mask}};
  return words;
}

const Words<LossNormalization>& loss_normalizations() {
  using enum LossNormalization;
  static const Words<LossNormalization> words{{"window", window}, {"trl", trl}};
  return words;
}

const Words<VllmMode>& vllm_modes() {
  using enum VllmMode;
  static const Words<VllmMode> words{{"colocate", colocate}, {"server", server}};
  return words;
}

}  // namespace mgpu::train
