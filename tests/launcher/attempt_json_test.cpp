#include "launcher/lifecycle/report.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

AttemptResult example() {
  const RankResult failed{.rank = 5,
                          .local_rank = 1,
                          .pid = 4711,
                          .report = {.code = 0, .signal = SIGSEGV, .core_dumped = true},
                          .after_start = 1234567us,
                          .node_rank = 2,
                          .host = "gpu-2"};
  const RankResult ours{
      .rank = 4, .report = {.exec_error = 2}, .ended_by_us = true, .suspended = true};
  return {.number = 3,
          .started_at = "2026-01-02 03:04:05",
          .ranks = {failed, ours},
          .first_failure = failed,
          .cause = {Cause::Kind::gpu_oom, "the GPU's memory ran out", "use less"},
          .error_file = ErrorFile{.message = "boom", .callstack = "Traceback", .timestamp = 9},
          .stderr_tail = "last\nwords\n",
          .log_dir = "/logs/2",
          .evidence = "/logs/hang"};
}

}  // namespace

TEST_CASE("the result of an attempt reaches the leader unchanged", "[report]") {
  const AttemptResult sent = example();
  const AttemptResult read = attempt_from_json(attempt_to_json(sent));
  CHECK(attempt_to_json(read) == attempt_to_json(sent));
  CHECK(read.number == 3);
  CHECK(read.started_at == sent.started_at);
  REQUIRE(read.ranks.size() == 2);
  CHECK(read.ranks[0].rank == 5);
  CHECK(read.ranks[0].local_rank == 1);
  CHECK(read.ranks[0].pid == 4711);
  CHECK(read.ranks[0].report == sent.ranks[0].report);
  CHECK(read.ranks[0].after_start == 1234567us);
  CHECK(read.ranks[0].node_rank == 2);
  CHECK(read.ranks[0].host == "gpu-2");
  CHECK(read.ranks[1].report.exec_error == 2);
  CHECK(read.ranks[1].ended_by_us);
  CHECK(read.ranks[1].suspended);
  REQUIRE(read.first_failure);
  CHECK(read.first_failure->rank == 5);
  CHECK(read.cause.kind == Cause::Kind::gpu_oom);
  CHECK(read.cause.text == sent.cause.text);
  CHECK(read.cause.advice == sent.cause.advice);
  CHECK(read.error_file == sent.error_file);
  CHECK(read.stderr_tail == sent.stderr_tail);
  CHECK(read.log_dir == sent.log_dir);
  CHECK(read.evidence == "/logs/hang");

  CHECK_FALSE(attempt_from_json(attempt_to_json({})).first_failure);
  CHECK_FALSE(attempt_from_json(attempt_to_json({})).error_file);
}

TEST_CASE("only the end of a long stderr is sent", "[report]") {
  AttemptResult attempt;
  attempt.stderr_tail = std::string(1 << 20, 'x') + "the end\xff";
  const auto read = attempt_from_json(attempt_to_json(attempt));
  CHECK(read.stderr_tail.size() < 40'000);
  CHECK_THAT(read.stderr_tail, Contains("xthe end"));
}

TEST_CASE("text that is no attempt is read as an empty attempt", "[report]") {
  const auto* text = GENERATE("", "x", "[]", "null", "3", "{", "{}", "[[[[",
                              R"({"ranks": 3, "first": 4, "number": "x", "kind": 5})",
                              R"({"ranks": {"a": 1}, "error_file": "no json", "kind": "gpu"})");
  CAPTURE(text);
  const auto read = attempt_from_json(text);
  CHECK(read.ranks.empty());
  CHECK(read.number == 0);
  CHECK(read.cause.kind == Cause::Kind::none);
  CHECK_FALSE(read.error_file);
}

TEST_CASE("invalid fields of a rank are read as zero", "[report]") {
  const auto read = attempt_from_json(
      R"({"ranks": [1, "x", [], null, {"rank": 4294967296, "local_rank": -3000000000,
          "pid": 1e5, "after": 18446744073709551615, "host": 5, "core": 1}]})");
  REQUIRE(read.ranks.size() == 5);
  for (const auto& rank : read.ranks) {
    CHECK(rank.rank == 0);
    CHECK(rank.local_rank == 0);
    CHECK(rank.pid == 0);
    CHECK(rank.after_start == 0us);
    CHECK(rank.host.empty());
    CHECK_FALSE(rank.report.core_dumped);
  }
}

TEST_CASE("at most 4096 ranks of a node are read", "[report]") {
  std::string text = R"({"ranks": [)";
  for (int i = 0; i < 100'000; ++i) text += "{},";
  text += "{}]}";
  CHECK(attempt_from_json(text).ranks.size() == 4096);
}

TEST_CASE("any report of a node can be described", "[report]") {
  JobResult end{.target = "x", .host = "h", .status = 1, .nodes = 2};
  end.attempts.push_back(attempt_from_json(
      R"({"first": {"rank": -2147483648, "signo": 2147483647, "code": -5, "exec_error": 99999,
          "after": 9223372036854775807, "host": ""}, "kind": "signal",
          "ranks": [{"signo": -1, "after": -9223372036854775808}]})"));
  CHECK_FALSE(failure_report(end).empty());
  CHECK_FALSE(report_json(end).empty());
  CHECK_FALSE(restart_line(end.attempts[0], end, 3).empty());
}
