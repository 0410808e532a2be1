#include "launcher/event_loop/journal.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "rendezvous/contract.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using mgpu::tests::TempDir;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A journal on the node host-a, and the lines that it prints.
struct Record {
  Options options;
  JobPlan plan;
  std::vector<std::string> lines;
  Journal journal;

  explicit Record(Options job = {}, bool multi_node = false)
      : options(with_target(std::move(job))),
        plan(make_plan(multi_node)),
        journal(
            options, plan, "host-a", [this](auto line) { lines.emplace_back(line); },
            [](const auto& path, const auto& text, const auto& failed) {
              std::ofstream out(path, std::ios::binary);
              out << text << '\n';
              if (!out.flush()) failed(errno);
            }) {}

  static Options with_target(Options options) {
    options.target = "train.py";
    options.max_restarts = 2;
    return options;
  }
  static JobPlan make_plan(bool multi_node) {
    JobPlan plan;
    plan.placement = {.nproc = 2, .world_size = 2};
    if (multi_node) plan.rendezvous_plan.emplace();
    return plan;
  }

  // An attempt in which local rank 1 fails after 1.5 s.
  void failed_attempt(int number, Cause::Kind kind = Cause::Kind::exit_status) {
    journal.attempt_started(number);
    journal.rank_exited({.local_rank = 1, .pid = 11, .report = {.code = 3}},
                        journal.attempt_began() + 1500ms);
    journal.attempt().first_failure = journal.attempt().ranks.back();
    journal.attempt().cause = {kind, "it broke", ""};
  }
};

// Sets the variable that names the error file of another launcher.
struct OuterErrorFile {
  explicit OuterErrorFile(const std::string& path) {
    ::setenv(mgpu::rendezvous::variable::kErrorFile, path.c_str(), 1);
  }
  ~OuterErrorFile() { ::unsetenv(mgpu::rendezvous::variable::kErrorFile); }
};

}  // namespace

TEST_CASE("notes are not printed with --quiet", "[journal]") {
  Options options;
  SECTION("without it they are") {
    Record record(options);
    record.journal.note("rank 1 was suspended");
    CHECK(record.lines == std::vector<std::string>{"mgpu-run: rank 1 was suspended"});
  }
  SECTION("the failure report is printed in any case") {
    options.quiet = true;
    Record record(options);
    record.journal.note("rank 1 was suspended");
    CHECK(record.lines.empty());
    record.failed_attempt(0);
    record.journal.finish(3, {});
    REQUIRE(record.lines.size() == 1);
    CHECK(record.lines[0].find("train.py failed after") != std::string::npos);
  }
}

TEST_CASE("a rank's exit is recorded with its place in the job", "[journal]") {
  const bool multi_node = GENERATE(false, true);
  Record record({}, multi_node);
  record.plan.placement = {.nproc = 2, .node_rank = 3, .nodes = 4, .base_rank = 6, .world_size = 8};
  record.failed_attempt(0);
  const RankResult& result = record.journal.attempt().ranks.at(0);
  CHECK(result.rank == 7);
  CHECK(result.local_rank == 1);
  CHECK(result.node_rank == 3);
  CHECK(result.after_start == 1500ms);
  CHECK(result.host == (multi_node ? "host-a" : ""));
}

TEST_CASE("the failed attempts have their causes and durations", "[journal]") {
  Record record;
  CHECK(record.journal.failed_attempts().empty());
  record.failed_attempt(0, Cause::Kind::gpu_oom);
  record.failed_attempt(1);
  record.journal.attempt_started(2);
  const auto failed = record.journal.failed_attempts();
  REQUIRE(failed.size() == 2);
  CHECK(failed[0].cause == Cause::Kind::gpu_oom);
  CHECK(failed[0].lasted == 1500ms);
  CHECK(failed[1].cause == Cause::Kind::exit_status);
}

TEST_CASE("a job that succeeds prints nothing and writes its report", "[journal]") {
  const TempDir dir;
  Options options;
  options.report = dir.path("report.json");
  Record record(options);
  record.journal.attempt_started(0);
  record.journal.finish(0, {});
  CHECK(record.lines.empty());
  CHECK(record.journal.status() == 0);
  const auto report = nlohmann::json::parse(text_of(options.report));
  CHECK(report["exit_status"] == 0);
  CHECK(report["host"] == "host-a");
  CHECK(report["stop_signal"].is_null());
}

TEST_CASE("a report that cannot be written is a note", "[journal]") {
  Options options;
  options.report = "/nonexistent/report.json";
  Record record(options);
  record.journal.attempt_started(0);
  record.journal.finish(0, {});
  REQUIRE(record.lines.size() == 1);
  CHECK(
      record.lines[0].starts_with("mgpu-run: cannot write the report /nonexistent/report.json: "));
}

TEST_CASE("under another launcher the first failure is written into its error file", "[journal]") {
  const TempDir dir;
  const auto path = dir.path("outer.json");
  const OuterErrorFile outer(path);
  Record record;

  SECTION("with the cause and the exit status") {
    record.failed_attempt(0);
    record.journal.finish(3, {});
    const auto error = read_error_file(path);
    REQUIRE(error);
    CHECK(error->message == "it broke");
    CHECK(error->error_code == 3);
    CHECK(error->timestamp > 0);
  }
  SECTION("with the rank's own error file") {
    record.failed_attempt(0);
    record.journal.attempt().error_file =
        ErrorFile{.message = "ValueError: boom", .callstack = "", .timestamp = 7, .error_code = {}};
    record.journal.finish(3, {});
    CHECK(read_error_file(path)->message == "ValueError: boom");
    CHECK(read_error_file(path)->timestamp == 7);
  }
  SECTION("not if a signal stopped the job") {
    record.journal.attempt_started(0);
    record.journal.finish(128 + SIGTERM, SIGTERM);
    CHECK_FALSE(std::filesystem::exists(path));
  }
}

