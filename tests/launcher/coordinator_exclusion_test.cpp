// Nodes whose ranks keep failing: when they give up their place, and to whom.

#include "tests/launcher/coordinator_support.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Job = mgpu::tests::CoordinatedJob;
using Nodes = std::vector<NodeId>;

namespace {

// A rank on this node fails first; the others are stopped. Forgets what was decided before.
void fail_round(Job& job, NodeId failing, int rank, const std::string& cause,
                std::chrono::seconds lasted = 1h, std::int64_t last_step = -1) {
  job.forget();
  const auto views = job.coordinator.view();
  job.failing(failing);
  job.fail(failing, job.now, 1, cause, lasted, rank, last_step);
  for (const auto& node : views)
    if (node.state == "running" && node.id != failing) job.end(node.id, Outcome::stopped);
}

std::string change(const Job& job) {
  return job.all<RoundEnded>().back().node_change;
}

std::string state_of(const Job& job, NodeId id) {
  for (const auto& node : job.coordinator.view())
    if (node.id == id) return node.state;
  return "unknown";
}

}  // namespace

TEST_CASE("a node is excluded although progress has renewed more restarts than the limit",
          "[coordinator]") {
  auto settings = Job::with_restarts(Job::elastic(1, 2), 3);
  settings.limits.renewed_by_progress = true;
  Job job(settings);
  job.join_all(2);
  for (int step = 1; step <= 10; ++step) fail_round(job, step % 2 + 1, 0, "signal", 1h, step);
  CHECK(job.started_round() == Nodes{1, 2});
  fail_round(job, 2, 1, "gpu_error");
  fail_round(job, 2, 1, "gpu_error");
  CHECK(job.started_round() == Nodes{1});
  CHECK(job.all<RoundEnded>().back().decision->counted == 2);
  fail_round(job, 1, 0, "signal", 1h, 10);  // not a new step
  CHECK(job.all<RoundEnded>().back().decision->counted == 3);
  fail_round(job, 1, 0, "signal", 1h, 10);
  CHECK(job.status() == 1);
}

TEST_CASE("a spare replaces a node that keeps failing", "[coordinator]") {
  Job job(Job::with_restarts(Job::elastic(2, 2), 9));
  job.join_all(2);
  job.join(3);
  fail_round(job, 2, 1, "gpu_error");
  CHECK(job.started_round() == Nodes{1, 2});
  CHECK(change(job).empty());
  fail_round(job, 2, 1, "gpu_error");
  CHECK(job.started_round() == Nodes{1, 3});
  CHECK(change(job) ==
        "node 1 (host2) is replaced by host3: a rank on it failed first in two attempts in a row, "
        "the last time rank 1 (gpu_error)");
  CHECK(job.coordinator.counts().restarts == 2);
  CHECK(state_of(job, 2) == "excluded");
  job.tick(1s);
  REQUIRE(job.recipients<Notice>() == Nodes{2, 2});
  CHECK_THAT(job.sent<Notice>()[0].second.text, Contains("is replaced by host3: a rank on it"));
  CHECK_THAT(job.sent<Notice>()[1].second.text, Contains("excluded from the job"));
  for (const auto& [node, notice] : job.sent<Notice>()) CHECK(notice.excluded);

  SECTION("and stays out of the job when a node is lost") {
    job.lose(3, job.now, true);
    job.forget();
    job.end(1, Outcome::stopped);
    CHECK(job.phase() == "gathering");
    CHECK(job.coordinator.missing() == "1 of 2 nodes joined (host1); excluded: host2");
    job.join(4);
    CHECK(job.started_round() == Nodes{1, 4});
  }
  SECTION("and gets the end of the job") {
    job.end(1, Outcome::done);
    job.end(3, Outcome::done);
    CHECK(job.recipients<End>() == Nodes{1, 2, 3});
  }
  SECTION("unless the failure follows the rank: then no further node is replaced") {
    job.join(4);
    fail_round(job, 3, 1, "gpu_error");
    CHECK(change(job) ==
          "rank 1 (gpu_error) failed on host3 as it had on host2: the failure follows the rank, so "
          "no further node is replaced or excluded; host2 may take part again");
    CHECK(job.started_round() == Nodes{1, 3});
    CHECK(state_of(job, 2) == "spare");
    for (int attempt = 0; attempt < 3; ++attempt) {
      fail_round(job, 3, 1, "gpu_error");
      CHECK(job.started_round() == Nodes{1, 3});
      CHECK(change(job).empty());
    }
  }
}

TEST_CASE("without a spare a node that keeps failing is excluded if enough nodes remain",
          "[coordinator]") {
  const int least = GENERATE(2, 3);
  Job job(Job::with_restarts(Job::elastic(least, 3), 9));
  job.join_all(3);
  fail_round(job, 2, 1, "host_oom");
  fail_round(job, 2, 1, "host_oom");
  if (least == 2) {
    CHECK(job.started_round() == Nodes{1, 3});
    CHECK_THAT(change(job), Contains("node 1 (host2) is excluded from the job: a rank on it"));
    CHECK(job.sent<Begin>()[0].second.to_rejoin == 2);
    job.tick(60s);  // the excluded node is not a new one that waits to join
    CHECK(job.phase() == "running");
  } else {
    CHECK(job.started_round() == Nodes{1, 2, 3});
    CHECK(change(job).empty());
  }
}

