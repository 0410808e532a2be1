#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "runtime/grpo/generation_plan.hpp"
#include "runtime/grpo/loss_settings.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/prompts.hpp"

namespace mgpu::rl {

// One completion in a micro-batch.
struct BatchEntry {
  const ScoredCompletion* completion = nullptr;
  bool in_loss = true;  // false: weight 0, because it is masked or only fills the micro-batch
};

// Completions that a rank trains on at a time.
struct MicroBatch {
  std::size_t number = 0;  // within the step, also counting those that are left out
  std::vector<BatchEntry> entries;
  grpo::Denominators denominators;
  int ranks_without_advantage = 0;  // ranks whose part has no completion with an advantage
  bool skipped = false;             // this rank computes nothing
};

// The micro-batches of one rank for one step.
struct Deal {
  std::vector<MicroBatch> micro_batches;  // the same number on every rank, at least one
  // Micro-batches that are not computed, summed over the ranks; empty: none may be skipped.
  std::optional<std::int64_t> skipped;
};

// Divides the completions of a step among the ranks and their micro-batches. It has no state and
// does no I/O: every rank computes the same division and keeps its own part.
class Dealer {
 public:
  struct Options {
    int rank = 0, world = 1;
    std::int64_t per_device = 1;             // completions of a micro-batch
    std::int64_t max_completion_length = 0;  // in tokens
    bool masks_truncated = false;            // truncated completions are not in the loss
    bool skips_without_advantage = false;    // micro-batches that have no gradient are skipped
    // A rank skips its part only if all ranks skip theirs: with ZeRO stage 3 the others need its
    // weights.
    bool skips_together = false;
  };
  using Generations = std::map<std::int64_t, Generation>;  // by number

  // `plan` must outlive the Dealer.
  Dealer(const grpo::GenerationPlan& plan, const Options& options);

  // `generations` has all generations of the step. The result points into them.
  Deal deal(const grpo::GrpoStep& step, const Generations& generations,
            const std::vector<Prompt>& prompts) const;

 private:
  bool in_loss(const ScoredCompletion& completion) const;
  void deal_part(const grpo::StepPart& part, const Generation& generation,
                 const std::vector<Prompt>& prompts, const grpo::Denominators& denominators,
                 std::vector<MicroBatch>& micro_batches) const;
  bool without_advantage(const MicroBatch& micro_batch) const;
  std::int64_t skip(std::vector<MicroBatch>& micro_batches) const;

  const grpo::GenerationPlan& plan_;
  Options options_;
};

}  // namespace mgpu::rl
