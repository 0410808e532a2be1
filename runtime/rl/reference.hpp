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

// The model that the policy is held near: what it was when training began, or what it has been
// moved to since. With adapters that is the policy without them; else, and where the role has a GPU
// of its own, a copy that does not learn.
class Reference {
 public:
  // `adapter`: one that the policy went on from, or nothing.
  Reference(const train::TrainConfig& config, const train::ModelSource& source,
            const std::optional<train::AdapterSource>& adapter,
            const model::TransformerOptions& options, const train::Role& role,
            parallel::Shards& policy, comm::Comm& comm);

  const Placement& post() const { return post_; }

  // These two where it is computed with.
  at::Tensor log_probs(const model::DeviceBatch& batch, double temperature);
  model::WeightProvider& provider() { return *provider_; }  // the policy's or its own

  // Moves it towards the policy: (1 - alpha) of it and alpha of that. All ranks call it.
  void move(parallel::Shards& policy, double alpha);

  // A reference that has moved is part of a checkpoint's training state. All ranks call these; each
  // writes a part, and a read takes the parts of any number of ranks.
  bool moved() const { return moved_; }
  checkpoint::FileRecord write(const std::string& checkpoint_folder);
  void read(const std::string& checkpoint_folder);  // does nothing where it has not moved

 private:
  Placement post_;
  std::unique_ptr<parallel::Shards> own_;
  model::WeightProvider* provider_ = nullptr;
  model::Transformer transformer_;
  int rank_, world_;
  bool moved_ = false;
};

}  // namespace mgpu::rl
