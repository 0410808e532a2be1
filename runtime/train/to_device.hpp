#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/data/batch.hpp"
#include "runtime/model/transformer.hpp"

namespace mgpu::train {

// Copies a micro-batch to the device. For a GPU it copies through pinned memory and does not wait;
// without `pinned` through ordinary memory, from which the driver first copies the bytes.
model::DeviceBatch to_device(const data::Batch& batch, at::Device device, bool pinned = true);

}  // namespace mgpu::train
