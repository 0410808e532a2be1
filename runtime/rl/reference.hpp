#pragma once

#include <memory>
#include <optional>

#include "runtime/comm/comm.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/adapter.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// The model that the policy is held near: what it was when training began. With adapters that is
// the policy without them; else a frozen copy, spread over the ranks.
class Reference {
 public:
  // `adapter`: one that the policy went on from, or nothing.
  Reference(const train::TrainConfig& config, const train::ModelSource& source,
            const std::optional<train::AdapterSource>& adapter,
            const model::TransformerOptions& options, parallel::Shards& policy, comm::Comm& comm);

  at::Tensor log_probs(const model::DeviceBatch& batch, double temperature);

  // Who keeps its weights: the policy's keeper or its own.
  model::Keeper& keeper() { return *keeper_; }

 private:
  std::unique_ptr<parallel::Shards> own_;
  model::Keeper* keeper_;
  model::Transformer transformer_;
};

}  // namespace mgpu::rl
