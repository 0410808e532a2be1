#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/model/model_config.hpp"

namespace mgpu::train {

enum class MemoryPart { weights, gradients, optimizer, activations, head, communication, outside };

struct ParameterCount {
  std::int64_t total = 0;
  std::int64_t trainable = 0;
  std::int64_t layer = 0;  // of one layer
};

// One line of the accounting: what, by which formula, how much on one rank.
struct MemoryLine {
  MemoryPart part = MemoryPart::weights;
  std::string name;
  std::string formula;
  std::int64_t bytes = 0;
};

// What one rank holds at its highest. `outside` is the driver's and NCCL's, which the allocator
// of tensors does not see.
struct MemoryEstimate {
  std::vector<MemoryLine> lines;

  std::int64_t of(MemoryPart part) const;
  std::int64_t allocated() const;  // all but what is outside: the allocator's peak
  std::int64_t total() const;
};

// The parameters of a model, and those that this configuration trains. Pure arithmetic: as many
// as the checkpoint has.
ParameterCount count_parameters(const model::ModelConfig& model, const TrainConfig& config);

// The estimate for GPUs: dtype auto is bf16, gradient_checkpointing auto counts as false (the
// planner chooses). Sequences are counted at their longest.
MemoryEstimate estimate_memory(const model::ModelConfig& model, const TrainConfig& config,
                               std::int64_t ranks);

const char* part_name(MemoryPart part);

}  // namespace mgpu::train
