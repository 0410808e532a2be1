#include "launcher/event_loop/cluster_session.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/nodes/free_port.hpp"
#include "launcher/nodes/job_registry.hpp"
#include "launcher/nodes/token.hpp"
#include "launcher/ranks/guard.hpp"
#include "tests/launcher/runtime_folder.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;

namespace {

// A job of one node, with its leader in this process.
struct LoneNode {
  mgpu::tests::RuntimeFolder folder;
  boost::asio::io_context io{1};
  Options options;
  JobPlan plan;
  Supervisor supervisor{1, true};
  std::optional<ClusterSession::Round> round;
  std::optional<int> status;
  std::vector<Signal> stops;
  int suspended = 0, resumed = 0;
  mgpu::rendezvous::Nanoseconds kill_by{0};
  std::optional<ClusterSession> session;

  explicit LoneNode(mgpu::rendezvous::Nanoseconds keep_alive = 5s) {
    options.rdzv_id = "lone";
    options.target = "train.py";
    plan.placement.nproc = 1;
    plan.credentials.secret = make_secret();
    plan.rendezvous_plan.emplace();
    plan.rendezvous_plan->host = "127.0.0.1";
    plan.rendezvous_plan->port = free_port();
    plan.rendezvous_plan->runs_leader = true;
    plan.rendezvous_plan->rules.keep_alive = keep_alive;
    session.emplace(
        io, options, plan, "host-a", supervisor,
        ClusterSession::Callbacks{
            .round_started =
                [this](const auto& started) {
                  round = started;
                  supervisor.handle(RoundStarted{started.number});
                },
            .stop_requested =
                [this](const RoundStopRequested& stop) { stops.push_back(stop.signal); },
            .job_ended = [this](int end, const std::string&) { status = end; },
            .job_idle = [](auto) {},
            .suspend_ranks = [this] { ++suspended; },
            .resume_ranks = [this] { ++resumed; },
            .parent_exited = [] {},
            .connected = [](int) {},
            .kill_by = [this](auto when) { kill_by = when; },
            .print_note = [](std::string_view) {}});
    session->start();
    run_until([this] { return round.has_value(); });
  }

  template <class Condition>
  void run_until(Condition met) {
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    while (!met() && io.run_one_until(deadline) != 0) {
    }
    REQUIRE(met());
  }

  // The rank exits, and no process of this node is left.
  void rank_exits(const ExitReport& report) {
    supervisor.handle(RankExited{0, report});
    supervisor.handle(TreeEmpty{});
  }
};

AttemptResult failed_attempt() {
  AttemptResult attempt;
  attempt.ranks.push_back({.pid = 10, .report = {.code = 3}, .after_start = 1500ms});
  attempt.first_failure = attempt.ranks.back();
  attempt.cause = {Cause::Kind::gpu_oom, "GPU out of memory", ""};
  return attempt;
}

}  // namespace

TEST_CASE("a round begins with a place for this node and an address of the store", "[session]") {
  LoneNode node;
  CHECK(node.round->number == 0);
  CHECK(node.round->placement.nodes == 1);
  CHECK(node.round->placement.nproc == 1);
  CHECK(node.round->placement.world_size == 1);
  CHECK(node.round->attempt.number == 0);
  CHECK(node.round->attempt.master_addr == "127.0.0.1");
  CHECK(node.round->attempt.master_port == node.plan.rendezvous_plan->port);
  CHECK(node.round->attempt.log_dir.empty());
}

TEST_CASE("a job that runs is found by mgpu-run status until it has ended", "[session]") {
  LoneNode node;
  const auto noted = find_job("lone");
  REQUIRE(noted);
  CHECK(noted->port == node.plan.rendezvous_plan->port);
  CHECK(noted->secret == node.plan.credentials.secret);

  node.session->finish([] {});
  CHECK_FALSE(find_job("lone"));
}

TEST_CASE("ranks may outlive a suspended agent by its lease and the grace period only",
          "[session]") {
  LoneNode node;
  const auto before = node.kill_by;
  CHECK(before != Guard::kNever);
  node.run_until([&] { return node.kill_by > before; });
  CHECK(node.kill_by > mgpu::rendezvous::boot_now() + node.options.grace);

  node.rank_exits({});
  node.session->ranks_ended();
  CHECK(node.kill_by == Guard::kNever);
}

