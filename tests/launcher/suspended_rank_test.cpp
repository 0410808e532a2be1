#include "launcher/lifecycle/suspended_rank.hpp"

#include <csignal>

#include "launcher/event_loop/cluster_session.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;

namespace {

// Rank 0 gave up on host-a while rank 5 was suspended on host-b.
AttemptResult attempt(const std::string& text) {
  const RankResult gave_up{
      .rank = 0, .report = {.code = 3}, .after_start = 2s, .node_rank = 0, .host = "host-a"};
  const RankResult suspended{.rank = 5,
                             .local_rank = 1,
                             .report = {.signal = SIGKILL},
                             .ended_by_us = true,
                             .after_start = 32s,
                             .node_rank = 1,
                             .host = "host-b",
                             .suspended = true};
  return {.ranks = {gave_up, suspended},
          .first_failure = gave_up,
          .cause = {Cause::Kind::exit_status, text, {}},
          .root_rank = 0};
}

}  // namespace

TEST_CASE("a rank that is suspended on another node is the cause of a time-out", "[causes]") {
  auto result = attempt("exited with status 3: Timed out waiting 4000ms for recv operation");
  blame_suspended(result);
  REQUIRE(result.first_failure);
  CHECK(result.first_failure->rank == 5);
  CHECK(result.first_failure->node_rank == 1);
  CHECK(result.root_rank == 5);
  CHECK(result.cause.kind == Cause::Kind::hang);
  CHECK(result.cause.text ==
        "hang: rank 5 on host-b was suspended by a signal or a debugger; rank 0 timed out waiting "
        "for it: "
        "exited with status 3: Timed out waiting 4000ms for recv operation");
  const auto once = result.cause.text;
  blame_suspended(result);
  CHECK(result.cause.text == once);
}

TEST_CASE("a hang that another node reports first is that of the suspended rank", "[causes]") {
  auto result = attempt(
      "hang: no rank made progress for 300 s (limit 300 s, learned from earlier "
      "steps); no rank stands out");
  result.cause.kind = Cause::Kind::hang;
  blame_suspended(result);
  CHECK(result.first_failure->rank == 5);
  CHECK_THAT(result.cause.text, Catch::Matchers::StartsWith(
                                    "hang: rank 5 on host-b was suspended by a signal or a "
                                    "debugger; rank 0 waited for it: hang: no rank made progress"));
}

TEST_CASE("the hang of a suspended rank stays its own when other ranks are suspended too",
          "[causes]") {
  auto result = attempt(
      "hang: no rank made progress for 10 s (limit 10 s, from --hang-timeout); "
      "rank 0 is suspended by a signal or a debugger");
  result.cause.kind = Cause::Kind::hang;
  result.first_failure->suspended = result.ranks.front().suspended = true;
  blame_suspended(result);
  CHECK(result.first_failure->rank == 0);
  CHECK_FALSE(node_ended(4, result, true).waited);
}

TEST_CASE("the leader learns which rank was suspended and whether a failure may follow from that",
          "[causes]") {
  auto waiting = attempt("exited with status 3: Timed out");
  CHECK(node_ended(4, waiting, false).waited);
  CHECK(node_ended(4, waiting, false).suspended == 5);
  auto other = attempt("ValueError: boom");
  other.ranks.pop_back();
  CHECK_FALSE(node_ended(4, other, false).waited);
  CHECK(node_ended(4, other, false).suspended == -1);
}

TEST_CASE("a rank that is suspended on another node does not explain another failure", "[causes]") {
  auto result = attempt("ValueError: boom");
  blame_suspended(result);
  CHECK(result.first_failure->rank == 0);
  CHECK(result.cause.kind == Cause::Kind::exit_status);
}

TEST_CASE("the rank that timed out gives status and time of its node's failure", "[causes]") {
  auto result = attempt("exited with status 3: Timed out");
  CHECK(first_to_exit(result).rank == 0);
  blame_suspended(result);
  CHECK(first_to_exit(result).rank == 0);
  const auto end = node_ended(4, result, true);
  CHECK(end.rank == 5);
  CHECK(end.status == 3);
  CHECK(end.lasted == 2'000'000'000);
}
