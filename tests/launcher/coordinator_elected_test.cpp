// A coordinator of an elected leader: an earlier leader may still run, and a later one can follow.

#include <csignal>

#include "launcher/nodes/coordinator.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using mgpu::rendezvous::Begin;
using mgpu::rendezvous::Join;
using mgpu::rendezvous::Outcome;

namespace {

// The Begin message of each node.
std::vector<std::pair<NodeId, Begin>> begun(const Coordinator::Actions& actions) {
  std::vector<std::pair<NodeId, Begin>> found;
  for (const auto& action : actions)
    if (const auto* tell = std::get_if<SendMessage>(&action))
      if (const auto* begin = std::get_if<Begin>(&tell->message))
        found.emplace_back(tell->node, *begin);
  return found;
}

bool is_over(const Coordinator::Actions& actions) {
  for (const auto& action : actions)
    if (std::holds_alternative<JobEnded>(action)) return true;
  return false;
}

// It replaces a leader whose round had three nodes.
Coordinator::Settings after_three() {
  return {.min_nodes = 1,
          .max_nodes = 3,
          .keep_alive = 5s,
          .grace = 30s,
          .nodes_before = 3,
          .elected = true};
}

Join comes_back(bool leads = false) {
  return {.host = "a", .leads = leads, .nodes = 3, .rounds = 4, .restarts = 2};
}

}  // namespace

TEST_CASE("a stop signal to the node of an elected leader does not end the job", "[coordinator]") {
  const bool elected = GENERATE(true, false);
  Coordinator coordinator({.min_nodes = 1, .max_nodes = 2, .elected = elected}, {}, 0s);
  coordinator.joined(1, {.host = "a", .leads = true}, 0s);
  CHECK(begun(coordinator.joined(2, {.host = "b"}, 0s)).size() == 2);
  coordinator.leaves(1, {.signo = SIGTERM, .why = "was stopped by SIGTERM"}, 1s);
  const auto actions = coordinator.ended(2, {.round = 0, .outcome = Outcome::stopped}, 1s);
  CHECK(is_over(actions) == !elected);
  CHECK(begun(actions).size() == (elected ? 1 : 0));
}

TEST_CASE("a new elected leader waits for nodes that have not joined again", "[coordinator]") {
  Coordinator::Settings settings = after_three();
  SECTION("until none of their ranks can run") {
    Coordinator coordinator(settings, {.rounds = 4, .restarts = 2}, 0s);
    CHECK(begun(coordinator.joined(1, comes_back(true), 0s)).empty());
    CHECK(begun(coordinator.joined(2, comes_back(), 1s)).empty());
    CHECK(begun(coordinator.tick(34s)).empty());
    const auto begins = begun(coordinator.tick(35s));
    REQUIRE(begins.size() == 2);
    CHECK(begins[0].second.round == 4);
    CHECK(begins[0].second.restarts == 2);
  }
  SECTION("but not for a node that left before") {
    settings.left_before = 1;
    Coordinator coordinator(settings, {.rounds = 4, .restarts = 2}, 0s);
    CHECK(begun(coordinator.joined(1, comes_back(true), 0s)).empty());
    CHECK(begun(coordinator.joined(2, comes_back(), 1s)).size() == 2);
  }
}

TEST_CASE("a new elected leader waits for a longer lease of the lost leader's round",
          "[coordinator]") {
  Coordinator::Settings settings = after_three();
  Join join = comes_back(true);
  SECTION("that the saved state contains") {
    settings.lease_and_grace_before = 50s;
  }
  SECTION("that a node of that round reports") {
    join.lease_and_grace = LeaderTime(50s).count();
  }
  Coordinator coordinator(settings, {.rounds = 4, .restarts = 2}, 0s);
  coordinator.joined(1, join, 10s);
  CHECK(begun(coordinator.tick(49s)).empty());
  CHECK(coordinator.next_deadline() == LeaderTime(50s));
  CHECK(begun(coordinator.tick(50s)).size() == 1);
}

TEST_CASE("nodes that were not in the earlier job do not inherit its failures", "[coordinator]") {
  const bool knows_it = GENERATE(false, true);
  Coordinator coordinator(after_three(), {.rounds = 4, .restarts = 2, .oom_count = 1}, 0s);
  coordinator.joined(1, knows_it ? comes_back(true) : Join{.host = "a", .leads = true}, 0s);
  const auto begins = begun(coordinator.tick(35s));
  REQUIRE(begins.size() == 1);
  CHECK(begins[0].second.round == 4);
  CHECK(begins[0].second.restarts == (knows_it ? 2 : 0));
  CHECK(begins[0].second.oom_count == (knows_it ? 1 : 0));
}
