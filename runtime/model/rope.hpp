#pragma once

#include <vector>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// The rotary frequency of each pair of a head's components: head_dim / 2 values.
std::vector<float> rope_frequencies(const Rope& rope, std::int64_t head_dim);

}  // namespace mgpu::model
