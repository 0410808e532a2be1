// Nodes whose mgpu-run is suspended (^Z): no node is lost, and no time-out ends the job.
#include "tests/launcher/coordinator_support.hpp"

using namespace mgpu::launcher;
using namespace mgpu::rendezvous;
using namespace std::chrono_literals;
using Job = mgpu::tests::CoordinatedJob;
using Nodes = std::vector<NodeId>;

namespace {

void suspend(Job& job, NodeId node, bool suspended = true) {
  job.note(job.coordinator.suspends(node, suspended, job.now));
}
void resume(Job& job, NodeId node) {
  suspend(job, node, false);
}

// The newest message to this node.
Pause pause_of(const Job& job, NodeId node) {
  std::optional<Pause> found;
  for (const auto& [to, pause] : job.sent<Pause>())
    if (to == node) found = pause;
  REQUIRE(found);
  return *found;
}

// The nodes whose heartbeats are expected from now on, or not any more.
Nodes expected(const Job& job, bool wanted) {
  Nodes nodes;
  for (const auto& change : job.all<ExpectHeartbeats>())
    if (change.expected == wanted) nodes.push_back(change.node);
  return nodes;
}

}  // namespace

TEST_CASE("the ranks of all nodes wait until no node is suspended", "[coordinator]") {
  Job job(Job::elastic(3, 3));
  job.join_all(3);
  job.forget();
  suspend(job, 2);
  CHECK(job.recipients<Pause>() == Nodes{1, 2, 3});
  CHECK(pause_of(job, 3).ranks);
  CHECK_FALSE(pause_of(job, 3).leader);
  CHECK(pause_of(job, 3).host == "host2");
  CHECK(expected(job, false) == Nodes{2});
  CHECK(job.phase() == "suspended");
  CHECK(job.coordinator.view()[1].state == "suspended");

  suspend(job, 3);
  resume(job, 2);
  CHECK(pause_of(job, 1).ranks);
  CHECK(expected(job, true) == Nodes{2});
  resume(job, 3);
  CHECK_FALSE(pause_of(job, 1).ranks);
  CHECK(job.phase() == "running");
  CHECK(job.sent<Stop>().empty());
}

TEST_CASE("a suspended leader expects no heartbeats", "[coordinator]") {
  Job job(Job::elastic(3, 3));
  job.join_all(3);
  suspend(job, 3);
  job.forget();
  suspend(job, 1);
  CHECK(pause_of(job, 2).leader);
  CHECK(pause_of(job, 2).ranks);
  CHECK(expected(job, false) == Nodes{1, 2, 3});
  job.forget();
  resume(job, 1);
  CHECK_FALSE(pause_of(job, 2).leader);
  CHECK(pause_of(job, 2).ranks);
  CHECK(expected(job, true) == Nodes{1, 2});
  CHECK(expected(job, false) == Nodes{3});
}

TEST_CASE("a request to suspend is answered even if nothing changes", "[coordinator]") {
  Job job(Job::fixed(2));
  job.join(1, {.leads = true});
  suspend(job, 1);
  job.forget();
  suspend(job, 1);
  CHECK(job.recipients<Pause>() == Nodes{1});
  suspend(job, 99);
  CHECK(job.recipients<Pause>() == Nodes{1});
}

TEST_CASE("a job takes in no node while its ranks are suspended, but afterwards", "[coordinator]") {
  Job job(Job::elastic(1, 3));
  job.join_all(2);
  job.tick(30s);
  suspend(job, 2);
  job.forget();
  job.join(3);
  CHECK(job.sent<Stop>().empty());
  resume(job, 2);
  CHECK(job.recipients<Stop>() == Nodes{1, 2});
}

TEST_CASE("a suspended node that waits takes part in a round only when it is resumed",
          "[coordinator]") {
  Job job(Job::fixed(2));
  job.join(1, {.node_rank = 1});
  suspend(job, 1);
  CHECK_FALSE(pause_of(job, 1).ranks);
  job.join(2, {.node_rank = 0, .leads = true});
  CHECK(job.started_round().empty());
  resume(job, 1);
  CHECK(job.started_round() == Nodes{2, 1});
}

TEST_CASE("the time in which the leader is suspended does not count for the join timeout",
          "[coordinator]") {
  Job job(Job::fixed(2));
  job.join(1, {.leads = true});
  suspend(job, 1);
  job.tick(1h);
  CHECK(job.status() == -1);
  resume(job, 1);
  job.tick(599s);
  CHECK(job.status() == -1);
  job.tick(1s);
  CHECK(job.status() == 75);
}

TEST_CASE("a suspended node that is lost does not suspend the others any more", "[coordinator]") {
  Job job(Job::elastic(1, 2));
  job.join_all(2);
  suspend(job, 2);
  job.forget();
  job.lose(2, job.now, true);
  CHECK(job.recipients<Stop>() == Nodes{1});
  job.end(1, Outcome::stopped);
  CHECK(job.started_round() == Nodes{1});
  CHECK(job.phase() == "running");
}
