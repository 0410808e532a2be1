#include "runtime/grpo/token_budget.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace mgpu::grpo {
namespace {

using TokenCosts = std::span<const CompletionCost>;
using CompletionNumbers = std::vector<std::uint32_t>;

// Completions of one prompt that stay together.
struct PromptPart {
  CompletionNumbers completions;
  GroupTokens group;
  std::int64_t tokens = 0;  // if it is a micro-batch
};

struct TokenBatch {
  CompletionNumbers completions;
  LaidOutTokens tokens;

  void add(const PromptPart& part) {
    completions.insert(completions.end(), part.completions.begin(), part.completions.end());
    tokens.add(part.group);
  }
};

using RankShare = std::vector<TokenBatch>;  // of a rank

PromptPart prompt_part(CompletionNumbers completions, TokenCosts costs) {
  PromptPart part{.completions = std::move(completions)};
  for (const auto i : part.completions) part.group.add(costs[i]);
  part.tokens = LaidOutTokens().count_with(part.group);
  return part;
}

// Divides completions, the longest first, into parts with about equal numbers of tokens. A part has
// at most `most` completions; parts * most is at least the number of completions.
std::vector<CompletionNumbers> divide_by_tokens(const CompletionNumbers& completions,
                                                TokenCosts costs, std::size_t parts,
                                                std::size_t most) {
  std::vector<CompletionNumbers> divided(parts);
  std::vector<std::int64_t> tokens(parts);
  for (const auto i : completions) {
    std::optional<std::size_t> best;
    for (std::size_t p = 0; p < parts; ++p)
      if (divided[p].size() < most && (!best || tokens[p] < tokens[*best])) best = p;
    divided[*best].push_back(i);
    tokens[*best] += costs[i].tokens + 1;  // an empty completion takes a place, too
  }
  return divided;
}

// Divides a group into as few parts as have at most `most` completions and `budget` tokens.
void add_parts(std::vector<PromptPart>& all, CompletionNumbers group, TokenCosts costs,
               std::size_t most, std::int64_t budget) {
  std::stable_sort(group.begin(), group.end(), [&](std::uint32_t a, std::uint32_t b) {
    return costs[a].tokens > costs[b].tokens;
  });
  const auto fits = [&](const PromptPart& part) {
    return part.tokens <= budget || part.completions.size() == 1;
  };
  // Completions that exceed the budget are parts of their own.
  auto first = group.begin();
  for (; first != group.end(); ++first) {
    auto alone = prompt_part({*first}, costs);
    if (alone.tokens <= budget) break;
    all.push_back(std::move(alone));
  }
  group.erase(group.begin(), first);
  for (auto count = (group.size() + most - 1) / most; count > 0 && count <= group.size(); ++count) {
    std::vector<PromptPart> parts;
    for (auto& numbers : divide_by_tokens(group, costs, count, most))
      parts.push_back(prompt_part(std::move(numbers), costs));
    if (!std::ranges::all_of(parts, fits)) continue;
    std::ranges::move(parts, std::back_inserter(all));
    return;
  }
}

std::vector<PromptPart> prompt_parts(TokenCosts costs, std::size_t most, std::int64_t budget) {
  std::map<std::uint32_t, CompletionNumbers> groups;
  for (std::uint32_t i = 0; i < costs.size(); ++i) groups[costs[i].prompt].push_back(i);
  std::vector<PromptPart> parts;
  for (auto& [prompt, group] : groups) add_parts(parts, std::move(group), costs, most, budget);
  std::ranges::stable_sort(parts, std::ranges::greater(), &PromptPart::tokens);
  return parts;
}

// Each part, the longest first, to the rank with the fewest tokens.
std::vector<std::vector<PromptPart>> spread_parts(const std::vector<PromptPart>& parts, int world) {
  std::vector<std::vector<PromptPart>> ranks(static_cast<std::size_t>(world));
  std::vector<std::int64_t> tokens(ranks.size());
  for (const auto& part : parts) {
    const auto rank = std::ranges::min_element(tokens) - tokens.begin();
    tokens[static_cast<std::size_t>(rank)] += part.tokens;
    ranks[static_cast<std::size_t>(rank)].push_back(part);
  }
  return ranks;
}

// Puts parts, the longest first, into micro-batches: the fullest one that has room, or a new one.
RankShare fill_fully(const std::vector<PromptPart>& parts, std::int64_t budget) {
  RankShare share;
  for (const auto& part : parts) {
    TokenBatch* best = nullptr;
    for (auto& one : share)
      if (one.tokens.count_with(part.group) <= budget &&
          (best == nullptr || one.tokens.count() > best->tokens.count()))
        best = &one;
    if (best == nullptr) best = &share.emplace_back();
    best->add(part);
  }
  return share;
}

// The same with this many micro-batches, of about equal sizes: the emptiest one that has room.
// Empty if there is no room.
std::optional<RankShare> fill_evenly(const std::vector<PromptPart>& parts, std::int64_t budget,
                                     std::size_t count) {
  RankShare share(count);
  for (const auto& part : parts) {
    TokenBatch* best = nullptr;
    for (auto& one : share)
      if ((one.completions.empty() || one.tokens.count_with(part.group) <= budget) &&
          (best == nullptr || one.tokens.count() < best->tokens.count()))
        best = &one;
    if (best == nullptr) return {};
    best->add(part);
  }
  return share;
}

// The shares of all ranks, and how long the step takes with them.
struct TokenDeal {
  std::vector<RankShare> ranks;
  std::int64_t busiest = 0;  // tokens of the rank with most
  std::size_t micro_batches = 0;

