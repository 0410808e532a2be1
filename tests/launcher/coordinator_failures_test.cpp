// Rounds that end as their ranks end: the status of the job, and whether the ranks are restarted.
#include <csignal>

#include "tests/launcher/coordinator_support.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Job = mgpu::tests::CoordinatedJob;
using Nodes = std::vector<NodeId>;

TEST_CASE("a multi-node job succeeds when all nodes have succeeded", "[coordinator]") {
  Job job(Job::fixed(2));
  job.join_all(2);
  job.end(1, Outcome::done);
  CHECK(job.status() == -1);
  CHECK(job.phase() == "running");
  job.forget();
  SECTION("") {
    job.end(2, Outcome::done);
  }
  SECTION("although one was disconnected before the other") {
    job.lose(1, job.now, true);
    CHECK(job.sent<Stop>().empty());
    job.end(2, Outcome::done);
  }
  CHECK(job.status() == 0);
  CHECK(job.all<RoundEnded>().size() == 1);
  CHECK(job.all<RoundEnded>()[0].failures.empty());
  CHECK(job.all<JobEnded>()[0].stop_signal == 0);
}

TEST_CASE("a failure stops all nodes and sets the status of the job", "[coordinator]") {
  Job job(Job::fixed(3));
  job.join_all(3);
  job.failing(2);
  CHECK(job.phase() == "stopping");
  REQUIRE(job.recipients<Stop>() == Nodes{1, 3});
  CHECK(job.sent<Stop>()[0].second.why == "a rank on host2 failed");
  CHECK(job.sent<Stop>()[0].second.failed);
  CHECK(job.sent<Stop>()[0].second.signo == SIGTERM);
  CHECK(job.sent<Stop>()[0].second.round == 0);
  job.fail(2, job.now, 7);
  job.end(1, Outcome::stopped);
  CHECK(job.status() == -1);
  job.end(3, Outcome::stopped);
  CHECK(job.status() == 7);
  CHECK(job.recipients<End>() == Nodes{1, 2, 3});
  for (const auto& [node, end] : job.sent<End>()) CHECK(end.status == 7);
}

TEST_CASE("a failure that is first reported with the end of the node's ranks counts too",
          "[coordinator]") {
  Job job(Job::fixed(2));
  job.join_all(2);
  job.fail(2, job.now, 9);
  CHECK(job.recipients<Stop>() == Nodes{1});
  job.end(1, Outcome::stopped);
  CHECK(job.status() == 9);
}

TEST_CASE("of failures on several nodes the earliest sets the status", "[coordinator]") {
  Job job(Job::fixed(3));
  job.join_all(3);
  job.failing(3);
  job.fail(3, job.now - 1s, 3);
  job.fail(1, job.now - 3s, 1);
  job.fail(2, job.now - 2s, 2);
  REQUIRE(job.all<RoundEnded>().size() == 1);
  const auto over = job.all<RoundEnded>()[0];
  REQUIRE(over.failures.size() == 3);
  CHECK(over.failures[0].first == 1);
  CHECK(over.failures[1].first == 2);
  CHECK(over.failures[2].first == 3);
  CHECK(job.status() == 1);
}

TEST_CASE("a failure with restarts left starts the next round and is counted", "[coordinator]") {
  Job job(Job::with_restarts(Job::fixed(2), 1));
  job.join_all(2);
  job.failing(1);
  job.fail(1, job.now);
  job.forget();
  job.end(2, Outcome::stopped);
  CHECK(job.started_round() == Nodes{1, 2});
  CHECK(job.sent<Begin>()[0].second.restarts == 1);
  CHECK(job.sent<Begin>()[0].second.round == 1);
  CHECK(job.all<RoundEnded>()[0].decision->restart);
  CHECK(job.coordinator.counts().restarts == 1);

  SECTION("and the one after the last restart ends the job") {
    job.fail(2, job.now, 5);
    job.end(1, Outcome::stopped);
    CHECK(job.status() == 5);
    CHECK(job.coordinator.counts().restarts == 1);
  }
}

