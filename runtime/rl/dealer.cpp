#include "runtime/rl/dealer.hpp"

#include <algorithm>
#include <span>

namespace mgpu::rl {
namespace {

// Whether a completion contributes a gradient when the loss has only the advantage term.
bool has_advantage(const BatchEntry& entry) {
  return entry.in_loss && entry.completion->advantage != 0;
}

}  // namespace

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
  for (const auto& part : step.parts)
    deal_part(part, generations.at(part.generation), prompts,
              plan_.denominators(step, part, counts_of, options_.max_completion_length),
              deal.micro_batches);
  if (options_.skips_without_advantage) deal.skipped = skip(deal.micro_batches);
  return deal;
}

bool Dealer::in_loss(const ScoredCompletion& completion) const {
  return completion.terminated || !options_.masks_truncated;
}

void Dealer::deal_part(const grpo::StepPart& part, const Generation& generation,
                       const std::vector<Prompt>& prompts, const grpo::Denominators& denominators,
                       std::vector<MicroBatch>& micro_batches) const {
  const auto order = plan_.order(part.generation);
  std::vector<const ScoredCompletion*> completions;
  std::vector<double> costs;
  for (auto i = part.first; i < part.first + part.count; ++i) {
    const auto& completion = generation.completions[order[static_cast<std::size_t>(i)]];
    completions.push_back(&completion);
    costs.push_back(
        static_cast<double>(completion.tokens.size() + prompts[completion.prompt].tokens.size()));
  }
  const auto ranks = grpo::assign_to_ranks(costs, options_.world, options_.per_device);
  const auto own = static_cast<std::size_t>(options_.rank);
  for (std::size_t number = 0; number < ranks[own].size(); ++number) {
    MicroBatch micro_batch{
        .number = micro_batches.size(), .entries = {}, .denominators = denominators};
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      std::vector<BatchEntry> entries;
      for (const auto& assignment : ranks[rank][number]) {
        const auto* completion = completions[assignment.completion];
        entries.push_back({completion, assignment.in_loss && in_loss(*completion)});
      }
      if (std::ranges::none_of(entries, has_advantage)) ++micro_batch.ranks_without_advantage;
      if (rank == own) micro_batch.entries = std::move(entries);
    }
    micro_batches.push_back(std::move(micro_batch));
  }
}

// Whether no rank has a completion with an advantage.
bool Dealer::without_advantage(const MicroBatch& micro_batch) const {
  return micro_batch.ranks_without_advantage == options_.world;
}

// Marks the parts that this rank skips, and removes the micro-batches that all ranks skip. Returns
// how many parts the ranks skip.
std::int64_t Dealer::skip(std::vector<MicroBatch>& micro_batches) const {
  std::int64_t skipped = 0;
  for (auto& micro_batch : micro_batches) {
    const bool all_skip = without_advantage(micro_batch);
    if (!options_.skips_together || all_skip) skipped += micro_batch.ranks_without_advantage;
    micro_batch.skipped = options_.skips_together
                              ? all_skip
                              : std::ranges::none_of(micro_batch.entries, has_advantage);
  }
  const auto all_skip = [this](const MicroBatch& each) { return without_advantage(each); };
  // The optimizer still takes its step, if necessary with a gradient of 0.
  if (std::ranges::all_of(micro_batches, all_skip))
    micro_batches.resize(1);
  else
    std::erase_if(micro_batches, all_skip);
  return skipped;
}

}  // namespace mgpu::rl
