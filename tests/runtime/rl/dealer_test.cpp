#include "runtime/rl/dealer.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/rl/policy_loss.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::rl;

namespace {

constexpr std::int64_t kGroup = 4, kGeneration = 8;

grpo::GenerationPlan plan_of(std::int64_t step, int world, std::int64_t per_device) {
  std::vector<std::uint32_t> all(4);
  std::iota(all.begin(), all.end(), 0U);
  return {{.per_device = per_device,
           .ranks = world,
           .group = kGroup,
           .step = step,
           .generation = kGeneration,
           .iterations = 1,
           .notes = {}},
          {{.examples = all, .weight = 1}},
          1,
          true};
}

std::vector<Prompt> some_prompts() {
  std::vector<Prompt> prompts(4);
  for (std::size_t i = 0; i < prompts.size(); ++i) prompts[i].tokens.assign(i + 1, 5);
  return prompts;
}

// Completion i has i + 1 tokens and the advantage of its place in `advantages`.
Generation generation_of(std::int64_t number, const std::vector<double>& advantages) {
  Generation generation{.number = number, .completions = {}, .metrics = {}};
  for (std::size_t i = 0; i < advantages.size(); ++i) {
    ScoredCompletion completion;
    completion.prompt = static_cast<std::uint32_t>(i / kGroup);
    completion.tokens.assign(i + 1, 7);
    completion.terminated = true;
    completion.advantage = advantages[i];
    generation.completions.push_back(std::move(completion));
  }
  return generation;
}

Dealer::Generations generations_of(const std::vector<double>& first,
                                   const std::vector<double>& second) {
  Dealer::Generations generations;
  generations.emplace(0, generation_of(0, first));
  generations.emplace(1, generation_of(1, second));
  return generations;
}

struct Dealt {
  std::vector<Deal> ranks;

  std::size_t micro_batches() const { return ranks.front().micro_batches.size(); }
};

// What every rank gets of step 0.
Dealt deal_to_all(const Dealer::Generations& generations, std::int64_t step,
                  Dealer::Options options) {
  const auto plan = plan_of(step, options.world, options.per_device);
  Dealt dealt;
  for (options.rank = 0; options.rank < options.world; ++options.rank)
    dealt.ranks.push_back(Dealer(plan, options).deal(plan.at(0), generations, some_prompts()));
  return dealt;
}

const std::vector<double> kEvery(kGeneration, 1), kNone(kGeneration, 0);

}  // namespace

TEST_CASE("every completion of a step is dealt once, in as many micro-batches on every rank",
          "[dealer]") {
  const int world = GENERATE(1, 2, 3, 5);
  const std::int64_t per_device = GENERATE(1, 2, 8);
  const auto generations = generations_of(kEvery, kEvery);
  const auto dealt =
      deal_to_all(generations, 2 * kGeneration, {.world = world, .per_device = per_device});
  std::multiset<const ScoredCompletion*> seen;
  for (const auto& rank : dealt.ranks) {
    REQUIRE(rank.micro_batches.size() == dealt.micro_batches());
    CHECK_FALSE(rank.skipped);
    for (std::size_t i = 0; i < rank.micro_batches.size(); ++i) {
      const auto& micro_batch = rank.micro_batches[i];
      CHECK(micro_batch.number == i);
      CHECK_FALSE(micro_batch.skipped);
      CHECK_FALSE(micro_batch.entries.empty());
      CHECK(micro_batch.entries.size() <= static_cast<std::size_t>(per_device));
      for (const auto& entry : micro_batch.entries)
        if (entry.in_loss) seen.insert(entry.completion);
    }
  }
  std::multiset<const ScoredCompletion*> all;
  for (const auto& [number, generation] : generations)
    for (const auto& completion : generation.completions) all.insert(&completion);
  CHECK(seen == all);
}

