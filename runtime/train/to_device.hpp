#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/data/batch.hpp"
#include "runtime/model/transformer.hpp"

namespace mgpu::train {

// Copies a micro-batch to where it is computed, through pinned memory for a GPU, without waiting.
model::DeviceBatch to_device(const data::Batch& batch, at::Device device);

}  // namespace mgpu::train
