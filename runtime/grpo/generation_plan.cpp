#include "runtime/grpo/generation_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/random.hpp"
#include "runtime/data/share.hpp"

namespace mgpu::grpo {
namespace {

constexpr std::uint64_t kCompletionOrderStream = 0x6772706F;  // identifies this random stream

}  // namespace

std::int64_t GrpoStep::completions() const {
  std::int64_t sum = 0;
  for (const auto& part : parts) sum += part.count;
  return sum;
}

GenerationPlan::GenerationPlan(const train::GenerationSizes& sizes,
                               std::vector<data::Selection> prompts, std::uint64_t seed,
                               bool shuffle)
    : sizes_(sizes),
      selections_(std::make_shared<const std::vector<data::Selection>>(std::move(prompts))),
      seed_(seed),
      shuffle_(shuffle) {
  const auto available = static_cast<std::int64_t>(data::epoch_size(*selections_));
  generations_ = available / sizes_.prompts();
  if (generations_ == 0)
    throw rendezvous::InputError(fmt::format(
        "there are {} prompts to train on, but a generation needs {} (x {} completions); lower "
        "generation_batch_size, gradient_accumulation_steps or "
        "per_device_train_batch_size",
        available, sizes_.prompts(), sizes_.group));
  const auto used = generations_ * sizes_.generation * sizes_.iterations;
  steps_ = (used + sizes_.step - 1) / sizes_.step;
}

std::int64_t GenerationPlan::total_steps(double epochs) const {
  return static_cast<std::int64_t>(std::ceil(epochs * static_cast<double>(steps_) - 1e-9));
}

GrpoStep GenerationPlan::at(std::int64_t step) const {
  GrpoStep out{.step = step, .epoch = step / steps_, .index = step % steps_, .parts = {}};
  const auto used = generations_ * sizes_.generation * sizes_.iterations;
  auto at = out.index * sizes_.step;
  const auto end = std::min(at + sizes_.step, used);
  while (at < end) {
    const auto pass = at / sizes_.generation;  // counted over all generations
    const auto first = at % sizes_.generation;
    const auto count = std::min(sizes_.generation - first, end - at);
    out.parts.push_back({.generation = out.epoch * generations_ + pass / sizes_.iterations,
                         .pass = pass % sizes_.iterations,
                         .first = first,
                         .count = count});
    at += count;
  }
  return out;
}

double GenerationPlan::epochs_after(std::int64_t step) const {
  return static_cast<double>(step / steps_) +
         static_cast<double>(step % steps_ + 1) / static_cast<double>(steps_);
}

std::optional<std::int64_t> GenerationPlan::pending(std::int64_t step) const {
  const auto part = at(step).parts.front();
  if (part.pass == 0 && part.first == 0) return {};
  return part.generation;
}

std::vector<std::uint32_t> GenerationPlan::prompts(std::int64_t generation) {
  const auto epoch = generation / generations_;
  if (epoch != ordered_epoch_) {
    epoch_order_ = data::epoch_order(*selections_, seed_, epoch, shuffle_);
    ordered_epoch_ = epoch;
  }
  const auto first = epoch_order_.begin() + generation % generations_ * sizes_.prompts();
  return {first, first + sizes_.prompts()};
}

Denominators GenerationPlan::denominators(const GrpoStep& step, const StepPart& part,
                                          const TokenCounts& token_counts,
                                          std::int64_t max_completion_length) const {
  Denominators by{.completions = step.completions(),
                  .tokens = 0,
                  .micro_batches = 0,
                  .generation_completions = sizes_.generation,
                  .generation_tokens = 0,
                  .max_completion_length = max_completion_length};
  const auto unit = sizes_.per_device * sizes_.ranks;
  for (const auto& each : step.parts) {
    by.micro_batches += (each.count + unit - 1) / unit * sizes_.ranks;
    const auto tokens = token_counts(each.generation);
    const auto numbers = order(each.generation);
    for (auto i = each.first; i < each.first + each.count; ++i)
      by.tokens += tokens[numbers[static_cast<std::size_t>(i)]];
  }
  for (const auto tokens : token_counts(part.generation)) by.generation_tokens += tokens;
  return by;
}

std::vector<std::uint32_t> GenerationPlan::order(std::int64_t generation) const {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(sizes_.generation));
  std::iota(order.begin(), order.end(), 0U);
  data::Random random({seed_, kCompletionOrderStream, static_cast<std::uint64_t>(generation)});
  data::shuffle(order, random);
  return order;
}

std::vector<std::vector<std::int64_t>> spread_prompts(std::span<const std::int64_t> lengths,
                                                      int world) {
  std::vector<std::int64_t> longest_first(lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](auto a, auto b) {
    return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
  });
  std::vector<std::vector<std::int64_t>> ranks(static_cast<std::size_t>(world));
  const auto count = ranks.size();
  // In alternating direction: the rank that got the longest prompt of one turn gets the shortest of
  // the next.
  for (std::size_t i = 0; i < longest_first.size(); ++i) {
    const auto at = i % count;
    ranks[i / count % 2 == 0 ? at : count - 1 - at].push_back(longest_first[i]);
  }
  for (auto& rank : ranks) std::sort(rank.begin(), rank.end());
  return ranks;
}

Assignments assign_to_ranks(std::span<const double> costs, int world, std::int64_t per_device) {
  const auto shares = data::share(
      costs, {.world = world, .max_items = per_device, .min_micro_batches = 0, .weights = {}});
  const auto cheapest = std::min_element(costs.begin(), costs.end()) - costs.begin();
  Assignments ranks;
  for (const auto& rank : shares) {
    auto& micro_batches = ranks.emplace_back();
    for (const auto& items : rank) {
      auto& assignments = micro_batches.emplace_back();
      for (const auto item : items) assignments.push_back({.completion = item, .in_loss = true});
      if (assignments.empty() && !costs.empty())
        assignments.push_back(
            {.completion = static_cast<std::uint32_t>(cheapest), .in_loss = false});
    }
  }
  return ranks;
}

}  // namespace mgpu::grpo
