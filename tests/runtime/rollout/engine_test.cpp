#include "runtime/rollout/engine.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <cmath>
#include <stdexcept>

#include "runtime/model/layout.hpp"
#include "tests/support/catch.hpp"

namespace {

using namespace mgpu;
using Catch::Matchers::Contains;
using rollout::Completion;

constexpr std::int64_t kVocabulary = 50;

model::ModelConfig small_config() {
  model::ModelConfig config;
  config.vocab_size = kVocabulary;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.max_position = 256;
  config.tied = true;
  return config;
}

// Random weights that are always available.
class Kept final : public model::WeightProvider {
 public:
  explicit Kept(const model::ModelConfig& c) {
    at::manual_seed(7);
    units_.resize(static_cast<std::size_t>(model::end_unit(c)) + 1);
    units_[model::kEmbeddingUnit].embedding = at::randn({c.vocab_size, c.hidden_size});
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      auto& block = units_[static_cast<std::size_t>(model::block_unit(layer))].block;
      block.input_norm = at::ones({c.hidden_size});
      block.post_norm = at::ones({c.hidden_size});
      block.qkv.weight = random((c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden_size);
      block.o.weight = random(c.hidden_size, c.heads * c.head_dim);
      block.gate_up.weight = random(2 * c.intermediate_size, c.hidden_size);
      block.down.weight = random(c.hidden_size, c.intermediate_size);
    }
    units_[static_cast<std::size_t>(model::end_unit(c))].last_norm =
        at::ones({c.hidden_size}).mul(.3);
  }

  const model::Unit& weights(int unit) override {
    return units_.at(static_cast<std::size_t>(unit));
  }
  void release(int) override {}
  void prefetch(int) override {}
  const model::Unit& gradients(int unit) override { return weights(unit); }
  void gradients_done(int) override {}

 private:
  static at::Tensor random(std::int64_t out, std::int64_t in) {
    return at::randn({out, in}).mul(1 / std::sqrt(static_cast<double>(in)));
  }

  std::vector<model::Unit> units_;
};

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
  CHECK(engine.counts().steps == 4 * bursts);
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

}  // namespace
