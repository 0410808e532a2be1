#include "runtime/rollout/engine.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "tests/runtime/rollout/small_model.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace mgpu;
using Catch::Matchers::Contains;
using rollout::Completion;
using rollout_test::Kept, rollout_test::kVocabulary, rollout_test::small_config;

constexpr std::int64_t kNew = 40;

// Prompts of 5, 16, 17 and 33 tokens, three completions each.
std::vector<rollout::Request> requests() {
  std::vector<rollout::Request> all;
  for (const int size : {5, 16, 17, 33}) {
    rollout::Request request;
    for (int i = 0; i < size; ++i) request.tokens.push_back((i * 7 + size) % kVocabulary);
    for (std::uint64_t i = 0; i < 3; ++i)
      request.seeds.push_back(100 * static_cast<std::uint64_t>(size) + i);
    all.push_back(std::move(request));
  }
  return all;
}

rollout::EngineOptions options() {
  return {.sequences = 12, .longest = 33 + kNew};
}

rollout::GenerationSettings settings() {
  rollout::GenerationSettings all;
  all.max_tokens = kNew;
  all.stop_tokens = {3, 4, 5, 6, 7};  // so that lengths differ
  return all;
}

using Completions = std::vector<std::vector<Completion>>;

Completions generate(const rollout::EngineOptions& options,
                     const rollout::GenerationSettings& settings) {
  const auto config = small_config();
  Kept kept(config);
  return rollout::Engine(config, options, kept).generate(requests(), settings);
}

void check_same(const Completions& ours, const Completions& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t p = 0; p < ours.size(); ++p) {
    REQUIRE(ours[p].size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(p, i);
      CHECK(ours[p][i].tokens == theirs[p][i].tokens);
      CHECK(ours[p][i].stop_reason == theirs[p][i].stop_reason);
      REQUIRE(ours[p][i].log_probs.size() == ours[p][i].tokens.size());
      for (std::size_t t = 0; t < ours[p][i].log_probs.size(); ++t)
        CHECK(std::abs(ours[p][i].log_probs[t] - theirs[p][i].log_probs[t]) < 1e-4);
    }
  }
}

TEST_CASE("the burst size does not change the completions", "[engine]") {
  auto changed = settings();
  changed.repetition_penalty = GENERATE(1.0, 1.3);
  const auto expected = generate(options(), changed);
  std::size_t early = 0;
  for (const auto& group : expected)
    for (const auto& one : group)
      early += one.stop_reason == rollout::StopReason::stop_token ? 1 : 0;
  CHECK(early > 2);  // sequences leave the batch at different times
  for (const std::int64_t burst : {3, 8, 64}) {
    CAPTURE(burst);
    auto several = options();
    several.burst = burst;
    several.sequences = 5;
    check_same(generate(several, changed), expected);
  }
}

TEST_CASE("sequences go on where the table of pages becomes wider", "[engine]") {
  const auto config = small_config();
  Kept kept(config);
  auto greedy = settings();
  greedy.sampling.temperature = 0;
  greedy.stop_tokens = {};
  rollout::Request request{.tokens = {}, .seeds = {1}};
  for (int i = 0; i < 2020; ++i) request.tokens.push_back((i * 7 + i / 50) % kVocabulary);
  const rollout::EngineOptions wide{
      .sequences = 2, .longest = 2020 + kNew, .burst = GENERATE(1, 8)};
  const auto whole = rollout::Engine(config, wide, kept).generate({requests()[0], request}, greedy);
  const auto& tokens = whole[1][0].tokens;
  REQUIRE(tokens.size() == kNew);
  // The same with the first half in the prompt, so that the table is wide from the beginning.
  request.tokens.insert(request.tokens.end(), tokens.begin(), tokens.begin() + kNew / 2);
  greedy.max_tokens = kNew / 2;
  const auto rest = rollout::Engine(config, wide, kept).generate({request}, greedy)[0][0];
  CHECK(rest.tokens == std::vector(tokens.begin() + kNew / 2, tokens.end()));
  for (std::size_t t = 0; t < rest.log_probs.size(); ++t)
    CHECK(std::abs(rest.log_probs[t] - whole[1][0].log_probs[t + kNew / 2]) < 1e-4);
}

TEST_CASE("a small cache makes sequences wait and changes nothing else", "[engine]") {
  auto small = options();
  small.pages = GENERATE(6, 9, 20);  // 33 + 40 tokens need six
  check_same(generate(small, settings()), generate(options(), settings()));
}

TEST_CASE("a cache that is too small for one sequence is an error", "[engine]") {
  auto small = options();
  small.pages = 5;
  CHECK_THROWS_WITH(generate(small, settings()), Contains("too small for one sequence"));
}

TEST_CASE("pages are released: an engine can generate repeatedly", "[engine]") {
  const auto config = small_config();
  Kept kept(config);
  auto small = options();
  small.pages = 6;
  rollout::Engine engine(config, small, kept);
  const auto first = engine.generate(requests(), settings());
  for (int i = 0; i < 3; ++i) check_same(engine.generate(requests(), settings()), first);
}

