#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "runtime/checkpoint/nf4.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::train {

// Which weights are kept in 4 bits: those of every frozen linear layer if that is asked for, or
// those that the model's files have so. Throws naming what the files have in another form.
model::FourBit four_bit_of(const TrainConfig& config, const ModelSource& source);

// The bytes of a matrix in 4 bits, as Shards keeps them, on `device`.
at::Tensor quantized_bytes(const at::Tensor& weight, bool nested, at::Device device);
at::Tensor quantized_bytes(const checkpoint::Nf4Tensor& matrix, at::Device device);

// In fp32, not rounded to the type it had.
at::Tensor dequantized(const checkpoint::Nf4Tensor& matrix);

}  // namespace mgpu::train
