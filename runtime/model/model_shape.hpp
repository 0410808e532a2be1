#pragma once

#include <cstdint>
#include <string_view>
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

// The configuration of a model to train from scratch. `size` is tiny, small, medium or large; all
// are Qwen2-like with a tied head. Parameters without the embedding: 854,656, 6,433,024, 25,711,104
// and 99,144,960. Throws for any other size; the message lists the valid ones.
ModelConfig preset(std::string_view size, std::int64_t vocab_size);

}  // namespace mgpu::model
