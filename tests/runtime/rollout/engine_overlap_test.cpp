#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/rollout/engine.hpp"
#include "tests/runtime/rollout/compare_completions.hpp"
#include "tests/runtime/rollout/small_model.hpp"
#include "tests/support/catch.hpp"

// An engine that queues a burst while the host examines the one before. A CPU computes at once, but
// the engine decides as on a GPU.
namespace {

using namespace mgpu;
using rollout::StopReason;
using rollout_test::kVocabulary;

// Four prompts of 5 to 38 tokens, three completions each.
std::vector<rollout::Request> prompts() {
  std::vector<rollout::Request> all;
  for (const int size : {5, 16, 17, 38}) {
    auto& request = all.emplace_back();
    for (int i = 0; i < size; ++i) request.tokens.push_back((i * 11 + size) % kVocabulary);
    for (std::uint64_t i = 0; i < 3; ++i)
      request.seeds.push_back(10 * static_cast<std::uint64_t>(size) + i);
  }
  return all;
}

struct Outcome {
  std::vector<std::vector<rollout::Completion>> completions;
  rollout::Engine::Counts counts;
};

Outcome outcome_of(rollout::EngineOptions options, const rollout::GenerationSettings& settings) {
  auto config = rollout_test::small_config();
  config.layers = 1;
  rollout_test::Kept kept(config);
  options.longest = 38 + settings.max_tokens;
  rollout::Engine engine(config, options, kept);
  auto completions = engine.generate(prompts(), settings);
  return {std::move(completions), engine.counts()};
}

void check_equal(const Outcome& ours, const Outcome& theirs) {
  CHECK(ours.counts.tokens == theirs.counts.tokens);
  rollout_test::check_near(ours.completions, theirs.completions);
}

struct Case {
  std::string name;
  std::vector<std::int32_t> stops;  // few, so that most completions are long
  double penalty = 1;
  std::int64_t sequences = 12;
  std::int64_t pages = 0;
};

TEST_CASE("queueing a burst while another is examined changes no completion", "[engine][overlap]") {
  const auto one = GENERATE(values<Case>({
      {"all end at the maximum length", {}},
      {"sequences end within bursts", {3, 4, 5}},
      {"earlier tokens are penalised", {3, 4, 5}, 1.3},
      {"there are more sequences than rows", {3, 4, 5}, 1.0, 5},
      {"there are more sequences than rows, and a penalty", {3, 4, 5}, 1.3, 5},
      {"one row", {3, 4, 5}, 1.0, 1},
      {"prompts wait for pages", {3, 4, 5}, 1.0, 12, 20},
      {"sequences are set aside", {}, 1.3, 12, 12},
  }));
  CAPTURE(one.name);
  rollout::GenerationSettings settings;
  settings.max_tokens = 67;
  settings.stop_tokens = one.stops;
  settings.repetition_penalty = one.penalty;
  const rollout::EngineOptions plain{.sequences = 12};
  const auto expected = outcome_of(plain, settings);
  CHECK(expected.counts.queued_behind == 0);  // bursts are single steps
  if (!one.stops.empty()) {
    int early = 0;
    for (const auto& group : expected.completions)
      for (const auto& completion : group)
        early += completion.stop_reason == StopReason::stop_token ? 1 : 0;
    CHECK(early > 0);
  }
  for (const std::int64_t burst : {2, 8}) {
    CAPTURE(burst);
    const rollout::EngineOptions options{
        .sequences = one.sequences, .pages = one.pages, .burst = burst};
    const auto ours = outcome_of(options, settings);
    check_equal(ours, expected);
    CHECK(ours.counts.queued_behind > 0);
    auto waiting = options;
    waiting.overlap = false;
    const auto theirs = outcome_of(waiting, settings);
    check_equal(theirs, expected);
    CHECK(theirs.counts.queued_behind == 0);
    if (one.pages == 12) CHECK(ours.counts.computed_again > 0);
  }
}

TEST_CASE("with a known end, no step is queued behind it", "[engine][overlap]") {
  rollout::GenerationSettings settings;
  settings.max_tokens = GENERATE(17, 20, 21, 40);  // the first token is that of the prefill pass
  const auto ours = outcome_of({.sequences = 12, .burst = 4}, settings);
  CHECK(ours.counts.queued_behind > 0);
  CHECK(ours.counts.steps == settings.max_tokens - 1);
  CHECK(ours.counts.rows == 12 * (settings.max_tokens - 1));
}

TEST_CASE("at most half a burst is computed after a sequence's unknown end", "[engine][overlap]") {
  rollout::GenerationSettings settings;
  settings.max_tokens = 60;
  settings.stop_tokens = {3, 4, 5};
  const auto ours = outcome_of({.sequences = 12, .burst = 4}, settings);
  const auto steps = ours.counts.tokens - 12;  // without those that prefill passes sample
  CHECK(ours.counts.rows > steps);
  CHECK(ours.counts.rows <= steps + 12 * 3);  // one after the end in its burst, two in the next
}

TEST_CASE("short completions are not computed beyond their end", "[engine][overlap]") {
  rollout::GenerationSettings settings;
  settings.max_tokens = 60;
  settings.sampling.temperature = 20;  // about equal probabilities
  for (std::int32_t token = 0; token < kVocabulary / 2; ++token)
    settings.stop_tokens.push_back(token);
  const auto ours = outcome_of({.sequences = 12, .burst = 8}, settings);
  CHECK(ours.counts.tokens < 12 * 8);
  CHECK(ours.counts.queued_behind == 0);
}

TEST_CASE("allowed sequences are examined after every step", "[engine][overlap]") {
  const std::vector<rollout::AllowedSequences::Tokens> items{
      {8, 9, 10, 11, 12}, {8, 9, 13}, {20, 21, 22, 23, 24, 25, 26, 27, 28}, {20, 8}};
  const rollout::AllowedSequences allowed(items, 3);
  rollout::GenerationSettings settings;
  settings.max_tokens = 40;
  settings.stop_tokens = {3};
  settings.allowed = &allowed;
  settings.repetition_penalty = GENERATE(1.0, 1.3);
  const auto expected = outcome_of({.sequences = 12}, settings);
  const auto ours = outcome_of({.sequences = 5, .burst = 8}, settings);
  check_equal(ours, expected);
  CHECK(ours.counts.queued_behind == 0);
}

TEST_CASE("cancellation while a burst is queued keeps no pages", "[engine][overlap]") {
  auto config = rollout_test::small_config();
  rollout_test::Kept kept(config);
  rollout::GenerationSettings settings;
  settings.max_tokens = 60;
  settings.stop_tokens = {3, 4, 5};
  rollout::Engine engine(config, {.sequences = 12, .longest = 98, .burst = 2}, kept);
  const auto expected = engine.generate(prompts(), settings);
  auto cancelled = settings;
  int calls = 0;
  cancelled.cancelled = [&] { return ++calls == 4; };
  for (int i = 0; i < 3; ++i) {
    calls = 0;
    CHECK(engine.generate(prompts(), cancelled).empty());
    CHECK(engine.counts().queued_behind > 0);
  }
  const auto again = engine.generate(prompts(), settings);
  for (std::size_t p = 0; p < expected.size(); ++p)
    for (std::size_t i = 0; i < expected[p].size(); ++i)
      CHECK(again[p][i].tokens == expected[p][i].tokens);
}

TEST_CASE("an exception while a burst is queued waits for it", "[engine][overlap]") {
  const auto config = rollout_test::small_config();
  rollout_test::Kept kept(config);
  rollout::GenerationSettings settings;
  settings.max_tokens = 60;
  settings.stop_tokens = {3, 4, 5};
  {
    rollout::Engine engine(config, {.sequences = 12, .longest = 98, .burst = 2}, kept);
    CHECK_THROWS_WITH(engine.generate(prompts(), settings,
                                      [](std::size_t, const auto&) {
                                        throw std::runtime_error("the caller has failed");
                                      }),
                      "the caller has failed");
    CHECK(engine.counts().queued_behind > 0);
  }
  const auto expected = outcome_of({.sequences = 12}, settings);
  check_equal(outcome_of({.sequences = 12, .burst = 2}, settings), expected);
}

}  // namespace
