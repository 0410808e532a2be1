#include "launcher/lifecycle/restart_policy.hpp"

#include "launcher/lifecycle/diagnosis.hpp"

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

TEST_CASE("progress resets the delay, also where it renews no restarts", "[restart_policy]") {
  const RestartLimits limits{.max_restarts = 100, .retry_delay = 2s};
  History history;
  const auto delay_after = [&](std::int64_t last_step) {
    history.push_back({Cause::Kind::signal, 10s, last_step});
    return decide_restart(history, limits).delay;
  };
  for (const std::int64_t step : {20, 21, 30, 55}) CHECK(delay_after(step) == 0s);
  CHECK(delay_after(55) == 0s);
  CHECK(delay_after(41) == 2s);
  CHECK(delay_after(-1) == 4s);
  CHECK(delay_after(56) == 0s);
  CHECK(decide_restart(history, limits).counted == 8);
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

TEST_CASE("a program that certainly fails again before its first step is not restarted",
          "[restart_policy]") {
  const auto kind =
      GENERATE(Cause::Kind::usage, Cause::Kind::import_error, Cause::Kind::syntax_error);
  const FailedAttempt certain{.cause = kind, .lasted = 20s, .certain = true};
  RestartLimits limits{.max_restarts = 9};
  const auto decision = decide_restart({certain}, limits);
  CHECK_FALSE(decision.restart);
  CHECK(decision.policy == FailurePolicy::give_up);
  CHECK(decision.why == "not restarted: " + std::string(name_of(kind)) +
                            " before the first step; a restart would not help (--on-failure " +
                            std::string(name_of(kind)) + "=restart restarts anyway)");

  SECTION("but it is after a step, or late") {
    auto other = certain;
    other.last_step = 3;
    CHECK(decide_restart({other}, limits).restart);
    other = certain;
    other.lasted = 61s;
    CHECK(decide_restart({other}, limits).restart);
  }
  SECTION("and if the user wants it to be, as often as any other") {
    limits.policies.chosen[kind] = FailurePolicy::restart;
    const FailedAttempt early{.cause = kind, .lasted = 1s, .certain = true};
    CHECK(decide_restart({early, early, early}, limits).restart);
  }
  SECTION("without restarts there is nothing to explain") {
    CHECK(decide_restart({certain}, {}).why.empty());
  }
}

TEST_CASE("a program that made progress is restarted although it cannot start for a while",
          "[restart_policy]") {
  const auto kind = GENERATE(Cause::Kind::exec_failure, Cause::Kind::usage,
                             Cause::Kind::import_error, Cause::Kind::syntax_error);
  const FailedAttempt cannot_start{.cause = kind, .lasted = 300ms, .certain = true, .text = "a"};
  const RestartLimits limits{.max_restarts = 5, .retry_delay = 1s};
  const auto delays_after = [&](History history, int before) {
    std::vector<std::chrono::milliseconds> delays;
    while (delays.size() < 4) {
      history.push_back(cannot_start);
      const auto decision = decide_restart(history, limits, before);
      if (!decision.restart) break;
      delays.push_back(decision.delay);
    }
    return delays;
  };
  const std::vector<std::chrono::milliseconds> growing{1s, 2s, 4s, 8s};
  CHECK(delays_after({{Cause::Kind::killed, 9s, 41}}, 0) == growing);

  SECTION("also if the program reports no steps and ran for a minute") {
    CHECK(delays_after({{Cause::Kind::killed, 60s}}, 0).size() == 4);
  }
  SECTION("also if an earlier leader of the job knew about it") {
    CHECK(delays_after({}, 1).size() == 4);
  }
  SECTION("but not after a failure that came as early") {
    const std::size_t restarts = kind == Cause::Kind::exec_failure ? 1 : 0;
    CHECK(delays_after({{Cause::Kind::killed, 9s}}, 0).size() == restarts);
  }
  SECTION("and until no restart is left") {
    History history{{Cause::Kind::killed, 9s, 41}};
    history.resize(6, cannot_start);
    CHECK_FALSE(decide_restart(history, limits).restart);
  }
}

TEST_CASE("data errors and NaN are not restarted when they repeat at the same step",
          "[restart_policy]") {
  const auto kind = GENERATE(Cause::Kind::data_error, Cause::Kind::nan);
  const RestartLimits limits{.max_restarts = 9};
  const FailedAttempt at_41{.cause = kind, .lasted = 900s, .last_step = 41};
  CHECK(decide_restart({at_41}, limits).restart);
  const auto second = decide_restart({at_41, at_41}, limits);
  CHECK_FALSE(second.restart);
  CHECK(second.why == "not restarted: " + std::string(name_of(kind)) +
                          " twice in a row after step 41; a restart would not help");

  SECTION("at another step they are") {
    CHECK(decide_restart({{kind, 900s, 40}, at_41}, limits).restart);
  }
  SECTION("without a known step the text has to be the same") {
    const FailedAttempt a{.cause = kind, .lasted = 9s, .text = "KeyError: 'a'"};
    const FailedAttempt b{.cause = kind, .lasted = 9s, .text = "KeyError: 'b'"};
    CHECK_FALSE(decide_restart({b, a, a}, limits).restart);
    CHECK(decide_restart({a, b}, limits).restart);
    CHECK(decide_restart({{kind, 9s}, {kind, 9s}}, limits).restart);
  }
  SECTION("without a known step the attempts have to last about as long") {
    const auto after = [&](std::chrono::seconds lasted) {
      return FailedAttempt{.cause = kind, .lasted = lasted, .text = "OSError: in worker process 0"};
    };
    CHECK(decide_restart({after(3600s), after(9000s)}, limits).restart);
    CHECK(decide_restart({after(3600s), after(9s)}, limits).restart);
    CHECK_FALSE(decide_restart({after(3600s), after(3500s)}, limits).restart);
    CHECK_FALSE(decide_restart({after(4s), after(8s)}, limits).restart);
  }
  SECTION("a failure of another kind between them is a new start") {
    CHECK(decide_restart({at_41, {Cause::Kind::signal, 9s, 41}, at_41}, limits).restart);
  }
}

TEST_CASE("the user's policy for a kind ends the job or keeps it going", "[restart_policy]") {
  RestartLimits limits{.max_restarts = 9};
  limits.policies.chosen = {{Cause::Kind::peer_failure, FailurePolicy::give_up},
                            {Cause::Kind::signal, FailurePolicy::give_up_if_repeated}};
  const auto first = decide_restart({{Cause::Kind::peer_failure, 900s, 41}}, limits);
  CHECK_FALSE(first.restart);
  CHECK(first.why == "not restarted: the policy for peer_failure is give_up");
  const FailedAttempt crash{.cause = Cause::Kind::signal, .lasted = 900s, .last_step = 7};
  CHECK(decide_restart({crash}, limits).restart);
  CHECK_FALSE(decide_restart({crash, crash}, limits).restart);
  CHECK(decide_restart({{Cause::Kind::exit_status, 1s}}, limits).restart);
}