TEST_CASE("a micro-batch has completions of one generation and its denominators", "[dealer]") {
  auto generations = generations_of(kEvery, kEvery);
  for (auto& completion : generations.at(1).completions) completion.tokens.assign(10, 7);
  const auto dealt = deal_to_all(generations, 2 * kGeneration,
                                 {.world = 2, .per_device = 2, .max_completion_length = 99});
  REQUIRE(dealt.micro_batches() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& micro_batch = dealt.ranks[1].micro_batches[i];
    const auto& own = generations.at(i < 2 ? 0 : 1).completions;
    for (const auto& entry : micro_batch.entries)
      CHECK((entry.completion >= &own.front() && entry.completion <= &own.back()));
    const grpo::Denominators expected{.completions = 16,
                                      .tokens = 36 + 80,
                                      .micro_batches = 8,
                                      .generation_completions = 8,
                                      .generation_tokens = i < 2 ? 36 : 80,
                                      .max_completion_length = 99};
    CHECK((micro_batch.denominators == expected));
  }
}

TEST_CASE("truncated completions are in the loss unless they are masked", "[dealer]") {
  auto generations = generations_of(kEvery, kEvery);
  generations.at(0).completions[7].terminated = false;
  const bool masks = GENERATE(false, true);
  const auto dealt = deal_to_all(generations, kGeneration,
                                 {.world = 1, .per_device = 8, .masks_truncated = masks});
  const auto& micro_batch = dealt.ranks[0].micro_batches.at(0);
  for (const auto& entry : micro_batch.entries)
    CHECK(entry.in_loss == (!masks || entry.completion->terminated));
  CHECK(micro_batch.denominators.tokens == (masks ? 28 : 36));
  CHECK(micro_batch.denominators.completions == 8);
}

TEST_CASE("completions without an advantage take no place in the micro-batches to train on",
          "[dealer]") {
  // Dealt with the others, they kept nearly every micro-batch from being skipped.
  const auto generations = generations_of({0, 1, 0, 0, 0, 0, -2, 0}, {0, 0, 0, 3, 0, 0, 0, 0});
  const int world = GENERATE(1, 2, 3);
  const std::int64_t per_device = GENERATE(1, 2, 3);
  const bool together = GENERATE(false, true);
  Dealer::Options options{.world = world,
                          .per_device = per_device,
                          .max_completion_length = 99,
                          .skips_without_advantage = true,
                          .skips_together = together};
  const auto dealt = deal_to_all(generations, 2 * kGeneration, options);
  options.skips_without_advantage = false;
  const auto plain = deal_to_all(generations, 2 * kGeneration, options);
  const auto& first = plain.ranks[0].micro_batches;
  std::multiset<const ScoredCompletion*> trained, measured;
  std::int64_t computed = 0;
  for (const auto& rank : dealt.ranks) {
    REQUIRE(rank.micro_batches.size() == dealt.micro_batches());
    REQUIRE(rank.measured.size() == dealt.ranks[0].measured.size());
    for (const auto* list : {&rank.micro_batches, &rank.measured})
      for (const auto& micro_batch : *list) {
        CHECK(micro_batch.entries.size() <= static_cast<std::size_t>(per_device));
        const auto same = std::ranges::find(first, micro_batch.number, &MicroBatch::number);
        REQUIRE(same != first.end());
        CHECK((micro_batch.denominators == same->denominators));
        bool has_own = false;
        for (const auto& entry : micro_batch.entries) {
          has_own = has_own || entry.in_loss;
          if (entry.in_loss) (list == &rank.measured ? measured : trained).insert(entry.completion);
        }
        CHECK(micro_batch.skipped == (!has_own && !together));
        computed += list == &rank.micro_batches && !micro_batch.skipped ? 1 : 0;
      }
  }
  std::multiset<const ScoredCompletion*> with, without;
  for (const auto& [number, generation] : generations)
    for (const auto& completion : generation.completions)
      (completion.advantage != 0 ? with : without).insert(&completion);
  CHECK(trained == with);
  CHECK(measured == without);
  for (const auto& rank : dealt.ranks)
    CHECK(rank.skipped == static_cast<std::int64_t>(first.size()) * world - computed);
  if (world == 1 && per_device == 2) CHECK(dealt.ranks[0].skipped == 8 - 2);
}

