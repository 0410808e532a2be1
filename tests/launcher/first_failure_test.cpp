#include "launcher/event_loop/first_failure.hpp"

#include <cerrno>
#include <csignal>

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

namespace {

const std::string kTraceback =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 3, in <module>\n"
    "    raise ValueError(\"boom\")\n"
    "ValueError: boom\n";

// Two ranks; the second failed first.
AttemptResult attempt(const ExitReport& report = {.code = 1}) {
  AttemptResult attempt;
  attempt.ranks.push_back({.rank = 5, .local_rank = 1, .pid = 11, .report = report});
  attempt.ranks.back().peak_bytes = 3 << 20;
  attempt.ranks.push_back({.rank = 4, .local_rank = 0, .pid = 10, .ended_by_us = true});
  return attempt;
}

}  // namespace

TEST_CASE("the first failure is found by its local rank", "[causes]") {
  AttemptResult result = attempt({.code = 3});
  describe_first_failure(result, 1, {.stderr_tail = "bad input\n"});
  REQUIRE(result.first_failure);
  CHECK(result.first_failure->rank == 5);
  CHECK(result.first_failure->pid == 11);
  CHECK(result.cause.kind == Cause::Kind::exit_status);
  CHECK(result.cause.text == "exited with status 3: bad input");
  CHECK(result.stderr_tail == "bad input\n");
}

TEST_CASE("an attempt that mgpu-run could not start fails for that reason", "[causes]") {
  AttemptResult result = attempt({.code = 1, .exec_error = ECANCELED});
  describe_first_failure(result, 1,
                         {.start_problem = "cannot listen on 127.0.0.1:0: Too many open files"});
  CHECK(result.cause.kind == Cause::Kind::exec_failure);
  CHECK(result.cause.text == "cannot listen on 127.0.0.1:0: Too many open files");
}

TEST_CASE("a rank that timed out waiting for a suspended one is not the cause", "[causes]") {
  const auto suspended = GENERATE(true, false);
  AttemptResult result = attempt({.code = 1});
  result.ranks.back().suspended = suspended;
  describe_first_failure(result, 1,
                         {.stderr_tail = "mgpu-train: all-reduce did not finish within 3 s\n"});
  CHECK(result.first_failure->rank == (suspended ? 4 : 5));
  CHECK(result.cause.kind == (suspended ? Cause::Kind::hang : Cause::Kind::exit_status));
  if (suspended)
    CHECK(result.cause.text ==
          "hang: rank 4 was suspended by a signal or a debugger; rank 5 timed out waiting for it: "
          "exited with status 1: mgpu-train: all-reduce did not finish within 3 s");
}

TEST_CASE("a failure of another kind is not blamed on a suspended rank", "[causes]") {
  AttemptResult result = attempt({.code = 1});
  result.ranks.back().suspended = true;
  describe_first_failure(result, 1, {.stderr_tail = kTraceback});
  CHECK(result.first_failure->rank == 5);
  CHECK(result.cause.kind == Cause::Kind::python_exception);
}

TEST_CASE("the cause of an attempt that hung is the hang", "[causes]") {
  AttemptResult result = attempt({.signal = SIGKILL});
  describe_first_failure(result, 1, {.hang = Hang{.rank = 5, .like = {5}}});
  CHECK(result.first_failure->rank == 5);
  CHECK(result.cause.kind == Cause::Kind::hang);
}

TEST_CASE("the memory that a killed rank used is part of the cause", "[causes]") {
  AttemptResult result = attempt({.signal = SIGKILL});
  describe_first_failure(result, 1, {.memory = {.oom_kills = 1}});
  CHECK(result.cause.kind == Cause::Kind::host_oom);
  CHECK(result.cause.text.find("this rank used up to 3.0 MiB") != std::string::npos);
}

