#include "runtime/grpo/generation_plan.hpp"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/data/random.hpp"
#include "runtime/grpo/loss.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::grpo;
using Catch::Matchers::Contains;

namespace {

std::vector<data::Selection> prompts_of(std::uint32_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0U);
  return {{.examples = all, .weight = 1}};
}

train::GenerationSizes sizes(std::int64_t step, std::int64_t generation,
                             std::int64_t iterations = 1) {
  return {.per_device = 2,
          .ranks = 1,
          .group = 4,
          .step = step,
          .generation = generation,
          .iterations = iterations,
          .notes = {}};
}

}  // namespace

TEST_CASE("every completion is used once per iteration", "[plan]") {
  struct Case {
    std::int64_t step, generation, iterations;
  };
  const auto [step, generation, iterations] = GENERATE(values<Case>(
      {{8, 8, 1}, {8, 32, 1}, {32, 8, 1}, {12, 16, 1}, {12, 16, 3}, {64, 16, 2}, {4, 16, 2}}));
  CAPTURE(step, generation, iterations);
  const GenerationPlan plan(sizes(step, generation, iterations), prompts_of(50), 1, true);
  CHECK(plan.generations_in_epoch() == 50 / (generation / 4));
  std::vector<int> seen(static_cast<std::size_t>(2 * plan.generations_in_epoch() * generation), 0);
  for (std::int64_t k = 0; k < 2 * plan.steps_in_epoch(); ++k) {
    const auto got = plan.at(k);
    CHECK(got.epoch == k / plan.steps_in_epoch());
    CHECK((got.completions() == step || got.index + 1 == plan.steps_in_epoch()));
    for (const auto& part : got.parts)
      for (std::int64_t i = 0; i < part.count; ++i) {
        auto& times = seen[static_cast<std::size_t>(part.generation * generation + part.first + i)];
        CHECK(times++ == part.pass);
      }
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [&](int times) { return times == iterations; }));
}

TEST_CASE("a run that stops within a generation needs the generation saved", "[plan]") {
  const GenerationPlan plan(sizes(8, 16, 2), prompts_of(8), 1, true);
  // Four steps a generation: two in each pass.
  CHECK((plan.at(2).parts == std::vector<StepPart>{{0, 1, 0, 8}}));
  CHECK((plan.at(5).parts == std::vector<StepPart>{{1, 0, 8, 8}}));
  CHECK_FALSE(plan.pending(0));
  CHECK(plan.pending(1) == 0);
  CHECK(plan.pending(2) == 0);
  CHECK(plan.pending(3) == 0);
  CHECK_FALSE(plan.pending(4));
  CHECK(plan.pending(7) == 1);
  const GenerationPlan merged(sizes(32, 16), prompts_of(32), 1, true);
  for (std::int64_t k = 0; k < 4; ++k) CHECK_FALSE(merged.pending(k));
  CHECK((merged.at(1).parts == std::vector<StepPart>{{2, 0, 0, 16}, {3, 0, 0, 16}}));
}

TEST_CASE("an epoch uses each prompt once, without the last incomplete generation", "[plan]") {
  GenerationPlan plan(sizes(8, 16), prompts_of(30), 5, true);
  REQUIRE(plan.generations_in_epoch() == 7);
  std::vector<std::vector<std::uint32_t>> epochs;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    auto& all = epochs.emplace_back();
    for (std::int64_t g = 0; g < 7; ++g)
      for (const auto prompt : plan.prompts(epoch * 7 + g)) all.push_back(prompt);
    CHECK(std::set(all.begin(), all.end()).size() == 28);
  }
  CHECK(epochs[0] != epochs[1]);
  // Resuming: the plan gives the same answers in any order and at another world size.
  GenerationPlan other(sizes(24, 16), prompts_of(30), 5, true);
  CHECK(other.prompts(9) == plan.prompts(9));
  CHECK(other.prompts(2) == plan.prompts(2));
  CHECK(other.order(2) == plan.order(2));
}

