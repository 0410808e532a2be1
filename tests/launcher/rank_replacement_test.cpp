#include "launcher/event_loop/rank_replacement.hpp"

#include <csignal>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Kind = Cause::Kind;

namespace {

// A node with two ranks, of which rank 1 is killed.
struct Node {
  boost::asio::io_context io;
  Options options;
  JobPlan plan;
  std::vector<std::string> lines;
  std::vector<int> late;
  bool running = true;
  Inherited inherited = {};
  Output output{io, options, 2};
  RankGroup ranks{io, output, 2, {.inherited = inherited, .workdir = {}}};
  WorkerSocket socket{io, [](std::string_view) {}};
  PausableTimer limit{io};
  Journal journal;
  RankReplacement replacement;

  explicit Node(int max_restarts = 2)
      : options(with_restarts(max_restarts)),
        journal(
            options, plan, "host-a", [this](auto line) { lines.emplace_back(line); },
            [](const auto&, const auto&, const auto&) {}),
        replacement(limit, options, plan, socket, ranks, journal, [this](int rank) {
          late.push_back(rank);
          return running;
        }) {
    plan.placement = {.nproc = 2, .world_size = 2};
    journal.attempt_started(0);
    socket.begin_attempt(0, 2);
    replacement.begin_attempt();
  }

  static Options with_restarts(int most) {
    Options job;
    job.replace_ranks = true;
    job.max_restarts = most;
    return job;
  }
  bool permitted(Kind kind) { return replacement.permitted({.kind = kind, .text = "it ended"}); }
  void replace(int number) {
    journal.rank_exited({.local_rank = 1, .pid = 11, .report = {.signal = SIGKILL}},
                        journal.attempt_began() + 1500ms);
    REQUIRE(permitted(Kind::killed));
    replacement.begin(1, number);
  }
};

}  // namespace

TEST_CASE("a lack of memory and an error of the program are not cured by a replacement",
          "[rank_replacement]") {
  Node node;
  for (const auto kind : {Kind::killed, Kind::signal, Kind::host_oom_guess})
    CHECK(node.permitted(kind));
  for (const auto kind : {Kind::host_oom, Kind::gpu_oom, Kind::gpu_error, Kind::python_exception,
                          Kind::nan, Kind::preempted, Kind::hang})
    CHECK_FALSE(node.permitted(kind));
  CHECK_FALSE(node.replacement.permitted({.kind = Kind::signal, .cascade = true}));
}

TEST_CASE("a replacement needs a restart that the policy and the limit allow",
          "[rank_replacement]") {
  Node node(1);
  SECTION("a chosen policy") {
    using enum FailurePolicy;
    for (const auto policy : {give_up, restart_changed, exclude_node}) {
      node.options.on_failure.chosen = {{Kind::killed, policy}};
      CHECK_FALSE(node.permitted(Kind::killed));
      CHECK(node.permitted(Kind::signal));
    }
    node.options.on_failure.chosen = {{Kind::host_oom, restart}};
    CHECK_FALSE(node.permitted(Kind::host_oom));
  }
  SECTION("the same failure twice, if the policy is to give up then") {
    node.options.max_restarts = 9;
    node.options.on_failure.chosen = {{Kind::killed, FailurePolicy::give_up_if_repeated}};
    node.replace(1);
    CHECK_FALSE(node.permitted(Kind::killed));
  }
  SECTION("each replacement counts") {
    node.replace(1);
    CHECK_FALSE(node.permitted(Kind::killed));
  }
}

TEST_CASE("ranks that are not ready again in time are reported, unless they have been stopped",
          "[rank_replacement]") {
  Node node;
  node.options.hang_timeout = 1ms;
  node.running = GENERATE(true, false);
  node.replace(1);
  CHECK(node.lines.back().find("in its place (counts as restart 1 of 2)") != std::string::npos);
  node.io.run_one();
  CHECK(node.late == std::vector{1});
  CHECK(node.replacement.late() ==
        (node.running ? "rank 1 was replaced, and the ranks were not ready to go on within 0.0 s"
                      : ""));
  node.replacement.begin_attempt();
  CHECK(node.replacement.late().empty());
}
