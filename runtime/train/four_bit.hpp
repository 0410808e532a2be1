#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

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

// The same matrix as its parts are in a file; `type`: of the weight that was quantised.
checkpoint::Nf4Tensor from_bytes(const at::Tensor& bytes, const std::vector<std::int64_t>& shape,
                                 bool nested, checkpoint::DType type);

// In fp32, not rounded to the type it had.
at::Tensor dequantized(const checkpoint::Nf4Tensor& matrix);

}  // namespace mgpu::train