TEST_CASE("a node keeps its place if the program fails on it", "[coordinator]") {
  Job job(Job::with_restarts(Job::elastic(1, 2), 9));
  job.join_all(2);
  job.join(3);
  const auto* cause = GENERATE("python_exception", "exit_status", "signal", "host_oom_guess");
  for (int attempt = 0; attempt < 3; ++attempt) {
    fail_round(job, 2, 1, cause);
    CHECK(job.started_round() == Nodes{1, 2});
  }
}

TEST_CASE("a node on which the program cannot be started is replaced before the job is given up",
          "[coordinator]") {
  Job job(Job::with_restarts(Job::elastic(2, 2), 9));
  job.join_all(2);
  SECTION("if there is a spare") {
    job.join(3);
    fail_round(job, 2, 1, "exec_failure", 1s);
    fail_round(job, 2, 1, "exec_failure", 1s);
    CHECK(job.started_round() == Nodes{1, 3});
    CHECK(job.status() == -1);
    // On the spare it cannot be started either.
    fail_round(job, 3, 1, "exec_failure", 1s);
    CHECK(job.status() == 1);
    CHECK(change(job).empty());
  }
  SECTION("else the job ends") {
    fail_round(job, 2, 1, "exec_failure", 1s);
    fail_round(job, 2, 1, "exec_failure", 1s);
    CHECK(job.status() == 1);
  }
  CHECK_THAT(job.all<RoundEnded>().back().decision->why, Contains("would not help"));
}

TEST_CASE("no node is replaced when no restart is left", "[coordinator]") {
  Job job(Job::with_restarts(Job::elastic(1, 2), 1));
  job.join_all(2);
  fail_round(job, 2, 1, "gpu_error");
  fail_round(job, 2, 1, "gpu_error");
  CHECK(job.status() == 1);
  CHECK(change(job).empty());
}

TEST_CASE("the leader's node can be excluded and still lead", "[coordinator]") {
  auto settings = Job::with_restarts(Job::elastic(2, 3), 9);
  settings.elected = GENERATE(false, true);
  Job job(settings);
  job.join_all(3);
  fail_round(job, 1, 0, "gpu_error");
  fail_round(job, 1, 0, "gpu_error");
  CHECK(job.started_round() == Nodes{3, 2});
  // Over plain TCP a lost leader comes back on this node, so it is one more to wait for.
  for (const auto& [node, begin] : job.sent<Begin>())
    CHECK(begin.to_rejoin == (settings.elected ? 2 : 3));
  CHECK(job.all<StartRound>()[0].to_rejoin == (settings.elected ? 2 : 3));
  job.failing(1, SIGTERM);
  job.leave(1, SIGTERM);
  if (settings.elected) return;
  job.end(2, Outcome::stopped);
  job.end(3, Outcome::stopped);
  CHECK(job.status() == 143);
}

TEST_CASE("the leader's node is not excluded when rank 0 serves the store there", "[coordinator]") {
  Job job(Job::with_restarts(Job::elastic(1, 2), 9));
  job.join(1, {.leads = true, .rank0_port = 1234});
  job.join(2, {.rank0_port = 1234});
  fail_round(job, 1, 0, "gpu_error");
  fail_round(job, 1, 0, "gpu_error");
  CHECK(job.started_round() == Nodes{1, 2});
}

TEST_CASE("a new node may have the node rank that an excluded one requested", "[coordinator]") {
  Job job(Job::with_restarts(Job::elastic(1, 2), 9));
  job.join_all(2);
  fail_round(job, 2, 1, "gpu_error");
  fail_round(job, 2, 1, "gpu_error");
  CHECK(job.started_round() == Nodes{1});
  job.join(3, {.node_rank = 1});
  job.end(1, Outcome::stopped);
  CHECK(job.started_round() == Nodes{1, 3});
  CHECK(job.sent<Refusal>().empty());
}

TEST_CASE("an excluded node that connects again stays excluded", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join(1, {.leads = true});
  job.join(2, {.host = "b", .node_rank = 1, .excluded = true});
  CHECK(job.phase() == "gathering");
  CHECK(job.all<PrintLine>()[0].line == "b is back, but stays excluded from the job");
  CHECK(state_of(job, 2) == "excluded");
  job.tick(30s);
  CHECK(job.started_round() == Nodes{1});
  job.tick(60s);
  CHECK(job.phase() == "running");
}

TEST_CASE("a node of an earlier round does not stand for one of the last round", "[coordinator]") {
  auto settings = Job::elastic(2, 4);
  settings.elected = true;
  settings.nodes_before = 2;
  Job job(settings, {.rounds = 5});
  job.join(1, {.leads = true, .nodes = 3, .rounds = 4});  // a spare since then
  job.join(2, {.nodes = 2, .rounds = 5});
  CHECK(job.started_round().empty());  // the other node may still run

  SECTION("when it is there too") {
    job.join(3, {.nodes = 2, .rounds = 5});
    CHECK(job.started_round() == Nodes{1, 2, 3});
  }
  SECTION("when its ranks must have ended") {
    job.tick(35s);
    CHECK(job.started_round() == Nodes{1, 2});
  }
}
