#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/planning/generation_arithmetic.hpp"
#include "runtime/config/planning/role_memory.hpp"
#include "runtime/config/planning/roles.hpp"
#include "runtime/grpo/generation_plan.hpp"
#include "runtime/grpo/loss_control.hpp"
#include "runtime/optim/schedule.hpp"
#include "runtime/rl/dealer.hpp"
#include "runtime/rl/frozen_models.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/meter.hpp"
#include "runtime/rl/policy.hpp"
#include "runtime/rl/policy_update.hpp"
#include "runtime/rl/recipe_rewards.hpp"
#include "runtime/rl/recommendation.hpp"
#include "runtime/rl/rollout_collector.hpp"
#include "runtime/rl/run_prompts.hpp"
#include "runtime/rl/server.hpp"
#include "runtime/rl/step_seconds.hpp"
#include "runtime/train/session.hpp"

namespace mgpu::rl {

// Group-relative policy optimisation (GRPO) of one model by all ranks of a job: they generate
// completions of prompts, score them and train on them. A program runs it like this:
//   GrpoTrainer trainer(config, contract);
//   trainer.setup();
//   while (trainer.train_step()) {}
//   trainer.finish();
class GrpoTrainer : public train::Session {
 public:
  GrpoTrainer(train::TrainConfig config, rendezvous::Contract contract);
  ~GrpoTrainer();

  void setup();
  // One step of the optimizer, with the generation it needs. Returns false after the last step.
  bool train_step();
  void finish();

 private:
  RecipeRewards read_recipe();
  void assign_roles();
  train::RoleRequest role_request(const std::vector<RewardModelSource>& reward_models) const;
  void reserve_memory(const std::vector<RewardModelSource>& reward_models);
  std::vector<train::RoleMemory> account_for_roles(
      const std::vector<RewardModelSource>& reward_models);
  void open_server();
  void plan();
  std::unique_ptr<Generator> make_generator(const std::vector<train::RoleMemory>& roles);
  void make_collector(RecipeRewards rewards, const std::vector<train::RoleMemory>& roles);
  train::Fingerprint fingerprint() const;
  void restore(const std::string& checkpoint);
  void write_generations(const std::string& folder) const;
  void restore_generation(Generation generation, const std::string& checkpoint);

  const train::Requests& take_requests();
  bool collect(const grpo::GrpoStep& step);
  void update(const Deal& deal);
  void forget_used_generations();
  void log_interval();
  void evaluate_now();
  void save();

  train::GenerationSizes sizes_;
  train::Roles roles_;
  std::optional<Recommendation> recommendation_;
  std::optional<RunPrompts> prompts_;
  std::optional<grpo::GenerationPlan> plan_;
  std::optional<optim::Schedule> rates_;
  grpo::LossControl control_;
  std::unique_ptr<Server> server_;  // the external server that generates; null: the built-in engine
  std::optional<Policy> policy_;
  StepSeconds seconds_;  // of the present step
  std::optional<FrozenModels> frozen_models_;
  std::optional<RolloutCollector> collector_;
  std::optional<Dealer> dealer_;
  std::optional<PolicyUpdate> update_;
  Dealer::Generations generations_;  // those that this step and further steps use
  Meter meter_;
  std::map<std::string, double> item_evaluation_;  // of the last evaluation
  train::Requests own_requests_;                   // of this rank, not carried out yet
  bool ends_early_ = false;                        // on all ranks
};

}  // namespace mgpu::rl
