#include "runtime/grpo/group_assignment.hpp"

#include <map>
#include <set>
#include <vector>

#include "runtime/data/random.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::grpo;

namespace {

std::vector<CompletionCost> groups_of(std::uint32_t prompts, std::uint32_t group,
                                      std::int64_t prompt_tokens, std::int64_t tokens) {
  std::vector<CompletionCost> all;
  for (std::uint32_t i = 0; i < prompts * group; ++i)
    all.push_back({.prompt = i % prompts, .prompt_tokens = prompt_tokens, .tokens = tokens});
  return all;
}

// How many different prompts the micro-batches have, summed.
std::size_t prompts_computed(const Assignments& ranks, const std::vector<CompletionCost>& all) {
  std::size_t sum = 0;
  for (const auto& rank : ranks)
    for (const auto& micro_batch : rank) {
      std::set<std::uint32_t> prompts;
      for (const auto& one : micro_batch) prompts.insert(all[one.completion].prompt);
      sum += prompts.size();
    }
  return sum;
}

}  // namespace

TEST_CASE("keeping groups together deals every completion once and is never slower",
          "[group assignment]") {
  const int world = GENERATE(1, 2, 3, 8);
  const std::int64_t per_device = GENERATE(1, 2, 3, 5, 8, 16);
  const std::size_t count = GENERATE(1, 7, 24, 96);
  data::Random random({static_cast<std::uint64_t>(count), 5});
  std::vector<CompletionCost> all;
  std::map<std::uint32_t, std::int64_t> prompt_tokens;
  std::vector<double> alone;
  for (std::size_t i = 0; i < count; ++i) {
    const auto prompt = static_cast<std::uint32_t>(random.below(1 + count / 6));
    const auto [of_prompt, is_new] = prompt_tokens.emplace(prompt, 0);
    if (is_new) of_prompt->second = 1 + static_cast<std::int64_t>(random.below(300));
    all.push_back({prompt, of_prompt->second, static_cast<std::int64_t>(random.below(400))});
    alone.push_back(static_cast<double>(all[i].prompt_tokens + all[i].tokens));
  }
  const auto before = assign_to_ranks(alone, world, per_device);
  const auto ranks = assign_groups_to_ranks(all, world, per_device);
  CHECK(busiest_rank(ranks, all) <= busiest_rank(before, all));
  REQUIRE(ranks.size() == static_cast<std::size_t>(world));
  std::multiset<std::uint32_t> seen;
  for (const auto& rank : ranks) {
    REQUIRE(rank.size() == before.front().size());
    for (const auto& micro_batch : rank) {
      CHECK_FALSE(micro_batch.empty());
      CHECK(micro_batch.size() <= static_cast<std::size_t>(per_device));
      for (const auto& one : micro_batch)
        if (one.in_loss) seen.insert(one.completion);
    }
  }
  CHECK(seen.size() == count);
  CHECK(std::set(seen.begin(), seen.end()).size() == count);
}

TEST_CASE("groups that fit are computed with one prompt each", "[group assignment]") {
  const auto all = groups_of(32, 8, 256, 256);
  for (const int world : {1, 2, 4, 8}) {
    const auto ranks = assign_groups_to_ranks(all, world, 16);
    CHECK(prompts_computed(ranks, all) == 32);
    CHECK(busiest_rank(ranks, all) == 32.0 / world * (256 + 8 * 256));
  }
}

TEST_CASE("a group that would leave ranks without work is divided", "[group assignment]") {
  const auto all = groups_of(1, 8, 100, 300);
  const auto ranks = assign_groups_to_ranks(all, 4, 8);
  for (const auto& rank : ranks) {
    REQUIRE(rank.size() == 1);
    CHECK(rank[0].size() == 2);
  }
  CHECK(busiest_rank(ranks, all) == 100 + 2 * 300);
}

TEST_CASE("groups are divided to fill micro-batches that are no multiple of them",
          "[group assignment]") {
  const auto all = groups_of(4, 6, 100, 50);
  const auto ranks = assign_groups_to_ranks(all, 1, 8);
  REQUIRE(ranks[0].size() == 3);
  for (const auto& micro_batch : ranks[0]) CHECK(micro_batch.size() == 8);
  CHECK(prompts_computed(ranks, all) <= 6);
}
