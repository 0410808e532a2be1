#include "launcher/lifecycle/restart_policy.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using History = std::vector<FailedAttempt>;

TEST_CASE("retryable failures use all restarts", "[restart_policy]") {
  const auto kind =
      GENERATE(Cause::Kind::exit_status, Cause::Kind::signal, Cause::Kind::python_exception,
               Cause::Kind::host_oom, Cause::Kind::host_oom_guess, Cause::Kind::gpu_oom);
  History history;
  for (int restart = 0; restart < 3; ++restart) {
    history.push_back({kind, 1ms});
    CHECK(decide_restart(history, {.max_restarts = 3}).restart);
  }
  history.push_back({kind, 1ms});
  CHECK_FALSE(decide_restart(history, {.max_restarts = 3}).restart);
}

TEST_CASE("without restarts the first failure ends the job", "[restart_policy]") {
  CHECK_FALSE(decide_restart({{Cause::Kind::signal, 1ms}}, {}).restart);
}

TEST_CASE("a cause that is not retryable ends the job if it repeats at the start",
          "[restart_policy]") {
  const auto kind = GENERATE(Cause::Kind::exec_failure, Cause::Kind::usage,
                             Cause::Kind::import_error, Cause::Kind::syntax_error);
  const RestartLimits limits{.max_restarts = 9};
  CHECK(decide_restart({{kind, 1s}}, limits).restart);
  const auto second = decide_restart({{kind, 1s}, {kind, 1s}}, limits);
  CHECK_FALSE(second.restart);
  CHECK_FALSE(second.why.empty());
  SECTION("but not if it came late") {
    CHECK(decide_restart({{kind, 1s}, {kind, 6s}}, limits).restart);
    CHECK(decide_restart({{kind, 6s}, {kind, 1s}}, limits).restart);
  }
  SECTION("nor if another cause came between") {
    CHECK(decide_restart({{kind, 1s}, {Cause::Kind::signal, 1s}}, limits).restart);
  }
}

TEST_CASE("the first restart is immediate and the delay doubles for later ones",
          "[restart_policy]") {
  const RestartLimits limits{.max_restarts = 100, .retry_delay = 2s};
  History history;
  std::vector<std::chrono::milliseconds> delays;
  for (int i = 0; i < 9; ++i) {
    history.push_back({Cause::Kind::exit_status, 10s});
    delays.push_back(decide_restart(history, limits).delay);
  }
  CHECK(delays == std::vector<std::chrono::milliseconds>{0s, 2s, 4s, 8s, 16s, 32s, 60s, 60s, 60s});
}

TEST_CASE("with renewal only restarts without a new step count", "[restart_policy]") {
  const RestartLimits limits{.max_restarts = 2, .retry_delay = 2s, .renewed_by_progress = true};
  History history;
  const auto after = [&](std::int64_t last_step) {
    history.push_back({Cause::Kind::signal, 10s, last_step});
    return decide_restart(history, limits);
  };
  CHECK(after(20).counted == 0);
  SECTION("a month of failures, each after some new steps, ends nothing") {
    for (std::int64_t step = 21; step < 300; ++step) {
      const auto decision = after(step);
      CHECK(decision.restart);
      CHECK(decision.delay == 0s);
    }
  }
  SECTION("the same step again is no progress") {
    CHECK(after(20).counted == 1);
    CHECK(after(7).delay == 2s);
    CHECK(after(21).counted == 0);
    CHECK(after(21).counted == 1);
    CHECK(after(-1).counted == 2);
    CHECK_FALSE(after(21).restart);
  }
  SECTION("and neither is a failure before the first step") {
    History none{{Cause::Kind::signal, 10s}};
    CHECK(decide_restart(none, limits).counted == 1);
    CHECK(decide_restart(none, limits, 1).restart);
    CHECK_FALSE(decide_restart(none, limits, 2).restart);
  }
}

TEST_CASE("failures before a lost leader count against the limit", "[restart_policy]") {
  const RestartLimits limits{.max_restarts = 3, .retry_delay = 2s};
  CHECK(decide_restart({{Cause::Kind::signal, 1ms}}, limits, 1).delay == 2s);
  CHECK(decide_restart({{Cause::Kind::signal, 1ms}}, limits, 2).restart);
  CHECK_FALSE(decide_restart({{Cause::Kind::signal, 1ms}}, limits, 3).restart);
  CHECK_FALSE(decide_restart({{Cause::Kind::signal, 1ms}}, limits, 1'000'000'000).restart);
  SECTION("and do not count as repetitions of a cause") {
    CHECK(decide_restart({{Cause::Kind::usage, 1ms}}, limits, 1).restart);
  }
}
