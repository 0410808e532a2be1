#pragma once

#include "runtime/config/keys/key_fields.hpp"

namespace mgpu::train {

// Choices of a GRPO recipe, and the words they have in it.

enum class LossType { grpo, bnpo, dr_grpo, dapo, cispo, sapo, luspo, vespo };
enum class ImportanceLevel { token, sequence };
enum class ScaleRewards { group, batch, none };
enum class RewardAggregation { sum_then_normalize, normalize_then_sum };
enum class SamplerCorrection { token_truncate, token_mask, sequence_truncate, sequence_mask };
enum class LossNormalization { window, trl };
enum class VllmMode { colocate, server };

const Words<LossType>& loss_types();
const Words<ImportanceLevel>& importance_levels();
const Words<ScaleRewards>& reward_scales();
const Words<RewardAggregation>& reward_aggregations();
const Words<SamplerCorrection>& sampler_corrections();
const Words<LossNormalization>& loss_normalizations();
const Words<VllmMode>& vllm_modes();

}  // namespace mgpu::train
