// How rounds end: failures, lost nodes, nodes that leave, and what follows.
#include <algorithm>
#include <csignal>
#include <limits>

#include "tests/launcher/coordinator_support.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Job = mgpu::tests::CoordinatedJob;
using Nodes = std::vector<NodeId>;

namespace {

Job::Settings with_restarts(Job::Settings settings, int restarts,
                            std::chrono::milliseconds retry_delay = 0ms) {
  settings.limits = {restarts, retry_delay};
  return settings;
}

}  // namespace

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
  Job job(with_restarts(Job::fixed(2), 1));
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
  auto rules = with_restarts(Job::fixed(2), 5);
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
  Job job(with_restarts(Job::fixed(1), 4));
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
  Job job(with_restarts(Job::fixed(1), 9));
  job.join_all(1);
  job.fail(1, job.now, 1, "import_error", 1s);
  CHECK(job.status() == -1);
  job.fail(1, job.now, 1, "import_error", 1s);
  CHECK(job.status() == 1);
  CHECK_THAT(job.all<RoundEnded>().back().decision->why, Contains("would not help"));
}

TEST_CASE("an import that cannot succeed ends the job of all nodes at once", "[coordinator]") {
  Job job(with_restarts(Job::fixed(1), 9));
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
  Job job(with_restarts(Job::fixed(1), 2), {.rounds = 2, .restarts = 2});
  job.join_all(1);
  job.fail(1, job.now, 4);
  CHECK(job.status() == 4);
}

