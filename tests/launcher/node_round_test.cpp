#include "launcher/nodes/node_round.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using mgpu::rendezvous::NodeEnded;
using mgpu::rendezvous::Outcome;
using Nodes = std::vector<NodeId>;

namespace {

constexpr LeaderTime kNever = LeaderTime::max();

NodeEnded failed_at(LeaderTime when) {
  return {.outcome = Outcome::failed, .when = when.count()};
}

}  // namespace

TEST_CASE("a round without nodes has only its number", "[node_round]") {
  CHECK(NodeRound().number() == -1);
  const NodeRound round(4);
  CHECK(round.number() == 4);
  CHECK(round.size() == 0);
  CHECK_FALSE(round.has(1));
  CHECK_FALSE(round.is_working(1));
  CHECK_FALSE(round.has_ended(1));
  CHECK_FALSE(round.is_lost(1));
  CHECK(round.is_over(0s));
}

TEST_CASE("in a new round all nodes work", "[node_round]") {
  const NodeRound round(2, {7, 3});
  CHECK(round.size() == 2);
  CHECK(round.working() == Nodes{3, 7});
  CHECK_FALSE(round.some_have_ended());
  CHECK_FALSE(round.has_lost_node());
  CHECK_FALSE(round.is_over(kNever));
  CHECK_FALSE(round.all_done());
}

TEST_CASE("a round is over when every node has ended", "[node_round]") {
  NodeRound round(0, {1, 2});
  round.end(1, {.outcome = Outcome::done});
  CHECK(round.has_ended(1));
  CHECK(round.some_have_ended());
  CHECK(round.working() == Nodes{2});
  CHECK_FALSE(round.is_over(0s));
  const auto outcome = GENERATE(Outcome::done, Outcome::stopped, Outcome::failed);
  round.end(2, {.outcome = outcome});
  CHECK(round.is_over(0s));
  CHECK(round.all_done() == (outcome == Outcome::done));
}

TEST_CASE("a round is not over before its lost nodes are certainly dead", "[node_round]") {
  NodeRound round(0, {1, 2});
  round.lose(1, 10s, 45s);
  CHECK(round.is_lost(1));
  CHECK(round.has_lost_node());
  CHECK(round.working() == Nodes{2});
  CHECK(round.dead_by() == std::vector<LeaderTime>{45s});
  round.end(2, {.outcome = Outcome::done});
  CHECK_FALSE(round.is_over(44s));
  CHECK(round.is_over(45s));
  CHECK_FALSE(round.all_done());
}

TEST_CASE("a node that has left does not count any more", "[node_round]") {
  NodeRound round(0, {1, 2});
  round.remove(1);
  CHECK_FALSE(round.has(1));
  CHECK(round.size() == 1);
  CHECK_FALSE(round.is_over(0s));
  round.end(2, {.outcome = Outcome::done});
  CHECK(round.is_over(0s));
  CHECK(round.all_done());
  SECTION("also if it had ended") {
    round.remove(2);
    CHECK(round.size() == 0);
    CHECK(round.is_over(0s));
  }
}

TEST_CASE("the first report about a node's end counts", "[node_round]") {
  NodeRound round(0, {1, 2});
  SECTION("a node that has ended is not lost") {
    round.end(1, {.outcome = Outcome::done});
    round.lose(1, 0s, kNever);
    CHECK_FALSE(round.is_lost(1));
    CHECK(round.dead_by().empty());
  }
  SECTION("a lost node has no result") {
    round.lose(1, 0s, 0s);
    round.end(1, failed_at(0s));
    CHECK_FALSE(round.has_ended(1));
    CHECK(round.failures().empty());
  }
  SECTION("a second result is ignored") {
    round.end(1, {.outcome = Outcome::done});
    round.end(1, failed_at(0s));
    CHECK(round.failures().empty());
  }
  CHECK(round.working() == Nodes{2});
  CHECK_FALSE(round.is_over(0s));
  round.end(2, {.outcome = Outcome::done});
  CHECK(round.is_over(0s));
}

