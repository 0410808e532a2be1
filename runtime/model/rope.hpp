#pragma once

#include <vector>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// The frequency of each pair of a head's components, head_dim / 2 of them.
std::vector<float> rope_frequencies(const Rope& rope, std::int64_t head_dim);

}  // namespace mgpu::model