TEST_CASE("the retry delay passes between failures", "[coordinator]") {
  Job job(with_restarts(Job::fixed(1), 9, 10s));
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

TEST_CASE("a lost node stops the others, which continue when its ranks must have ended",
          "[coordinator]") {
  auto settings = Job::elastic(2, 3);
  settings.grace = 10s;
  Job job(settings);
  job.join_all(3);
  job.now += 100s;
  job.forget();
  const auto last_heartbeat = job.now - 5s;
  job.lose(3, last_heartbeat);
  CHECK(job.recipients<Stop>() == Nodes{1, 2});
  CHECK(job.sent<Stop>()[0].second.failed);
  CHECK_THAT(job.all<PrintLine>().at(0).line,
             Contains("node 2 (host3) is lost: it is silent") && Contains("within 10.0 s"));
  job.end(1, Outcome::stopped);
  job.end(2, Outcome::stopped);
  CHECK(job.coordinator.next_deadline() == last_heartbeat + 15s);  // keep-alive and grace
  job.tick(9900ms);
  CHECK(job.started_round().empty());
  job.tick(100ms);
  CHECK(job.started_round() == Nodes{1, 2});
  CHECK(job.coordinator.counts().restarts == 0);
  CHECK_FALSE(job.all<RoundEnded>().at(0).decision);
  CHECK(job.all<RoundEnded>().at(0).lost_node);
}

TEST_CASE("a node whose end was reported is not waited for", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join_all(2);
  job.lose(2, job.now, true);
  job.end(1, Outcome::stopped);
  CHECK(job.started_round() == Nodes{1});
}

TEST_CASE("a job that has lost too many nodes waits for others", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join_all(2);
  job.lose(2, job.now, true);
  job.forget();
  job.end(1, Outcome::stopped);
  CHECK(job.phase() == "gathering");
  CHECK(job.started_round().empty());
  SECTION("and continues when they join") {
    job.tick(500s);
    job.join(3);
    CHECK(job.started_round() == Nodes{1, 3});
  }
  SECTION("and ends at the join timeout") {
    job.tick(600s);
    CHECK(job.status() == 75);
    CHECK(job.recipients<End>() == Nodes{1});
  }
}

TEST_CASE("failures caused by the loss of a node do not count", "[coordinator]") {
  Job job(Job::elastic(1, 2));  // no restarts
  job.join_all(2);
  job.now += 100s;
  job.failing(1);
  job.fail(1, job.now, 1);
  job.forget();
  SECTION("also when the loss was detected later") {
    job.now += 5s;
    job.lose(2, job.now - 5100ms, true);
  }
  CHECK(job.status() == -1);
  CHECK(job.started_round() == Nodes{1});
  CHECK(job.coordinator.counts().restarts == 0);
}

TEST_CASE("a failure before the last heartbeat of a lost node counts", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join_all(2);
  job.now += 100s;
  job.fail(1, job.now - 10s, 6);
  job.lose(2, job.now - 5s, true);
  CHECK(job.status() == 6);
}

TEST_CASE("a failure counts although its node is gone right after the report", "[coordinator]") {
  Job job(with_restarts(Job::elastic(1, 2), 1));
  job.join_all(2);
  job.failing(2);
  job.fail(2, job.now, 3);
  job.forget();
  SECTION("because its host died") {
    job.lose(2, job.now, true);
  }
  SECTION("or because it left") {
    job.leave(2, SIGTERM);
  }
  job.end(1, Outcome::stopped);
  REQUIRE(job.all<RoundEnded>().size() == 1);
  CHECK(job.all<RoundEnded>()[0].failures.size() == 1);
  CHECK(job.coordinator.counts().restarts == 1);
  CHECK(job.started_round() == Nodes{1});
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

TEST_CASE("impossible times do no harm", "[coordinator]") {
  Job job(Job::elastic(1, 3));
  job.join_all(3);
  const std::int64_t when =
      GENERATE(std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min());
  job.fail(1, Job::Time(when), 1, "no such cause", Job::Time(when));
  job.lose(2, job.now, true);
  job.end(3, Outcome::stopped);
  CHECK(job.all<RoundEnded>().size() == 1);
}

TEST_CASE("a second signal of a node is passed to the ranks that still stop", "[coordinator]") {
  Job job(Job::fixed(3));
  job.join_all(3);
  job.failing(1, SIGINT);
  job.end(3, Outcome::stopped);
  job.forget();
  job.failing(1, SIGTERM);
  CHECK(job.recipients<Stop>() == Nodes{2});
  CHECK(job.sent<Stop>()[0].second.signo == SIGTERM);
}

TEST_CASE("a lost node is certainly dead only after the longest grace period of the nodes",
          "[coordinator]") {
  auto rules = Job::elastic(1, 3);
  rules.grace = 2s;
  Job job(rules);
  job.join(1, {.leads = true, .grace = Job::Time(2s).count()});
  job.join(2, {.grace = Job::Time(40s).count()});
  job.join(3, {.grace = Job::Time(1s).count()});
  REQUIRE(job.sent<Begin>().size() == 3);
  for (const auto& [node, begin] : job.sent<Begin>()) CHECK(begin.grace == Job::Time(40s).count());
  CHECK(job.coordinator.lease_and_grace() == rules.keep_alive + 40s);
  job.forget();

  const NodeId lost = GENERATE(2, 3);  // all nodes use the longest
  const auto last_heartbeat = job.now;
  job.now += rules.keep_alive;
  job.lose(lost, last_heartbeat);
  job.end(1, Outcome::stopped);
  job.end(5 - lost, Outcome::stopped);
  job.tick(39s);
  CHECK(job.started_round().empty());
  job.tick(1s);
  CHECK(job.started_round() == Nodes{1, 5 - lost});
  CHECK(job.sent<Begin>()[0].second.grace == Job::Time(lost == 2 ? 2s : 40s).count());
}

TEST_CASE("nodes with different grace periods are reported once", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join(1, {.leads = true, .grace = Job::Time(30s).count()});
  const bool differ = GENERATE(false, true);
  job.join(2, {.grace = Job::Time(differ ? 50s : 30s).count()});
  const auto notes = [&] {
    const auto lines = job.all<PrintLine>();
    return std::count_if(lines.begin(), lines.end(), [](const PrintLine& note) {
      return note.line.find("the longest, 50 s, counts") != std::string::npos;
    });
  };
  CHECK(notes() == (differ ? 1 : 0));
  job.failing(1, SIGTERM);
  job.end(1, Outcome::stopped);
  job.end(2, Outcome::stopped);
  CHECK(notes() == (differ ? 1 : 0));
}

TEST_CASE("a join request with an impossible grace period is rejected", "[coordinator]") {
  Job job(Job::fixed(1));
  const std::int64_t time = GENERATE(-1, std::numeric_limits<std::int64_t>::max());
  job.join(1, GENERATE_COPY(Join{.grace = time}, Join{.lease_and_grace = time}));
  CHECK(job.recipients<Refusal>() == Nodes{1});
}

TEST_CASE("a node may leave an elastic job", "[coordinator]") {
  Job job(Job::elastic(1, 3));
  job.join_all(3);
  job.forget();
  job.failing(2, SIGTERM);
  CHECK(job.recipients<Stop>() == Nodes{1, 3});
  CHECK(job.sent<Stop>()[0].second.why == "host2 was asked to stop");
  CHECK_FALSE(job.sent<Stop>()[0].second.failed);
  job.leave(2, SIGTERM);
  job.end(1, Outcome::stopped);
  SECTION("") {
    job.end(3, Outcome::stopped);
  }
  SECTION("although ranks of other nodes failed because of it") {
    job.fail(3, job.now + 10ms, 1);
  }
  CHECK(job.status() == -1);
  CHECK(job.started_round() == Nodes{1, 3});
  CHECK(job.coordinator.counts().restarts == 0);
}

TEST_CASE("a node may leave an elastic job without notice", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join_all(2);
  job.forget();
  job.leave(2);
  CHECK(job.recipients<Stop>() == Nodes{1});
  SECTION("") {
    job.end(1, Outcome::stopped);
  }
  SECTION("although ranks of others failed because of it") {
    job.fail(1, job.now + 10ms, 1);
  }
  CHECK(job.started_round() == Nodes{1});
}

TEST_CASE("a failure before the stop signal to a node counts", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join_all(2);
  job.now += 10s;
  const auto failed = job.now - 5s;
  job.failing(2, SIGTERM);
  job.leave(2, SIGTERM);
  job.fail(1, failed, 6);
  CHECK(job.status() == 6);
}

TEST_CASE("a stop signal to the leader ends the job on all nodes", "[coordinator]") {
  Job job(Job::elastic(1, 3));
  job.join_all(3);
  job.forget();
  job.failing(1, SIGINT);
  CHECK(job.recipients<Stop>() == Nodes{2, 3});
  CHECK(job.sent<Stop>()[0].second.signo == SIGINT);
  job.leave(1, SIGINT);
  job.end(2, Outcome::stopped);
  CHECK(job.status() == -1);
  job.end(3, Outcome::stopped);
  CHECK(job.status() == 130);
  CHECK(job.all<JobEnded>()[0].stop_signal == SIGINT);
  CHECK(job.recipients<End>() == Nodes{2, 3});
}

TEST_CASE("a stop signal to any node of a static job ends the job", "[coordinator]") {
  Job job(with_restarts(Job::fixed(3), 5));
  job.join_all(3);
  job.forget();
  SECTION("while it runs") {
    job.failing(2, SIGTERM);
    job.leave(2, SIGTERM);
    job.end(1, Outcome::stopped);
    SECTION("") {
      job.end(3, Outcome::stopped);
    }
    SECTION("although ranks elsewhere failed because of it, and no restart is announced") {
      job.fail(3, job.now + 10ms, 1);
    }
    REQUIRE(job.all<RoundEnded>().size() == 1);
    CHECK_FALSE(job.all<RoundEnded>()[0].decision);
  }
  SECTION("while it runs, without notice") {
    job.leave(3, SIGTERM);
    CHECK(job.recipients<Stop>() == Nodes{1, 2});
    job.end(1, Outcome::stopped);
    job.end(2, Outcome::stopped);
  }
  SECTION("while it stops for a failure") {
    job.failing(1);
    job.fail(1, job.now);
    job.failing(3, SIGTERM);
    job.leave(3, SIGTERM);
    job.end(2, Outcome::stopped);
  }
  CHECK(job.status() == 143);
}

TEST_CASE("a stop signal to a node that was in no round does not end a static job",
          "[coordinator]") {
  Job job(Job::fixed(2));
  job.join(1, {.node_rank = 0, .leads = true});
  job.join(2, {.node_rank = 5});
  job.join(3, {.node_rank = 1});
  CHECK(job.phase() == "running");
  Job waiting(Job::fixed(3));
  waiting.join(1, {.node_rank = 0, .leads = true});
  waiting.join(2, {.node_rank = 1});
  waiting.leave(2, SIGTERM);
  CHECK(waiting.status() == -1);
  CHECK(waiting.phase() == "gathering");
  waiting.leave(1, SIGTERM);
  CHECK(waiting.status() == 143);
}

TEST_CASE("messages about another round, or from unknown nodes, change nothing", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join_all(2);
  job.join(3);
  job.forget();
  job.note(job.coordinator.failing(1, {.round = 7}, job.now));
  job.note(job.coordinator.failing(1, {.round = -1, .signo = 15}, job.now));
  job.note(job.coordinator.ended(1, {.round = 1, .outcome = Outcome::failed}, job.now));
  job.failing(99, SIGTERM);
  job.end(99, Outcome::failed);
  job.end(3, Outcome::failed);  // a spare has no ranks
  job.failing(3, SIGTERM);      // so none can fail
  job.leave(99, SIGTERM);
  job.lose(99, job.now);
  CHECK(job.actions.empty());
  CHECK(job.phase() == "running");

  SECTION("nor does a repeated message") {
    job.end(1, Outcome::done);
    job.end(1, Outcome::failed);
    job.end(2, Outcome::done);
    CHECK(job.status() == 0);
  }
}

TEST_CASE("an invalid signal number does not produce an invalid status", "[coordinator]") {
  Job job(Job::fixed(2));
  job.join_all(2);
  const int signo = GENERATE(-1, 65, 1'000'000, std::numeric_limits<int>::max());
  job.failing(2, signo);
  job.leave(2, signo);
  job.end(1, Outcome::stopped);
  for (const auto& over : job.all<JobEnded>()) {
    CHECK(over.status > 0);
    CHECK(over.status < 256);
  }
  for (const auto& [node, stop] : job.sent<Stop>()) CHECK(stop.signo == SIGTERM);
}

TEST_CASE("all nodes can be lost at once", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join_all(2);
  job.lose(1, job.now, true);
  job.lose(2, job.now, true);
  CHECK(job.phase() == "gathering");
  job.tick(600s);
  CHECK(job.status() == 75);
}

TEST_CASE("the status shows every node and its state", "[coordinator]") {
  Job job(Job::elastic(2, 2));
  job.join(1, {.host = "a", .nproc = 2, .leads = true});
  CHECK(job.coordinator.view()[0].state == "waiting");
  CHECK(job.coordinator.view()[0].node_rank == -1);
  job.join(2, {.host = "b"});
  job.join(3, {.host = "c"});
  const auto states = [&] {
    std::string text;
    for (const auto& node : job.coordinator.view())
      text += node.host + ' ' + std::to_string(node.node_rank) + ' ' + node.state + "; ";
    return text;
  };
  CHECK(states() == "a 0 running; b 1 running; c -1 spare; ");
  job.now += 10s;
  job.failing(2);
  job.fail(2, job.now);
  CHECK(states() == "a 0 stopping; b 1 ended; c -1 waiting; ");
  CHECK(job.coordinator.view()[1].since == job.now);
  job.lose(1, job.now);
  CHECK(states() == "a 0 lost; b 1 ended; c -1 waiting; ");
  CHECK(job.coordinator.host_of(1) == "a");
  CHECK(job.coordinator.host_of(77) == "a node");
}