TEST_CASE("generation that is cancelled ends before the next burst and keeps no pages",
          "[engine]") {
  const auto config = small_config();
  Kept kept(config);
  auto small = options();
  small.pages = 9;
  small.burst = 4;
  rollout::Engine engine(config, small, kept);
  const auto expected = engine.generate(requests(), settings());
  auto cancelled = settings();
  const int bursts = GENERATE(0, 1, 5);
  int calls = 0;
  cancelled.cancelled = [&] { return calls++ == bursts; };
  CHECK(engine.generate(requests(), cancelled).empty());
  CHECK(calls == bursts + 1);
  CHECK(engine.counts().steps <= 4 * bursts);
  check_same(engine.generate(requests(), settings()), expected);
}

TEST_CASE("a prompt is reported once, before the next ones are generated", "[engine]") {
  const auto config = small_config();
  Kept kept(config);
  auto one = options();
  one.sequences = 1;
  rollout::Engine engine(config, one, kept);
  Completions reported;
  const auto all = engine.generate(
      requests(), settings(), [&](std::size_t request, const std::vector<Completion>& group) {
        CHECK(request == reported.size());
        CHECK(engine.counts().prompts == static_cast<std::int64_t>(request) + 1);
        reported.push_back(group);
      });
  check_same(reported, all);
}

TEST_CASE("a prompt is prefilled once for all its completions", "[engine]") {
  const auto config = small_config();
  Kept kept(config);
  auto few = options();
  few.sequences = 2;
  rollout::Engine engine(config, few, kept);
  std::int64_t tokens = 0;
  for (const auto& group : engine.generate(requests(), settings()))
    for (const auto& one : group) tokens += static_cast<std::int64_t>(one.tokens.size());
  CHECK(engine.counts().prompts == 4);
  CHECK(engine.counts().tokens == tokens);
}

TEST_CASE("prompts that are empty or too long are rejected by number", "[engine]") {
  const auto config = small_config();
  Kept kept(config);
  rollout::Engine engine(config, options(), kept);
  auto all = requests();
  all[2].tokens.clear();
  CHECK_THROWS_WITH(engine.generate(all, settings()), "prompt 2 is empty");
  all[2].tokens.assign(34, 1);
  CHECK_THROWS_WITH(engine.generate(all, settings()), Contains("prompt 2 has 34 tokens"));
  CHECK(engine.generate({}, settings()).empty());
}

constexpr std::int32_t kCatalogueEnd = 3;

using Item = rollout::AllowedSequences::Tokens;

// Completions of 1 to 20 tokens without the end token; some begin others.
std::vector<Item> catalogue() {
  std::vector<Item> all;
  for (std::int32_t i = 0; i < 24; ++i) {
    auto& one = all.emplace_back();
    for (std::int32_t n = 0; n <= i % 20; ++n) one.push_back(8 + (n < 3 ? i % 5 : i + n) % 40);
  }
  return all;
}

rollout::GenerationSettings allowing(const rollout::AllowedSequences& allowed) {
  auto all = settings();
  all.stop_tokens = {kCatalogueEnd};
  all.allowed = &allowed;
  return all;
}

auto with_end(Item tokens) {
  tokens.push_back(kCatalogueEnd);
  return tokens;
}

TEST_CASE("only allowed completions are generated, with the model's own log-probs", "[engine]") {
  const auto items = catalogue();
  const rollout::AllowedSequences allowed(items, kCatalogueEnd);
  auto few = options();
  few.burst = GENERATE(1, 8);
  few.sequences = 5;
  auto changed = allowing(allowed);
  changed.sampling = GENERATE(values<ops::Sampling>(
      {{}, {.temperature = 0}, {.temperature = .7, .top_k = 3}, {.top_p = .5, .min_p = .2}}));
  changed.repetition_penalty = GENERATE(1.0, 1.3);
  const auto config = small_config();
  Kept kept(config);
  const auto groups = rollout::Engine(config, few, kept).generate(requests(), changed);
  rollout::Engine alone(config, options(), kept);
  for (std::size_t p = 0; p < groups.size(); ++p)
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(p, i);
      const auto& one = groups[p][i];
      CHECK(one.stop_reason == rollout::StopReason::stop_token);
      REQUIRE(one.tokens.back() == kCatalogueEnd);
      auto item = one.tokens;
      item.pop_back();
      CHECK(std::find(items.begin(), items.end(), item) != items.end());
      // A catalogue of one item leaves no choice, but the item keeps its probability.
      const std::vector<Item> items_left{item};
      const rollout::AllowedSequences only(items_left, kCatalogueEnd);
      auto forced = allowing(only);
      forced.sampling.temperature = changed.sampling.temperature;
      const auto again = alone.generate({requests()[p]}, forced).front().front();
      CHECK(again.tokens == one.tokens);
      float sum = 0;
      for (std::size_t t = 0; t < one.log_probs.size(); ++t) {
        CHECK(std::abs(again.log_probs[t] - one.log_probs[t]) < 1e-4);
        sum += one.log_probs[t];
      }
      CHECK(sum < -.1F);
    }
}

