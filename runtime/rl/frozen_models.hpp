#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/planning/roles.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/policy.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/rl/reference.hpp"
#include "runtime/rl/reward_model.hpp"
#include "runtime/rl/step_seconds.hpp"
#include "runtime/train/adapter.hpp"

namespace mgpu::rl {

// The models that score completions and are not trained: the reference model, if beta needs one,
// and the reward models. Each is where its Placement says. All ranks make each call together.
class FrozenModels {
 public:
  struct Sources {
    bool reference = false;                       // whether there is a reference model
    std::optional<train::AdapterSource> adapter;  // that the policy started from
    std::vector<RewardModelSource> rewards;
  };

  // Loads the weights. `policy` and `seconds` must outlive the models.
  FrozenModels(const train::TrainConfig& config, const Policy& policy, const train::Roles& roles,
               Sources sources, StepSeconds& seconds);

  // Models that are sharded score each rank's own completions. A model that is resident on one rank
  // scores the completions of all ranks, after they were gathered. Reward functions have scored
  // before: a model's score is inserted at its index in reward_funcs. Only completions to train on
  // need the reference.
  void score_own(std::vector<ScoredCompletion>& completions, const std::vector<Prompt>& prompts,
                 bool for_training);
  void score_gathered(std::vector<ScoredCompletion>& completions,
                      const std::vector<Prompt>& prompts, bool for_training);

  // One warning for each reward model that could not score completions since the last call, of
  // those counted.
  void count_unscored(const std::vector<ScoredCompletion>& completions);
  std::vector<std::string> take_warnings();

  // Moves the reference model towards the policy if it is due after `step` steps.
  void move_reference(std::int64_t step);
  // The reference model's part of a checkpoint; nothing if it has not moved.
  std::optional<checkpoint::FileRecord> write(const std::string& checkpoint_folder);
  void read(const std::string& checkpoint_folder);

 private:
  void score(std::vector<ScoredCompletion>& completions, const std::vector<Prompt>& prompts,
             bool resident, bool for_training);
  void add_reference_log_probs(std::vector<ScoredCompletion>& completions,
                               const std::vector<Prompt>& prompts);
  void add_rewards(RewardModel& model, std::vector<ScoredCompletion>& completions,
                   const std::vector<Prompt>& prompts);

  const Policy& policy_;
  StepSeconds& seconds_;
  std::unique_ptr<Reference> reference_;
  std::int64_t sync_every_ = 0;  // the reference model moves every so many steps; 0: never
  double sync_share_ = 0;
  std::vector<std::unique_ptr<RewardModel>> rewards_;
  std::map<std::size_t, std::int64_t> unscored_;  // completions, by index in reward_funcs
};

}  // namespace mgpu::rl
