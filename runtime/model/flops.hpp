#pragma once

#include "runtime/model/layout.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// The useful arithmetic of training, in floating-point operations: matrix products and causal
// attention, forward and backward. Looking up embeddings, norms and activations are not counted,
// and neither is what recomputation repeats.
struct TrainingFlops {
  double per_token = 0;
  double per_pair = 0;  // of tokens of a sequence that attention compares

  double of(double tokens, double pairs) const { return tokens * per_token + pairs * per_pair; }
};

// `layout` tells which matrices are trained: the gradient of a frozen one is not computed.
TrainingFlops training_flops(const ModelConfig& config, const ModelLayout& layout);

}  // namespace mgpu::model
