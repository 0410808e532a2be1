#include "runtime/rollout/beams.hpp"

#include <cmath>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

using namespace mgpu::rollout;
using Tokens = std::vector<std::int32_t>;
using enum BeamSettings::EarlyStopping;

constexpr std::int32_t kStop = 0;

GenerationSettings beam_settings(std::int64_t count, double length_penalty = 0) {
  GenerationSettings settings;
  settings.max_tokens = 8;
  settings.stop_tokens = {kStop};
  settings.beams = {.count = count, .length_penalty = length_penalty};
  return settings;
}

std::vector<Tokens> tokens_of(const std::vector<Completion>& completions) {
  std::vector<Tokens> all;
  for (const auto& one : completions) all.push_back(one.tokens);
  return all;
}

TEST_CASE("the best continuations of all beams become the next beams", "[beams]") {
  const auto settings = beam_settings(2);
  Beams beams(settings);
  REQUIRE(beams.running().size() == 1);
  beams.advance({{0, 1, -1}, {0, 2, -.5}, {0, 3, -2}});
  REQUIRE(beams.running().size() == 2);
  CHECK(beams.running()[0].token == 2);
  CHECK(beams.running()[1].token == 1);
  beams.advance({{0, 5, -2}, {0, 6, -3}, {1, 7, -.1F}, {1, 8, -.2F}});
  REQUIRE(beams.running().size() == 2);
  CHECK(beams.running()[0].token == 7);
  CHECK(beams.running()[1].token == 8);
  CHECK(beams.running()[0].parent == 1);
  CHECK(beams.running()[1].parent == 1);
  CHECK(beams.length() == 2);
  SECTION("their completions are the paths to them") {
    beams.advance({{0, kStop, -1}, {1, kStop, -.5}});
    CHECK(beams.done());
    CHECK(tokens_of(beams.completions()) == std::vector<Tokens>{{1, 8, kStop}, {1, 7, kStop}});
    const auto best = beams.completions().front();
    CHECK(best.log_probs == std::vector<float>{-1, -.2F, -.5});
    CHECK(std::abs(best.score - -1.7F) < 1e-6F);
    CHECK(best.stop_reason == StopReason::stop_token);
  }
}

TEST_CASE("a beam that ends makes place for the next best one", "[beams]") {
  const auto settings = beam_settings(2);
  Beams beams(settings);
  beams.advance({{0, kStop, -.1F}, {0, 2, -.5}, {0, 3, -1}, {0, 4, -2}});
  REQUIRE(beams.running().size() == 2);
  CHECK(beams.running()[1].token == 3);
  CHECK(tokens_of(beams.completions()) == std::vector<Tokens>{{kStop}});
}

TEST_CASE("an end that is not among the best candidates is dropped", "[beams]") {
  const auto settings = beam_settings(2);
  Beams beams(settings);
  beams.advance({{0, 2, -.5}, {0, 3, -1}, {0, kStop, -1.5}});
  CHECK(beams.running().size() == 2);
  CHECK(beams.completions().empty());
}

TEST_CASE("the search goes on only while a beam can become better than the complete ones",
          "[beams]") {
  struct Case {
    BeamSettings::EarlyStopping early;
    double length_penalty;
    float running;  // the sum of its log-probs after two tokens; the complete ones have -1 and -2
    bool done;
  };
  const auto [early, length_penalty, running, done] = GENERATE(values<Case>({
      {no, 0, -1.5, false},
      {no, 0, -2.5, true},
      {yes, 0, -1.5, true},
      {never, 0, -2.5, true},
      {no, 1, -3, false},     // -1.5 per token
      {no, 1, -5, true},      // -2.5 per token
      {never, 1, -5, false},  // at the most -0.625 per token of eight
      {never, 1, -17, true},  // below -2 per token
  }));
  CAPTURE(static_cast<int>(early), length_penalty, running);
  auto settings = beam_settings(2, length_penalty);
  settings.beams.early_stopping = early;
  Beams beams(settings);
  beams.advance({{0, 1, -.1F}, {0, kStop, -1}});
  CHECK_FALSE(beams.done());
  const float tokens = length_penalty > 0 ? 2 : 1;  // so that the worse end has the score -2
  beams.advance({{0, kStop, -2 * tokens + .1F}, {0, 5, running + .1F}});
  REQUIRE(beams.completions().size() == 2);
  CHECK(std::abs(beams.completions().back().score - -2) < 1e-6F);
  CHECK(beams.done() == done);
}

