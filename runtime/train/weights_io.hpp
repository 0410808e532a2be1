#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/weights.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::train {

at::ScalarType scalar_type(checkpoint::DType dtype);
checkpoint::DType dtype_of(at::ScalarType type);

// A tensor that views a file's bytes, or a copy if the bytes are not aligned to its elements.
at::Tensor tensor_over(const checkpoint::TensorView& view);

// Loads every tensor of the model except adapters; each rank keeps only its part. Embedding and
// head rows beyond vocab_on_disk (new tokens) get the mean of the rows on disk. Tensors that
// `shards` holds quantized are quantized one by one while loading. Tensors that are in 4 bits on
// disk are copied unchanged if `shards` holds them in 4 bits, and dequantized otherwise.
void load_weights(parallel::Shards& shards, const checkpoint::Weights& weights,
                  const model::ModelConfig& config, std::int64_t vocab_on_disk);

// Initializes every tensor except adapters for training from scratch: weights from a normal
// distribution, norms 1, biases 0. A tensor's values depend only on the seed and its name.
void draw_weights(parallel::Shards& shards, double deviation, std::uint64_t seed);

// Initializes A and B of adapters as PEFT does: A is Kaiming-uniform with a = sqrt(5), B is 0.
void draw_adapters(parallel::Shards& shards, std::uint64_t seed);

// A tensor's random initial value, for training from scratch.
at::Tensor drawn(const model::Slot& slot, double deviation, std::uint64_t seed);
at::Generator generator_for(std::uint64_t seed, const std::string& name);

// Tensors that are written below (lora_A) or beside (lora_B) those of the same name.
using Appended = std::map<std::string, at::Tensor>;

// Calls visit(name, whole tensor) for all trained tensors and, if requested, the frozen ones, each
// with what is appended to it. All ranks call it together. A tensor is valid during its call; up to
// ZeRO stage 2 it is a view of the weights unless something is appended.
using VisitTensor = std::function<void(const std::string&, const at::Tensor&)>;
void visit_weights(parallel::Shards& shards, bool with_frozen, const Appended& appended,
                   const VisitTensor& visit);
// The same for the master weights of all trained tensors, which are valid during their call only.
void visit_master_weights(parallel::Shards& shards, const optim::Optimizer& optimizer,
                          const Appended& appended, const VisitTensor& visit);

// plan_of lists the tensors that write_weights writes, in the same order. All ranks call
// write_weights together; `writer` is null except on rank 0. `rename` maps a tensor's name to its
// name in the file; tensors for which it returns an empty string are not written.
using Rename = std::function<std::string(const std::string&)>;
std::vector<checkpoint::TensorPlan> plan_of(const parallel::Shards& shards, at::ScalarType dtype,
                                            bool with_frozen, const Rename& rename,
                                            const Appended& appended = {});
void write_weights(parallel::Shards& shards, checkpoint::WeightsWriter* writer,
                   at::ScalarType dtype, bool with_frozen, const Rename& rename,
                   const Appended& appended = {});
// The same for the master weights of all trained tensors: it writes what plan_of(shards,
// at::kFloat, false, rename) lists.
void write_master_weights(parallel::Shards& shards, const optim::Optimizer& optimizer,
                          checkpoint::WeightsWriter* writer, const Rename& rename,
                          const Appended& appended = {});

bool is_adapter(const std::string& name);
bool has_vocabulary(const std::string& name);  // whether the tensor has a row for each token

}  // namespace mgpu::train
