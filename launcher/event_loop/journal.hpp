#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/report.hpp"
#include "launcher/lifecycle/restart_policy.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/job_plan.hpp"
#include "launcher/ranks/worker.hpp"

namespace mgpu::launcher {

// The record of a job on this node: prints notes while it runs, and its failure report when it has
// ended; writes the --report file and, under another launcher, that launcher's error file.
class Journal {
 public:
  using Print = std::function<void(std::string_view line)>;
  // Writes a file; then, if that failed, calls `failed` with the reason.
  using Failed = std::function<void(int error)>;
  using Write = std::function<void(const std::string& path, std::string text, Failed failed)>;

  // `host` is this node's name. The job begins now. The plan's placement may change while the job
  // runs.
  Journal(const Options& options, const JobPlan& plan, std::string host, Print print, Write write);

  // Prints one line; nothing with --quiet.
  void note(std::string_view line);

  // In a multi-node job: a round with the placement in the plan starts.
  void round_started();
  void attempt_started(int number);
  // Adds a rank of this node to the current attempt; the journal fills in its global rank, its node
  // and the time since the attempt's start.
  void rank_exited(RankResult result, Clock::time_point when);
  // A new process takes the place of the rank that has exited. `last_step` is the last one that any
  // rank has reported; -1: none.
  void rank_replaced(int local_rank, std::int64_t last_step, Cause cause);
  void set_remark(const std::string& why) { job_.remark = why; }

  // The job has ended. In a multi-node job `whole` is the result over all nodes; null if the leader
  // is on another node.
  void finish(int status, Signal stop_signal);
  void finish_in_cluster(int status, Signal stop_signal, const JobResult* whole);

  // The current attempt; there must be one.
  AttemptResult& attempt() { return job_.attempts.back(); }
  Clock::time_point attempt_began() const { return attempt_began_; }
  Milliseconds since_attempt() const;
  // What counts as a restart so far: the attempts whose first failure is known, and the ranks that
  // were replaced, in order.
  std::vector<FailedAttempt> failed_attempts() const;
  const std::string& host() const { return job_.host; }
  int status() const { return job_.status; }
  const JobResult& job() const { return job_; }

 private:
  void end_job(int status, Signal stop_signal);
  void write_error_file();
  void write_report();
  void write(const std::string& path, std::string text, const std::string& what);

  const Options& options_;
  const JobPlan& plan_;
  Print print_;
  Write write_;
  JobResult job_;
  Clock::time_point job_began_, attempt_began_;
};

}  // namespace mgpu::launcher
