#include "runtime/rl/dealer.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "runtime/grpo/group_assignment.hpp"
#include "runtime/grpo/token_budget.hpp"

namespace mgpu::rl {

MicroBatch piece_of(const MicroBatch& micro_batch, std::size_t piece, std::size_t pieces) {
  if (pieces == 1) return micro_batch;
  const auto& all = micro_batch.entries;
  const auto begin = all.size() * piece / pieces, end = all.size() * (piece + 1) / pieces;
  MicroBatch part{.number = micro_batch.number * pieces + piece,
                  .entries = {all.data() + begin, all.data() + end},
                  .denominators = micro_batch.denominators,
                  .skipped = micro_batch.skipped};
  if (part.entries.empty() && !all.empty()) part.entries = {{all.front().completion, false}};
  return part;
}

Dealer::Dealer(const grpo::GenerationPlan& plan, const Options& options)
    : plan_(plan), options_(options) {}

Deal Dealer::deal(const grpo::GrpoStep& step, const Generations& generations,
                  const std::vector<Prompt>& prompts) const {
  std::map<std::int64_t, std::vector<std::int64_t>> token_counts;
  for (const auto& part : step.parts) {
    auto& counts = token_counts[part.generation];
    counts.clear();
    for (const auto& completion : generations.at(part.generation).completions)
      counts.push_back(in_loss(completion) ? static_cast<std::int64_t>(completion.tokens.size())
                                           : 0);
  }
  const auto counts_of = [&](std::int64_t generation) {
    return std::span<const std::int64_t>(token_counts.at(generation));
  };
  Deal deal;
  grpo::Denominators denominators;
  std::int64_t number = 0, computed = 0;  // micro-batches of each rank, of all ranks
  for (const auto& part : step.parts) {
    denominators = plan_.denominators(step, part, counts_of, options_.max_completion_length);
    const auto [trained, measured] = split(part, generations.at(part.generation));
    const auto first = static_cast<std::size_t>(number);
    auto to_train = divide(trained, prompts, denominators, first);
    auto to_measure = divide(measured, prompts, denominators, first);
    std::ranges::move(to_train.own, std::back_inserter(deal.micro_batches));
    std::ranges::move(to_measure.own, std::back_inserter(deal.measured));
    computed += to_train.computed;
    const auto trains = static_cast<std::int64_t>(to_train.own.size());
    number += std::max(trains, options_.skips_without_advantage
                                   ? of_whole_part(part, generations.at(part.generation), prompts)
                                   : trains);
  }
  // The optimizer always takes its step, if necessary with a gradient of 0.
  if (deal.micro_batches.empty())
    deal.micro_batches.push_back(
        {.number = 0, .entries = {}, .denominators = denominators, .skipped = true});
  if (options_.skips_without_advantage) deal.skipped = number * options_.world - computed;
  return deal;
}

// The number of micro-batches of a rank for a part of which no completion is left out.
std::int64_t Dealer::of_whole_part(const grpo::StepPart& part, const Generation& generation,
                                   const std::vector<Prompt>& prompts) const {
  const auto unit = options_.per_device * options_.world;
  if (options_.micro_batch_tokens == 0) return (part.count + unit - 1) / unit;
  const auto order = plan_.order(part.generation);
  Completions all;
  for (auto i = part.first; i < part.first + part.count; ++i)
    all.push_back(&generation.completions[order[static_cast<std::size_t>(i)]]);
  return static_cast<std::int64_t>(assign(all, prompts).front().size());
}

// The completions of a part that are trained on, and those that are only measured.
std::pair<Dealer::Completions, Dealer::Completions> Dealer::split(
    const grpo::StepPart& part, const Generation& generation) const {
  const auto order = plan_.order(part.generation);
  std::pair<Completions, Completions> lists;
  for (auto i = part.first; i < part.first + part.count; ++i) {
    const auto& completion = generation.completions[order[static_cast<std::size_t>(i)]];
    if (!options_.skips_without_advantage)
      lists.first.push_back(&completion);
    else if (in_loss(completion))
      (completion.advantage != 0 ? lists.first : lists.second).push_back(&completion);
  }
  return lists;
}

bool Dealer::in_loss(const ScoredCompletion& completion) const {
  return completion.terminated || !options_.masks_truncated;
}

grpo::Assignments Dealer::assign(const Completions& completions,
                                 const std::vector<Prompt>& prompts) const {
  std::vector<double> costs;
  std::vector<grpo::CompletionCost> shared;
  for (const auto* completion : completions) {
    const auto prompt = prompts[completion->prompt].tokens.size();
    const auto tokens = completion->tokens.size();
    costs.push_back(static_cast<double>(prompt + tokens));
    shared.push_back({.prompt = completion->prompt,
                      .prompt_tokens = static_cast<std::int64_t>(prompt),
                      .tokens = static_cast<std::int64_t>(tokens)});
  }
  if (options_.micro_batch_tokens > 0)
    return grpo::assign_tokens_to_ranks(shared, options_.world, options_.micro_batch_tokens);
  return options_.keeps_groups
             ? grpo::assign_groups_to_ranks(shared, options_.world, options_.per_device)
             : grpo::assign_to_ranks(costs, options_.world, options_.per_device);
}

// Distributes completions over the ranks and their micro-batches.
Dealer::Division Dealer::divide(const Completions& completions, const std::vector<Prompt>& prompts,
                                const grpo::Denominators& denominators,
                                std::size_t first_number) const {
  if (completions.empty()) return {};
  const auto ranks = assign(completions, prompts);
  const bool may_skip = (options_.skips_without_advantage || options_.micro_batch_tokens > 0) &&
                        !options_.skips_together;
  const auto own = static_cast<std::size_t>(options_.rank);
  Division division;
  for (std::size_t number = 0; number < ranks[own].size(); ++number)
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      MicroBatch micro_batch{
          .number = first_number + number, .entries = {}, .denominators = denominators};
      for (const auto& assignment : ranks[rank][number]) {
        const auto* completion = completions[assignment.completion];
        micro_batch.entries.push_back({completion, assignment.in_loss && in_loss(*completion)});
      }
      std::ranges::stable_sort(micro_batch.entries, {},
                               [](const BatchEntry& entry) { return entry.completion->prompt; });
      micro_batch.skipped =
          may_skip && std::ranges::none_of(micro_batch.entries, &BatchEntry::in_loss);
      if (!micro_batch.skipped) ++division.computed;
      if (rank == own) division.own.push_back(std::move(micro_batch));
    }
  return division;
}

}  // namespace mgpu::rl
