#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::train {

inline constexpr std::int64_t kContextBytes = 512 << 20;  // CUDA's and its libraries' workspaces
inline constexpr double kMargin = 1.05;  // of the allocator's peak, for fragmentation

inline double gib(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

enum class MemoryPart {
  weights,
  gradients,
  optimizer,
  activations,
  head,
  communication,
  workspace,
  outside
};

struct ParameterCount {
  std::int64_t total = 0;
  std::int64_t trainable = 0;
  std::int64_t layer = 0;  // of one layer
};

// One item of the estimate: its name, formula and bytes on one rank.
struct MemoryLine {
  MemoryPart part = MemoryPart::weights;
  std::string name;
  std::string formula;
  std::int64_t bytes = 0;
};

// The peak memory of one rank. `outside` is the memory of the driver and NCCL, which the tensor
// allocator does not see.
struct MemoryEstimate {
  std::vector<MemoryLine> lines;

  std::int64_t of(MemoryPart part) const;
  std::int64_t allocated() const;  // everything but `outside`: the allocator's peak
  std::int64_t total() const;
};

// The parameters of a model and how many of them this configuration trains. Computed from the
// model's configuration; equal to the counts of the checkpoint.
ParameterCount count_parameters(const model::ModelConfig& model, const TrainConfig& config);

// The estimate for GPUs: dtype auto is bf16, gradient_checkpointing and
// offload_embedding auto count as false, and recomputed_layers auto as all (the planner chooses).
// Every sequence is counted with max_length tokens.
MemoryEstimate estimate_memory(const model::ModelConfig& model, const TrainConfig& config,
                               std::int64_t ranks);

// Whether offload_embedding can move the embedding to host memory: it is frozen, and not the head.
bool can_offload_embedding(const model::ModelConfig& model, const TrainConfig& config);

// The host memory of each rank for the embedding: 0 unless offload_embedding is true.
std::int64_t host_embedding_bytes(const model::ModelConfig& model, const TrainConfig& config);

// What checkpoints need of host memory while they are written in the background, on all ranks
// together: the trained model and, unless it is left out, the training state. Headers of files are
// not counted.
std::int64_t checkpoint_bytes(const model::ModelConfig& model, const TrainConfig& config);

const char* part_name(MemoryPart part);

}  // namespace mgpu::train
