#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/lifecycle/diagnosis.hpp"

namespace mgpu::launcher {

// How one rank of an attempt exited.
struct RankResult {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;  // 0: never started
  ExitReport report;
  bool ended_by_us = false;  // it exited after mgpu-run stopped it
  std::chrono::microseconds after_start{0};
  int node_rank = 0;
  std::string host;                  // empty: the job has one node
  std::uint64_t peak_bytes = 0;      // largest resident size of its process; 0: unknown
  std::chrono::seconds cpu_time{0};  // (see WorkerExit)
  // A new process took its place after this step, -1: after none that was reported. Empty: none
  // did.
  std::optional<std::int64_t> replaced_after = {};
  Cause replaced_because = {};  // if it was replaced
  bool suspended = false;       // when another rank or node failed, a signal had suspended it
};

struct AttemptResult {
  int number = 0;
  std::string started_at;         // local time, for display
  std::vector<RankResult> ranks;  // in the order in which they were seen; the first failure is the
                                  // first that is neither clean nor caused by mgpu-run
  std::optional<RankResult> first_failure;
  Cause cause;
  std::optional<ErrorFile> error_file;
  std::string stderr_tail;
  std::string log_dir;  // of the first failure, empty: none
  // In a multi-node job: which node was replaced or excluded after this attempt, and why; empty:
  // none.
  std::string node_change;
  std::int64_t last_step = -1;  // that a rank reported; -1: none
  // That has the cause; the first failure can be a consequence of its failure. -1: unknown.
  int root_rank = -1;
  std::string policy = {};  // the name of the one that applied to the failure; empty: none
  std::string evidence;     // the folder with the evidence of a hang; empty: none
};

struct JobResult {
  std::string target;
  std::string host;
  std::string run_id;
  int node_rank = 0;
  int status = 0;
  Signal stop_signal;         // that stopped mgpu-run
  std::string scheduler_job;  // such as "Slurm job 42"; empty: there is no scheduler
  int max_restarts = 0;
  bool renewed_by_progress = false;  // see RestartLimits
  int nodes = 1;
  std::string remark;  // why there was no further restart, may be empty
  std::chrono::microseconds lasted{0};
  std::vector<AttemptResult> attempts;  // the failed ones and the last
};

// The result that a node sends to the leader for its part of an attempt. attempt_from_json ignores
// fields that are missing or not valid, because the text comes from another process.
std::string attempt_to_json(const AttemptResult& attempt);
AttemptResult attempt_from_json(const std::string& text);

// One line: why the ranks are restarted. `counted` is the one of the decision.
std::string restart_line(const AttemptResult& attempt, const JobResult& job, int counted);

// One line: which rank is replaced, and why. `counted` is how many restarts were used, with this.
std::string replacement_line(const RankResult& exited, int counted, const JobResult& job);

// The failure report that is printed when the job did not succeed. Several lines, without a newline
// at the end.
std::string failure_report(const JobResult& job);

// The result of the job as one JSON object.
std::string report_json(const JobResult& job);

}  // namespace mgpu::launcher
