#include "runtime/grpo/token_budget.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "runtime/data/random.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::grpo;

namespace {

// Groups of ragged completions: most are short, a few are long.
std::vector<CompletionCost> ragged(std::size_t prompts, std::size_t group, std::uint64_t seed) {
  data::Random random({seed, 9});
  std::vector<CompletionCost> all;
  for (std::uint32_t prompt = 0; prompt < prompts; ++prompt) {
    const auto prompt_tokens = 1 + static_cast<std::int64_t>(random.below(200));
    for (std::size_t i = 0; i < group; ++i)
      all.push_back({prompt, prompt_tokens,
                     static_cast<std::int64_t>(random.below(random.below(8) == 0 ? 4000 : 300))});
  }
  return all;
}

std::int64_t tokens_of(const std::vector<Assignment>& micro_batch,
                       const std::vector<CompletionCost>& all) {
  LaidOutTokens tokens;
  for (const auto& one : micro_batch) tokens.add(all[one.completion]);
  return tokens.count();
}

// Of a rank, without what only fills micro-batches.
std::int64_t tokens_of_rank(const std::vector<std::vector<Assignment>>& rank,
                            const std::vector<CompletionCost>& all) {
  std::int64_t sum = 0;
  for (const auto& micro_batch : rank)
    if (micro_batch.front().in_loss) sum += tokens_of(micro_batch, all);
  return sum;
}

}  // namespace

TEST_CASE("a budget of tokens deals every completion once, in as many micro-batches on every rank",
          "[token budget]") {
  const int world = GENERATE(1, 2, 3, 8);
  const std::int64_t budget = GENERATE(1, 500, 2000, 8192, 1'000'000);
  const std::size_t prompts = GENERATE(1, 3, 16);
  const std::size_t group = GENERATE(1, 2, 8);
  CAPTURE(world, budget, prompts, group);
  const auto all = ragged(prompts, group, prompts + group);
  const auto ranks = assign_tokens_to_ranks(all, world, budget);
  CHECK((ranks == assign_tokens_to_ranks(all, world, budget)));
  REQUIRE(ranks.size() == static_cast<std::size_t>(world));
  std::multiset<std::uint32_t> seen;
  for (const auto& rank : ranks) {
    REQUIRE(rank.size() == ranks.front().size());
    std::int64_t last = budget + 1'000'000;
    for (const auto& micro_batch : rank) {
      REQUIRE_FALSE(micro_batch.empty());
      const auto tokens = tokens_of(micro_batch, all);
      CHECK((tokens <= budget || micro_batch.size() == 1));
      if (!micro_batch.front().in_loss) {
        CHECK(micro_batch.size() == 1);
        continue;
      }
      CHECK(tokens <= last);  // the largest ones first, on all ranks
      last = tokens;
      for (const auto& one : micro_batch) seen.insert(one.completion);
    }
  }
  CHECK(seen.size() == all.size());
  CHECK(std::set(seen.begin(), seen.end()).size() == all.size());
}

TEST_CASE("the ranks get about equal numbers of tokens, however long one completion is",
          "[token budget]") {
  const int world = GENERATE(2, 4);
  auto all = ragged(16, 8, 3);
  all[5].tokens = 20'000;
  const auto ranks = assign_tokens_to_ranks(all, world, 8192);
  std::int64_t most = 0, sum = 0, longest = 0;
  for (const auto& one : all) longest = std::max(longest, LaidOutTokens().count_with(one));
  for (const auto& rank : ranks) {
    const auto tokens = tokens_of_rank(rank, all);
    most = std::max(most, tokens);
    sum += tokens;
  }
  CHECK(static_cast<double>(most) <=
        std::max(1.05 * static_cast<double>(sum) / world, static_cast<double>(longest)));
  // With equal numbers of completions the rank with the long one is the busiest by far.
  const auto equal = assign_groups_to_ranks(all, world, 8);
  std::int64_t busiest = 0;
  for (const auto& rank : equal) busiest = std::max(busiest, tokens_of_rank(rank, all));
  CHECK(most <= busiest);
}

TEST_CASE("a budget needs few micro-batches, and they are about equally full", "[token budget]") {
  std::vector<CompletionCost> all;
  for (std::uint32_t i = 0; i < 64; ++i)
    all.push_back({.prompt = i / 8, .prompt_tokens = 101, .tokens = 101});
  // A group of 8 has 100 + 8 x 101 tokens, so two of them fit, and two ranks need two
  // micro-batches.
  const auto ranks = assign_tokens_to_ranks(all, 2, 2 * (100 + 8 * 101));
  for (const auto& rank : ranks) {
    REQUIRE(rank.size() == 2);
    for (const auto& micro_batch : rank) CHECK(tokens_of(micro_batch, all) == 2 * (100 + 8 * 101));
  }
  const auto whole = assign_tokens_to_ranks(all, 1, 1'000'000);
  REQUIRE(whole.front().size() == 1);
  CHECK(tokens_of(whole.front().front(), all) == 8 * (100 + 8 * 101));
}

TEST_CASE("a group of more than the budget is divided, and prompts count in each part",
          "[token budget]") {
  std::vector<CompletionCost> all;
  for (std::uint32_t i = 0; i < 8; ++i)
    all.push_back({.prompt = 0, .prompt_tokens = 101, .tokens = 101});
  const auto ranks = assign_tokens_to_ranks(all, 1, 100 + 3 * 101);
  REQUIRE(ranks.front().size() == 3);
  for (const auto& micro_batch : ranks.front()) CHECK(tokens_of(micro_batch, all) <= 100 + 3 * 101);
  CHECK(tokens_of_rank(ranks.front(), all) == 3 * 100 + 8 * 101);
}

TEST_CASE("thousands of completions are dealt evenly by tokens", "[token budget]") {
  const auto all = ragged(512, 8, 1);
  const auto ranks = assign_tokens_to_ranks(all, 8, 16'384);
  std::int64_t most = 0, sum = 0;
  for (const auto& rank : ranks) {
    most = std::max(most, tokens_of_rank(rank, all));
    sum += tokens_of_rank(rank, all);
  }
  CHECK(static_cast<double>(most) <= 1.01 * static_cast<double>(sum) / 8);
}

TEST_CASE("completions without a token are dealt by tokens too", "[token budget]") {
  const std::vector<CompletionCost> all(5, {.prompt = 3, .prompt_tokens = 4, .tokens = 0});
  const auto ranks = assign_tokens_to_ranks(all, 2, 100);
  std::set<std::uint32_t> seen;
  for (const auto& rank : ranks) {
    REQUIRE(rank.size() == 1);
    for (const auto& one : rank.front())
      if (one.in_loss) seen.insert(one.completion);
  }
  CHECK(seen.size() == 5);
}