TEST_CASE("a generation is shuffled by seed and generation number", "[plan]") {
  const GenerationPlan plan(sizes(8, 16), prompts_of(30), 5, true);
  auto order = plan.order(3);
  CHECK(order != plan.order(4));
  CHECK(order != GenerationPlan(sizes(8, 16), prompts_of(30), 6, true).order(3));
  CHECK(order == plan.order(3));
  std::sort(order.begin(), order.end());
  for (std::uint32_t i = 0; i < 16; ++i) CHECK(order[i] == i);
}

TEST_CASE("the number of steps follows from the number of epochs", "[plan]") {
  const GenerationPlan plan(sizes(12, 16), prompts_of(30), 5, true);
  CHECK(plan.steps_in_epoch() == 10);  // 112 completions
  CHECK(plan.at(9).completions() == 4);
  CHECK(plan.total_steps(1) == 10);
  CHECK(plan.total_steps(2.5) == 25);
  CHECK(plan.total_steps(.01) == 1);
  CHECK(plan.epochs_after(0) == .1);
  CHECK(plan.epochs_after(9) == 1);
  CHECK(plan.epochs_after(14) == 1.5);
}

TEST_CASE("denominators cover the step and the generation", "[plan]") {
  auto shape = sizes(12, 16);
  shape.ranks = 3;
  const GenerationPlan plan(shape, prompts_of(8), 5, true);
  // Generation 0 has 1 token in each completion but one that is masked; generation 1 has 10.
  std::vector<std::int64_t> first(16, 1), second(16, 10);
  const auto masked = plan.order(0)[13];
  first[masked] = 0;
  const auto token_counts = [&](std::int64_t generation) {
    return std::span<const std::int64_t>(generation == 0 ? first : second);
  };
  const auto step = plan.at(1);  // 4 of the one, 8 of the other
  REQUIRE(step.parts.size() == 2);
  const Denominators expected{.completions = 12,
                              .tokens = 3 + 80,
                              .micro_batches = 3 + 6,
                              .generation_completions = 16,
                              .generation_tokens = 15,
                              .max_completion_length = 99};
  CHECK((plan.denominators(step, step.parts[0], token_counts, 99) == expected));
  CHECK(plan.denominators(step, step.parts[1], token_counts, 99).generation_tokens == 160);
  CHECK(plan.denominators(step, step.parts[1], token_counts, 99).trl_tokens() == 160.0 * 12 / 16);
}

TEST_CASE("fewer prompts than a generation needs are rejected", "[plan]") {
  CHECK_THROWS_WITH(GenerationPlan(sizes(16, 16), prompts_of(3), 1, true),
                    Contains("there are 3 prompts to train on, but a generation needs 4"));
}

TEST_CASE("the numbers of prompts per rank differ by at most one", "[plan]") {
  data::Random random({4});
  for (int world = 1; world <= 9; ++world)
    for (std::size_t prompts = 1; prompts <= 20; ++prompts) {
      std::vector<std::int64_t> lengths;
      for (std::size_t i = 0; i < prompts; ++i)
        lengths.push_back(static_cast<std::int64_t>(1 + random.below(500)));
      std::vector<int> times(prompts, 0);
      for (const auto& rank : spread_prompts(lengths, world)) {
        CHECK(std::is_sorted(rank.begin(), rank.end()));
        const auto least = prompts / static_cast<std::size_t>(world);
        CHECK((rank.size() == least || rank.size() == least + 1));
        for (const auto prompt : rank) ++times[static_cast<std::size_t>(prompt)];
      }
      CHECK(times == std::vector<int>(prompts, 1));
    }
}

TEST_CASE("long prompts are distributed over ranks", "[plan]") {
  const std::vector<std::int64_t> lengths{900, 800, 700, 600, 40, 30, 20, 10};
  const auto ranks = spread_prompts(lengths, 2);
  CHECK(ranks == std::vector<std::vector<std::int64_t>>{{0, 3, 4, 7}, {1, 2, 5, 6}});
}