TEST_CASE("the length penalty divides the score by a power of the length", "[beams]") {
  const double penalty = GENERATE(-1.0, 0.0, .5, 1.0, 2.0);
  const auto settings = beam_settings(1, penalty);
  Beams beams(settings);
  beams.advance({{0, 1, -1}});
  beams.advance({{0, 2, -1}});
  beams.advance({{0, kStop, -2}});
  REQUIRE(beams.completions().size() == 1);
  CHECK(std::abs(beams.completions().front().score + 4 / std::pow(3.0, penalty)) < 1e-5);
}

TEST_CASE("the maximum length completes all beams", "[beams]") {
  auto settings = beam_settings(3);
  settings.max_tokens = 2;
  Beams beams(settings);
  beams.advance({{0, 1, -1}, {0, 2, -2}, {0, 3, -3}});
  CHECK_FALSE(beams.done());
  beams.advance({{0, 4, -1}, {1, 4, -1}, {2, 4, -1}});
  CHECK(beams.done());
  const auto all = beams.completions();
  CHECK(tokens_of(all) == std::vector<Tokens>{{1, 4}, {2, 4}, {3, 4}});
  for (const auto& one : all) CHECK(one.stop_reason == StopReason::length);
}

TEST_CASE("one beam is greedy: it stops at the first stop token", "[beams]") {
  const auto settings = beam_settings(1);
  Beams beams(settings);
  beams.advance({{0, kStop, -.6F}, {0, 2, -.9F}});
  CHECK(beams.done());
  CHECK(tokens_of(beams.completions()) == std::vector<Tokens>{{kStop}});
}

TEST_CASE("beams know which tokens are allowed after them", "[beams]") {
  const std::vector<Tokens> items{{1, 2}, {1, 3}, {4, 5}};
  const AllowedSequences allowed(items, kStop);
  auto settings = beam_settings(2);
  settings.allowed = &allowed;
  Beams beams(settings);
  beams.advance({{0, 1, -1}, {0, 4, -2}});
  const auto allowed_after = [&](std::size_t beam) {
    const auto tokens = allowed.next(beams.running()[beam].node);
    return Tokens(tokens.begin(), tokens.end());
  };
  CHECK(allowed_after(0) == Tokens{2, 3});
  CHECK(allowed_after(1) == Tokens{5});
}

TEST_CASE("settings that cannot work are rejected", "[beams]") {
  const std::vector<Tokens> items{{1, 2}, {1, 3}};
  const AllowedSequences allowed(items, kStop);
  auto settings = beam_settings(2);
  settings.allowed = &allowed;
  CHECK_NOTHROW(check_settings(settings, 4));
  using Catch::Matchers::Contains;
  SECTION("more beams than completions") {
    settings.beams.count = 3;
    CHECK_THROWS_WITH(check_settings(settings, 4),
                      "3 beams are requested, but only 2 different completions are allowed");
  }
  SECTION("tokens that the model does not have") {
    CHECK_THROWS_WITH(check_settings(settings, 3),
                      Contains("contains the token 3, but the model's vocabulary has 3 tokens"));
  }
  SECTION("an end token at which generation does not stop") {
    settings.stop_tokens = {5};
    CHECK_THROWS_WITH(check_settings(settings, 9), Contains("end token 0 of the allowed"));
  }
  SECTION("a stop token within a completion") {
    settings.stop_tokens = {kStop, 3};
    CHECK_THROWS_WITH(check_settings(settings, 9), Contains("contains the stop token 3"));
  }
  SECTION("beams with a repetition penalty") {
    settings.repetition_penalty = 1.5;
    CHECK_THROWS_WITH(check_settings(settings, 9), Contains("repetition penalty"));
  }
}

}  // namespace
