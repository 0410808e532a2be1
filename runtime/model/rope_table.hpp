#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/model/model_config.hpp"

namespace mgpu::model {

// The cosines and sines of the rotary angles: fp32 [positions, head_dim / 2], as ops::rotate_()
// needs them.
struct RopeTable {
  at::Tensor cos, sin;
};

// The table for positions 0 to `positions` - 1. It is computed on the host, so that every device
// gets the same values, and by one thread, so that the values cannot depend on how threads share
// the work.
RopeTable rope_table(const ModelConfig& config, std::int64_t positions, at::Device device);

}  // namespace mgpu::model