TEST_CASE("an exception on stderr becomes the error file that the rank did not write", "[causes]") {
  AttemptResult result = attempt();
  FailureTraces traces{.log_dir = "logs/0",
                       .error_file = {},
                       .stderr_tail = kTraceback,
                       .memory = {},
                       .python = true};

  SECTION("for a Python program") {
    CHECK(describe_first_failure(result, 1, traces));
    REQUIRE(result.error_file);
    CHECK(result.error_file->message == "ValueError: boom");
    CHECK(result.error_file->timestamp > 0);
    CHECK(parse_error_file(to_json(*result.error_file)) == result.error_file);
    CHECK(result.log_dir == "logs/0");
  }
  SECTION("not for another program") {
    traces.python = false;
    CHECK_FALSE(describe_first_failure(result, 1, traces));
    CHECK_FALSE(result.error_file);
  }
  SECTION("not if the rank wrote one") {
    const ErrorFile written{
        .message = "KeyError: 'x'", .callstack = "", .timestamp = 7, .error_code = {}};
    traces.error_file = written;
    CHECK_FALSE(describe_first_failure(result, 1, traces));
    REQUIRE(result.error_file);
    CHECK(result.error_file->message == "KeyError: 'x'");
    CHECK(result.cause.text == "KeyError: 'x'");
    CHECK(result.error_file->timestamp == 7);
  }
  SECTION("not without a log folder") {
    traces.log_dir.clear();
    CHECK_FALSE(describe_first_failure(result, 1, traces));
    CHECK_FALSE(result.error_file);
    CHECK(result.cause.text == "ValueError: boom");
  }
}

TEST_CASE("a rank whose connection broke is not the cause if another one has one", "[causes]") {
  const std::string closed =
      kTraceback.substr(0, kTraceback.rfind("ValueError")) +
      "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4244\n";
  std::string other = kTraceback;  // of local rank 0, which mgpu-run stopped while it was exiting
  AttemptResult result = attempt();
  result.ranks.back().report = {.signal = SIGTERM};
  const auto stderr_of = [&](int rank) { return rank == 1 ? closed : other; };

  CHECK(rank_with_cause(result, 1, stderr_of) == 0);
  describe_first_failure(result, 1, {.log_dir = "logs/0", .stderr_tail = other, .local_rank = 0});
  REQUIRE(result.first_failure);
  CHECK(result.first_failure->rank == 5);
  CHECK(result.root_rank == 4);
  CHECK(result.cause.kind == Cause::Kind::python_exception);
  CHECK(result.cause.text == "a consequence of rank 4: ValueError: boom");
  CHECK(result.log_dir == "logs/0");

  SECTION("not one that was only stopped") {
    other = GENERATE("", "saving a checkpoint\n");
    CHECK(rank_with_cause(result, 1, stderr_of) == 1);
  }
  SECTION("a rank that died by itself comes before one that was stopped") {
    result.ranks.push_back({.rank = 6, .local_rank = 2, .pid = 12, .report = {.signal = SIGSEGV}});
    const auto texts = [&](int rank) { return rank == 2 ? std::string() : stderr_of(rank); };
    CHECK(rank_with_cause(result, 1, texts) == 2);
  }
  SECTION("and a first failure with a cause of its own is the cause") {
    CHECK(rank_with_cause(result, 0, stderr_of) == 0);
    CHECK(rank_with_cause(result, 1, [&](int) { return other; }) == 1);
  }
}

TEST_CASE("a rank that was replaced and fails again is judged by its last process", "[causes]") {
  AttemptResult result = attempt({.code = 3});
  auto replaced = result.ranks.front();
  replaced.report = {.signal = SIGKILL};
  replaced.pid = 9;
  replaced.replaced_after = 7;
  result.ranks.insert(result.ranks.begin(), replaced);
  const auto nothing = [](int) { return std::string(); };
  CHECK(rank_with_cause(result, 1, nothing) == 1);
  describe_first_failure(result, 1, {});
  CHECK(result.first_failure->pid == 11);
  CHECK(result.cause.kind == Cause::Kind::exit_status);
  SECTION("a new process that came too late is a hang") {
    describe_first_failure(result, 1, {.late_replacement = "not ready"});
    CHECK(result.cause.kind == Cause::Kind::hang);
    CHECK(result.cause.text == "not ready");
  }
}