TEST_CASE("masked completions without an advantage are not even measured", "[dealer]") {
  auto generations = generations_of({0, 1, 0, 1, 0, 1, 0, 1}, kNone);
  for (const std::size_t i : {0, 1}) generations.at(0).completions[i].terminated = false;
  const auto dealt = deal_to_all(
      generations, kGeneration,
      {.world = 1, .per_device = 8, .masks_truncated = true, .skips_without_advantage = true});
  REQUIRE(dealt.ranks[0].measured.size() == 1);
  CHECK(dealt.ranks[0].measured[0].entries.size() == 3);
  CHECK(dealt.ranks[0].micro_batches.at(0).entries.size() == 3);
  CHECK(dealt.ranks[0].micro_batches.at(0).denominators.tokens == 36 - 3);
}

TEST_CASE("micro-batches without an advantage are skipped on request", "[dealer]") {
  const bool together = GENERATE(false, true);
  const Dealer::Options options{
      .world = 2, .per_device = 2, .skips_without_advantage = true, .skips_together = together};

  SECTION("not if all completions have one") {
    const auto dealt = deal_to_all(generations_of(kEvery, kEvery), kGeneration, options);
    CHECK(dealt.ranks[0].skipped == 0);
    CHECK(dealt.ranks[0].measured.empty());
    CHECK(dealt.micro_batches() == 2);
  }
  SECTION("those of a generation in which nobody has one are left out") {
    const auto dealt = deal_to_all(generations_of(kNone, kEvery), 2 * kGeneration, options);
    for (const auto& rank : dealt.ranks) {
      CHECK(rank.skipped == 4);
      REQUIRE(rank.micro_batches.size() == 2);
      CHECK(rank.micro_batches[0].number == 2);
      CHECK_FALSE(rank.micro_batches[0].skipped);
    }
  }
  SECTION("one of a step without any advantage remains, and no rank computes it") {
    const auto dealt = deal_to_all(generations_of(kNone, kEvery), kGeneration, options);
    for (const auto& rank : dealt.ranks) {
      CHECK(rank.skipped == 4);
      REQUIRE(rank.micro_batches.size() == 1);
      CHECK(rank.micro_batches[0].skipped);
    }
  }
  SECTION("a rank skips its part alone unless the others need its weights") {
    auto one = kNone;
    one[3] = 1;
    const auto dealt = deal_to_all(generations_of(one, kEvery), kGeneration, options);
    REQUIRE(dealt.micro_batches() == 1);
    int computed = 0;
    for (const auto& rank : dealt.ranks) {
      CHECK(rank.skipped == (together ? 2 : 3));
      const auto& micro_batch = rank.micro_batches[0];
      const bool has = std::ranges::any_of(micro_batch.entries, [](const BatchEntry& entry) {
        return entry.in_loss && entry.completion->advantage != 0;
      });
      CHECK(micro_batch.skipped == (!has && !together));
      computed += micro_batch.skipped ? 0 : 1;
    }
    CHECK(computed == (together ? 2 : 1));
  }
}

