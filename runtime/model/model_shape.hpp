#pragma once

#include <cstdint>
#include <vector>

#include "runtime/checkpoint/weights.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// All parameters with the names Hugging Face uses, in the order in which transformers saves them. A
// tied head is not listed: it is the embedding.
std::vector<checkpoint::TensorShape> tensor_plan(const ModelConfig& config);

// The number of parameters: all of them, and all except the embedding and the head.
std::int64_t parameter_count(const ModelConfig& config);
std::int64_t non_embedding_count(const ModelConfig& config);

}  // namespace mgpu::model