std::vector<rollout::Request> with_completions(std::size_t count) {
  auto all = requests();
  for (auto& request : all) request.seeds.resize(count);
  return all;
}

TEST_CASE("as many beams as allowed completions find all of them, each with its probability",
          "[engine][beams]") {
  const auto items = catalogue();
  const rollout::AllowedSequences allowed(items, kCatalogueEnd);
  const auto count = allowed.size();
  auto changed = allowing(allowed);
  changed.beams = {.count = static_cast<std::int64_t>(count), .length_penalty = GENERATE(0., 1.)};
  auto many = options();
  many.sequences = static_cast<std::int64_t>(count);
  const auto config = small_config();
  Kept kept(config);
  rollout::Engine engine(config, many, kept), alone(config, options(), kept);
  const auto groups = engine.generate(with_completions(count), changed);
  for (std::size_t p = 0; p < groups.size(); ++p) {
    std::set<std::vector<std::int32_t>> expected, found;
    for (const auto& item : items) expected.insert(with_end(item));
    for (std::size_t i = 0; i < count; ++i) {
      CAPTURE(p, i);
      const auto& one = groups[p][i];
      found.insert(one.tokens);
      auto item = one.tokens;
      item.pop_back();
      const std::vector<Item> items_left{item};
      const rollout::AllowedSequences only(items_left, kCatalogueEnd);
      const auto forced = alone.generate({requests()[p]}, allowing(only)).front().front();
      double sum = 0;
      for (std::size_t t = 0; t < one.log_probs.size(); ++t) {
        CHECK(std::abs(forced.log_probs[t] - one.log_probs[t]) < 1e-4);
        sum += one.log_probs[t];
      }
      const auto length = static_cast<double>(one.tokens.size());
      CHECK(std::abs(one.score - sum / std::pow(length, changed.beams.length_penalty)) < 1e-3);
      if (i > 0) CHECK(one.score <= groups[p][i - 1].score);
    }
    CHECK(found == expected);
  }
}

void check_same_beams(const Completions& ours, const Completions& theirs) {
  check_same(ours, theirs);
  for (std::size_t p = 0; p < ours.size(); ++p)
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(std::abs(ours[p][i].score - theirs[p][i].score) < 1e-4);
}

TEST_CASE("the cache's size and other prompts do not change beams", "[engine][beams]") {
  const auto config = small_config();
  Kept kept(config);
  auto changed = settings();
  changed.beams.count = 4;
  const auto expected = rollout::Engine(config, options(), kept).generate(requests(), changed);
  auto small = options();
  SECTION("in a small cache, searches wait") {
    small.pages = 2 + 4 * 3;  // 33 + 40 tokens need five pages, of which the prompt fills two
    rollout::Engine engine(config, small, kept);
    // Pages are released, so it can generate repeatedly.
    for (int i = 0; i < 3; ++i) check_same_beams(engine.generate(requests(), changed), expected);
  }
  SECTION("prompts are prefilled in several passes") {
    small.prompt_tokens = 20;
    small.sequences = 16;
    check_same_beams(rollout::Engine(config, small, kept).generate(requests(), changed), expected);
  }
  SECTION("a cache that is too small for the beams of one prompt is an error") {
    small.pages = 2 + 4 * 3 - 1;
    CHECK_THROWS_WITH(rollout::Engine(config, small, kept).generate(requests(), changed),
                      "the KV cache is too small for 4 beams of a prompt with 33 tokens");
  }
  SECTION("a search that is cancelled releases its pages") {
    small.pages = 2 + 4 * 3;
    rollout::Engine engine(config, small, kept);
    const int steps = GENERATE(0, 1, 17);
    int calls = 0;
    auto cancelled = changed;
    cancelled.cancelled = [&] { return calls++ == steps; };
    CHECK(engine.generate(requests(), cancelled).empty());
    check_same_beams(engine.generate(requests(), changed), expected);
  }
  SECTION("a prompt is reported when its beams are complete") {
    rollout::Engine engine(config, options(), kept);
    Completions reported(4);
    engine.generate(requests(), changed, [&](std::size_t p, const std::vector<Completion>& group) {
      CHECK(reported[p].empty());
      reported[p] = group;
    });
    check_same_beams(reported, expected);
    CHECK(engine.counts().prompts == 4);
    CHECK(engine.counts().steps > 0);
  }
}

TEST_CASE("completions that cannot be found as beams are an error", "[engine][beams]") {
  const auto config = small_config();
  Kept kept(config);
  rollout::Engine engine(config, options(), kept);
  auto changed = settings();
  changed.beams.count = 2;
  CHECK_THROWS_WITH(engine.generate(requests(), changed),
                    "prompt 0: 3 completions are requested of 2 beams");
  // Three completions, but only two of their first tokens fit.
  const std::vector<Item> items{{8, 9}, {8, 10}, {11}};
  const rollout::AllowedSequences allowed(items, kCatalogueEnd);
  changed = allowing(allowed);
  changed.beams.count = 3;
  changed.max_tokens = 1;
  CHECK_THROWS_WITH(engine.generate(requests(), changed),
                    Contains("there are only 2 beams of at most 1 tokens"));
}

}  // namespace
