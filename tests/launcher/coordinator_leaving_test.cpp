// Nodes that leave a job, and stop signals: who stops, and who continues.
#include <csignal>

#include "tests/launcher/coordinator_support.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Job = mgpu::tests::CoordinatedJob;
using Nodes = std::vector<NodeId>;

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
  Job job(Job::with_restarts(Job::fixed(3), 5));
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
