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
#include "runtime/grpo/loss.hpp"
#include "runtime/grpo/loss_control.hpp"
#include "runtime/optim/schedule.hpp"
#include "runtime/rewards/reward.hpp"
#include "runtime/rl/completions_log.hpp"
#include "runtime/rl/dealer.hpp"
#include "runtime/rl/frozen_models.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/meter.hpp"
#include "runtime/rl/policy.hpp"
#include "runtime/rl/policy_loss.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/rl/rollout_collector.hpp"
#include "runtime/rl/server.hpp"
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
  void read_recipe();
  void assign_roles();
  void open_rewards();
  void open_prompts();
  train::RoleRequest role_request() const;
  void reserve_memory(std::int64_t longest_prompt);
  void account_for_roles();
  void open_server();
  void open_generator();
  void plan();
  void restore(const std::string& checkpoint);
  void restore_generation(Generation generation, const std::string& checkpoint);

  void generate_for(const grpo::GrpoStep& step);
  Generation generate(std::int64_t number);
  void add_old_log_probs(std::vector<ScoredCompletion>& completions);
  std::vector<ScoredCompletion> complete(std::uint64_t seed,
                                         const std::vector<std::uint32_t>& selected,
                                         std::int64_t group, const std::vector<Prompt>& prompts,
                                         bool for_training);
  void compute_advantages(Generation& generation, std::int64_t group) const;

  at::Tensor threshold(const at::Tensor& entropies, std::int64_t max_tokens, double quantile);
  void learn(const std::vector<MicroBatch>& micro_batches, std::int64_t step);
  void consume_record(train::StepRecord& record, grpo::LossMetrics& metrics,
                      const std::vector<MicroBatch>& micro_batches, const grpo::LossSettings& loss,
                      double rate);
  void log_interval();
  void evaluate_now();
  void save();

  PromptSet prompts_, eval_prompts_;
  std::vector<std::uint32_t> eval_order_;  // the prompts that are evaluated
  const std::vector<Prompt>* evaluated_ = nullptr;
  std::vector<std::string> reward_names_;
  std::vector<double> reward_weights_;
  std::vector<std::unique_ptr<rewards::Reward>> rewards_;
  train::GenerationSizes sizes_;
  std::optional<grpo::GenerationPlan> plan_;
  std::optional<Dealer> dealer_;
  std::optional<optim::Schedule> rates_;
  grpo::LossControl control_;
  std::int64_t max_tokens_ = 0;  // of a completion, at most
  std::int64_t eval_group_ = 1;
  std::int64_t sequences_ = 1;      // generated at a time, by the memory plan
  std::unique_ptr<Server> server_;  // the external server that generates; null: the built-in engine
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<RolloutCollector> collector_;
  train::Roles roles_;
  std::optional<Policy> policy_;
  std::vector<RewardModelSource> reward_sources_;
  std::unique_ptr<FrozenModels> frozen_models_;
  std::unique_ptr<CompletionsLog> log_;
  Dealer::Generations generations_;  // those that this step and further steps use

  Meter meter_;
  bool stop_requested_ = false, ends_early_ = false;
};

}  // namespace mgpu::rl
