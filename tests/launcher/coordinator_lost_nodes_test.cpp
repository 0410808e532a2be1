// Nodes that are lost: when the others continue, and which failures count.
#include <algorithm>

#include "tests/launcher/coordinator_support.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using Job = mgpu::tests::CoordinatedJob;
using Nodes = std::vector<NodeId>;

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
  Job job(Job::with_restarts(Job::elastic(1, 2), 1));
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

TEST_CASE("all nodes can be lost at once", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join_all(2);
  job.lose(1, job.now, true);
  job.lose(2, job.now, true);
  CHECK(job.phase() == "gathering");
  job.tick(600s);
  CHECK(job.status() == 75);
}
