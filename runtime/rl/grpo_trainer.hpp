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
#include "runtime/grpo/control.hpp"
#include "runtime/grpo/generation_plan.hpp"
#include "runtime/grpo/loss.hpp"
#include "runtime/optim/schedule.hpp"
#include "runtime/rewards/reward.hpp"
#include "runtime/rl/actor.hpp"
#include "runtime/rl/completions_log.hpp"
#include "runtime/rl/experience.hpp"
#include "runtime/rl/policy_loss.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/rl/reference.hpp"
#include "runtime/rl/reward_model.hpp"
#include "runtime/rl/server.hpp"
#include "runtime/train/session.hpp"

namespace mgpu::rl {

// Group-relative policy optimisation of one model by all ranks of a job: they generate completions
// of prompts, have them judged and learn from them. A program drives it so:
//   GrpoTrainer trainer(config, contract);
//   trainer.setup();
//   while (trainer.train_step()) {}
//   trainer.finish();
class GrpoTrainer : public train::Session {
 public:
  GrpoTrainer(train::TrainConfig config, rendezvous::Contract contract);
  ~GrpoTrainer();

  void setup();
  // One step of the optimizer, with the generation it needs; false when nothing is left to do.
  bool train_step();
  void finish();

 private:
  struct MicroBatch {
    std::size_t number = 0;  // within the step
    std::vector<Member> members;
    grpo::Denominators denominators;
    int idle_ranks = 0;  // whose part has no completion with an advantage
  };
  enum class Consulted { spread, held };  // models, by who computes with them

  void take_in_recipe();
  void take_roles();
  void open_rewards();
  void open_prompts();
  train::RoleRequest role_request() const;
  void reserve_memory(std::int64_t longest_prompt);
  void account_for_roles();
  void open_server();
  void open_generator();
  void plan();
  void station_models();
  void restore(const std::string& checkpoint);
  void take_back(Generation generation, const std::string& checkpoint);
  void judge_sizes() const;

  const Generation& generation(std::int64_t number);
  Generation generate(std::int64_t number);
  void look_back(std::vector<Sample>& samples, bool reference);
  void consult(std::vector<Sample>& samples, const std::vector<Question>& questions, Consulted who,
               bool to_learn);
  void refer(std::vector<Sample>& samples);
  void ask(RewardModel& model, std::vector<Sample>& samples,
           const std::vector<Question>& questions);
  void count_unjudged(const std::vector<Sample>& samples);
  void tell_unjudged();
  std::vector<Sample> complete(std::uint64_t seed, const std::vector<std::uint32_t>& asked,
                               std::int64_t group, const std::vector<Question>& questions,
                               bool teaches);
  void compare(Generation& generation, std::int64_t group) const;

  std::vector<MicroBatch> deal(const grpo::GrpoStep& step);
  Member member(const Sample& sample, bool counts) const;
  at::Tensor threshold(const at::Tensor& entropies, std::int64_t most);
  void leave_out_idle(std::vector<MicroBatch>& micro_batches);
  bool idle(const MicroBatch& micro_batch) const;
  void learn(const std::vector<MicroBatch>& micro_batches, std::int64_t step);
  void consume_record(train::StepRecord& record, grpo::LossMetrics& metrics,
                      const std::vector<MicroBatch>& micro_batches, double rate);
  void measure(std::map<std::string, double> metrics);
  void log_interval();
  void evaluate_now();
  void save();

  Questions questions_, eval_questions_;
  std::vector<std::uint32_t> eval_order_;  // of which questions evaluations are made
  const std::vector<Question>* evaluated_ = nullptr;
  std::vector<std::string> reward_names_;
  std::vector<double> reward_weights_;
  std::vector<std::unique_ptr<rewards::Reward>> rewards_;
  train::GenerationSizes sizes_;
  std::optional<grpo::GenerationPlan> plan_;
  std::optional<optim::Schedule> rates_;
  grpo::LossSettings loss_;
  grpo::AdaptiveKl kl_;
  grpo::AdaptiveEntropy entropy_;
  double temperature_ = 1;
  std::int64_t most_tokens_ = 0;  // of a completion
  std::int64_t eval_group_ = 1;
  bool masks_truncated_ = false;
  std::int64_t sequences_ = 1;      // that are continued together, by the plan
  std::unique_ptr<Server> server_;  // that generates; null: nobody else does
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<Actor> actor_;
  train::Roles roles_;
  std::unique_ptr<Reference> reference_;
  std::int64_t sync_every_ = 0;  // steps after which the reference moves
  double sync_share_ = 0;
  std::vector<RewardModelSource> reward_sources_;
  std::vector<std::unique_ptr<RewardModel>> reward_models_;
  std::map<std::size_t, std::int64_t> unjudged_;  // completions, by place in reward_funcs
  bool skips_idle_ = false;
  std::unique_ptr<CompletionsLog> log_;
  HealthWatch health_;
  std::map<std::int64_t, Generation> generations_;  // that steps go on with

  train::Interval interval_, whole_run_;
  std::map<std::string, std::pair<double, std::int64_t>>
      means_;  // sum and number since the last log
  double loss_sum_ = 0;
  std::int64_t loss_steps_ = 0;  // that it is the sum of
  std::int64_t last_evaluated_ = -1;
  bool stop_requested_ = false, ends_early_ = false;
};

}  // namespace mgpu::rl