  bool better_than(const TokenDeal& other) const {
    return std::pair(busiest, micro_batches) < std::pair(other.busiest, other.micro_batches);
  }
};

TokenDeal token_deal(const std::vector<PromptPart>& parts, int world, std::int64_t budget) {
  TokenDeal candidate;
  const auto by_rank = spread_parts(parts, world);
  for (const auto& own : by_rank) {
    candidate.ranks.push_back(fill_fully(own, budget));
    candidate.micro_batches = std::max(candidate.micro_batches, candidate.ranks.back().size());
  }
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    auto& share = candidate.ranks[rank];
    if (auto even = fill_evenly(by_rank[rank], budget, candidate.micro_batches))
      share = std::move(*even);
    share.resize(candidate.micro_batches);
    std::int64_t tokens = 0;
    for (const auto& one : share) tokens += one.tokens.count();
    candidate.busiest = std::max(candidate.busiest, tokens);
    // With ZeRO stage 3 the ranks compute them at the same time.
    std::ranges::stable_sort(share, std::ranges::greater(),
                             [](const TokenBatch& one) { return one.tokens.count(); });
  }
  return candidate;
}

std::uint32_t shortest_completion(TokenCosts costs) {
  const auto tokens = [](const CompletionCost& cost) { return LaidOutTokens().count_with(cost); };
  return static_cast<std::uint32_t>(std::ranges::min_element(costs, {}, tokens) - costs.begin());
}

}  // namespace

void GroupTokens::add(const CompletionCost& completion) {
  prompt = completion.prompt;
  prompt_tokens = completion.prompt_tokens;
  ++completions;
  tokens += completion.tokens;
  inputs += std::max<std::int64_t>(0, completion.tokens - 1);
}

bool pays_to_share(std::int64_t saved, std::int64_t all) {
  constexpr std::int64_t kLeastSaved = 16;  // one of so many tokens
  return saved > 0 && saved * kLeastSaved >= all;
}

bool LaidOutTokens::Sums::shares() const {
  return may_share && pays_to_share(saved, all);
}

LaidOutTokens::Sums LaidOutTokens::sums_with(const GroupTokens& group) const {
  auto sums = sums_;
  const auto prompts = group.completions * group.prompt_tokens;
  sums.all += prompts + group.tokens;
  sums.inputs += prompts + group.inputs;
  const bool is_there = prompts_.contains(group.prompt);
  sums.saved += (group.completions - (is_there ? 0 : 1)) * (group.prompt_tokens - 1);
  sums.may_share = sums.may_share && group.prompt_tokens >= 2;
  return sums;
}

void LaidOutTokens::add(const GroupTokens& group) {
  sums_ = sums_with(group);
  prompts_.insert(group.prompt);
}

void LaidOutTokens::add(const CompletionCost& completion) {
  GroupTokens one;
  one.add(completion);
  add(one);
}

std::int64_t LaidOutTokens::count_with(const CompletionCost& completion) const {
  GroupTokens one;
  one.add(completion);
  return count_with(one);
}

Assignments assign_tokens_to_ranks(TokenCosts completions, int world, std::int64_t most_tokens) {
  std::map<std::uint32_t, std::size_t> groups;
  std::size_t largest = 1;
  for (const auto& completion : completions)
    largest = std::max(largest, ++groups[completion.prompt]);
  std::optional<TokenDeal> best;
  for (auto most = largest; most > 0; most /= 2) {
    auto next = token_deal(prompt_parts(completions, most, most_tokens), world, most_tokens);
    if (!best || next.better_than(*best)) best = std::move(next);
  }
  Assignments ranks;
  for (const auto& share : best->ranks) {
    auto& micro_batches = ranks.emplace_back();
    for (const auto& one : share) {
      auto& assignments = micro_batches.emplace_back();
      for (const auto i : one.completions) assignments.push_back({i, true});
      if (assignments.empty() && !completions.empty())
        assignments.push_back({shortest_completion(completions), false});
    }
  }
  return ranks;
}

}  // namespace mgpu::grpo
