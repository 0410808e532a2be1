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

// Completions that a step learns from together: places [first, first + count) of a generation's
// order. Micro-batches lie within a part, never across two.
struct StepPart {
  std::int64_t generation = 0;  // since training began
  std::int64_t pass = 0;        // how often its completions were learnt from before
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

// Says which prompts are generated for when, and which completions form which step. It knows of no
// ranks and no time, and keeps no state but a cache: a run that goes on at step k, at any world
// size, asks for step k. Prompts come in the order of data::epoch_order; those that fill no whole
// generation at the end of an epoch are not used in it.
class GenerationPlan {
 public:
  // Throws std::runtime_error if an epoch has fewer prompts than a generation needs.
  GenerationPlan(const train::GenerationSizes& sizes, std::vector<data::Selection> prompts,
                 std::uint64_t seed, bool shuffle);

  std::int64_t generations_in_epoch() const { return generations_; }
  std::int64_t steps_in_epoch() const { return steps_; }
  std::int64_t total_steps(double epochs) const;  // a part of an epoch is rounded up to whole steps

  GrpoStep at(std::int64_t step) const;

  // The generation that `step` goes on with, begun in a step before. A run that begins at this step
  // needs its completions, rewards and old log-probs from the checkpoint; without one it generates.
  std::optional<std::int64_t> pending(std::int64_t step) const;

  // The examples of a generation, one a group: completion i is number i % group of prompt i /
  // group.
  std::vector<std::uint32_t> prompts(std::int64_t generation);

  // What the loss of a part of a step is divided by. `counted` gives the tokens that count of every
  // completion of a generation, by number: 0 where it is masked. All of a step's generations are
  // there before it begins.
  using Counted = std::function<std::span<const std::int64_t>(std::int64_t generation)>;
  Denominators denominators(const GrpoStep& step, const StepPart& part, const Counted& counted,
                            std::int64_t max_completion_length) const;

  // The order in which a generation's completions are learnt from, the same in every pass.
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

// Which prompts each rank generates all completions for, in their order: as many as any other rank,
// or one more; long prompts and short ones are spread. `lengths`: of the prompts.
std::vector<std::vector<std::int64_t>> spread_prompts(std::span<const std::int64_t> lengths,
                                                      int world);

// A completion's place in a micro-batch, by its number among those dealt.
struct Place {
  std::uint32_t completion = 0;
  bool counts = true;  // false: computed with weight 0, so that the micro-batch is not empty

  friend bool operator==(const Place&, const Place&) = default;
};

// Deals a part's completions to ranks, [rank][micro-batch], by cost, so that all end at about the
// same time: at most `per_device` in a micro-batch, as many micro-batches on every rank. Every rank
// computes the same answer; none of it changes the sum that is learnt from.
std::vector<std::vector<std::vector<Place>>> deal(std::span<const double> costs, int world,
                                                  std::int64_t per_device);

}  // namespace mgpu::grpo
