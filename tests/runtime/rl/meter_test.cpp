#include "runtime/rl/meter.hpp"

#include <cmath>

#include "tests/support/catch.hpp"

using namespace mgpu::rl;

namespace {

Meter::Step step_of(std::int64_t step, bool skipped = false) {
  return {.step = step,
          .total_steps = 9,
          .epoch = static_cast<double>(step) / 4,
          .learning_rate = 1e-3,
          .grad_norm = static_cast<double>(step),
          .comm_seconds = .5,
          .flops = 7e12,
          .completions = 8,
          .tokens = 100,
          .skipped = skipped,
          .rank_memory = {step << 30, 2LL << 30}};
}

ScoredCompletion completion_of_length(std::size_t tokens, bool terminated) {
  ScoredCompletion completion;
  completion.tokens.resize(tokens);
  completion.terminated = terminated;
  return completion;
}

}  // namespace

TEST_CASE("an interval has the sums of its steps and the mean of every metric", "[meter]") {
  Meter meter;
  meter.add({{"reward", 1}, {"loss", .5}});
  meter.add_step(step_of(1));
  meter.add({{"reward", 2}, {"kl", std::nan("")}, {"loss", 1.5}});
  meter.add_step(step_of(2));
  const auto report = meter.take_interval(777);
  REQUIRE(report);
  const auto& interval = report->interval;
  CHECK(interval.step == 2);
  CHECK(interval.total_steps == 9);
  CHECK(interval.epoch == .5);
  CHECK(interval.grad_norm == 2);
  CHECK(interval.steps == 2);
  CHECK(interval.comm_seconds == 1);
  CHECK(interval.flops == 14e12);
  CHECK(interval.rank_memory == std::vector<std::int64_t>{2LL << 30, 2LL << 30});
  CHECK(interval.examples == 16);
  CHECK(interval.target_tokens == 200);
  CHECK(interval.tokens == 200);
  CHECK(interval.loss == 1);
  CHECK(interval.extra == std::map<std::string, double>{{"reward", 1.5}, {"num_tokens", 777}});
}

TEST_CASE("an interval begins empty after the last one", "[meter]") {
  Meter meter;
  meter.add({{"reward", 1}, {"loss", 3}});
  meter.add_step(step_of(1));
  REQUIRE(meter.take_interval(1));
  CHECK_FALSE(meter.take_interval(1));
  meter.add({{"loss", 1}});
  meter.add_step(step_of(2));
  const auto second = meter.take_interval(5);
  REQUIRE(second);
  CHECK(second->interval.steps == 1);
  CHECK(second->interval.loss == 1);
  CHECK_FALSE(second->interval.extra.contains("reward"));

  SECTION("and the whole run has all of them") {
    const auto run = meter.whole_run();
    CHECK(run.step == 2);
    CHECK(run.steps == 2);
    CHECK(run.examples == 16);
    CHECK(run.loss == 2);
  }
}

TEST_CASE("reward, divergence and length are shown first and are in the summary", "[meter]") {
  Meter meter;
  meter.add({{"reward", 1}, {"completions/mean_length", 7}, {"entropy", 2}});
  meter.add({{"kl", .25}});
  meter.add_step(step_of(1));
  const auto first = meter.take_interval(1);
  REQUIRE(first);
  using Highlights = std::vector<std::pair<std::string, double>>;
  CHECK(first->interval.highlights == Highlights{{"reward", 1}, {"kl", .25}, {"length", 7}});
  meter.add({{"reward", 2}, {"completions/mean_length", 8}});
  meter.add({{"kl", .75}});
  meter.add_step(step_of(2));
  REQUIRE(meter.take_interval(1));
  meter.add_step(step_of(3));  // trains on the completions of step 2
  const auto third = meter.take_interval(1);
  REQUIRE(third);
  CHECK(third->interval.highlights.empty());
  CHECK(meter.whole_run().extra ==
        std::map<std::string, double>{{"train_reward", 1.5},
                                      {"train_kl", .5},
                                      {"train_completions/mean_length", 7.5},
                                      {"final_reward", 2}});
}

TEST_CASE("skipped steps do not count in the mean loss of the run", "[meter]") {
  Meter meter;
  meter.add({{"loss", 3}});
  meter.add_step(step_of(1));
  meter.add_step(step_of(2, true));
  const auto first = meter.take_interval(1);
  REQUIRE(first);
  CHECK(first->interval.skipped == 1);
  CHECK(first->interval.loss == 3);
  meter.add_step(step_of(3, true));
  const auto second = meter.take_interval(1);
  REQUIRE(second);
  CHECK(std::isnan(*second->interval.loss));
  CHECK(meter.whole_run().loss == 3);
  CHECK(meter.whole_run().skipped == 2);
}

TEST_CASE("a run without steps has loss 0", "[meter]") {
  CHECK(Meter().whole_run().loss == 0);
}

TEST_CASE("a warning is repeated only after its metric was healthy again", "[meter]") {
  HealthWatch watch;
  CHECK(watch.warnings({{"kl", .1}}).empty());
  const auto first = watch.warnings({{"kl", .7}});
  REQUIRE(first.size() == 1);
  CHECK(first[0].starts_with("warning: kl is 0.7; "));
  CHECK(watch.warnings({{"kl", .8}}).empty());
  CHECK(watch.warnings({{"kl", .2}}).empty());
  CHECK(watch.warnings({{"kl", .9}}).size() == 1);
}

TEST_CASE("lengths are measured over all completions and over those that ended by themselves",
          "[meter]") {
  const auto metrics = length_metrics({completion_of_length(2, true), completion_of_length(4, true),
                                       completion_of_length(9, false)});
  CHECK(metrics.at("completions/mean_length") == 5);
  CHECK(metrics.at("completions/min_length") == 2);
  CHECK(metrics.at("completions/max_length") == 9);
  CHECK(metrics.at("completions/mean_terminated_length") == 3);
  CHECK(metrics.at("completions/max_terminated_length") == 4);
  CHECK(metrics.at("completions/clipped_ratio") == Approx(1. / 3));
  CHECK(length_metrics({}).empty());
  CHECK_FALSE(length_metrics({completion_of_length(3, false)})
                  .contains("completions/mean_terminated_length"));
}