TEST_CASE("the leader's node prints the result over all nodes", "[journal]") {
  const TempDir dir;
  Options options;
  options.report = dir.path("report.json");
  Record record(options, true);
  record.plan.placement.node_rank = 1;
  record.journal.round_started();
  record.journal.attempt_started(0);

  Record everything({}, true);
  everything.failed_attempt(4);
  JobResult whole{.target = "whole.py", .host = "host-a", .node_rank = 7, .status = 3};
  whole.attempts.push_back(everything.journal.attempt());

  SECTION("with its own node rank") {
    record.journal.finish_in_cluster(3, {}, &whole);
    REQUIRE(record.lines.size() == 1);
    CHECK(record.lines[0].find("whole.py failed after") != std::string::npos);
    const auto report = nlohmann::json::parse(text_of(options.report));
    CHECK(report["node_rank"] == 1);
    CHECK(report["attempts"][0]["attempt"] == 4);
  }
  SECTION("with the nodes that were replaced, and why") {
    whole.attempts.back().node_change = "host-b is replaced by host-c";
    record.journal.finish_in_cluster(3, {}, &whole);
    CHECK(record.lines[0].ends_with("\n  after attempt 5: host-b is replaced by host-c"));
    const auto report = nlohmann::json::parse(text_of(options.report));
    CHECK(report["attempts"][0]["node_change"] == "host-b is replaced by host-c");
  }
  SECTION("but its own result if the job ended in another way for it") {
    record.journal.finish_in_cluster(128 + SIGTERM, SIGTERM, &whole);
    REQUIRE(record.lines.size() == 1);
    CHECK(record.lines[0].find("train.py was stopped by SIGTERM") != std::string::npos);
  }
}

TEST_CASE("the other nodes print where the failure report is", "[journal]") {
  Record record({}, true);
  record.failed_attempt(0);
  record.journal.set_remark("rank 5 failed; see the output on host-b");
  record.journal.finish_in_cluster(3, {}, nullptr);
  CHECK(record.lines ==
        std::vector<std::string>{"mgpu-run: rank 5 failed; see the output on host-b"});
}

TEST_CASE("a node that never took part in a round prints why the job ended", "[journal]") {
  Record record({}, true);
  record.journal.finish_in_cluster(128 + SIGINT, SIGINT, nullptr);
  REQUIRE(record.lines.size() == 1);
  CHECK(record.lines[0].find("train.py was stopped by SIGINT") != std::string::npos);
}

TEST_CASE("a scheduler's job that is stopped was preempted, except by ^C", "[journal]") {
  const TempDir dir;
  Options options;
  options.report = dir.path("report.json");
  options.scheduler.kind = SchedulerJob::Kind::slurm;
  options.scheduler.job_id = "42";
  Record record(options);
  record.journal.attempt_started(0);
  SECTION("by SIGTERM") {
    record.journal.finish(143, SIGTERM);
    REQUIRE(record.lines.size() == 1);
    CHECK(
        record.lines[0].ends_with("(exit status 143); Slurm job 42 was cancelled or preempted, or "
                                  "has reached its time limit"));
    CHECK(nlohmann::json::parse(text_of(options.report))["stop_kind"] == "preempted");
  }
  SECTION("by SIGINT") {
    record.journal.finish(130, SIGINT);
    CHECK(record.lines.at(0).ends_with("(exit status 130)"));
    CHECK(nlohmann::json::parse(text_of(options.report))["stop_kind"] == "killed");
  }
}

TEST_CASE("a replaced rank counts as a restart and stays in the report", "[journal]") {
  Record record;
  record.journal.attempt_started(0);
  record.journal.rank_exited({.local_rank = 1, .pid = 11, .report = {.signal = SIGKILL}},
                             record.journal.attempt_began() + 1500ms);
  record.journal.rank_replaced(1, 40, {.kind = Cause::Kind::signal, .text = "killed"});
  CHECK(record.lines.back() ==
        "mgpu-run: rank 1 (pid 11) was killed by SIGKILL (signal 9); starting a new process in its "
        "place (counts as restart 1 of 2)");
  const auto failures = record.journal.failed_attempts();
  REQUIRE(failures.size() == 1);
  CHECK(failures.front().cause == Cause::Kind::signal);
  CHECK(failures.front().lasted == 1500ms);
  CHECK(failures.front().last_step == 40);
  record.journal.rank_exited({.local_rank = 1, .pid = 12}, record.journal.attempt_began() + 3s);
  const auto report = nlohmann::json::parse(report_json(record.journal.job()));
  CHECK(report["attempts"][0]["ranks"][0]["replaced"] == true);
  CHECK(report["attempts"][0]["ranks"][0]["cause"]["kind"] == "signal");
  CHECK_FALSE(report["attempts"][0]["ranks"][1].contains("replaced"));
}
