#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/weights.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::train {

at::ScalarType scalar_type(checkpoint::DType dtype);
checkpoint::DType dtype_of(at::ScalarType type);

// A tensor over a file's bytes, or a copy of them where they do not lie on an element's boundary.
at::Tensor tensor_over(const checkpoint::TensorView& view);

// Sets every tensor of the model but adapters from the files; each rank reads what it keeps. Rows
// of the embedding and the head beyond those on disk (new tokens) get the mean of those that are
// there. What is kept in 4 bits is quantised on its way, one tensor after the other; what lies in
// the files in 4 bits is taken as it is, or turned into numbers.
void load_weights(parallel::Shards& shards, const checkpoint::Weights& weights,
                  const model::ModelConfig& config, std::int64_t vocab_on_disk);

// Draws every tensor as from-scratch training starts: normal, norms 1, biases 0. What a tensor gets
// depends on the seed and its name alone.
void draw_weights(parallel::Shards& shards, double deviation, std::uint64_t seed);

// Adapters as PEFT starts them: a is uniform (Kaiming, a = sqrt 5), b is 0.
void draw_adapters(parallel::Shards& shards, std::uint64_t seed);

// Writes tensors that all ranks have together, in order; called by all ranks, `writer` is rank 0's
// and null elsewhere. `rename` gives the name in the file, empty for tensors that stay out of it.
using Rename = std::function<std::string(const std::string&)>;
std::vector<checkpoint::TensorPlan> plan_of(const parallel::Shards& shards, at::ScalarType dtype,
                                            bool with_frozen, const Rename& rename);
void write_weights(parallel::Shards& shards, checkpoint::WeightsWriter* writer,
                   at::ScalarType dtype, bool with_frozen, const Rename& rename);

bool is_adapter(const std::string& name);

}  // namespace mgpu::train