TEST_CASE("a report about a node that is not part of the round is ignored", "[node_round]") {
  NodeRound round(0, {1});
  round.end(9, failed_at(0s));
  round.lose(9, 0s, kNever);
  round.remove(9);
  CHECK(round.working() == Nodes{1});
  CHECK(round.failures().empty());
  CHECK_FALSE(round.has_lost_node());
}

TEST_CASE("failures are in the order of time", "[node_round]") {
  NodeRound round(0, {1, 2, 3, 4});
  round.end(1, failed_at(5s));
  round.end(2, {.outcome = Outcome::stopped, .when = 1});
  round.end(3, failed_at(3s));
  round.end(4, {.outcome = Outcome::done, .when = 2});
  Nodes nodes;
  for (const auto& [node, result] : round.failures()) nodes.push_back(node);
  CHECK(nodes == Nodes{3, 1});
}

TEST_CASE("the consequence of another failure comes after it, whichever was seen first",
          "[node_round]") {
  NodeRound round(0, {1, 2});
  auto cascade = failed_at(3s);
  cascade.cascade = true;
  round.end(1, cascade);
  round.end(2, failed_at(4s));
  CHECK(round.failures().front().first == 2);
  CHECK(round.failures().back().first == 1);
}

TEST_CASE("a failure after a disturbance may be its consequence", "[node_round]") {
  NodeRound round(0, {1, 2});
  CHECK_FALSE(round.has_external_cause(failed_at(100s), 1s));
  SECTION("a node left or joined, or was asked to stop; the first time counts") {
    round.disturb(20s);
    round.disturb(10s);
    round.disturb(30s);
  }
  SECTION("a node was lost after this heartbeat") {
    round.lose(2, 10s, kNever);
  }
  CHECK_FALSE(round.has_external_cause(failed_at(9s), 1s));
  CHECK(round.has_external_cause(failed_at(9s + 1ns), 1s));
}

TEST_CASE("the first reason to stop a round is kept unless it is replaced", "[node_round]") {
  NodeRound round(0, {1});
  CHECK(round.stop_reason().empty());
  round.stop_because("a joins");
  round.stop_because("b joins");
  CHECK(round.stop_reason() == "a joins");
  round.replace_stop_reason("c was stopped by SIGTERM");
  CHECK(round.stop_reason() == "c was stopped by SIGTERM");
}

TEST_CASE("nothing of a round is left in the next", "[node_round]") {
  NodeRound round(0, {1, 2});
  round.end(1, failed_at(1s));
  round.lose(2, 0s, kNever);
  round.disturb(0s);
  round.stop_because("a rank failed");
  round = NodeRound(1, {1, 2});
  CHECK(round.number() == 1);
  CHECK(round.working() == Nodes{1, 2});
  CHECK(round.failures().empty());
  CHECK(round.stop_reason().empty());
  CHECK_FALSE(round.has_external_cause(failed_at(100s), 0s));
}

TEST_CASE("a time-out while a rank of another node is suspended counts as the hang of that node",
          "[node_round]") {
  NodeRound round(0, {1, 2, 3});
  auto timed_out = failed_at(5s);
  timed_out.cause = "nccl_error";
  timed_out.rank = 0;
  timed_out.certain = true;
  timed_out.waited = GENERATE(true, false);
  round.end(1, timed_out);
  round.end(2, {.outcome = Outcome::stopped});
  round.end(3, {.outcome = Outcome::stopped, .suspended = 4});
  CHECK(round.failures().front().first == 1);
  const auto [node, failure] = round.attributed_failures().front();
  CHECK(node == (timed_out.waited ? 3 : 1));
  CHECK(failure.rank == (timed_out.waited ? 4 : 0));
  CHECK(failure.cause == (timed_out.waited ? "hang" : "nccl_error"));
  CHECK(failure.certain != timed_out.waited);
  CHECK(failure.when == timed_out.when);
}
