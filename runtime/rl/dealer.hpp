#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
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

// Completions that a rank computes at a time.
struct MicroBatch {
  std::size_t number = 0;           // within the step, also counting those that are left out
  std::vector<BatchEntry> entries;  // those of one prompt are neighbours
  grpo::Denominators denominators;
  bool skipped = false;  // this rank computes nothing
};

// One of `pieces` parts of a micro-batch, in order; `pieces` is a power of two. A piece without a
// completion of its own has one outside of the loss. The numbers of all pieces of a step differ.
MicroBatch piece_of(const MicroBatch& micro_batch, std::size_t piece, std::size_t pieces);

// The micro-batches of one rank for one step. All ranks have the same numbers of them.
struct Deal {
  std::vector<MicroBatch> micro_batches;  // to train on, at least one
  std::vector<MicroBatch> measured;       // without a gradient: only for the metrics
  // How many micro-batches fewer are trained on because completions without an advantage are left
  // out, summed over the ranks; empty: none may be left out.
  std::optional<std::int64_t> skipped;
};

// Divides the completions of a step among the ranks and their micro-batches. It has no state and
// does no I/O: every rank computes the same division and keeps its own part.
class Dealer {
 public:
  struct Options {
    int rank = 0, world = 1;
    std::int64_t per_device = 1;             // completions of a micro-batch
    std::int64_t micro_batch_tokens = 0;     // its tokens instead, if not 0; see LaidOutTokens
    std::int64_t max_completion_length = 0;  // in tokens
    // Completions of one prompt are in one micro-batch where that saves time, for losses that do
    // not depend on which completions those of a micro-batch are.
    bool keeps_groups = false;
    bool masks_truncated = false;  // truncated completions are not in the loss
    // Completions whose advantage is 0 have no gradient and are only measured.
    bool skips_without_advantage = false;
    // With skips_without_advantage or micro_batch_tokens a rank skips a micro-batch for which it
    // has no completion. With skips_together it does so only if all ranks do: with ZeRO stage 3 the
    // others need its weights.
    bool skips_together = false;
  };
  using Generations = std::map<std::int64_t, Generation>;  // by number

  // `plan` must outlive the Dealer.
  Dealer(const grpo::GenerationPlan& plan, const Options& options);

  // `generations` has all generations of the step. The result points into them.
  Deal deal(const grpo::GrpoStep& step, const Generations& generations,
            const std::vector<Prompt>& prompts) const;

 private:
  using Completions = std::vector<const ScoredCompletion*>;
  // Micro-batches of this rank, and how many all ranks compute.
  struct Division {
    std::vector<MicroBatch> own;
    std::int64_t computed = 0;
  };

  bool in_loss(const ScoredCompletion& completion) const;
  std::pair<Completions, Completions> split(const grpo::StepPart& part,
                                            const Generation& generation) const;
  grpo::Assignments assign(const Completions& completions,
                           const std::vector<Prompt>& prompts) const;
  std::int64_t of_whole_part(const grpo::StepPart& part, const Generation& generation,
                             const std::vector<Prompt>& prompts) const;
  Division divide(const Completions& completions, const std::vector<Prompt>& prompts,
                  const grpo::Denominators& denominators, std::size_t first_number) const;

  const grpo::GenerationPlan& plan_;
  Options options_;
};

}  // namespace mgpu::rl