TEST_CASE("with a budget of tokens, micro-batches have completions that fit into it", "[dealer]") {
  auto generations = generations_of(kEvery, kEvery);
  generations.at(1).completions[2].tokens.assign(100, 7);
  const int world = GENERATE(1, 2, 3);
  const std::int64_t budget = GENERATE(1, 12, 30, 1000);
  const bool together = GENERATE(false, true);
  CAPTURE(world, budget, together);
  const auto prompts = some_prompts();
  const auto dealt = deal_to_all(generations, 2 * kGeneration,
                                 {.world = world,
                                  .per_device = 2,
                                  .micro_batch_tokens = budget,
                                  .keeps_groups = true,
                                  .skips_together = together});
  std::multiset<const ScoredCompletion*> seen;
  for (const auto& rank : dealt.ranks) {
    REQUIRE(rank.micro_batches.size() == dealt.micro_batches());
    CHECK_FALSE(rank.skipped);
    for (std::size_t i = 0; i < rank.micro_batches.size(); ++i) {
      const auto& micro_batch = rank.micro_batches[i];
      CHECK(micro_batch.number == i);
      const auto laid_out = batch_of(micro_batch.entries, prompts);
      const auto own = std::ranges::count(micro_batch.entries, true, &BatchEntry::in_loss);
      CHECK((static_cast<std::int64_t>(laid_out.tokens.size()) <= budget ||
             micro_batch.entries.size() == 1));
      CHECK(micro_batch.skipped == (own == 0 && !together));
      CHECK(micro_batch.denominators.completions == 16);
      for (const auto& entry : micro_batch.entries)
        if (entry.in_loss) seen.insert(entry.completion);
    }
  }
  CHECK(seen.size() == 16);
  CHECK(std::set(seen.begin(), seen.end()).size() == 16);
  if (budget == 1000) CHECK(dealt.micro_batches() == 2);  // one of each generation
}

TEST_CASE("with a budget of tokens, completions without an advantage are only measured",
          "[dealer]") {
  const auto generations = generations_of({0, 1, 0, 0, 0, 0, -2, 0}, {0, 0, 0, 3, 0, 0, 0, 0});
  const int world = GENERATE(1, 2);
  const auto dealt = deal_to_all(generations, 2 * kGeneration,
                                 {.world = world,
                                  .per_device = 2,
                                  .micro_batch_tokens = 8,
                                  .keeps_groups = true,
                                  .skips_without_advantage = true});
  std::size_t trained = 0, measured = 0;
  std::set<std::size_t> numbers;
  for (const auto& rank : dealt.ranks) {
    REQUIRE(rank.skipped);
    CHECK(*rank.skipped > 0);
    for (const auto& micro_batch : rank.micro_batches) {
      trained += static_cast<std::size_t>(
          std::ranges::count(micro_batch.entries, true, &BatchEntry::in_loss));
      numbers.insert(micro_batch.number);
    }
    for (const auto& micro_batch : rank.measured)
      measured += static_cast<std::size_t>(
          std::ranges::count(micro_batch.entries, true, &BatchEntry::in_loss));
  }
  CHECK(numbers.size() == dealt.micro_batches());
  CHECK(trained == 3);
  CHECK(measured == 13);
}

TEST_CASE("the pieces of a micro-batch have each completion in the loss once", "[dealer]") {
  const std::size_t count = GENERATE(1, 2, 3, 5, 8);
  const std::size_t pieces = GENERATE(1, 2, 4, 8);
  CAPTURE(count, pieces);
  const auto generation = generation_of(0, kEvery);
  MicroBatch whole{.number = 3, .entries = {}, .denominators = {}};
  for (std::size_t i = 0; i < count; ++i)
    whole.entries.push_back({&generation.completions[i], i != 1});
  std::vector<const ScoredCompletion*> expected, found;
  for (const auto& entry : whole.entries)
    if (entry.in_loss) expected.push_back(entry.completion);
  std::set<std::size_t> numbers;
  for (std::size_t number = 0; number < pieces; ++number) {
    const auto piece = piece_of(whole, number, pieces);
    REQUIRE_FALSE(piece.entries.empty());
    CHECK(piece.entries.size() <= (count + pieces - 1) / pieces);
    numbers.insert(piece.number);
    for (const auto& entry : piece.entries)
      if (entry.in_loss) found.push_back(entry.completion);
  }
  CHECK(found == expected);
  CHECK(numbers.size() == pieces);
}

TEST_CASE("a skipped micro-batch has skipped pieces", "[dealer]") {
  const MicroBatch skipped{.number = 0, .entries = {}, .denominators = {}, .skipped = true};
  for (const std::size_t number : {0, 1}) {
    CHECK(piece_of(skipped, number, 2).skipped);
    CHECK(piece_of(skipped, number, 2).entries.empty());
  }
}
