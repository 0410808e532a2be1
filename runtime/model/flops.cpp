#include "runtime/model/flops.hpp"

namespace mgpu::model {
namespace {

// The number of multiplications of one row with all matrices of a buffer.
double multiplications(const FlatLayout& flat) {
  double sum = 0;
  for (const auto& slot : flat.slots)
    if (slot.shape.size() == 2)
      sum += static_cast<double>(slot.shape[0]) * static_cast<double>(slot.shape[1]);
  return sum;
}

}  // namespace

TrainingFlops training_flops(const ModelConfig& config, const ModelLayout& layout) {
  // Each multiplication comes with an addition. Forward and the gradient of the input take one
  // product each, and the gradient of a trained matrix takes another one.
  constexpr double kFrozen = 2 * 2, kTrained = 2 * 3;
  TrainingFlops flops;
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    if (unit == kEmbeddingUnit && !config.tied) continue;  // a tied embedding is also the head
    const auto& parts = layout.units[unit];
    flops.per_token += kTrained * multiplications(parts.trained) +
                       kFrozen * (multiplications(parts.frozen) + multiplications(parts.packed));
  }
  // Scores and the weighted sum of values; in backward each has the gradients of two inputs.
  flops.per_pair =
      kTrained * 2 * static_cast<double>(config.layers * config.heads * config.head_dim);
  return flops;
}

}  // namespace mgpu::model
