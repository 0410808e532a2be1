#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/config/config.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/rl/placement.hpp"
#include "runtime/train/adapter.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// The reference model, near which the KL penalty keeps the policy: the policy at the start of
// training, or what it was moved to since. With adapters it is the policy without them; otherwise,
// and if the role has a GPU of its own, it is a frozen copy.
class Reference {
 public:
  // `adapter`: the adapter that the policy started from, if any.
  Reference(const train::TrainConfig& config, const train::ModelSource& source,
            const std::optional<train::AdapterSource>& adapter,
            const model::TransformerOptions& options, const train::Role& role,
            parallel::Shards& policy, comm::Comm& comm);

  const Placement& placement() const { return placement_; }

  // Call these two only on ranks that compute it (placement().local()).
  at::Tensor log_probs(const model::DeviceBatch& batch, double temperature);
  model::WeightProvider& provider() { return *provider_; }  // the policy's weights, or the copy

  // Moves it towards the policy: (1 - alpha) * reference + alpha * policy. All ranks call it.
  void move(parallel::Shards& policy, double alpha);

  // A reference model that has moved is part of a checkpoint's training state. All ranks call
  // these. Each rank writes a part; read() accepts the parts of any number of ranks.
  bool moved() const { return moved_; }
  checkpoint::FileRecord write(const std::string& checkpoint_folder);
  void read(const std::string& checkpoint_folder);  // does nothing if the checkpoint has none

 private:
  Placement placement_;
  std::unique_ptr<parallel::Shards> own_;
  model::WeightProvider* provider_ = nullptr;
  model::Transformer transformer_;
  int rank_, world_;
  bool moved_ = false;
};

}  // namespace mgpu::rl
