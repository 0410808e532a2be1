#pragma once

#include "runtime/config/keys/key_fields.hpp"

namespace mgpu::train {

// The choices of a GRPO recipe and their names in it.

enum class LossType { grpo, bnpo, dr_grpo, dapo, cispo, sapo, luspo, vespo };
enum class ImportanceLevel { token, sequence };
enum class ScaleRewards { group, batch, none };
enum class RewardAggregation { sum_then_normalize, normalize_then_sum };
enum class SamplerCorrection { token_truncate, token_mask, sequence_truncate, sequence_mask };
enum class LossNormalization { window, trl };
enum class VllmMode { colocate, server };

const Choices<LossType>& loss_types();
const Choices<ImportanceLevel>& importance_levels();
const Choices<ScaleRewards>& reward_scales();
const Choices<RewardAggregation>& reward_aggregations();
const Choices<SamplerCorrection>& sampler_corrections();
const Choices<LossNormalization>& loss_normalizations();
const Choices<VllmMode>& vllm_modes();

}  // namespace mgpu::train
