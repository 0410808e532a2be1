#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/checkpoint/nf4.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::train {

// Which weights are stored quantized: with load_in_4bit, load_in_8bit or fp8: base those of every
// frozen linear layer, or, if the model's files already hold 4-bit weights, exactly those. Throws
// if the files mix weights with and without 8-bit scales; the message names one.
model::Packing packing_of(const TrainConfig& config, const ModelSource& source);

// The bytes of a matrix that `unit` holds quantized, in the layout that Shards stores, on `device`.
at::Tensor packed_bytes(const at::Tensor& weight, const model::UnitLayout& unit, at::Device device);

// The bytes of a 4-bit matrix in the layout that Shards stores, on `device`.
at::Tensor quantized_bytes(const at::Tensor& weight, bool nested, at::Device device);
at::Tensor quantized_bytes(const checkpoint::Nf4Tensor& matrix, at::Device device);

// The reverse of quantized_bytes: the matrix as the parts of a file. `type` is the type that the
// weight had before it was quantized.
checkpoint::Nf4Tensor from_bytes(const at::Tensor& bytes, const std::vector<std::int64_t>& shape,
                                 bool nested, checkpoint::DType type);

// The matrix in fp32, not rounded to its original type.
at::Tensor dequantized(const checkpoint::Nf4Tensor& matrix);

}  // namespace mgpu::train
