#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/config/planning/generation_arithmetic.hpp"
#include "runtime/data/order.hpp"
#include "runtime/grpo/loss_settings.hpp"

namespace mgpu::grpo {

// Completions of one generation that a step trains on: positions [first, first + count) of the
// generation's order. A micro-batch never contains completions of two parts.
struct StepPart {
  std::int64_t generation = 0;  // since training began
  std::int64_t pass = 0;        // how often its completions were used before
  std::int64_t first = 0;
  std::int64_t count = 0;

  friend bool operator==(const StepPart&, const StepPart&) = default;
};

// One step of the optimizer.
struct GrpoStep {
  std::int64_t step = 0;   // since training began
  std::int64_t epoch = 0;  // from 0
  std::int64_t index = 0;  // within the epoch
  std::vector<StepPart> parts;

  std::int64_t completions() const;  // fewer in an epoch's last step
};

// Determines which prompts each generation completes and which completions each step uses. It does
// not depend on ranks or time and has no state but a cache: a run that resumes at step k, at any
// world size, just requests step k. Prompts come in the order of data::epoch_order. Prompts at the
// end of an epoch that do not fill a whole generation are not used in that epoch.
class GenerationPlan {
 public:
  // Throws std::runtime_error if an epoch has fewer prompts than a generation needs.
  GenerationPlan(const train::GenerationSizes& sizes, std::vector<data::Selection> prompts,
                 std::uint64_t seed, bool shuffle);

  std::int64_t generations_in_epoch() const { return generations_; }
  std::int64_t steps_in_epoch() const { return steps_; }
  std::int64_t total_steps(double epochs) const;  // a part of an epoch is rounded up to whole steps

  GrpoStep at(std::int64_t step) const;
  double epochs_after(std::int64_t step) const;  // epochs done when this step is done

  // The generation that an earlier step began and `step` continues to use. A run that resumes at
  // this step needs its completions, rewards and old log-probs from the checkpoint. Without a value
  // the step starts with a new generation.
  std::optional<std::int64_t> pending(std::int64_t step) const;

  // The prompts of a generation, one per group: completion i is number i % group of prompt i /
  // group.
  std::vector<std::uint32_t> prompts(std::int64_t generation);

  // The denominators of the loss for one part of a step. `token_counts` returns
  // the number of tokens in the loss for every completion of a generation: 0 if it is masked. All
  // of a step's generations must exist before it is called.
  using TokenCounts = std::function<std::span<const std::int64_t>(std::int64_t generation)>;
  Denominators denominators(const GrpoStep& step, const StepPart& part,
                            const TokenCounts& token_counts,
                            std::int64_t max_completion_length) const;

  // The order in which steps use a generation's completions, the same in every pass.
  std::vector<std::uint32_t> order(std::int64_t generation) const;

 private:
  train::GenerationSizes sizes_;
  std::shared_ptr<const std::vector<data::Selection>> selections_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t generations_ = 0, steps_ = 0;
  std::int64_t ordered_epoch_ = -1;
  std::vector<std::uint32_t> epoch_order_;
};

// Distributes prompts over ranks; a rank generates all completions of its prompts. The numbers of
// prompts differ by at most one, and long and short prompts are mixed. `lengths` are the prompts'
// lengths; each rank's list is sorted.
std::vector<std::vector<std::int64_t>> spread_prompts(std::span<const std::int64_t> lengths,
                                                      int world);

// A completion in a micro-batch, by its number in the part.
struct Assignment {
  std::uint32_t completion = 0;
  bool in_loss = true;  // false: computed with weight 0, to fill an empty micro-batch

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

using Assignments = std::vector<std::vector<std::vector<Assignment>>>;

// Distributes a part's completions over ranks and micro-batches, [rank][micro-batch], by cost, so
// that all ranks finish at about the same time. A micro-batch has at most `per_device` completions
// and all ranks have the same number of micro-batches. Every rank computes the same result, and the
// distribution does not change the summed gradient.
Assignments assign_to_ranks(std::span<const double> costs, int world, std::int64_t per_device);

}  // namespace mgpu::grpo
