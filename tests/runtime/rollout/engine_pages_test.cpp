#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/rollout/engine.hpp"
#include "runtime/rollout/length_estimate.hpp"
#include "tests/runtime/rollout/compare_completions.hpp"
#include "tests/runtime/rollout/small_model.hpp"
#include "tests/support/catch.hpp"

// An engine whose cache has fewer pages than all sequences need at their maximum length.
namespace {

using namespace mgpu;
using rollout::LengthEstimate;

std::vector<rollout::Request> requests_of(std::size_t prompts, std::size_t tokens,
                                          std::size_t completions) {
  std::vector<rollout::Request> all(prompts);
  for (std::size_t p = 0; p < prompts; ++p) {
    for (std::size_t i = 0; i < tokens; ++i)
      all[p].tokens.push_back(static_cast<std::int32_t>((i * 7 + p * 3) % 50));
    for (std::size_t i = 0; i < completions; ++i) all[p].seeds.push_back(1000 * p + i);
  }
  return all;
}

// A call of an engine.
struct Run {
  std::vector<std::vector<rollout::Completion>> completions;
  rollout::Engine::Counts counts;
};

Run run(const rollout::EngineOptions& options, const rollout::GenerationSettings& settings,
        const std::vector<rollout::Request>& requests, int calls = 1) {
  auto config = rollout_test::small_config();
  config.layers = 1;
  config.vocab_size = 256;
  rollout_test::Kept kept(config);
  rollout::Engine engine(config, options, kept);
  while (--calls > 0) engine.generate(requests, settings);
  auto completions = engine.generate(requests, settings);
  return {std::move(completions), engine.counts()};
}

void check_same(const Run& ours, const Run& theirs) {
  rollout_test::check_near(ours.completions, theirs.completions);
}

}  // namespace

TEST_CASE("the expected length begins at a quarter and follows what is generated",
          "[engine][pages]") {
  LengthEstimate estimate(800);
  CHECK(estimate.value() == 200);
  SECTION("it grows while no completion ends, up to the maximum") {
    for (int i = 0; i < 400; ++i) estimate.add_token();
    CHECK(estimate.value() == 300);
    for (int i = 0; i < 10000; ++i) estimate.add_token();
    CHECK(estimate.value() == 800);
  }
  SECTION("it becomes the mean of the completions that ended") {
    for (int i = 0; i < 1000; ++i) {
      for (int n = 0; n < 50; ++n) estimate.add_token();
      estimate.add_end();
    }
    CHECK(estimate.value() == 50);
  }
  SECTION("it is at least one token") {
    CHECK(LengthEstimate(1).value() == 1);
    CHECK(LengthEstimate(0).value() == 1);
  }
}

TEST_CASE("sequences that were set aside go on as if they had not been", "[engine][pages]") {
  rollout::GenerationSettings settings;
  settings.max_tokens = 90;
  settings.stop_tokens = GENERATE(std::vector<std::int32_t>{}, std::vector<std::int32_t>{3, 4, 5});
  settings.repetition_penalty = settings.stop_tokens.empty() ? 1.3 : 1.0;
  const auto requests = requests_of(5, GENERATE(16, 21), 4);
  rollout::EngineOptions options{.sequences = 16, .longest = 21 + 90};
  options.burst = GENERATE(1, 5);
  const auto expected = run(options, settings, requests);
  CHECK(expected.counts.computed_again == 0);
  CHECK(expected.counts.prompts == 5);
  options.pages = GENERATE(9, 40);                       // of 16 tokens; one sequence needs up to 9
  const auto got = run(options, settings, requests, 2);  // all pages were released
  check_same(got, expected);
  if (settings.stop_tokens.empty()) CHECK(got.counts.computed_again > 0);
  CHECK(got.counts.tokens == expected.counts.tokens);
}

TEST_CASE("far more completions run at a time than would at their maximum length",
          "[engine][pages]") {
  rollout::GenerationSettings settings;
  settings.max_tokens = 2048;
  settings.stop_tokens = {3};
  settings.sampling.temperature =
      20;  // about equal probabilities: lengths of 256 tokens on average
  const auto requests = requests_of(100, 16, 4);
  constexpr std::int64_t kFit = 8, kPagesOfOne = (16 + 2048) / 16 + 2;
  const auto got = run({.sequences = 256, .longest = 16 + 2048, .pages = kFit * kPagesOfOne},
                       settings, requests);
  std::int64_t longest = 0;
  for (const auto& group : got.completions)
    for (const auto& one : group)
      longest = std::max(longest, static_cast<std::int64_t>(one.tokens.size()));
  const double mean = static_cast<double>(got.counts.tokens) / 400;
  const double running = static_cast<double>(got.counts.rows_while_waiting) /
                         static_cast<double>(got.counts.steps_while_waiting);
  const double again = static_cast<double>(got.counts.computed_again) /
                       static_cast<double>(got.counts.tokens + got.counts.prompt_tokens);
  CAPTURE(mean, longest, running, again);
  CHECK(mean > 200);
  CHECK(mean < 300);
  CHECK(longest > 1000);
  CHECK(got.counts.steps_while_waiting < got.counts.steps);
  CHECK(running > 5 * kFit);
  CHECK(again < .05);
}