TEST_CASE("the policy for hangs applies to a time-out while a rank of another node is suspended",
          "[coordinator]") {
  auto rules = Job::with_restarts(Job::fixed(2), 5);
  rules.limits.policies.chosen[FailureKind::hang] = FailurePolicy::give_up;
  Job job(rules);
  job.join_all(2);
  job.note(job.coordinator.ended(1,
                                 {.round = job.round(),
                                  .outcome = Outcome::failed,
                                  .when = job.now.count(),
                                  .cause = "exit_status",
                                  .status = 3,
                                  .rank = 0,
                                  .waited = true},
                                 job.now));
  SECTION("") {
    job.note(job.coordinator.ended(
        2, {.round = job.round(), .outcome = Outcome::stopped, .suspended = 1}, job.now));
    REQUIRE(job.all<RoundEnded>().size() == 1);
    CHECK(job.all<RoundEnded>()[0].decision->policy == FailurePolicy::give_up);
    CHECK(job.all<RoundEnded>()[0].failures.front().first == 1);
    CHECK(job.status() == 3);
  }
  SECTION("but not to one without a suspended rank") {
    job.end(2, Outcome::stopped);
    CHECK(job.all<RoundEnded>()[0].decision->restart);
  }
}

TEST_CASE("failures for lack of GPU memory are counted and passed to the ranks", "[coordinator]") {
  Job job(Job::with_restarts(Job::fixed(1), 4));
  job.join_all(1);
  job.fail(1, job.now, 1, "gpu_oom");
  CHECK(job.sent<Begin>().back().second.oom_count == 1);
  for (const auto* other : {"signal", "host_oom", "host_oom_guess"}) {
    job.fail(1, job.now, 1, other);
    CHECK(job.sent<Begin>().back().second.oom_count == 1);
  }
  CHECK(job.sent<Begin>().back().second.restarts == 4);
}

TEST_CASE("a failure that is not retryable ends the job before its restarts are used up",
          "[coordinator]") {
  Job job(Job::with_restarts(Job::fixed(1), 9));
  job.join_all(1);
  job.fail(1, job.now, 1, "import_error", 1s);
  CHECK(job.status() == -1);
  job.fail(1, job.now, 1, "import_error", 1s);
  CHECK(job.status() == 1);
  CHECK_THAT(job.all<RoundEnded>().back().decision->why, Contains("would not help"));
}

TEST_CASE("an import that cannot succeed ends the job of all nodes at once", "[coordinator]") {
  Job job(Job::with_restarts(Job::fixed(1), 9));
  job.join_all(1);
  job.note(job.coordinator.ended(1,
                                 {.round = job.round(),
                                  .outcome = Job::Outcome::failed,
                                  .when = job.now.count(),
                                  .cause = "import_error",
                                  .status = 1,
                                  .lasted = Job::Time(1s).count(),
                                  .certain = true,
                                  .text = "ModuleNotFoundError: No module named 'x'"},
                                 job.now));
  CHECK(job.status() == 1);
  CHECK_THAT(job.all<RoundEnded>().back().decision->why, Contains("before the first step"));
}

TEST_CASE("a new leader does not reset the restart count", "[coordinator]") {
  Job job(Job::with_restarts(Job::fixed(1), 2), {.rounds = 2, .restarts = 2});
  job.join_all(1);
  job.fail(1, job.now, 4);
  CHECK(job.status() == 4);
}

TEST_CASE("the retry delay passes between failures", "[coordinator]") {
  Job job(Job::with_restarts(Job::fixed(1), 9, 10s));
  job.join_all(1);
  job.fail(1, job.now);
  CHECK(job.phase() == "running");  // the first restart is immediate
  job.forget();
  job.fail(1, job.now);
  CHECK(job.phase() == "waiting to restart");
  CHECK(job.coordinator.next_deadline().value() <= job.now + 10s);
  job.tick(9s);
  CHECK(job.started_round().empty());

  SECTION("and then the round starts") {
    job.tick(1s);
    CHECK(job.started_round() == Nodes{1});
  }
  SECTION("unless the job is stopped meanwhile") {
    job.leave(1, SIGTERM);
    CHECK(job.status() == 143);
    job.tick(1s);
    CHECK(job.started_round().empty());
  }
}

TEST_CASE("a failure never makes a job succeed", "[coordinator]") {
  Job job(Job::fixed(1));
  job.join_all(1);
  job.fail(1, job.now, GENERATE(0, -1, 256, 1'000'000));
  CHECK(job.status() == 1);
}

TEST_CASE("ranks that fail while others are stopped for a new node have not failed",
          "[coordinator]") {
  // On a slow link one node receives its stop signal long before another.
  Job job(Job::elastic(2, 3));
  job.join_all(2);
  job.tick(30s);
  job.forget();
  job.join(3);
  job.end(1, Outcome::stopped);
  job.fail(2, job.now + 100ms, 1);
  CHECK(job.status() == -1);
  CHECK(job.started_round() == Nodes{1, 2, 3});
}