// As after the machine has slept: neither the leader nor the agent in this process does anything.
TEST_CASE("the leader is lost, and no rank has failed, if its lease is over when ranks exit",
          "[session]") {
  LoneNode node(500ms);

  SECTION("not before it is over") {
    node.session->ranks_exited();
    CHECK(node.stops.empty());
  }
  SECTION("when it is over") {
    std::this_thread::sleep_for(1200ms);
    node.session->ranks_exited();
    CHECK(node.stops == std::vector<Signal>{SIGTERM});
  }
  SECTION("not while the leader waits for this node, which is suspended") {
    bool ready = false;
    node.session->suspend([&] { ready = true; });
    node.run_until([&] { return ready; });
    std::this_thread::sleep_for(1200ms);
    node.session->ranks_exited();
    CHECK(node.stops.empty());
  }
}

TEST_CASE(
    "while a node is suspended its guard has no deadline, and its ranks run only when the leader "
    "has confirmed",
    "[session]") {
  LoneNode node;
  bool ready = false;
  node.session->suspend([&] { ready = true; });
  node.run_until([&] { return ready; });
  CHECK(node.kill_by == Guard::kNever);
  CHECK(node.session->unconfirmed());
  CHECK(node.suspended == 0);  // the owner has suspended them itself

  CHECK(node.session->resumed());
  CHECK(node.resumed == 0);
  node.run_until([&] { return node.resumed == 1; });
  CHECK_FALSE(node.session->unconfirmed());
  node.run_until([&] { return node.kill_by != Guard::kNever; });
}

TEST_CASE("the leader ends the job with the result of its nodes", "[session]") {
  LoneNode node;

  SECTION("0 when the ranks succeeded") {
    node.rank_exits({});
    REQUIRE(node.session->ranks_ended());
    node.session->report_result({}, Clock::now());
    node.run_until([&] { return node.status.has_value(); });
    CHECK(node.status == 0);
  }
  SECTION("the status of the first failure") {
    node.rank_exits({.code = 3});
    node.session->report_failure();
    REQUIRE(node.session->ranks_ended());
    node.session->report_result(failed_attempt(), Clock::now());
    node.run_until([&] { return node.status.has_value(); });
    CHECK(node.status == 3);
    REQUIRE(node.session->history());
    REQUIRE(node.session->history()->attempts.size() == 1);
    CHECK(node.session->history()->attempts[0].cause.kind == Cause::Kind::gpu_oom);
  }
  CHECK(node.stops.empty());
}

TEST_CASE("a node that a signal stops leaves without a result", "[session]") {
  LoneNode node;
  node.supervisor.handle(StopRequested{SIGTERM});
  node.session->report_stop(SIGTERM);
  node.rank_exits({.signal = SIGTERM});
  node.session->leave(SIGTERM);
  node.run_until([&] { return node.status.has_value(); });
  CHECK(node.status == 128 + SIGTERM);
}

TEST_CASE("the message about a node's part of a round has its outcome", "[session]") {
  SECTION("done") {
    const auto end = node_ended(4, {}, false);
    CHECK(end.round == 4);
    CHECK(end.outcome == mgpu::rendezvous::Outcome::done);
    CHECK(end.status == 0);
  }
  SECTION("stopped") {
    CHECK(node_ended(4, {}, true).outcome == mgpu::rendezvous::Outcome::stopped);
  }
  SECTION("failed, also if ranks were stopped after the failure") {
    const auto end = node_ended(4, failed_attempt(), true);
    CHECK(end.outcome == mgpu::rendezvous::Outcome::failed);
    CHECK(end.cause == "gpu_oom");
    CHECK(end.rank == failed_attempt().first_failure->rank);
    CHECK(end.status == 3);
    CHECK(end.lasted == 1'500'000'000);
    CHECK(attempt_from_json(end.details).cause.text == "GPU out of memory");
  }
}
