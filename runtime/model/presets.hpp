#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// The configuration of a model to train from scratch. tiny, small, medium and large are small
// shapes for any family, with a tied head; without the embedding they have 854,656, 6,433,024,
// 25,711,104 and 99,144,960 parameters as Qwen2. The other sizes are those that a family was
// published in, such as Qwen3's 0.6B. Throws if the family does not have this size.
ModelConfig preset(std::string_view size, std::int64_t vocab_size, Family family = Family::qwen2);

// All sizes, of any family.
std::vector<std::string> preset_sizes();

// What is wrong with asking for this size of this family, for a message after "model_size".
std::optional<std::string> size_mistake(std::string_view size, Family family);

}  // namespace mgpu::model