TEST_CASE("each completion is assigned once, and no micro-batch is empty", "[plan]") {
  const int world = GENERATE(1, 2, 3, 4, 5);
  const std::int64_t per_device = GENERATE(1, 2, 3, 8);
  data::Random random({9});
  std::vector<double> costs;
  for (int i = 0; i < 16; ++i) costs.push_back(double(1 + random.below(500)));
  const auto ranks = assign_to_ranks(costs, world, per_device);
  REQUIRE(ranks.size() == static_cast<std::size_t>(world));
  std::vector<int> times(16, 0);
  const auto slots = world * per_device;
  for (const auto& rank : ranks) {
    CHECK(rank.size() == static_cast<std::size_t>((16 + slots - 1) / slots));
    for (const auto& micro : rank) {
      CHECK_FALSE(micro.empty());
      CHECK(micro.size() <= static_cast<std::size_t>(per_device));
      for (const auto& assignment : micro)
        times[assignment.completion] += assignment.in_loss ? 1 : 0;
    }
  }
  CHECK(times == std::vector<int>(16, 1));
}

TEST_CASE("long and short completions are distributed so that ranks have equal tokens", "[plan]") {
  std::vector<double> costs;
  for (int i = 0; i < 32; ++i) costs.push_back(i < 8 ? 1000 : 100);
  const auto ranks = assign_to_ranks(costs, 4, 4);
  for (const auto& rank : ranks) {
    double tokens = 0;
    for (const auto& micro : rank)
      for (const auto& assignment : micro) tokens += costs[assignment.completion];
    CHECK(tokens == 2600);
  }
}

TEST_CASE("the same completions give the same update at any world size", "[plan]") {
  // 3 groups of 8, of which some have no token and some are masked.
  using train::ImportanceLevel;
  using train::LossType;
  const auto type = GENERATE(LossType::grpo, LossType::dr_grpo, LossType::dapo, LossType::cispo,
                             LossType::sapo, LossType::luspo, LossType::vespo);
  const auto level = GENERATE(ImportanceLevel::token, ImportanceLevel::sequence);
  data::Random random({4});
  std::vector<double> lengths;
  std::vector<Tensor> now, old, reference;
  LossSettings settings{.type = type, .level = level, .beta = .05, .entropy_coef = .01};
  settings.epsilon_high = 2;
  Denominators by{.completions = 24, .max_completion_length = 12};
  for (std::uint32_t i = 0; i < 24; ++i) {
    const auto length = static_cast<std::int64_t>(random.below(13));
    lengths.push_back(double(length));
    const auto numbers = [&] { return at::randn({length}, at::kDouble).abs_().neg_(); };
    now.push_back(numbers());
    old.push_back(numbers());
    reference.push_back(numbers());
    by.tokens += i % 7 == 0 ? 0 : length;
  }
  const auto update = [&](int world) {
    std::vector<Tensor> gradients(24);
    for (const auto& rank : assign_to_ranks(lengths, world, 2))
      for (const auto& micro : rank) {
        std::vector<Tensor> lp, op, rp;
        std::vector<std::int64_t> sequence;
        std::vector<double> advantages, weights;
        for (const auto& assignment : micro) {
          const auto c = assignment.completion;
          lp.push_back(now[c]);
          op.push_back(old[c]);
          rp.push_back(reference[c]);
          sequence.insert(sequence.end(), static_cast<std::size_t>(lengths[c]),
                          static_cast<std::int64_t>(weights.size()));
          advantages.push_back(double(c % 5) - 2);
          weights.push_back(assignment.in_loss && c % 7 != 0 ? 1 : 0);
        }
        const auto got = loss({.log_probs = at::cat(lp),
                               .entropies = at::cat(lp).neg(),
                               .old_log_probs = at::cat(op),
                               .ref_log_probs = at::cat(rp),
                               .sampler_log_probs = {},
                               .sequence = at::tensor(sequence, at::kLong),
                               .advantages = at::tensor(advantages, at::kDouble),
                               .weights = at::tensor(weights, at::kDouble),
                               .entropy_threshold = {}},
                              settings, by);
        std::int64_t at_token = 0;
        for (const auto& assignment : micro) {
          const auto length = static_cast<std::int64_t>(lengths[assignment.completion]);
          const auto part = got.log_prob_gradient.narrow(0, at_token, length);
          auto& sum = gradients[assignment.completion];
          sum = sum.defined() ? sum.add(part) : part;
          at_token += length;
        }
      }
    return at::cat(gradients);
  };
  const auto one = update(1);
  CHECK(one.abs().sum().item<double>() > 0);
  for (const int world : {2, 3, 4, 5}) CHECK(at::allclose(update(world), one, 1e-12, 1e-15));
}
